//! The equations of clusters: those above [`clusters`](super).

use crate::page::MECHANISM;
use crate::platform::Platform;
use crate::store::published::clusters::list::ClusterId;
use crate::store::published::clusters::record::RecordState;
use crate::store::{Unsound, compare};
use crate::units::{MigrateType, Order, Pfn};
use crate::zone::view::LockedZone;

/// Consecutive pages of one cluster on a list.
struct Run {
    id: ClusterId,
    first: Pfn,
    last: Pfn,
    size: usize,
    skipped: usize,
}

/// Compares all records of a zone with its lists, whose links are sound.
pub(in crate::store::published) fn validate<P: Platform>(locked: &LockedZone<'_, P>) -> Result<(), Unsound> {
    let clusters = locked.clusters();
    compare("detachments in progress", locked.detachments_racy() as u64, 0)?;
    let mut listed = 0;
    for migrate_type in MigrateType::ALL {
        listed += check_list(locked, migrate_type)?;
    }
    // A record is a word of the table, whatever the count says.
    let ids = || (0..clusters.count()).take(locked.mechanisms.published.clusters.len()).map(ClusterId);
    let in_use = ids().filter(|id| locked.is_in_use(*id)).count() as u64;
    let with_state = |state| ids().filter(|id| locked.record(*id).state() == state).count() as u64;
    compare("clusters in use", clusters.used_racy().into(), in_use)?;
    compare("records of clusters", with_state(RecordState::Listed), listed)?;
    compare("clusters on lists", in_use, listed)?;
    compare("records of clusters in transit", with_state(RecordState::Held), 0)
}

/// Follows a list of single pages; the number of its clusters. A record names the number of its pages and the last one, so a
/// cluster that is on lists twice has the wrong number, or two ends.
fn check_list<P: Platform>(locked: &LockedZone<'_, P>, migrate_type: MigrateType) -> Result<u64, Unsound> {
    let mut count = 0;
    let mut run: Option<Run> = None;
    let mut at = locked.map.linked(locked.first_link(Order::ZERO, migrate_type));
    let mut left = locked.map.places();
    while let Some(pfn) = at {
        let page = locked.page_of(pfn).filter(|_| left > 0).ok_or(Unsound::Broken { what: "cluster", at: pfn })?;
        left = left.saturating_sub(1);
        let tag = page.tag();
        at = locked.map.linked(page.next());
        let id = ClusterId::named(page.payload(MECHANISM));
        if tag.is_tentative() != id.is_some() {
            return Err(Unsound::Broken { what: "cluster", at: pfn });
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

fn check_run<P: Platform>(locked: &LockedZone<'_, P>, run: &Run) -> Result<(), Unsound> {
    let record = locked.record(run.id);
    let alike = record.state() == RecordState::Listed
        && locked.is_in_use(run.id)
        && record.size() == run.size
        && record.skipped() == run.skipped
        && record.size() <= locked.clusters().limit()
        && locked.map.linked(record.tail()) == Some(run.last);
    if alike { Ok(()) } else { Err(Unsound::Broken { what: "cluster", at: run.first }) }
}
