//! Timing one row.

use std::num::NonZeroUsize;
use std::time::Instant;

use frameyard::boot::{InitJobs, InitMode, Initialiser, MapInit, ZoneLimits};
use frameyard::page::Page;
use frameyard::{ByteSize, Gfp, Layout, Order, YardConfig};
use frameyard_host::{Backing, HostTopology, HostYard, HostYardError, HugePages, MapRates, Region};

use super::machine::BenchMachine;
use super::sweep::{Case, Faulted, Place};
use crate::Failure;
use crate::boot::{Watch, nanoseconds};

/// The bytes of the map before an initialiser writes it.
const BEFORE: u8 = 0xa5;

/// A yard of at most this many frames is checked frame by frame after its last run.
const CHECKED_FRAMES: u64 = 1 << 20;

/// Samples of a row, one for each run; empty for what is not measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) map_bytes: ByteSize,
    /// For the whole map, once.
    pub(super) fault_ns: Option<u64>,
    pub(super) init_ns: Vec<f64>,
    pub(super) bytes_per_s: Vec<f64>,
    pub(super) memset_bytes_per_s: Vec<f64>,
    pub(super) limit_bytes_per_s: Vec<f64>,
    pub(super) limit_fraction: Vec<f64>,
    pub(super) first_alloc_ns: Vec<f64>,
}

/// Measures rows. Rows of one place share the memory of their map.
pub(super) struct Bench<'a> {
    host: &'a HostTopology,
    repeat: u32,
    done: &'a dyn Fn(),
    faulted: Option<FaultedMap>,
}

/// The present memory of a map.
struct FaultedMap {
    region: Region,
    fault_ns: u64,
}

/// One run of an initialiser.
struct Run {
    init_ns: u64,
    /// Bytes of map that were initialised in that time.
    bytes: u64,
    first_alloc_ns: u64,
}

impl<'a> Bench<'a> {
    /// Rows of `repeat` runs each. Every run calls `done`.
    pub(super) fn new(host: &'a HostTopology, repeat: u32, done: &'a dyn Fn()) -> Self {
        Self { host, repeat, done, faulted: None }
    }

    /// Provides the memory for the rows of a place.
    pub(super) fn prepare(&mut self, place: Place) -> Result<(), Failure> {
        // Returned before the next is taken.
        self.faulted = None;
        if place.faulted == Faulted::OnTheWay {
            return Ok(());
        }
        let machine = BenchMachine::new(self.host, place.frames, 0);
        let region = Region::zeroed(map_bytes(&machine)?, HugePages::Advise).map_err(Failure::run_time)?;
        machine.bind(&region, self.host).map_err(Failure::run_time)?;
        let begin = Instant::now();
        region.prefault(thread_count(place.threads), &mut |_| {}).map_err(Failure::run_time)?;
        self.faulted = Some(FaultedMap { region, fault_ns: nanoseconds(begin) });
        Ok(())
    }

    /// Runs a case. Before each run the limits are measured on the same memory.
    pub(super) fn measure(&mut self, case: &Case) -> Result<Measured, Failure> {
        let machine = BenchMachine::new(self.host, case.place.frames, case.holes);
        let mut measured = Measured { map_bytes: map_bytes(&machine)?, ..Measured::default() };
        for run in 1..=self.repeat {
            let check =
                if run == self.repeat && case.place.frames <= CHECKED_FRAMES { Check::Frames } else { Check::Nothing };
            match self.faulted.take() {
                Some(mut map) => {
                    measured.fault_ns = Some(map.fault_ns);
                    let limit = self.limit(case, &mut map.region, &mut measured)?;
                    fill_before(&mut map.region, case.initialiser);
                    let (run, region) = self.run(case, &machine, map.region, check)?;
                    measured.take(&run, limit);
                    self.faulted = Some(FaultedMap { region, ..map });
                }
                None => {
                    let advice =
                        if case.initialiser == Initialiser::None { HugePages::Never } else { HugePages::Advise };
                    let region = Region::zeroed(measured.map_bytes, advice).map_err(Failure::run_time)?;
                    let (run, _) = self.run(case, &machine, region, check)?;
                    measured.first_alloc_ns.push(run.first_alloc_ns as f64);
                }
            }
            (self.done)();
        }
        Ok(measured)
    }

    /// The rate at which the memory can be written; `None` where the initialiser does not write.
    fn limit(&self, case: &Case, region: &mut Region, measured: &mut Measured) -> Result<Option<f64>, Failure> {
        if case.initialiser == Initialiser::None {
            return Ok(None);
        }
        let rates = MapRates::measure(region, thread_count(case.place.threads), case.content);
        let rates = rates.map_err(Failure::run_time)?;
        measured.memset_bytes_per_s.push(rates.memset_bytes_per_s);
        measured.limit_bytes_per_s.push(rates.limit_bytes_per_s());
        Ok(Some(rates.limit_bytes_per_s()))
    }

    /// Boots a yard on the region and returns the region.
    fn run(&self, case: &Case, machine: &BenchMachine, region: Region, check: Check) -> Result<(Run, Region), Failure> {
        let watch = Watch::default();
        let builder = watch.attach(HostYard::builder().backing(Backing::Phantom).map_region(region));
        let (table, config) = (machine.table(), config(machine, case));
        let begin = Instant::now();
        let yard = builder.machine(&table, &config).host(self.host).build().map_err(refused)?;
        let create_ns = nanoseconds(begin);
        let first = yard.alloc(Order(0), Gfp::KERNEL).map_err(Failure::run_time)?;
        let first_alloc_ns = nanoseconds(begin);
        let mut init_ns = create_ns;
        if case.mode == InitMode::Deferred {
            let begin = Instant::now();
            yard.finish_init().map_err(Failure::run_time)?;
            init_ns += nanoseconds(begin);
        }
        yard.free(first, Order(0)).map_err(Failure::run_time)?;
        if check == Check::Frames {
            yard.drain_all();
            yard.validate().map_err(Failure::run_time)?;
        }
        let mut run = Run { init_ns, bytes: map_bytes(machine)?.0, first_alloc_ns };
        let nodes = watch.nodes();
        // The platform's time excludes the tables, which are no part of the map. Nodes are initialised side by side.
        if let Some(ns) = nodes.iter().map(|node| node.elapsed_ns).max().flatten().filter(|ns| *ns > 0) {
            run.init_ns = ns;
            run.bytes = nodes.iter().map(|node| node.pages.0 * size_of::<Page>() as u64).sum();
        }
        Ok((run, yard.into_map_region()))
    }
}

/// What is checked after a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    Nothing,
    Frames,
}

impl Measured {
    fn take(&mut self, run: &Run, limit: Option<f64>) {
        let rate = run.bytes as f64 * 1e9 / run.init_ns.max(1) as f64;
        self.init_ns.push(run.init_ns as f64);
        self.bytes_per_s.push(rate);
        self.limit_fraction.extend(limit.map(|limit| rate / limit));
        self.first_alloc_ns.push(run.first_alloc_ns as f64);
    }
}

/// Fills the map with bytes on which no initialiser may rely. `none` relies on zeroes.
fn fill_before(region: &mut Region, initialiser: Initialiser) {
    if initialiser == Initialiser::None {
        region.zero();
    } else if let Some(bytes) = region.bytes_mut() {
        bytes.fill(BEFORE);
    }
}

fn config<'a>(machine: &'a BenchMachine, case: &Case) -> YardConfig<'a> {
    let threads = (case.place.threads / machine.nodes()).max(1);
    let jobs = InitJobs { granularity: case.granularity, threads: Some(threads), ..InitJobs::default() };
    let map_init =
        MapInit { mode: case.mode, content: case.content, initialiser: case.initialiser, jobs, ..MapInit::default() };
    YardConfig { map_init, ..usual(machine) }
}

fn usual(machine: &BenchMachine) -> YardConfig<'_> {
    YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&machine.cpus) }
}

/// The size of the map, which does not depend on content and mode.
fn map_bytes(machine: &BenchMachine) -> Result<ByteSize, Failure> {
    Layout::plan(&machine.table(), &usual(machine)).map(|layout| layout.map_bytes()).map_err(Failure::input)
}

fn thread_count(threads: usize) -> NonZeroUsize {
    NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN)
}

fn refused(error: HostYardError) -> Failure {
    match error {
        HostYardError::Boot(error) if !error.is_at_run_time() => Failure::input(error),
        other => Failure::run_time(other),
    }
}
