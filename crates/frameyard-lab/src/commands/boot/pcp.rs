//! The number of per-CPU lists of each size, as in the published report on lists that were never sized again.

use std::collections::BTreeMap;

use frameyard::boot::InitMode;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Platform, Yard};

use super::BootArgs;
use crate::Failure;
use crate::output::Row;

/// Counts the lists of every CPU in every zone that has memory, by batch and by high; smaller values first.
pub(super) fn distribution<P: Platform>(yard: &Yard<P>) -> Vec<Row> {
    let mut counts: BTreeMap<(&'static str, u64), u64> = BTreeMap::new();
    for zone in yard.stats().zones() {
        for lists in (0..yard.cpus()).filter_map(|cpu| yard.zone(zone.id).pcp(CpuId(cpu))) {
            for size in [("batch", lists.batch.0), ("high", lists.high.0)] {
                *counts.entry(size).or_default() += 1;
            }
        }
    }
    let row = |((field, frames), lists)| {
        Row::new()
            .column("field", "field", field)
            .column("value", "value", frames)
            .column("pagesets", "pagesets", lists)
    };
    counts.into_iter().map(row).collect()
}

/// Refuses options that contradict what `--pcp-reset` implies.
pub(super) fn check_options(args: &BootArgs) -> Result<(), Failure> {
    if let Some(mode) = args.init.init.filter(|mode| *mode != InitMode::Deferred) {
        return Err(Failure::input(format!("--pcp-reset goes with --init deferred, not {mode}: leave --init out")));
    }
    if let Some(sizing) = args.yard.sizing().filter(|sizing| *sizing != PcpSizing::Classic) {
        return Err(Failure::input(format!(
            "--pcp-reset goes with --pcp-sizing classic, not {sizing}: leave --pcp-sizing out"
        )));
    }
    Ok(())
}
