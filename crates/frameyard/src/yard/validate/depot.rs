//! What must hold of a zone's depot: every stack as long as it says, every batch full, every frame as on a per-CPU list.

use super::{ListKind, Recount, ValidateError, compare};
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{Order, Pfn};
use crate::yard::Yard;
use crate::zone::ZoneView;
use crate::zone::pcp::packed::BATCH;

impl<P: Platform> Yard<P> {
    /// Follows every stack of a zone's depot and marks the pages of its frames, so that one that is listed twice shows.
    pub(super) fn check_depot(&self, view: ZoneView<'_, P>, recount: &mut Recount) -> Result<(), ValidateError> {
        let mut problem = None;
        let mut found = 0;
        view.for_each_kept_batch(|batch| {
            let leader = view.map.linked(batch.leader).unwrap_or_default();
            found += 1;
            if batch.entries.len() != BATCH {
                problem.get_or_insert(broken(view, leader));
            }
            if batch.is_last != (batch.place == batch.expected) {
                let (kept, found) = (batch.expected, batch.place);
                problem.get_or_insert(ValidateError::Count { what: "batches on a stack", zone: view.id, kept, found });
            }
            for entry in batch.entries {
                if let Err(broken) = self.mark_kept(view, *entry, leader) {
                    problem.get_or_insert(broken);
                }
                recount.per_cpu[0] += 1;
            }
        });
        match problem {
            Some(problem) => Err(problem),
            None => compare("batches in the depot", view.id, view.depot.statistics().batches, found),
        }
    }

    fn mark_kept(&self, view: ZoneView<'_, P>, entry: u32, leader: Pfn) -> Result<(), ValidateError> {
        let pfn = view.map.pfn(entry);
        let in_page = self.page_of(pfn).map_or(Tag::INTERIOR, |page| page.tag());
        let tag = view.allocation_map.read(pfn, in_page);
        if !tag.is_block(FrameState::PerCpu, Order::ZERO) || tag.is_seen() {
            return Err(broken(view, leader));
        }
        let _ = view.page(pfn).replace_tag(in_page, in_page.with_seen());
        Ok(())
    }
}

fn broken<P: Platform>(view: ZoneView<'_, P>, at: Pfn) -> ValidateError {
    ValidateError::BrokenList { kind: ListKind::Depot, zone: view.id, at }
}
