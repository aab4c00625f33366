//! Growth: initialises one more section for an allocation that needs memory, or for an idle worker.

use crate::boot::initialisation::Initialisation;
use crate::platform::Platform;
use crate::units::{PfnRange, ZoneId};

/// The number of sections without backing memory that one call tries. Each may cost a system call.
const MOST_REFUSALS: u32 = 16;

/// The outcome of an attempt to initialise more memory of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    /// The call added memory to the free lists.
    Grew,
    /// Other CPUs have claimed all remaining memory.
    InProgress,
    /// No memory is deferred.
    Exhausted,
    /// The platform has no memory for the page structures of the unclaimed rest. The range is its first part.
    NotBacked(PfnRange),
}

impl<P: Platform> Initialisation<'_, P> {
    /// Initialises the next section that has deferred memory of a zone and backing memory for its page structures.
    pub(crate) fn grow(&self, id: ZoneId) -> Growth {
        let Some(zone) = self.tables.zones.get(id.index()) else { return Growth::Exhausted };
        if zone.deferred.pages_racy().0 == 0 {
            return Growth::Exhausted;
        }
        let span = zone.span().intersection(self.zone_tables.map.range());
        let hint = zone.deferred.cursor();
        let hint = if span.contains(hint) { hint } else { span.start };
        // From the hint to the end, then from the start: a claim behind the hint may have been given up.
        let parts = [PfnRange { start: hint, end: span.end }, PfnRange { start: span.start, end: hint }];
        let may_help = |part: &PfnRange| {
            let entry = self.entry_of(part.start);
            entry.is_present() && entry.zone().is_none_or(|owner| owner == id)
        };
        let claims = self.claims();
        let (mut not_backed, mut refusals) = (None, 0);
        for part in parts.into_iter().flat_map(|part| self.present_sections_in(part)).filter(may_help) {
            let section = self.section_of(part.start);
            if !claims.has_unclaimed_racy(section) {
                continue;
            }
            let result = self.initialise(section);
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
