//! What virtual CPUs spent their time on, as shares of it.

use crate::kernbench::CpuWork;
use frameyard::platform::LockKind;
use frameyard_sim::{Cause, KernelCost, Picos, Profile, SimPlatform, Spent};

/// The time of all CPUs with a task, by what it was spent on.
#[derive(Clone, PartialEq, Debug)]
pub struct TimeSpent {
    length: Picos,
    busy: Picos,
    locks: Vec<(LockKind, Picos)>,
    causes: Vec<(Cause, Picos)>,
    costs: Vec<(&'static str, Picos)>,
    relax: Picos,
    folded: Vec<(String, Picos)>,
}

impl TimeSpent {
    /// The time in `profile`, which covers `length`.
    pub(crate) fn of(platform: &SimPlatform, profile: &Profile, length: Picos) -> Self {
        let account = profile.account();
        let cost = |name| platform.cost(name).map(|cost| (name, account.of(Spent::Cost(cost)).time));
        Self {
            length,
            busy: account.total() - account.of(Spent::Idle).time,
            locks: LockKind::ALL.map(|kind| (kind, account.of(Spent::Waiting(kind)).time)).to_vec(),
            causes: Cause::ALL.map(|cause| (cause, account.by_cause(cause).time)).to_vec(),
            costs: KernelCost::ALL
                .map(KernelCost::name)
                .iter()
                .chain(CpuWork::COSTS)
                .copied()
                .filter_map(cost)
                .collect(),
            relax: account.of(Spent::Relax).time,
            folded: profile.folded(),
        }
    }

    /// Virtual time that the measurement covers.
    #[must_use]
    pub fn length(&self) -> Picos {
        self.length
    }

    /// The time of all CPUs together while they were not idle.
    #[must_use]
    pub fn busy(&self) -> Picos {
        self.busy
    }

    /// Lines for flame graphs: a stack of functions and causes, and nanoseconds of all CPUs.
    pub fn folded(&self) -> impl Iterator<Item = String> {
        self.folded.iter().map(|(stack, time)| format!("{stack} {}", whole_ns(*time)))
    }

    /// The share of waiting for locks of a kind.
    #[must_use]
    pub fn lock(&self, kind: LockKind) -> Option<f64> {
        self.locks.iter().find(|(known, _)| *known == kind).and_then(|(_, time)| self.share(*time))
    }

    /// The share of waiting for all locks but those of the kinds in `left_out`.
    #[must_use]
    pub fn locks_but(&self, left_out: &[LockKind]) -> Option<f64> {
        let others = self.locks.iter().filter(|(kind, _)| !left_out.contains(kind));
        self.share(Picos(others.map(|(_, time)| time.0).sum()))
    }

    /// The share of all named costs together.
    #[must_use]
    pub fn outside(&self) -> Option<f64> {
        self.share(Picos(self.costs.iter().map(|(_, time)| time.0).sum()))
    }

    /// The share of a named cost.
    #[must_use]
    pub fn cost(&self, name: &str) -> Option<f64> {
        self.costs.iter().find(|(known, _)| *known == name).and_then(|(_, time)| self.share(*time))
    }

    /// The share of accesses that missed the CPU's own cache.
    #[must_use]
    pub fn misses(&self) -> Option<f64> {
        let missed = self.causes.iter().filter(|(cause, _)| *cause != Cause::PrivateHit);
        self.share(Picos(missed.map(|(_, time)| time.0).sum()))
    }

    /// The share of waiting for anything but locks.
    #[must_use]
    pub fn relaxed(&self) -> Option<f64> {
        self.share(self.relax)
    }

    /// To a millionth; `None` if no CPU had a task.
    fn share(&self, time: Picos) -> Option<f64> {
        (self.busy.0 > 0).then(|| (time.0 as f64 / self.busy.0 as f64 * 1e6).round() / 1e6)
    }

    /// All shares by name: locks, causes of accesses, named costs, and waiting. Together they are the whole.
    pub fn shares(&self) -> impl Iterator<Item = (String, Option<f64>)> {
        let locks = self.locks.iter().map(|(kind, time)| (format!("{}_lock_share", lock_name(*kind)), *time));
        let causes = self.causes.iter().map(|(cause, time)| (format!("{}_share", cause.name()), *time));
        let costs = self.costs.iter().map(|(name, time)| (format!("{name}_share"), *time));
        let all = locks.chain(causes).chain(costs).chain([("relax_share".to_owned(), self.relax)]);
        all.map(|(name, time)| (name.replace('-', "_"), self.share(time)))
    }
}

/// The name of a lock in results. The lock of an address space is called the map lock.
fn lock_name(kind: LockKind) -> &'static str {
    match kind {
        LockKind::AddressSpace => "map",
        _ => kind.name(),
    }
}

/// Nanoseconds, rounded down.
#[must_use]
pub fn whole_ns(time: Picos) -> u64 {
    time.0 / 1000
}
