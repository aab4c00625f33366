//! A profile of virtual time: a tree of the spans that the allocator and owners mark.

use frameyard::platform::Activity;

use crate::account::{Account, Share, Slot, Spent};
use crate::time::Picos;

/// A stack of spans: an index into the tree. 0 is the empty stack.
pub(crate) type StackId = u32;

/// A span within a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stack {
    outer: StackId,
    span: Option<Activity>,
    /// The stacks with one further span; 0 if there is none yet.
    inner: [StackId; Activity::ALL.len()],
}

impl Stack {
    const OUTSIDE: Self = Self { outer: 0, span: None, inner: [0; Activity::ALL.len()] };
}

/// Virtual time by the stack of spans and by its use. Every picosecond of every CPU is in exactly one place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    stacks: Vec<Stack>,
    /// Shares by stack, then by slot.
    shares: Vec<Share>,
    slots: usize,
    costs: Vec<&'static str>,
}

impl Profile {
    pub(crate) fn new(costs: Vec<&'static str>) -> Self {
        let slots = Account::slots(costs.len());
        Self { stacks: vec![Stack::OUTSIDE], shares: vec![Share::default(); slots], slots, costs }
    }

    /// The names of all costs, the machine's before the workload's.
    pub(crate) fn costs(&self) -> &[&'static str] {
        &self.costs
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.shares.capacity() * size_of::<Share>() + self.stacks.capacity() * size_of::<Stack>()
    }

    pub(crate) fn add(&mut self, stack: StackId, slot: Slot, time: Picos) {
        self.add_at(self.shares_of(stack), slot, time);
    }

    /// The index of a stack's first share.
    #[inline(always)]
    pub(crate) fn shares_of(&self, stack: StackId) -> usize {
        stack as usize * self.slots
    }

    /// [`add`](Self::add) with the index of the stack's first share.
    #[inline(always)]
    pub(crate) fn add_at(&mut self, shares: usize, slot: Slot, time: Picos) {
        let share = &mut self.shares[shares + slot.0];
        share.time += time;
        share.count += 1;
    }

    /// The stack with one further span.
    #[inline(always)]
    pub(crate) fn enter(&mut self, outer: StackId, span: Activity) -> StackId {
        match self.stacks[outer as usize].inner[span as usize] {
            0 => self.grow(outer, span),
            inner => inner,
        }
    }

    #[cold]
    fn grow(&mut self, outer: StackId, span: Activity) -> StackId {
        let inner = self.stacks.len() as StackId;
        self.stacks.push(Stack { outer, span: Some(span), ..Stack::OUTSIDE });
        self.stacks[outer as usize].inner[span as usize] = inner;
        self.shares.resize(self.shares.len() + self.slots, Share::default());
        inner
    }

    /// The stack without its innermost span.
    #[inline(always)]
    pub(crate) fn leave(&self, stack: StackId, span: Activity) -> StackId {
        let Stack { outer, span: innermost, .. } = self.stacks[stack as usize];
        assert!(innermost == Some(span), "{span} ends, but {innermost:?} began last");
        outer
    }

    /// The sum over all stacks.
    #[must_use]
    pub fn account(&self) -> Account {
        let mut sum = Account::new(self.costs.len());
        self.shares.chunks(self.slots).for_each(|shares| sum.merge(shares));
        sum
    }

    /// The difference to an earlier profile of the same machine.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (share, then) in since.shares.iter_mut().zip(&earlier.shares) {
            *share = Share { time: share.time - then.time, count: share.count - then.count };
        }
        since
    }

    /// The time of one use within any of these spans, at any depth.
    #[must_use]
    pub fn within(&self, spans: &[Activity], spent: Spent) -> Share {
        let is_within = |stack: usize| {
            self.path(stack as StackId).split(';').any(|name| spans.iter().any(|span| span.name() == name))
        };
        let shares = self.shares.chunks(self.slots).enumerate().filter(|(stack, _)| is_within(*stack));
        let shares = shares.map(|(_, shares)| shares[spent.slot().0]);
        shares
            .fold(Share::default(), |sum, share| Share { time: sum.time + share.time, count: sum.count + share.count })
    }

    /// Lines for flame-graph tools, in alphabetical order: the spans from the outermost on and the use of time,
    /// joined by semicolons, and the duration. They add up to the total of the [account](Self::account).
    #[must_use]
    pub fn folded(&self) -> Vec<(String, Picos)> {
        let leaves = Spent::all(&self.costs);
        let mut lines = Vec::new();
        for (stack, shares) in self.shares.chunks(self.slots).enumerate() {
            let path = self.path(stack as StackId);
            let spent = leaves.iter().map(|(name, spent)| (name, shares[spent.slot().0].time));
            let spent = spent.filter(|(_, time)| *time > Picos(0));
            lines.extend(spent.map(|(name, time)| (format!("{path}{name}"), time)));
        }
        lines.sort_unstable();
        lines
    }

    /// The spans of a stack, each followed by a semicolon.
    fn path(&self, stack: StackId) -> String {
        let Stack { outer, span, .. } = self.stacks[stack as usize];
        span.map_or(String::new(), |span| format!("{}{span};", self.path(outer)))
    }
}

#[cfg(test)]
mod tests {
    use frameyard::platform::LockKind;

    use super::*;
    use crate::account::CostId;

    #[test]
    fn folded_lines_list_spans_outermost_first_and_add_up() {
        let mut profile = Profile::new(vec!["thinking"]);
        let fault = profile.enter(0, Activity::Fault);
        let refill = profile.enter(fault, Activity::Refill);
        assert_eq!(profile.enter(fault, Activity::Refill), refill);
        let alone = profile.enter(0, Activity::Refill);
        assert_ne!(alone, refill);
        let (waiting, thinking) = (Spent::Waiting(LockKind::Zone).slot(), Spent::Cost(CostId::nth(0)).slot());
        profile.add(refill, waiting, Picos(3));
        let early = profile.clone();
        profile.add(refill, waiting, Picos(4));
        profile.add(alone, waiting, Picos(10));
        profile.add(0, thinking, Picos(100));
        assert_eq!((profile.leave(refill, Activity::Refill), profile.leave(fault, Activity::Fault)), (fault, 0));
        let line = |name: &str, time| (name.to_owned(), Picos(time));
        let lines = [line("fault;refill;wait zone", 7), line("refill;wait zone", 10), line("thinking", 100)];
        assert_eq!(profile.folded(), lines);
        assert_eq!(profile.since(&early).folded()[0], line("fault;refill;wait zone", 4));
        assert_eq!(profile.account().total(), Picos(117));
        let waited = |spans: &[Activity]| profile.within(spans, Spent::Waiting(LockKind::Zone));
        assert_eq!(waited(&[Activity::Fault]), Share { time: Picos(7), count: 2 });
        assert_eq!(waited(&[Activity::Fault, Activity::Refill]), Share { time: Picos(17), count: 3 });
        assert_eq!(waited(&[]), Share::default());
    }

    #[test]
    #[should_panic(expected = "fault ends, but Some(Refill) began last")]
    fn overlapping_spans_panic() {
        let mut profile = Profile::new(Vec::new());
        let fault = profile.enter(0, Activity::Fault);
        let refill = profile.enter(fault, Activity::Refill);
        profile.leave(refill, Activity::Fault);
    }
}
