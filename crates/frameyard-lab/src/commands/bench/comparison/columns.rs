//! The columns that all workloads have.

use frameyard::{ByteSize, LockUse};
use frameyard_vm::VmCounter;
use serde::Serialize;

use crate::output::rounded;
use frameyard_workloads::counts::Counts;
use frameyard_workloads::Setting;

/// What was run.
#[derive(Clone, Serialize, Debug)]
pub(in crate::commands) struct SettingColumns {
    pub(in crate::commands) mode: &'static str,
    pub(in crate::commands) tasks: u32,
    pub(in crate::commands) zone_policy: &'static str,
    pub(in crate::commands) lru_policy: &'static str,
    pub(in crate::commands) memory_bytes: u64,
    pub(in crate::commands) runs: u32,
}

impl SettingColumns {
    pub(in crate::commands) fn of(setting: &Setting, memory: ByteSize, runs: usize) -> Self {
        Self {
            mode: setting.mode.name(),
            tasks: setting.tasks.get(),
            zone_policy: setting.zone.name(),
            lru_policy: setting.lru.name(),
            memory_bytes: memory.0,
            runs: runs as u32,
        }
    }
}

/// What was counted: both locks, and what happened to large blocks.
#[derive(Clone, Serialize, Debug)]
pub(in crate::commands) struct CountColumns {
    zone_lock_acquisitions: u64,
    zone_lock_contended: u64,
    pub(in crate::commands) zone_lock_contended_share: Option<f64>,
    zone_lock_wait_ns: Option<u64>,
    zone_lock_hold_ns: Option<u64>,
    lru_lock_acquisitions: u64,
    lru_lock_contended: u64,
    pub(in crate::commands) lru_lock_contended_share: Option<f64>,
    lru_lock_wait_ns: Option<u64>,
    lru_lock_hold_ns: Option<u64>,
    pages_per_zone_lock: Option<f64>,
    pub(in crate::commands) thp_fault_alloc: u64,
    pub(in crate::commands) thp_fault_fallback: u64,
    thp_split_page: u64,
    extfrag_fallbacks: u64,
    extfrag_into_movable: u64,
    extfrag_conversions: u64,
    compact_stall: u64,
    compact_success: u64,
    compact_fail: u64,
    compact_migrated: u64,
    compact_migrate_failed: u64,
    pgscan_kswapd: u64,
    pgscan_direct: u64,
    pgsteal_kswapd: u64,
    pgsteal_direct: u64,
}

impl CountColumns {
    /// The headings of [`cells`](Self::cells).
    pub(in crate::commands) const HEADINGS: [&str; 8] =
        ["zone lock", "contended %", "wait ms", "hold ms", "LRU lock", "contended %", "wait ms", "hold ms"];

    /// Frames that compaction moved.
    pub(in crate::commands) fn migrated(&self) -> u64 {
        self.compact_migrated
    }

    /// What a person looks at first: both locks.
    pub(in crate::commands) fn cells(&self) -> [String; 8] {
        [
            self.zone_lock_acquisitions.to_string(),
            percent(self.zone_lock_contended_share),
            milliseconds(self.zone_lock_wait_ns),
            milliseconds(self.zone_lock_hold_ns),
            self.lru_lock_acquisitions.to_string(),
            percent(self.lru_lock_contended_share),
            milliseconds(self.lru_lock_wait_ns),
            milliseconds(self.lru_lock_hold_ns),
        ]
    }
}

/// What was counted in a run.
pub(in crate::commands) fn counted(counts: &Counts) -> CountColumns {
    let (zone, lru) = (counts.zone_lock, counts.lru_lock);
    let timed = |ns: u64| counts.locks_are_timed.then_some(ns);
    CountColumns {
        zone_lock_acquisitions: zone.acquisitions,
        zone_lock_contended: zone.contended,
        zone_lock_contended_share: contended_share(zone),
        zone_lock_wait_ns: timed(zone.wait_ns),
        zone_lock_hold_ns: timed(zone.hold_ns),
        lru_lock_acquisitions: lru.acquisitions,
        lru_lock_contended: lru.contended,
        lru_lock_contended_share: contended_share(lru),
        lru_lock_wait_ns: timed(lru.wait_ns),
        lru_lock_hold_ns: timed(lru.hold_ns),
        pages_per_zone_lock: share(counts.pages_moved, zone.acquisitions).map(rounded),
        thp_fault_alloc: counts.vm(VmCounter::ThpFaultAlloc),
        thp_fault_fallback: counts.vm(VmCounter::ThpFaultFallback),
        thp_split_page: counts.vm(VmCounter::ThpSplitPage),
        extfrag_fallbacks: counts.extfrag_fallbacks,
        extfrag_into_movable: counts.extfrag_into_movable,
        extfrag_conversions: counts.extfrag_conversions,
        compact_stall: counts.compact_stall,
        compact_success: counts.compact_success,
        compact_fail: counts.compact_fail,
        compact_migrated: counts.compact_migrated,
        compact_migrate_failed: counts.compact_migrate_failed,
        pgscan_kswapd: counts.vm(VmCounter::PgscanKswapd),
        pgscan_direct: counts.vm(VmCounter::PgscanDirect),
        pgsteal_kswapd: counts.vm(VmCounter::PgstealKswapd),
        pgsteal_direct: counts.vm(VmCounter::PgstealDirect),
    }
}

/// The part of acquisitions that had to wait, to a millionth; nothing where there were none.
fn contended_share(lock: LockUse) -> Option<f64> {
    share(lock.contended, lock.acquisitions).map(|share| (share * 1e6).round() / 1e6)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A share in percent.
pub(in crate::commands) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.2}", share * 100.0))
}

fn milliseconds(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e6))
}
