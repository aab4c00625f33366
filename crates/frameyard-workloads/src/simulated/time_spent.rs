//! Where the time of virtual CPUs went, as shares of it.

use frameyard::LockKind;
use frameyard_sim::{Cause, OutsideCosts, Picos, Profile, Spent};
use serde_json::{Map, Value};

use super::{SimGround, whole_ns};
use crate::workload::kernbench::Labour;

/// Where the time of CPUs with a task went.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TimeSpent {
    length: Picos,
    busy: Picos,
    locks: Vec<(LockKind, Picos)>,
    causes: Vec<(Cause, Picos)>,
    costs: Vec<(&'static str, Picos)>,
    relax: Picos,
    folded: Vec<(String, Picos)>,
}

impl TimeSpent {
    /// Of what was added to a profile in so much time.
    pub(super) fn of(ground: &SimGround<'_>, profile: &Profile, length: Picos) -> Self {
        let account = profile.account();
        let cost = |name| ground.platform().cost(name).map(|cost| (name, account.of(Spent::Cost(cost)).time));
        Self {
            length,
            busy: account.total() - account.of(Spent::Idle).time,
            locks: LockKind::ALL.map(|kind| (kind, account.of(Spent::Waiting(kind)).time)).to_vec(),
            causes: Cause::ALL.map(|cause| (cause, account.by_cause(cause).time)).to_vec(),
            costs: OutsideCosts::NAMES.iter().chain(Labour::COSTS).copied().filter_map(cost).collect(),
            relax: account.of(Spent::Relax).time,
            folded: profile.folded(),
        }
    }

    /// How long it was counted.
    pub(crate) fn length(&self) -> Picos {
        self.length
    }

    /// Where it went as lines for flame graphs: a stack of functions and what they did, and nanoseconds of all CPUs.
    pub(crate) fn folded(&self) -> impl Iterator<Item = String> {
        self.folded.iter().map(|(stack, time)| format!("{stack} {}", whole_ns(*time)))
    }

    /// The part of the CPUs' time in which locks of a kind were waited for.
    pub(crate) fn lock(&self, kind: LockKind) -> Option<f64> {
        self.locks.iter().find(|(known, _)| *known == kind).and_then(|(_, time)| self.share(*time))
    }

    /// The part of it in which any other locks were.
    pub(crate) fn locks_but(&self, left_out: &[LockKind]) -> Option<f64> {
        let others = self.locks.iter().filter(|(kind, _)| !left_out.contains(kind));
        self.share(Picos(others.map(|(_, time)| time.0).sum()))
    }

    /// The part of it that named costs took, all together.
    pub(crate) fn outside(&self) -> Option<f64> {
        self.share(Picos(self.costs.iter().map(|(_, time)| time.0).sum()))
    }

    /// The part of it that a named cost took.
    pub(crate) fn cost(&self, name: &str) -> Option<f64> {
        self.costs.iter().find(|(known, _)| *known == name).and_then(|(_, time)| self.share(*time))
    }

    /// The part of it that accesses took which were not served at once.
    pub(crate) fn misses(&self) -> Option<f64> {
        let missed = self.causes.iter().filter(|(cause, _)| *cause != Cause::PrivateHit);
        self.share(Picos(missed.map(|(_, time)| time.0).sum()))
    }

    /// The part of it in which something was waited for that is no lock.
    pub(crate) fn relaxed(&self) -> Option<f64> {
        self.share(self.relax)
    }

    /// To a millionth; nothing where no CPU had a task.
    fn share(&self, time: Picos) -> Option<f64> {
        (self.busy.0 > 0).then(|| (time.0 as f64 / self.busy.0 as f64 * 1e6).round() / 1e6)
    }

    /// Columns of a row, which together are the whole: locks, causes of misses, named costs, and waiting for others.
    pub(crate) fn columns(&self) -> Map<String, Value> {
        let locks = self.locks.iter().map(|(kind, time)| (format!("{}_lock_share", lock_name(*kind)), *time));
        let causes = self.causes.iter().map(|(cause, time)| (format!("{}_share", cause.name()), *time));
        let costs = self.costs.iter().map(|(name, time)| (format!("{name}_share"), *time));
        let all = locks.chain(causes).chain(costs).chain([("relax_share".to_owned(), self.relax)]);
        all.map(|(name, time)| (name.replace('-', "_"), self.share(time).into())).collect()
    }
}

/// The name of a lock in columns: that of an address space is known as the map lock.
fn lock_name(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Space => "map",
        _ => kind.name(),
    }
}
