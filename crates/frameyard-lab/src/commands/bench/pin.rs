//! `bench pin`: pages got or pinned and given back, over mappings and page maps of every size, beside published figures.

use frameyard::{ByteSize, MapLayout};
use frameyard_host::HostTopology;
use frameyard_vm::{PinFlags, PinRequest, VirtRange};

use super::pinned::{Asked, kinds};
use crate::Failure;
use crate::cli::{PinArgs, PinResult};
use crate::output::{self, progress_bar};
use frameyard_workloads::pin::{PinBuffers, PinCase, PinFixture, PinInterface, PinKind, PinRun, PinYard, Touched};

mod row;
mod text;

use row::{Row, RowOf};
use text::PinOutcome;

/// The name of the command.
const NAME: &str = "bench pin";
/// How much is taken unless something else is asked for.
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
    rows.extend(row::published());
    output::print(&PinOutcome { rows }, &args.output)
}

/// What is done to each kind of memory.
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

/// Runs all cases on all kinds; kinds by turns. The first run of each warms up.
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

/// The rows of a size: those measured, and for each kind that was not one that says why.
fn rows_of(size: ByteSize, asked: &[Asked], here: &[PinKind], layout: MapLayout, runs: &[CaseRuns]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (case, runs) in runs {
        let of = |kind| RowOf { size, kind, layout, case: *case };
        let measured: Vec<Row> = here.iter().zip(runs).map(|(kind, runs)| Row::measured(of(*kind), runs)).collect();
        let base = measured.first().filter(|row| row.page_bytes == Some(4096)).cloned();
        rows.extend(measured.into_iter().map(|row| row.against(base.as_ref())));
    }
    let missing = asked.iter().filter_map(|asked| Some((asked.kind, asked.left_out.clone()?)));
    rows.extend(missing.map(|(kind, reason)| Row::left_out(size, kind, reason)));
    rows
}
