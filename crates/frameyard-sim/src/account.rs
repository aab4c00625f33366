//! Where virtual time went: every picosecond of every CPU stands in exactly one slot.

use frameyard::platform::{LineKind, LockKind};
use frameyard::units::named;

use crate::time::Picos;

/// How an access was served, or what it waited for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Cause {
    /// From the core's private cache.
    PrivateHit,
    /// From the cache that the core's group shares.
    SharedHit,
    /// From the private cache of another core of the group.
    SameGroup,
    /// From another group of the socket.
    SameSocket,
    /// From another socket.
    OtherSocket,
    /// From memory of the CPU's own node.
    LocalMemory,
    /// From memory of another node.
    RemoteMemory,
    /// The core had the line, and others had to give it up before it was written to.
    Upgrade,
    /// The line was on its way to somebody else.
    LineQueue,
    /// The memory channel was busy.
    Bandwidth,
}

named!(Cause: PrivateHit => "private-hit", SharedHit => "shared-hit", SameGroup => "same-group",
    SameSocket => "same-socket", OtherSocket => "other-socket", LocalMemory => "local-memory",
    RemoteMemory => "remote-memory", Upgrade => "upgrade", LineQueue => "line-queue", Bandwidth => "bandwidth");

/// What an access was made to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Accessed {
    /// A page structure.
    Pages,
    /// Another line of shared state.
    Line(LineKind),
    /// The word of a lock.
    Lock(LockKind),
    /// The bytes of a frame.
    Frames,
}

impl Accessed {
    /// How many there are.
    const COUNT: usize = 2 + LineKind::ALL.len() + LockKind::ALL.len();

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let lines = LineKind::ALL.into_iter().map(Self::Line);
        let locks = LockKind::ALL.into_iter().map(Self::Lock);
        [Self::Pages, Self::Frames].into_iter().chain(lines).chain(locks)
    }

    const fn index(self) -> usize {
        match self {
            Self::Pages => 0,
            Self::Frames => 1,
            Self::Line(kind) => 2 + kind as usize,
            Self::Lock(kind) => 2 + LineKind::ALL.len() + kind as usize,
        }
    }

    /// The name used in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Pages => "pages".to_owned(),
            Self::Frames => "frames".to_owned(),
            Self::Line(kind) => kind.name().to_owned(),
            Self::Lock(kind) => format!("{}-lock", kind.name()),
        }
    }
}

/// A named cost of a workload, of those that a machine was told of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CostId(pub(crate) u16);

impl CostId {
    /// The cost at a place of the list that the machine was told of.
    #[must_use]
    pub const fn nth(place: usize) -> Self {
        Self(place as u16)
    }
}

/// What time was spent on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Spent {
    /// An access, by what was accessed and how it was served.
    Access(Accessed, Cause),
    /// Waiting for a lock of a kind.
    Waiting(LockKind),
    /// Waiting for something busy that is no lock.
    Relax,
    /// Nothing: the CPU's task had ended.
    Idle,
    /// A named cost.
    Cost(CostId),
}

const WAITING: usize = Accessed::COUNT * Cause::ALL.len();
const RELAX: usize = WAITING + LockKind::ALL.len();
const IDLE: usize = RELAX + 1;
const COSTS: usize = IDLE + 1;

/// Where a kind of spending is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(pub(crate) usize);

impl Spent {
    /// All that time can be spent on, and the name of each in a profile.
    pub(crate) fn all(costs: &[&'static str]) -> Vec<(String, Self)> {
        let accesses = Accessed::all().flat_map(|accessed| Cause::ALL.map(|cause| Self::Access(accessed, cause)));
        let waits = LockKind::ALL.map(Self::Waiting);
        let costs = (0..costs.len()).map(|at| (costs[at].to_owned(), Self::Cost(CostId::nth(at))));
        let named = accesses.chain(waits).chain([Self::Relax, Self::Idle]).map(|spent| (spent.name(), spent));
        named.chain(costs).collect()
    }

    /// The name in a profile; of a cost, that it is one.
    fn name(self) -> String {
        match self {
            Self::Access(accessed, cause) => format!("{} {cause}", accessed.name()),
            Self::Waiting(kind) => format!("wait {kind}"),
            Self::Relax => "relax".to_owned(),
            Self::Idle => "idle".to_owned(),
            Self::Cost(_) => "cost".to_owned(),
        }
    }

    #[inline(always)]
    pub(crate) const fn slot(self) -> Slot {
        Slot(match self {
            Self::Access(accessed, cause) => accessed.index() * Cause::ALL.len() + cause as usize,
            Self::Waiting(kind) => WAITING + kind as usize,
            Self::Relax => RELAX,
            Self::Idle => IDLE,
            Self::Cost(cost) => COSTS + cost.0 as usize,
        })
    }
}

/// Time, and how often.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Share {
    /// How long.
    pub time: Picos,
    /// How often.
    pub count: u64,
}

/// The account of one CPU, or of all together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    shares: Vec<Share>,
}

impl Account {
    pub(crate) fn new(costs: usize) -> Self {
        Self { shares: vec![Share::default(); Self::slots(costs)] }
    }

    /// How many places there are where a machine knows so many costs.
    pub(crate) const fn slots(costs: usize) -> usize {
        COSTS + costs
    }

    /// What went to one thing.
    #[must_use]
    pub fn of(&self, spent: Spent) -> Share {
        self.shares.get(spent.slot().0).copied().unwrap_or_default()
    }

    /// All time.
    #[must_use]
    pub fn total(&self) -> Picos {
        Picos(self.shares.iter().map(|share| share.time.0).sum())
    }

    /// All accesses.
    #[must_use]
    pub fn accesses(&self) -> Share {
        let sum = |from: &[Share]| Share {
            time: Picos(from.iter().map(|share| share.time.0).sum()),
            count: from.iter().map(|share| share.count).sum(),
        };
        sum(&self.shares[..WAITING])
    }

    /// All time but for that of idle CPUs.
    #[must_use]
    pub fn busy(&self) -> Picos {
        self.total() - self.of(Spent::Idle).time
    }

    /// The share of busy time that was waited for locks of a kind.
    #[must_use]
    pub fn waiting_share(&self, kind: LockKind) -> f64 {
        self.of(Spent::Waiting(kind)).time.0 as f64 / self.busy().0 as f64
    }

    /// Accesses that were served by a cause.
    #[must_use]
    pub fn by_cause(&self, cause: Cause) -> Share {
        Accessed::all().fold(Share::default(), |sum, accessed| {
            let share = self.of(Spent::Access(accessed, cause));
            Share { time: sum.time + share.time, count: sum.count + share.count }
        })
    }

    /// What stands in as many other places, too.
    pub(crate) fn merge(&mut self, other: &[Share]) {
        for (share, more) in self.shares.iter_mut().zip(other) {
            share.time += more.time;
            share.count += more.count;
        }
    }

    /// What was added since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let shares = self.shares.iter().zip(&earlier.shares);
        Self {
            shares: shares
                .map(|(now, then)| Share { time: now.time - then.time, count: now.count - then.count })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_a_slot_of_its_own() {
        let spents = Spent::all(&["a", "b", "c"]);
        let mut slots: Vec<usize> = spents.iter().map(|(_, spent)| spent.slot().0).collect();
        slots.sort_unstable();
        assert_eq!(slots, (0..COSTS + 3).collect::<Vec<_>>());
    }
}
