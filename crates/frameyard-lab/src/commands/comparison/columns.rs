//! The columns that all compared workloads have.

use frameyard::ByteSize;
use frameyard::locks::LockUse;
use frameyard_vm::VmCounter;
use frameyard_workloads::Setting;
use frameyard_workloads::counts::Counts;

use crate::output::{Format, Row, rounded};

/// What was run.
pub(in crate::commands) fn setting(setting: &Setting, memory: ByteSize, runs: usize) -> Row {
    Row::new()
        .column("mode", "mode", setting.mode.name())
        .column("tasks", "tasks", setting.tasks.get())
        .column("zone_policy", "zone policy", setting.zone.name())
        .column("lru_policy", "LRU policy", setting.lru.name())
        .data("memory_bytes", memory.0)
        .data("runs", runs)
}

/// What was counted in a run: both locks, huge pages, requests that took blocks of another type, compaction and reclaim.
pub(in crate::commands) fn counts(counts: &Counts) -> Row {
    let timed = |ns: u64| counts.locks_are_timed.then_some(ns);
    let lock = |name: &str, heading: &'static str, lock: LockUse| {
        Row::new()
            .column(format!("{name}_acquisitions"), heading, lock.acquisitions)
            .minor()
            .data(format!("{name}_contended"), lock.contended)
            .column_as(format!("{name}_contended_share"), "contended %", Format::percent(2), contended_share(lock))
            .minor()
            .column_as(format!("{name}_wait_ns"), "wait ms", Format::millions(2), timed(lock.wait_ns))
            .minor()
            .column_as(format!("{name}_hold_ns"), "hold ms", Format::millions(2), timed(lock.hold_ns))
            .minor()
    };
    let pages_per_zone_lock = share(counts.pages_moved, counts.zone_lock.acquisitions).map(rounded);
    lock("zone_lock", "zone lock", counts.zone_lock)
        .followed_by(lock("lru_lock", "LRU lock", counts.lru_lock))
        .data("pages_per_zone_lock", pages_per_zone_lock)
        .data("thp_fault_alloc", counts.vm(VmCounter::ThpFaultAlloc))
        .data("thp_fault_fallback", counts.vm(VmCounter::ThpFaultFallback))
        .data("thp_split_page", counts.vm(VmCounter::ThpSplitPage))
        .data("extfrag_fallbacks", counts.extfrag_fallbacks)
        .data("extfrag_into_movable", counts.extfrag_into_movable)
        .data("extfrag_conversions", counts.extfrag_conversions)
        .data("compact_stall", counts.compact_stall)
        .data("compact_success", counts.compact_success)
        .data("compact_fail", counts.compact_fail)
        .data("compact_migrated", counts.compact_migrated)
        .data("compact_migrate_failed", counts.compact_migrate_failed)
        .data("pgscan_kswapd", counts.vm(VmCounter::PgscanKswapd))
        .data("pgscan_direct", counts.vm(VmCounter::PgscanDirect))
        .data("pgsteal_kswapd", counts.vm(VmCounter::PgstealKswapd))
        .data("pgsteal_direct", counts.vm(VmCounter::PgstealDirect))
}

/// What making huge blocks took, by requests themselves and in the background: stalls, pages scanned and pages moved.
pub(in crate::commands) fn effort(counts: &Counts) -> Row {
    let direct = |all: u64, background: u64| all.saturating_sub(background);
    let reclaimed = |counter| counts.vm(counter);
    Row::new()
        .column("stalls", "stalls", counts.stalls())
        .data("allocstall", reclaimed(VmCounter::Allocstall))
        .data(
            "scanned_direct",
            direct(counts.compact_scanned, counts.compact_daemon_scanned) + reclaimed(VmCounter::PgscanDirect),
        )
        .data("scanned_background", counts.compact_daemon_scanned + reclaimed(VmCounter::PgscanKswapd))
        .data("compact_scanned_direct", direct(counts.compact_scanned, counts.compact_daemon_scanned))
        .data("compact_scanned_background", counts.compact_daemon_scanned)
        .data("discarded", counts.compact_discarded)
        .column("moved_direct", "moved directly", direct(counts.compact_migrated, counts.compact_daemon_migrated))
        .minor()
        .column("moved_background", "in background", counts.compact_daemon_migrated)
        .minor()
}

/// The part of acquisitions that had to wait, to a millionth; `None` where there were none.
pub(in crate::commands) fn contended_share(lock: LockUse) -> Option<f64> {
    share(lock.contended, lock.acquisitions).map(|share| (share * 1e6).round() / 1e6)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
