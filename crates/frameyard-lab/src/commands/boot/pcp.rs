//! The sizes of all per-CPU lists, counted, as the published report on lists that were never sized again has them.

use std::collections::BTreeMap;
use std::io::{self, Write};

use frameyard::boot::InitMode;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Platform, Yard};
use serde::Serialize;

use crate::Failure;
use crate::cli::BootArgs;
use crate::output::{RowError, Rows, Table};

/// So many lists have that size.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub(super) struct PcpRow {
    /// `batch` or `high`.
    pub(super) field: &'static str,
    /// In frames.
    pub(super) value: u64,
    /// Lists of a CPU in a zone.
    pub(super) pagesets: u64,
}

/// Counts the lists of every CPU in every zone that has memory, by batch and by high; smaller values first.
pub(super) fn distribution<P: Platform>(yard: &Yard<P>) -> Vec<PcpRow> {
    let mut counts: BTreeMap<(&'static str, u64), u64> = BTreeMap::new();
    for zone in yard.zones() {
        for lists in (0..yard.cpus()).filter_map(|cpu| yard.pcp_statistics(zone.id, CpuId(cpu))) {
            for size in [("batch", lists.batch.0), ("high", lists.high.0)] {
                *counts.entry(size).or_default() += 1;
            }
        }
    }
    counts.into_iter().map(|((field, value), pagesets)| PcpRow { field, value, pagesets }).collect()
}

/// Writes the counts as a table.
pub(super) fn write(rows: &[PcpRow], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Per-CPU lists:")?;
    Table::of(&Rows::of(rows).map_err(|error: RowError| io::Error::other(error))?).write(out)
}

/// Refuses options that contradict what `--pcp-reset` implies.
pub(super) fn check_options(args: &BootArgs) -> Result<(), Failure> {
    if let Some(mode) = args.init.init.filter(|mode| *mode != InitMode::Deferred) {
        return Err(Failure::input(format!("--pcp-reset goes with --init deferred, not {mode}: leave --init out")));
    }
    if let Some(sizing) = args.yard.pcp_sizing.filter(|sizing| *sizing != PcpSizing::Classic) {
        return Err(Failure::input(format!(
            "--pcp-reset goes with --pcp-sizing classic, not {sizing}: leave --pcp-sizing out"
        )));
    }
    Ok(())
}
