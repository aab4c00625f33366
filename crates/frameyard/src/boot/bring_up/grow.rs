//! Bringing up one more section, for an allocation that needs it or a worker that is idle.

use super::BringUp;
use crate::platform::Platform;
use crate::units::{PfnRange, ZoneId};

/// How many sections without memory for their page structures are tried for one that has: each may cost a system call.
const MOST_REFUSALS: u32 = 16;

/// What became of an attempt to have more memory in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    /// There is more on the free lists now.
    Grew,
    /// Other CPUs have claimed all that is left.
    InProgress,
    /// There is no more.
    Exhausted,
    /// All that is left has no memory for its page structures; of these frames first.
    NotBacked(PfnRange),
}

impl<P: Platform> BringUp<'_, P> {
    /// Brings up the next section that has pending memory of a zone, and memory for its page structures.
    pub(crate) fn grow(&self, id: ZoneId) -> Growth {
        let Some(zone) = self.tables.zones.get(id.index()) else { return Growth::Exhausted };
        if zone.deferred.pages_racy().0 == 0 {
            return Growth::Exhausted;
        }
        let span = zone.span();
        let hint = zone.deferred.cursor();
        let hint = if span.contains(hint) { hint } else { span.start };
        // From the hint to the end, then from the start: the hint may have passed what was given up.
        let parts = [PfnRange { start: hint, end: span.end }, PfnRange { start: span.start, end: hint }];
        let may_help = |part: &PfnRange| {
            let entry = self.entry_of(part.start);
            entry.is_present() && entry.zone().is_none_or(|owner| owner == id)
        };
        let claims = self.claims();
        let (mut not_backed, mut refusals) = (None, 0);
        for part in parts.into_iter().flat_map(|part| self.sections_in(part)).filter(may_help) {
            let section = self.section_of(part.start);
            if !claims.has_unclaimed_racy(section) {
                continue;
            }
            let result = self.bring_up(section);
            // The next caller starts here, unless nothing is left to initialise.
            zone.deferred.set_cursor(if result.not_backed.is_some() { section.end } else { section.start });
            if result.freed.0 > 0 {
                return Growth::Grew;
            }
            if result.not_backed.is_some() {
                not_backed = not_backed.or(result.not_backed);
                refusals += 1;
                if refusals == MOST_REFUSALS {
                    break;
                }
            }
        }
        match not_backed {
            Some(range) => Growth::NotBacked(range),
            None if zone.deferred.pages_racy().0 == 0 => Growth::Exhausted,
            None => Growth::InProgress,
        }
    }
}
