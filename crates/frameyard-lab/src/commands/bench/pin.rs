//! `bench pin`: taking references or pins of pages and releasing them, over mappings and page maps of every size, beside
//! published figures.

use frameyard::ByteSize;
use frameyard::devices::MapLayout;
use frameyard_host::HostTopology;
use frameyard_vm::{PinFlags, PinRequest, VirtRange};

use super::compound_pagemap::Figure;
use super::pinned::{Asked, kinds};
use crate::Failure;
use crate::cli::{PinArgs, PinResult};
use crate::commands::comparison::grouped;
use crate::output::{Report, Row, progress_bar};
use frameyard_workloads::pin::{PinBuffers, PinCase, PinFixture, PinInterface, PinKind, PinRun, PinYard, Touched};

mod row;

use row::{RowOf, Times};

const NAME: &str = "bench pin";
const NOTE: &str = "Medians (minimum–maximum) of runs that alternate between the kinds of memory. Pages: what an entry of the page tables maps. \
    Map: what a page structure is the head of. Faster: against the first row of 4K pages. Array alone: writing as many frame \
    numbers into the same array; ratio: taking in times of that. Published figures are of a kernel, for an array.";
/// Memory that is taken, unless the command line says otherwise.
const SIZES: [ByteSize; 2] = [ByteSize::gib(1), ByteSize::gib(16)];

/// Measures every row.
pub(super) fn run(args: &PinArgs) -> Result<(), Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let sizes = if args.sizes.is_empty() { &SIZES[..] } else { &args.sizes };
    let mut asked = Vec::new();
    for &size in sizes {
        asked.push((size, kinds(NAME, &args.memory, size, &host)?));
    }
    let cases = cases(args);
    let measured = asked.iter().flat_map(|(_, kinds)| kinds).filter(|asked| asked.left_out.is_none()).count();
    let bar = progress_bar(NAME, (measured * cases.len()) as u64);
    let mut rows = Vec::new();
    for (size, kinds) in &asked {
        let here: Vec<PinKind> =
            kinds.iter().filter(|asked| asked.left_out.is_none()).map(|asked| asked.kind).collect();
        let yard = PinYard::new(*size, &here, args.memory.layout, &host)?;
        let runs = yard.with_fixture(|fixture| measure(fixture, args, &cases, &|| bar.inc(here.len() as u64)))?;
        rows.extend(rows_of(*size, kinds, &here, args.memory.layout, &runs));
    }
    bar.finish_and_clear();
    report(rows).print(&args.output)
}

/// The report of measured rows, with a table for each size, call, path and interface, and what was published.
fn report(measured: Vec<Row>) -> Report {
    let published = row::published();
    let mut report = Report::new(NAME, measured.iter().cloned().chain(published.iter().map(row::of_figure)).collect());
    let (left_out, taken): (Vec<Row>, Vec<Row>) = measured.into_iter().partition(|row| row.text("left_out").is_some());
    for (title, rows) in grouped(&taken, title) {
        report = report.title(title).table(rows.into_iter().cloned());
    }
    let reasons = left_out.iter().filter_map(|row| row.text("left_out"));
    let reasons: String = reasons.map(|reason| format!("left out: {reason}\n")).collect();
    report.verbatim(reasons).table(published.iter().map(Figure::table_row)).note(NOTE)
}

fn title(row: &Row) -> String {
    let bytes = row.value("bytes").as_u64();
    let size = bytes.map_or_else(String::new, |bytes| ByteSize(bytes).to_string());
    let [call, path, interface, refs] = ["call", "path", "interface", "refs"].map(|key| row.text(key).unwrap_or("-"));
    let each = row.value("pages_per_call").as_u64().filter(|pages| bytes.is_none_or(|bytes| *pages != bytes / 4096));
    let each = each.map_or_else(String::new, |pages| format!(", {pages} pages a call"));
    format!("{call} {size}, {path} path, {interface}, refs {refs}{each}")
}

/// The cases, which are run on each kind of memory.
fn cases(args: &PinArgs) -> Vec<PinCase> {
    let batch = args.batch.map_or(usize::MAX, |batch| batch.get() as usize);
    let mut flags = if args.read_only { PinFlags::NONE } else { PinFlags::WRITE };
    if args.longterm {
        flags = flags | PinFlags::LONGTERM;
    }
    let mut cases = Vec::new();
    for interface in &args.interfaces {
        let interface = match interface {
            PinResult::Array => PinInterface::Array,
            PinResult::Runs => PinInterface::Runs,
        };
        for &call in &args.calls {
            for &path in &args.paths {
                let request = |&refs| PinRequest { call, path, refs, flags };
                let case = |refs| PinCase { request: request(refs), interface, batch };
                cases.extend(args.refs.iter().map(case));
            }
        }
    }
    cases
}

/// Runs of a case, by kind.
type CaseRuns = (PinCase, Vec<Vec<PinRun>>);

/// Runs all cases on all kinds, kinds in alternation. The first run of each warms up.
fn measure(
    fixture: &PinFixture<'_>,
    args: &PinArgs,
    cases: &[PinCase],
    done: &dyn Fn(),
) -> Result<Vec<CaseRuns>, Failure> {
    let touched = if args.no_touch { Touched::ByTheCall } else { Touched::Before };
    let mut buffers = PinBuffers::new(fixture.pages());
    let mut mapped: Vec<(PinKind, VirtRange)> = Vec::new();
    if touched == Touched::Before {
        for &kind in fixture.kinds() {
            let range = fixture.map(kind)?;
            fixture.touch(kind, range)?;
            mapped.push((kind, range));
        }
    }
    let mut all = Vec::new();
    for &case in cases {
        let mut runs: Vec<Vec<PinRun>> = vec![Vec::new(); fixture.kinds().len()];
        for round in 0..=args.repeat.get() {
            for (at, &kind) in fixture.kinds().iter().enumerate() {
                let run = match touched {
                    Touched::Before => fixture.run(mapped[at].1, case, &mut buffers)?,
                    Touched::ByTheCall => {
                        let range = fixture.map(kind)?;
                        let run = fixture.run(range, case, &mut buffers)?;
                        fixture.space.unmap(range).map_err(Failure::run_time)?;
                        run
                    }
                };
                if round > 0 {
                    runs[at].push(run);
                }
            }
        }
        done();
        all.push((case, runs));
    }
    for (_, range) in mapped {
        fixture.space.unmap(range).map_err(Failure::run_time)?;
    }
    Ok(all)
}

/// The rows of a size: of measured kinds, and for each other kind one with the reason.
fn rows_of(size: ByteSize, asked: &[Asked], here: &[PinKind], layout: MapLayout, runs: &[CaseRuns]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (case, runs) in runs {
        let of = |kind| RowOf { size, kind, layout, case: *case };
        let base = here.iter().zip(runs).next().and_then(|(kind, runs)| Times::of_small_pages(*kind, runs));
        rows.extend(here.iter().zip(runs).map(|(kind, runs)| row::measured(of(*kind), runs, base)));
    }
    let missing = asked.iter().filter_map(|asked| Some((asked.kind, asked.left_out.clone()?)));
    rows.extend(missing.map(|(kind, reason)| row::left_out(size, kind, reason)));
    rows
}
