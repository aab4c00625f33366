//! Account of virtual time: every picosecond of every CPU is in exactly one slot.

use frameyard::platform::{LineKind, LockKind};
use frameyard::units::named;

use crate::time::Picos;

/// The place that served an access, or the reason that it waited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Cause {
    /// The core's private cache.
    PrivateHit,
    /// The cache that the core's group shares.
    SharedHit,
    /// The private cache of another core of the group.
    SameGroup,
    /// Another group of the socket.
    SameSocket,
    /// Another socket.
    OtherSocket,
    /// Memory of the CPU's own node.
    LocalMemory,
    /// Memory of another node.
    RemoteMemory,
    /// The core had the line and invalidated other cores' copies before it wrote.
    Upgrade,
    /// The line was on its way to another core.
    LineQueue,
    /// The memory channel was busy.
    Bandwidth,
}

named!(Cause: PrivateHit => "private-hit", SharedHit => "shared-hit", SameGroup => "same-group",
    SameSocket => "same-socket", OtherSocket => "other-socket", LocalMemory => "local-memory",
    RemoteMemory => "remote-memory", Upgrade => "upgrade", LineQueue => "line-queue", Bandwidth => "bandwidth");

/// The target of an access.
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
    /// The number of targets.
    const COUNT: usize = 2 + LineKind::ALL.len() + LockKind::ALL.len();

    /// All targets.
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

/// A named cost of a workload or of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CostId(pub(crate) u16);

impl CostId {
    /// The cost at an index of the machine's list.
    #[must_use]
    pub const fn nth(place: usize) -> Self {
        Self(place as u16)
    }
}

/// A use of time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Spent {
    /// An access, by target and cause.
    Access(Accessed, Cause),
    /// Waiting for a lock of a kind.
    Waiting(LockKind),
    /// Waiting for something other than a lock.
    Relax,
    /// No task.
    Idle,
    /// A named cost.
    Cost(CostId),
}

const WAITING: usize = Accessed::COUNT * Cause::ALL.len();
const RELAX: usize = WAITING + LockKind::ALL.len();
const IDLE: usize = RELAX + 1;
const COSTS: usize = IDLE + 1;

/// The index of a use of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(pub(crate) usize);

impl Spent {
    /// All uses of time, each with its name in a profile.
    pub(crate) fn all(costs: &[&'static str]) -> Vec<(String, Self)> {
        let accesses = Accessed::all().flat_map(|accessed| Cause::ALL.map(|cause| Self::Access(accessed, cause)));
        let waits = LockKind::ALL.map(Self::Waiting);
        let costs = (0..costs.len()).map(|at| (costs[at].to_owned(), Self::Cost(CostId::nth(at))));
        let named = accesses.chain(waits).chain([Self::Relax, Self::Idle]).map(|spent| (spent.name(), spent));
        named.chain(costs).collect()
    }

    /// The name in a profile; `cost` for all costs.
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

/// A duration and a count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Share {
    /// The duration.
    pub time: Picos,
    /// The count.
    pub count: u64,
}

/// The account of one CPU, or of all CPUs together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    shares: Vec<Share>,
}

impl Account {
    pub(crate) fn new(costs: usize) -> Self {
        Self { shares: vec![Share::default(); Self::slots(costs)] }
    }

    /// The number of slots for a machine with `costs` named costs.
    pub(crate) const fn slots(costs: usize) -> usize {
        COSTS + costs
    }

    /// The share of one use.
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

    /// All time except that of idle CPUs.
    #[must_use]
    pub fn busy(&self) -> Picos {
        self.total() - self.of(Spent::Idle).time
    }

    /// The part of busy time that CPUs spent waiting for locks of a kind.
    #[must_use]
    pub fn waiting_share(&self, kind: LockKind) -> f64 {
        self.of(Spent::Waiting(kind)).time.0 as f64 / self.busy().0 as f64
    }

    /// The accesses that a cause served.
    #[must_use]
    pub fn by_cause(&self, cause: Cause) -> Share {
        Accessed::all().fold(Share::default(), |sum, accessed| {
            let share = self.of(Spent::Access(accessed, cause));
            Share { time: sum.time + share.time, count: sum.count + share.count }
        })
    }

    /// Adds the shares of another account with the same slots.
    pub(crate) fn merge(&mut self, other: &[Share]) {
        for (share, more) in self.shares.iter_mut().zip(other) {
            share.time += more.time;
            share.count += more.count;
        }
    }

    /// The difference to an earlier account.
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
