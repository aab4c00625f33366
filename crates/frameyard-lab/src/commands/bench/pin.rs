//! `bench pin`: taking references or pins of pages and releasing them, over mappings and page maps of every size, beside
//! published figures.

mod row;

use std::num::NonZeroU32;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use frameyard::ByteSize;
use frameyard_host::HostTopology;
use frameyard_vm::{PinCall, PinFlags, PinPath, PinRequest, RefHandling, VirtRange};
use frameyard_workloads::pin::{PinBuffers, PinCase, PinFixture, PinInterface, PinKind, PinRun, PinYard, Touched};

use super::compound_pagemap::Figure;
use super::pinned::{Asked, PinnedArgs, Taking, kinds};
use crate::Failure;
use crate::args::values::{named, positive_number, positive_size};
use crate::args::{OutputArgs, QuickArgs};
use crate::commands::comparison::grouped;
use crate::output::{Report, Row, progress_bar};
use row::{RowOf, Times};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about two minutes; --quick about 5 seconds.

Examples:
  frameyard bench pin --quick
  frameyard bench pin --size 1G --path fast --interface runs
  frameyard bench pin --size 1G --memory device --map dev --threads 2
  frameyard bench pin --quick --memory anonymous,shared,shared-file,private-file

gup_test -t is --memory huge, -T --memory anonymous, -S --memory shared, -f FILE --memory private-file, both --memory shared-file. \
    The file is one of the page cache, with a pattern. -w is the default. No counterpart: -c and -p, which print page structures; -H, \
    as there is no hugetlbfs; -F, as each flag of a call has an option here.";

/// Takes references or pins of pages and releases them, over mappings and page maps of every size
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct PinArgs {
    /// Sizes that are taken, multiples of 2M (gup_test -m) [default: 1G,16G; of 16G only kinds that fit]
    #[arg(long = "size", value_name = "SIZES", value_delimiter = ',', value_parser = positive_size, default_value_if("quick", "true", "256M"))]
    sizes: Vec<ByteSize>,

    /// Most pages of a call (gup_test -n) [default: all]
    #[arg(long, value_name = "PAGES", value_parser = positive_number)]
    batch: Option<NonZeroU32>,

    /// Threads that take the same pages at the same time; the median is over all runs of all threads (gup_test -j)
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive_number)]
    threads: NonZeroU32,

    /// Runs of each row, which alternate; the median is reported (gup_test -r)
    #[arg(long, value_name = "N", default_value = "3", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    repeat: NonZeroU32,

    /// References (gup_test -u; -U with --path slow) or pins (gup_test -a; -b with --path slow)
    #[arg(long = "call", value_name = "CALLS", value_delimiter = ',', value_parser = call(), default_value = "get,pin")]
    calls: Vec<PinCall>,

    /// fast: without locks where possible; slow: under the map lock; fast-only: without locks, or fail
    #[arg(long = "path", value_name = "PATHS", value_delimiter = ',', value_parser = path(), default_value = "fast,slow")]
    paths: Vec<PinPath>,

    /// One reference for each page, or all references of a head at once
    #[arg(long = "refs", value_name = "HOW", value_delimiter = ',', value_parser = refs(), default_value = "per-page,batched")]
    refs: Vec<RefHandling>,

    /// What a call returns
    #[arg(long = "interface", value_name = "WHAT", value_delimiter = ',', value_enum, default_value = "array,runs")]
    interfaces: Vec<PinResult>,

    /// Take pages for reading only (gup_test -W)
    #[arg(long)]
    read_only: bool,

    /// Take pages for a long time (gup_test -L)
    #[arg(long)]
    longterm: bool,

    /// Do not touch pages first: the calls fault them in, anew in each run (gup_test -z)
    #[arg(long)]
    no_touch: bool,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    memory: PinnedArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What a call returns.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum PinResult {
    /// The frame of each page
    Array,
    /// Runs of frames
    Runs,
}

fn call() -> impl TypedValueParser<Value = PinCall> {
    named(PinCall::ALL.iter().map(|call| call.name()))
}

fn path() -> impl TypedValueParser<Value = PinPath> {
    named(PinPath::ALL.iter().map(|path| path.name()))
}

fn refs() -> impl TypedValueParser<Value = RefHandling> {
    named(RefHandling::ALL.iter().map(|refs| refs.name()))
}

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
    let taking = if args.longterm && !args.read_only { Taking::WritesForLong } else { Taking::Usual };
    let mut asked = Vec::new();
    for &size in sizes {
        asked.push((size, kinds(NAME, &args.memory, taking, size, &host)?));
    }
    let cases = cases(args);
    let measured = asked.iter().flat_map(|(_, kinds)| kinds).filter(|asked| asked.left_out.is_none()).count();
    let bar = progress_bar(NAME, (measured * cases.len()) as u64);
    let mut rows = Vec::new();
    for (size, kinds) in &asked {
        let here: Vec<PinKind> =
            kinds.iter().filter(|asked| asked.left_out.is_none()).map(|asked| asked.kind).collect();
        let yard = PinYard::new(*size, &here, args.memory.device_maps(), &host)?;
        let runs = yard.with_fixture(|fixture| measure(fixture, args, &cases, &|| bar.inc(here.len() as u64)))?;
        rows.extend(rows_of(*size, kinds, &here, args, &runs));
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
    let threads = row.value("threads").as_u64().filter(|threads| *threads > 1);
    let threads = threads.map_or_else(String::new, |threads| format!(", {threads} threads"));
    let each = row.value("pages_per_call").as_u64().filter(|pages| bytes.is_none_or(|bytes| *pages != bytes / 4096));
    let each = each.map_or_else(String::new, |pages| format!(", {pages} pages a call"));
    format!("{call} {size}, {path} path, {interface}, refs {refs}{each}{threads}")
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
    let mut buffers: Vec<_> = (0..args.threads.get()).map(|_| PinBuffers::new(fixture.pages())).collect();
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
                let together = match touched {
                    Touched::Before => fixture.run_together(mapped[at].1, case, &mut buffers)?,
                    Touched::ByTheCall => {
                        let range = fixture.map(kind)?;
                        let together = fixture.run_together(range, case, &mut buffers)?;
                        fixture.space.unmap(range).map_err(Failure::run_time)?;
                        together
                    }
                };
                if round > 0 {
                    runs[at].extend(together);
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
fn rows_of(size: ByteSize, asked: &[Asked], here: &[PinKind], args: &PinArgs, runs: &[CaseRuns]) -> Vec<Row> {
    let (maps, threads) = (args.memory.device_maps(), args.threads);
    let mut rows = Vec::new();
    for (case, runs) in runs {
        let of = |kind| RowOf { size, kind, maps, case: *case, threads };
        let base = here.iter().zip(runs).next().and_then(|(kind, runs)| Times::of_small_pages(*kind, runs));
        rows.extend(here.iter().zip(runs).map(|(kind, runs)| row::measured(of(*kind), runs, base)));
    }
    let missing = asked.iter().filter_map(|asked| Some((asked.kind, asked.left_out.clone()?)));
    rows.extend(missing.map(|(kind, reason)| row::left_out(size, kind, reason)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::assert_refused;
    use frameyard::devices::MapLayout;

    fn read(line: &str) -> Result<PinArgs, String> {
        crate::args::read(line)
    }

    #[test]
    fn a_bare_run_has_all_rows() {
        let args = read("").unwrap();
        assert_eq!((args.calls, args.paths), (PinCall::ALL.to_vec(), vec![PinPath::FastThenSlow, PinPath::SlowOnly]));
        assert_eq!((args.refs, args.interfaces.len()), (RefHandling::ALL.to_vec(), 2));
        assert_eq!((args.memory.memory.len(), args.memory.layout), (4, MapLayout::Deduplicated));
        assert!(args.sizes.is_empty() && args.batch.is_none() && args.memory.pages.is_empty());
    }

    #[test]
    fn refusals_name_a_correct_value() {
        assert_refused::<PinArgs>(&[
            ("--size 0", "more than nothing"),
            ("--batch 0", "from 1"),
            ("--threads 0", "from 1"),
            ("--map disk", "possible values: mem, dev"),
            ("--call hold", "possible values: get, pin"),
            ("--path quick", "possible values: fast, slow, fast-only"),
            ("--refs many", "possible values: per-page, batched"),
            ("--interface list", "possible values: array, runs"),
            ("--page-size 8K", "write 4K, 2M or 1G"),
            ("--memory file", "possible values: anonymous, huge, pool, device, shared, shared-file, private-file"),
        ]);
    }
}
