//! Checks the counters of compaction.

use super::ValidateError;
use crate::platform::Platform;
use crate::zone::{CompactEvent, ZoneView};

/// The background compactor's counts are parts of all counts.
pub(super) fn check_compaction_counts<P: Platform>(view: ZoneView<'_, P>) -> Result<(), ValidateError> {
    let counted = view.zone.compaction.all_counted();
    let parts = [
        (
            "pages that its background compactor scanned for blocks to move",
            CompactEvent::DaemonMigrateScanned,
            CompactEvent::MigrateScanned,
        ),
        (
            "pages that its background compactor scanned for targets",
            CompactEvent::DaemonFreeScanned,
            CompactEvent::FreeScanned,
        ),
        ("pages that its background compactor moved", CompactEvent::DaemonMigrated, CompactEvent::Migrated),
    ];
    parts.into_iter().try_for_each(|(what, part, whole)| {
        let (part, whole) = (counted[part as usize], counted[whole as usize]);
        if part <= whole { Ok(()) } else { Err(ValidateError::Part { what, zone: view.id, part, whole }) }
    })
}
