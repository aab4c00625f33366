//! How the CPUs of a simulated machine use their own lists.

use frameyard::policy::ZonePolicy;
use frameyard::units::named;

/// How CPUs use their own lists of frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ListAccess {
    /// Under the lock of the lists, as Linux does (`pcp_spin_trylock`).
    #[default]
    Locks,
    /// In restartable sequences, without a locked operation ([`OwnList`](frameyard::platform::OwnList)). A drain
    /// of other CPUs' lists interrupts those CPUs.
    Sequences,
}

named!(ListAccess: Locks => "locks", Sequences => "sections");

impl ListAccess {
    /// What goes with a policy: locks where the policy stands for a kernel, whose published figures are predicted with them; sequences
    /// where it is Frameyard's own, as on a host that has what sequences need.
    #[must_use]
    pub const fn of_policy(policy: ZonePolicy) -> Self {
        match policy {
            ZonePolicy::Vanilla
            | ZonePolicy::Vanilla416
            | ZonePolicy::Vanilla417
            | ZonePolicy::SkipMerge
            | ZonePolicy::Cluster
            | ZonePolicy::ClusterBulk
            | ZonePolicy::BigPcp
            | ZonePolicy::Prefetch
            | ZonePolicy::PrefetchBeforeLock
            | ZonePolicy::LockPerPage => Self::Locks,
            _ => Self::Sequences,
        }
    }
}
