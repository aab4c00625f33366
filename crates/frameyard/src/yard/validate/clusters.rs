//! The equations of clusters: those that stand above `zone::transfer::clusters`.

use super::{ValidateError, compare};
use crate::page::CLUSTER;
use crate::platform::Platform;
use crate::units::{MigrateType, Order, Pfn};
use crate::zone::LockedZone;
use crate::zone::transfer::{ClusterId, RecordState};

/// Pages of one cluster that follow each other on a list.
struct Run {
    id: ClusterId,
    first: Pfn,
    last: Pfn,
    size: usize,
    skipped: usize,
}

/// Compares all records of a zone with its lists, which are sound; `skipped` pages on them skipped merging.
pub(super) fn check<P: Platform>(locked: &LockedZone<'_, P>, skipped: u64) -> Result<(), ValidateError> {
    let clusters = locked.zone.clusters();
    compare("pages that skipped merging", locked.id, clusters.skipped_racy(), skipped)?;
    compare("cuts in progress", locked.id, locked.detachments_racy() as u64, 0)?;
    let mut listed = 0;
    for migrate_type in MigrateType::ALL {
        listed += check_list(locked, migrate_type)?;
    }
    let ids = || (0..clusters.count()).map(ClusterId);
    let in_use = ids().filter(|id| locked.is_in_use(*id)).count() as u64;
    let with_state = |state| ids().filter(|id| locked.record(*id).state() == state).count() as u64;
    compare("clusters in use", locked.id, clusters.used_racy().into(), in_use)?;
    compare("records of clusters", locked.id, with_state(RecordState::Listed), listed)?;
    compare("clusters on lists", locked.id, in_use, listed)?;
    compare("records of clusters on their way", locked.id, with_state(RecordState::Held), 0)
}

/// Follows a list of single pages; how many clusters it has. A record tells how many pages there are and which is the last,
/// so one that stands on lists twice has the wrong number of them, or two ends.
fn check_list<P: Platform>(locked: &LockedZone<'_, P>, migrate_type: MigrateType) -> Result<u64, ValidateError> {
    let mut count = 0;
    let mut run: Option<Run> = None;
    let mut at = locked.first_block(Order::ZERO, migrate_type);
    while let Some(pfn) = at {
        let page = locked.page(pfn);
        let tag = page.tag();
        at = locked.map.linked(page.next());
        let id = ClusterId::named(page.payload(CLUSTER));
        if tag.is_clustered() != id.is_some() {
            return Err(ValidateError::BrokenCluster { zone: locked.id, at: pfn });
        }
        match &mut run {
            Some(run) if id == Some(run.id) => {
                run.last = pfn;
                run.size += 1;
                run.skipped += usize::from(tag.is_merge_skipped());
                continue;
            }
            Some(run) => check_run(locked, run)?,
            None => {}
        }
        count += u64::from(id.is_some());
        run = id.map(|id| Run { id, first: pfn, last: pfn, size: 1, skipped: tag.is_merge_skipped().into() });
    }
    run.map_or(Ok(()), |run| check_run(locked, &run))?;
    Ok(count)
}

fn check_run<P: Platform>(locked: &LockedZone<'_, P>, run: &Run) -> Result<(), ValidateError> {
    let record = locked.record(run.id);
    let alike = record.state() == RecordState::Listed
        && locked.is_in_use(run.id)
        && record.size() == run.size
        && record.skipped() == run.skipped
        && record.size() <= locked.zone.clusters().limit()
        && locked.map.linked(record.tail()) == Some(run.last);
    if alike { Ok(()) } else { Err(ValidateError::BrokenCluster { zone: locked.id, at: run.first }) }
}
