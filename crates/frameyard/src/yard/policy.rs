//! Changing the policy of a yard that is in use.
//!
//! # Protocol
//!
//! Whatever crosses the border between per-CPU lists and a zone reads the policy while it holds the lock of a CPU's lists.
//! So the new policy is written first; then every CPU's lists are locked and emptied once, after which nobody acts by the old
//! one any more; then what the old one kept between the lists and the free lists is brought back and merged. One switch is
//! in progress at a time: two that wrote their policies in turns would leave zones of different policies.

use core::fmt;

use super::{Yard, drain};
use crate::platform::Platform;
use crate::units::{CpuId, ZoneId};
use crate::zone::ZonePolicy;
use crate::zone::transfer::{self, TransferStalled};

/// Why a policy was not changed, or not all the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PolicyError {
    /// Somebody else is changing it. Nothing has changed.
    Busy,
    /// The policy is changed, but somebody in this zone did not finish in time what he had begun under the old one: not all
    /// of what that kept is merged yet. Setting the policy again goes on with it.
    Stalled(ZoneId),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("somebody else is changing the policy: try again"),
            Self::Stalled(zone) => {
                write!(f, "somebody in {zone} has not finished under the old policy: set the policy again")
            }
        }
    }
}

impl core::error::Error for PolicyError {}

impl<P: Platform> Yard<P> {
    /// How frames cross between per-CPU lists and zones.
    pub fn policy(&self) -> ZonePolicy {
        self.tables.zones.first().map_or(ZonePolicy::default(), |zone| zone.policy())
    }

    /// Changes how frames cross between per-CPU lists and zones, in the whole yard and for all its views. Other CPUs may
    /// allocate and free meanwhile.
    ///
    /// Empties all per-CPU lists, and brings what the old policy kept aside back to the free lists.
    ///
    /// # Errors
    ///
    /// [`PolicyError`]; no frame is lost then.
    ///
    /// # Cost
    ///
    /// Takes the lock of every CPU's lists in every zone once, and zone locks for what these hold.
    pub fn set_policy(&self, policy: ZonePolicy) -> Result<(), PolicyError> {
        let _switch = self.tables.begin_switch().ok_or(PolicyError::Busy)?;
        self.tables.zones.iter().for_each(|zone| zone.set_policy(policy));
        for zone in (0..self.tables.zones.len() as u16).map(ZoneId).filter(|zone| self.is_populated(*zone)) {
            let view = self.zone_view(zone);
            for pcp in (0..self.cpus).filter_map(|cpu| self.tables.pcp_of(zone, CpuId(cpu))) {
                if drain::passes_empty_lists_by() && pcp.is_empty_racy() {
                    continue;
                }
                // Even lists that look empty: their lock is what ends the old policy there.
                let mut lists = pcp.lock(&self.platform);
                lists.adopt_policy(policy);
                lists.drain(view);
            }
            transfer::collect(view).map_err(|TransferStalled| PolicyError::Stalled(zone))?;
        }
        Ok(())
    }
}
