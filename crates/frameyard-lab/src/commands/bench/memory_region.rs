//! `bench memory-region`: registering and deregistering memory in a loop, beside the host's kernel and published figures.

use std::time::Duration;

use clap::Args;
use frameyard::ByteSize;
use frameyard::devices::MapLayout;
use frameyard_host::{DeviceAlignment, HostTopology};
use frameyard_workloads::memory_region::{self, HostKind, RegionRefs, Rounds};
use frameyard_workloads::pin::{PinBuffers, PinFixture, PinKind, PinYard, PinnedMemory};

use super::compound_pagemap::{Figure, Series, figures};
use super::pinned::{PinnedArgs, Taking, kinds};
use crate::Failure;
use crate::args::values::{positive_duration, positive_size};
use crate::args::{OutputArgs, QuickArgs};
use crate::commands::published_table::{MEASURED, PUBLISHED};
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about two minutes: five seconds for each row; --quick about 10 seconds.

Example:
  frameyard bench memory-region --memory huge,device --duration 1s";

/// Registers memory for devices and deregisters it, in a loop
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct MemoryRegionArgs {
    /// Size that is registered, a multiple of 2M
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = positive_size)]
    size: ByteSize,

    /// Duration of each row
    #[arg(long, value_name = "TIME", default_value = "5s", default_value_if("quick", "true", "200ms"), value_parser = positive_duration)]
    duration: Duration,

    /// Leave out the registration by the host kernel
    #[arg(long)]
    no_host: bool,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    memory: PinnedArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "bench memory-region";
/// The registrar of rows that the yard registers …
const YARD: &str = "yard";
/// … and of rows that the host's kernel registers.
const IO_URING: &str = "io_uring";

const NOTE: &str = "Pages: what an entry of the page tables maps. Map: what a page structure is the head of. Refs: one for each page, or all \
    of a head at once. Published figures are of kernels, for an unpublished size of memory.";

/// Registers each kind of memory for a time.
pub(super) fn run(args: &MemoryRegionArgs) -> Result<(), Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let asked = kinds(NAME, &args.memory, Taking::WritesForLong, args.size, &host)?;
    let here: Vec<PinKind> = asked.iter().filter(|asked| asked.left_out.is_none()).map(|asked| asked.kind).collect();
    let on_host: &[HostKind] = if args.no_host { &[] } else { &HostKind::ALL };
    let bar = progress_bar(NAME, (here.len() * RegionRefs::ALL.len() + on_host.len()) as u64);
    let yard = PinYard::new(args.size, &here, args.memory.device_maps(), &host)?;
    let mut rows = yard.with_fixture(|fixture| in_yard(fixture, args, &|| bar.inc(1)))?;
    drop(yard);
    let missing = asked.into_iter().filter_map(|asked| Some((asked.kind, asked.left_out?)));
    rows.extend(
        missing.map(|(kind, reason)| Region { left_out: Some(reason), ..Region::of_kind(kind, args) }.measured(None)),
    );
    for &kind in on_host {
        let region = Region::on_host(kind, args);
        rows.push(match memory_region::on_host(kind, args.size, args.duration, &host)? {
            Ok(rounds) => region.measured(Some(rounds)),
            Err(reason) => Region { left_out: Some(reason), ..region }.measured(None),
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    rows.extend(figures(&["mr_register_rounds"]).iter().map(published));
    let left_out = |row: &Row| {
        let by = row.text("registrar").unwrap_or_default();
        Some(format!("left out: {by}, {}: {}\n", row.text("memory")?, row.text("left_out")?))
    };
    let left_out: String = rows.iter().filter_map(left_out).collect();
    let all = rows.clone();
    Report::new(NAME, rows).table(all).verbatim(left_out).note(NOTE).print(&args.output)
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
            let (take_refs, release_refs) = (Some(refs.take.name()), Some(refs.release.name()));
            rows.push(Region { take_refs, release_refs, ..Region::of_kind(kind, args) }.measured(Some(rounds)));
            done();
        }
        fixture.space.unmap(range).map_err(Failure::run_time)?;
    }
    Ok(rows)
}

/// Memory that is registered, measured or published.
#[derive(Clone, PartialEq, Debug, Default)]
struct Region {
    registrar: Option<&'static str>,
    memory: Option<&'static str>,
    page_bytes: Option<u64>,
    map_geometry: Option<&'static str>,
    layout: Option<&'static str>,
    map_placement: Option<&'static str>,
    bytes: Option<u64>,
    /// How references are counted when memory is registered.
    take_refs: Option<&'static str>,
    /// How references are counted when memory is deregistered.
    release_refs: Option<&'static str>,
    left_out: Option<String>,
}

impl Region {
    fn of_kind(kind: PinKind, args: &MemoryRegionArgs) -> Self {
        let is_compound_device = kind.memory == PinnedMemory::Device && kind.map != DeviceAlignment::Base;
        Self {
            registrar: Some(YARD),
            memory: Some(kind.memory.name()),
            page_bytes: Some(kind.page.size().0),
            map_geometry: Some(kind.map.name()),
            layout: is_compound_device.then_some(args.memory.layout).map(MapLayout::name),
            map_placement: (kind.memory == PinnedMemory::Device).then_some(args.memory.map.name()),
            bytes: Some(args.size.0),
            ..Self::default()
        }
    }

    fn on_host(kind: HostKind, args: &MemoryRegionArgs) -> Self {
        Self {
            registrar: Some(IO_URING),
            memory: Some(kind.name()),
            page_bytes: Some(kind.page_bytes()),
            bytes: Some(args.size.0),
            ..Self::default()
        }
    }

    /// The row of measured rounds, or of none.
    fn measured(&self, done: Option<Rounds>) -> Row {
        let each = |of: fn(&Rounds) -> u64| done.as_ref().map(|done| of(done) / done.rounds.max(1));
        let round_ns = done.as_ref().map(|done| done.elapsed_ns as f64 / done.rounds.max(1) as f64);
        let times = [
            each(|done| done.elapsed_ns),
            each(|done| done.register_ns),
            each(|done| done.elapsed_ns.saturating_sub(done.register_ns)),
        ];
        let runs = done.as_ref().map(|done| (done.runs, done.elapsed_ns));
        self.row(runs, done.map(|done| done.rounds), times, round_ns.map(|ns| rounded(5e9 / ns.max(1.0))), None)
    }

    /// The row of a published figure. Published are the rounds in 5 seconds.
    fn published(&self, figure: &Figure) -> Row {
        let times = [Some((5e9 / figure.value) as u64), None, None];
        self.row(None, Some(figure.value as u64), times, Some(figure.value), Some(figure))
    }

    fn row(
        &self,
        runs_and_ns: Option<(u64, u64)>,
        rounds: Option<u64>,
        [round_ns, register_ns, deregister_ns]: [Option<u64>; 3],
        rounds_in_5_s: Option<f64>,
        figure: Option<&Figure>,
    ) -> Row {
        let source = if figure.is_some() { PUBLISHED } else { MEASURED };
        let us = Format::thousands(2);
        Row::new()
            .data("source", source)
            .data("registrar", self.registrar)
            .remark("by", Format::Plain, self.registrar.unwrap_or(source))
            .column("memory", "memory", self.memory)
            .column_as("page_bytes", "pages", Format::ExactSize, self.page_bytes)
            .column("map_geometry", "map", self.map_geometry)
            .data("layout", self.layout)
            .data("map_placement", self.map_placement)
            .data("bytes", self.bytes)
            .column("take_refs", "refs taken", self.take_refs)
            .column("release_refs", "refs released", self.release_refs)
            .column("runs", "runs", runs_and_ns.map(|(runs, _)| runs))
            .minor()
            .data("duration_ns", runs_and_ns.map(|(_, ns)| ns))
            .column("rounds", "rounds", rounds)
            .minor()
            .column_as("round_ns", "µs a round", us, round_ns)
            .column_as("register_ns", "register µs", us, register_ns)
            .minor()
            .column_as("deregister_ns", "deregister µs", us, deregister_ns)
            .minor()
            .column_as("rounds_in_5_s", "in 5 s", Format::number(0), rounds_in_5_s)
            .data("left_out", self.left_out.clone())
            .followed_by(Figure::columns(figure))
    }
}

/// The row of a published figure. Its pages belong to a device or to hugetlb; their size was not published.
fn published(figure: &Figure) -> Row {
    let memory = if figure.metric.ends_with("hugetlb") { "hugetlb" } else { "device" };
    let is_after = figure.series != Series::Before;
    let region = Region {
        memory: Some(memory),
        // Before the series, huge pages were already taken in batches.
        take_refs: Some(if is_after || memory == "hugetlb" { "batched" } else { "per-page" }),
        release_refs: Some(if is_after { "batched" } else { "per-page" }),
        ..Region::default()
    };
    region.published(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_have_the_keys_of_measured_rows() {
        let rows: Vec<Row> = figures(&["mr_register_rounds"]).iter().map(published).collect();
        let found: Vec<_> =
            rows.iter().map(|row| (row.text("memory"), row.text("release_refs"), row.number("rounds"))).collect();
        let expected = [
            (Some("device"), Some("per-page"), Some(159.0)),
            (Some("device"), Some("batched"), Some(305.0)),
            (Some("hugetlb"), Some("per-page"), Some(466.0)),
            (Some("hugetlb"), Some("batched"), Some(1073.0)),
        ];
        assert_eq!(found, expected);
        assert_eq!(rows[2].text("take_refs"), Some("batched"));
    }

    #[test]
    fn times_of_a_round_are_shared_among_rounds() {
        let rounds = Rounds { rounds: 4, elapsed_ns: 4000, register_ns: 1000, runs: 1 };
        let row = Region::default().measured(Some(rounds));
        let times = ["round_ns", "register_ns", "deregister_ns", "rounds_in_5_s"].map(|key| row.number(key));
        assert_eq!(times, [Some(1000.0), Some(250.0), Some(750.0), Some(5e6)]);
    }

    #[test]
    fn a_bare_run_registers_a_gibibyte_for_five_seconds_each() {
        let args: MemoryRegionArgs = crate::args::read("").unwrap();
        assert_eq!((args.size, args.duration, args.no_host), (ByteSize::gib(1), Duration::from_secs(5), false));
        crate::args::assert_refused::<MemoryRegionArgs>(&[("--duration 0s", "more than nothing")]);
    }
}
