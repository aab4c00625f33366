//! Changing the transfer policy of a yard that is in use.
//!
//! # Protocol
//!
//! Every transfer between per-CPU lists and a zone reads the policy while it holds the lock of a CPU's lists. So a
//! change first writes the new policy, and then locks and empties every CPU's lists once. After that, no transfer under
//! the old policy is in progress. Finally the change collects and merges the frames that the old policy's mechanism
//! holds. Only one change runs at a time, because two that wrote their policies in turns could leave zones with
//! different policies.

use crate::lists::{CpuLists, lock_each};
use crate::platform::{LockError, Platform};
use crate::store;
use crate::sync::is_broken;
use crate::units::errors;
use crate::yard::Yard;
use crate::zone::ZonePolicy;

errors! {
    /// Why a policy was not changed, or not completely.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum PolicyError {
        /// Another change did not end in time. Nothing has changed.
        Busy = "another change of the policy is in progress: try again",
        /// Another process holds a lock and does not release it, or has damaged the yard.
        Lock(error: LockError) = "{error}",
        /// One of the policies keeps free frames as bits: a yard does that from its creation on, or never. Nothing has changed.
        OtherStore {
            /// The policy of the yard.
            from: ZonePolicy,
            /// The policy that was wanted.
            to: ZonePolicy,
        } = "a yard with policy {from} cannot change to {to}: create a yard with that policy",
        /// The mechanism of that policy is not compiled in. Nothing has changed.
        NotBuilt(policy: ZonePolicy) = "the policy {policy} is not compiled into this build",
    }
}

impl<P: Platform> Yard<P> {
    /// The policy for transfers between per-CPU lists and zones.
    pub fn policy(&self) -> ZonePolicy {
        self.tables.zones.first().map_or(ZonePolicy::default(), |zone| zone.policy())
    }

    /// Changes the policy for transfers between per-CPU lists and zones, for the whole yard and all its views. Other
    /// CPUs may allocate and free meanwhile.
    ///
    /// The call empties all per-CPU lists, and returns the frames that the old policy's mechanism holds to the free
    /// lists.
    ///
    /// # Errors
    ///
    /// [`PolicyError`]; no frame is lost.
    ///
    /// # Cost
    ///
    /// Takes the lock of every CPU's lists in every zone once, and the zone locks to return their frames. If another
    /// caller is changing the policy, waits for that change, with a bound.
    pub fn set_policy(&self, policy: ZonePolicy) -> Result<(), PolicyError> {
        if !policy.is_built() {
            return Err(PolicyError::NotBuilt(policy));
        }
        let from = self.policy();
        if from != policy && !(from.is_changeable() && policy.is_changeable()) {
            return Err(PolicyError::OtherStore { from, to: policy });
        }
        let _error_of_an_earlier_call = self.platform.lock_error();
        let _switch = self.tables.begin_switch(&self.platform).map_err(PolicyError::Lock)?.ok_or(PolicyError::Busy)?;
        self.tables.zones.iter().filter(|zone| zone.managed().0 == 0).for_each(|zone| zone.set_policy(policy));
        for view in self.populated_zones() {
            view.lock().map_err(PolicyError::Lock)?.zone.set_policy(policy);
        }
        for view in self.populated_zones() {
            let all = self.tables.pcps_of(view.id).map(|(_, pcp)| pcp);
            // Even lists that look empty: taking their lock ends the old policy there.
            let wanted = |pcp: CpuLists<'_>| !(is_broken!(EmptyListsNotLocked) && pcp.is_empty_racy());
            lock_each(all, &self.platform, wanted, |mut lists| {
                lists.use_policy(policy);
                lists.drain(view);
            });
            store::collect_all(view);
        }
        self.platform.lock_error().map_or(Ok(()), |error| Err(PolicyError::Lock(error)))
    }
}
