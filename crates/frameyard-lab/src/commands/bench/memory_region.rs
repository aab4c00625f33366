//! `bench memory-region`: memory registered and deregistered in a loop, beside the host's kernel and published figures.

use std::io::{self, Write};

use frameyard::{ByteSize, MapLayout};
use frameyard_host::{DeviceAlignment, HostTopology};
use serde::Serialize;

use super::compound_pagemap::{Figure, MEASURED, PUBLISHED, Series, figures};
use super::pinned::kinds;
use crate::Failure;
use crate::cli::MemoryRegionArgs;
use crate::output::{self, Outcome, RowError, Rows, Table, progress_bar, rounded};
use frameyard_workloads::memory_region::{self, HostKind, HostRounds, RegionRefs, Rounds};
use frameyard_workloads::pin::{PinBuffers, PinFixture, PinKind, PinYard, PinnedMemory};

/// The name of the command.
const NAME: &str = "bench memory-region";
/// Who registers: the yard …
const YARD: &str = "yard";
/// … or the host's kernel.
const IO_URING: &str = "io_uring";

/// Registers each kind of memory for a time.
pub(super) fn run(args: &MemoryRegionArgs) -> Result<(), Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let asked = kinds(NAME, &args.memory, args.size, &host)?;
    let here: Vec<PinKind> = asked.iter().filter(|asked| asked.left_out.is_none()).map(|asked| asked.kind).collect();
    let on_host: &[HostKind] = if args.no_host { &[] } else { &HostKind::ALL };
    let bar = progress_bar(NAME, (here.len() * RegionRefs::ALL.len() + on_host.len()) as u64);
    let yard = PinYard::new(args.size, &here, args.memory.layout, &host)?;
    let mut rows = yard.with_fixture(|fixture| in_yard(fixture, args, &|| bar.inc(1)))?;
    drop(yard);
    let missing = asked.into_iter().filter_map(|asked| Some((asked.kind, asked.left_out?)));
    rows.extend(missing.map(|(kind, reason)| Row { left_out: Some(reason), ..Row::of_kind(kind, args) }));
    for &kind in on_host {
        rows.push(Row::on_host(kind, args, memory_region::on_host(kind, args.size, args.duration, &host)?));
        bar.inc(1);
    }
    bar.finish_and_clear();
    rows.extend(figures(&["mr_register_rounds"]).into_iter().map(published));
    output::print(&MemoryRegionOutcome { rows }, &args.output)
}

/// Every kind, with references counted in every way.
fn in_yard(fixture: &PinFixture<'_>, args: &MemoryRegionArgs, done: &dyn Fn()) -> Result<Vec<Row>, Failure> {
    let mut buffers = PinBuffers::new(fixture.pages());
    let mut rows = Vec::new();
    for &kind in fixture.kinds() {
        let range = fixture.map(kind)?;
        fixture.touch(kind, range)?;
        for refs in RegionRefs::ALL {
            let rounds = memory_region::in_yard(fixture, range, refs, args.duration, &mut buffers)?;
            rows.push(Row::in_yard(kind, args, refs, rounds));
            done();
        }
        fixture.space.unmap(range).map_err(Failure::run_time)?;
    }
    Ok(rows)
}

/// A row: what was measured, or what was published. `source` tells them apart.
#[derive(Clone, PartialEq, Serialize, Debug, Default)]
struct Row {
    source: &'static str,
    registrar: Option<&'static str>,
    memory: Option<&'static str>,
    page_bytes: Option<u64>,
    map_geometry: Option<&'static str>,
    layout: Option<&'static str>,
    bytes: Option<u64>,
    /// How references are counted when memory is registered.
    take_refs: Option<&'static str>,
    /// … and when it is deregistered.
    release_refs: Option<&'static str>,
    runs: Option<u64>,
    duration_ns: Option<u64>,
    rounds: Option<u64>,
    round_ns: Option<u64>,
    register_ns: Option<u64>,
    deregister_ns: Option<u64>,
    /// As many as there would be in the 5 seconds of the published figures.
    rounds_in_5_s: Option<f64>,
    left_out: Option<String>,
    published_metric: Option<String>,
    published_unit: Option<String>,
    published_value: Option<f64>,
    published_note: Option<String>,
}

impl Row {
    fn of_kind(kind: PinKind, args: &MemoryRegionArgs) -> Self {
        let is_compound_device = kind.memory == PinnedMemory::Device && kind.map != DeviceAlignment::Base;
        Self {
            source: MEASURED,
            registrar: Some(YARD),
            memory: Some(kind.memory.name()),
            page_bytes: Some(kind.page.size().0),
            map_geometry: Some(kind.map.name()),
            layout: is_compound_device.then_some(args.memory.layout).map(MapLayout::name),
            bytes: Some(args.size.0),
            ..Self::default()
        }
    }

    fn in_yard(kind: PinKind, args: &MemoryRegionArgs, refs: RegionRefs, rounds: Rounds) -> Self {
        let (take_refs, release_refs) = (Some(refs.take.name()), Some(refs.release.name()));
        Self { take_refs, release_refs, ..Self::of_kind(kind, args) }.with(rounds)
    }

    fn on_host(kind: HostKind, args: &MemoryRegionArgs, rounds: HostRounds) -> Self {
        let row = Self {
            source: MEASURED,
            registrar: Some(IO_URING),
            memory: Some(kind.name()),
            page_bytes: Some(kind.page_bytes()),
            bytes: Some(args.size.0),
            ..Self::default()
        };
        match rounds {
            Ok(rounds) => row.with(rounds),
            Err(reason) => Self { left_out: Some(reason), ..row },
        }
    }

    fn with(self, done: Rounds) -> Self {
        let each = |ns: u64| Some(ns / done.rounds.max(1));
        let round_ns = done.elapsed_ns as f64 / done.rounds.max(1) as f64;
        Self {
            runs: Some(done.runs),
            duration_ns: Some(done.elapsed_ns),
            rounds: Some(done.rounds),
            round_ns: each(done.elapsed_ns),
            register_ns: each(done.register_ns),
            deregister_ns: each(done.elapsed_ns.saturating_sub(done.register_ns)),
            rounds_in_5_s: Some(rounded(5e9 / round_ns.max(1.0))),
            ..self
        }
    }
}

/// A published figure as a row. Its pages are said to be of a device or of hugetlb, and not how large.
fn published(figure: Figure) -> Row {
    let memory = if figure.metric.ends_with("hugetlb") { "hugetlb" } else { "device" };
    let is_after = figure.series != Series::Before;
    Row {
        source: PUBLISHED,
        memory: Some(memory),
        // Huge pages were taken in batches before.
        take_refs: Some(if is_after || memory == "hugetlb" { "batched" } else { "per-page" }),
        release_refs: Some(if is_after { "batched" } else { "per-page" }),
        rounds: Some(figure.value as u64),
        round_ns: Some((5e9 / figure.value) as u64),
        rounds_in_5_s: Some(figure.value),
        published_metric: Some(figure.metric),
        published_unit: Some(figure.unit),
        published_value: Some(figure.value),
        published_note: figure.note,
        ..Row::default()
    }
}

/// All rows.
struct MemoryRegionOutcome {
    rows: Vec<Row>,
}

impl Outcome for MemoryRegionOutcome {
    fn command(&self) -> &'static str {
        NAME
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new([
            "by",
            "memory",
            "pages",
            "map",
            "refs taken",
            "given back",
            "rounds",
            "µs a round",
            "register µs",
            "deregister µs",
            "in 5 s",
            "runs",
        ]);
        let none = || "-".to_owned();
        let us = |ns: Option<u64>| ns.map_or_else(none, |ns| format!("{:.2}", ns as f64 / 1e3));
        let text = |text: Option<&'static str>| text.unwrap_or("-").to_owned();
        let number = |number: Option<u64>| number.map_or_else(none, |number| number.to_string());
        for row in &self.rows {
            table.push([
                row.registrar.unwrap_or(row.source).to_owned(),
                text(row.memory),
                row.page_bytes.map_or_else(none, |bytes| ByteSize(bytes).to_string()),
                text(row.map_geometry),
                text(row.take_refs),
                text(row.release_refs),
                number(row.rounds),
                us(row.round_ns),
                us(row.register_ns),
                us(row.deregister_ns),
                row.rounds_in_5_s.map_or_else(none, |rounds| format!("{rounds:.0}")),
                number(row.runs),
            ]);
        }
        table.write(out)?;
        for row in &self.rows {
            if let Some(reason) = &row.left_out {
                let by = row.registrar.unwrap_or(row.source);
                writeln!(out, "left out: {by}, {}: {reason}", row.memory.unwrap_or("-"))?;
            }
        }
        writeln!(
            out,
            "\nPages: what an entry of the page tables maps; map: what a page structure is the head of. Refs: one for each page, or all\n\
             of a head at once. Published figures are of kernels and of a size of memory that is not said."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_have_our_keys() {
        let rows: Vec<Row> = figures(&["mr_register_rounds"]).into_iter().map(published).collect();
        let found: Vec<_> =
            rows.iter().map(|row| (row.memory.unwrap(), row.release_refs.unwrap(), row.rounds)).collect();
        let expected = [
            ("device", "per-page", Some(159)),
            ("device", "batched", Some(305)),
            ("hugetlb", "per-page", Some(466)),
            ("hugetlb", "batched", Some(1073)),
        ];
        assert_eq!(found, expected);
        assert_eq!(rows[2].take_refs, Some("batched"));
    }

    #[test]
    fn times_of_a_round_are_shared_among_rounds() {
        let rounds = Rounds { rounds: 4, elapsed_ns: 4000, register_ns: 1000, runs: 1 };
        let row = Row::default().with(rounds);
        assert_eq!((row.round_ns, row.register_ns, row.deregister_ns), (Some(1000), Some(250), Some(750)));
        assert_eq!(row.rounds_in_5_s, Some(5e6));
    }
}
