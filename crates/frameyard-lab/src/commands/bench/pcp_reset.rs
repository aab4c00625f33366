//! `bench pcp-reset`: acquisitions of zone locks with per-CPU lists sized by early memory, and with lists sized again once all
//! memory is initialised. The policy is `vanilla`, which visits the zone for every batch.
//!
//! Nothing is timed. One thread acts as each CPU in turn, through one view of the yard for each CPU, so that counts are exact.

use std::num::NonZeroU32;

use clap::Args;
use frameyard::boot::{InitMode, MapInit, PcpReset, ZoneLimits};
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{ByteSize, CpuId, Geometry, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{Backing, CpuIdentity, HostTopology, HostYard};

use crate::Failure;
use crate::args::values::{positive_number, positive_size};
use crate::args::{OutputArgs, QuickArgs};
use crate::output::{Format, Report, RoundedSize, Row, progress_bar};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 10 seconds; --quick about 2. Counts only: every run gives the same rows.

Examples:
  frameyard bench pcp-reset
  frameyard bench pcp-reset --zone-size 1G,8G --cpus 16";

/// Counts acquisitions of zone locks with per-CPU lists sized by early memory, and sized again by all memory
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct PcpResetArgs {
    /// Memory of each of the two nodes, in one zone
    #[arg(long = "zone-size", value_name = "SIZES", value_delimiter = ',', value_parser = positive_size, default_value = "256M,512M,1G,8G,128G", default_value_if("quick", "true", "256M,1G"))]
    zone_sizes: Vec<ByteSize>,

    /// CPUs of each node
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = positive_number, default_value = "2,8,32", default_value_if("quick", "true", "2,8"))]
    cpus: Vec<NonZeroU32>,

    /// Frames that each CPU allocates and frees
    #[arg(long, value_name = "N", default_value = "1024", value_parser = positive_number)]
    pages: NonZeroU32,

    #[command(flatten)]
    quick: QuickArgs,

    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "bench pcp-reset";
/// Nodes, of one zone each.
const NODES: u64 = 2;
/// Frames that a CPU allocates or frees before the next CPU continues.
const STRIDE: usize = 64;
const NOTE: &str = "Two nodes of one zone each, phantom frames. Every page is allocated once and freed once. The saving for each page grows \
    with the zone until its batch is the largest; the saving for each lock grows with the CPUs that share it.";

/// Counts for every size and number of CPUs, with and without the reset.
pub(super) fn run(args: &PcpResetArgs) -> Result<(), Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    for size in &args.zone_sizes {
        check_size(*size, args, &host)?;
    }
    let bar = progress_bar(NAME, (args.zone_sizes.len() * args.cpus.len() * 2) as u64);
    let mut rows = Vec::new();
    for &zone_size in &args.zone_sizes {
        for cpus in &args.cpus {
            for reset in PcpReset::ALL {
                let case = Case { reset, cpus: cpus.get(), zone_size, pages: args.pages.get() };
                rows.push(case.count(&host)?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Report::new(NAME, rows).note(NOTE).print(&args.output)
}

/// Refuses zones of partial sections, and zones in which the workload would run out of memory.
fn check_size(size: ByteSize, args: &PcpResetArgs, host: &HostTopology) -> Result<(), Failure> {
    let geometry = Geometry::X86_64;
    let section = geometry.section_size();
    let cpus = args.cpus.iter().map(|cpus| u64::from(cpus.get())).max().unwrap_or(1);
    let needed = geometry.size_of(PageCount(2 * cpus * u64::from(args.pages.get())));
    if !size.0.is_multiple_of(section.0) {
        return Err(Failure::input(format!("--zone-size {size}: write multiples of a section, {section}")));
    }
    if size < needed {
        let reason = format!(
            "--zone-size {size}: {cpus} CPUs that allocate {} frames each need zones of at least {}",
            args.pages,
            RoundedSize(needed)
        );
        return Err(Failure::input(reason));
    }
    // Boot writes to one page of the map for each maximum-order block.
    let blocks = geometry.pages_in(size).0.saturating_mul(NODES) >> geometry.max_order().0;
    let written = ByteSize(blocks.saturating_mul(host.page_size().0));
    let available = host.available_memory().map_err(Failure::run_time)?;
    if written > available {
        return Err(Failure::input(format!(
            "--zone-size {size}: its memory map takes {} and this host has {} available",
            RoundedSize(written),
            RoundedSize(available)
        )));
    }
    Ok(())
}

/// One row.
struct Case {
    reset: PcpReset,
    /// Of each node.
    cpus: u32,
    zone_size: ByteSize,
    /// For each CPU.
    pages: u32,
}

impl Case {
    fn count(&self, host: &HostTopology) -> Result<Row, Failure> {
        let frames = Geometry::X86_64.pages_in(self.zone_size);
        let memory: Vec<(PfnRange, NodeId)> =
            (0..NODES).map(|node| (PfnRange::new(Pfn(node * frames.0), frames), NodeId(node as u16))).collect();
        let all_cpus = self.cpus * NODES as u32;
        let cpus: Vec<NodeId> = (0..all_cpus).map(|cpu| NodeId((cpu / self.cpus) as u16)).collect();
        let config = YardConfig {
            zone_limits: ZoneLimits::NONE,
            pcp_sizing: PcpSizing::Classic,
            map_init: MapInit { mode: InitMode::Deferred, pcp_reset: self.reset, ..MapInit::default() },
            policy: ZonePolicy::Vanilla,
            ..YardConfig::new(&cpus)
        };
        let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
        let as_cpu = |cpu| HostYard::builder().identity(CpuIdentity::Fixed(CpuId(cpu)));
        let first = as_cpu(0)
            .machine(&table, &config)
            .host(host)
            .backing(Backing::Phantom)
            .shared()
            .build()
            .map_err(Failure::run_time)?;
        first.finish_init().map_err(Failure::run_time)?;
        let file = first.shared_file().expect("a shared yard");
        // SAFETY: only these views use the file.
        let others = (1..all_cpus).map(|cpu| unsafe { as_cpu(cpu).attach(file) }.host(host).build());
        let others: Vec<_> = others.collect::<Result<_, _>>().map_err(Failure::run_time)?;
        let views: Vec<_> = std::iter::once(first).chain(others).collect();
        let before = acquisitions(&views[0]);
        workload(&views, self.pages as usize)?;
        let lock_acquisitions = acquisitions(&views[0]) - before;
        Ok(self.row(&views[0], lock_acquisitions))
    }

    fn row(&self, yard: &HostYard, lock_acquisitions: u64) -> Row {
        // All lists of this machine are alike: it has one kind of zone, of one size.
        let lists = yard.stats().zones().next().and_then(|zone| yard.zone(zone.id).pcp(CpuId(0)));
        let pages = u64::from(self.pages) * yard.core().cpus() as u64;
        let per_1000_pages = lock_acquisitions as f64 * 1000.0 / pages as f64;
        Row::new()
            .column("pcp_reset", "reset", self.reset.name())
            .column("cpus", "CPUs a zone", self.cpus)
            .column_as("zone_bytes", "zone", Format::Size, self.zone_size.0)
            .column("batch", "batch", lists.map_or(0, |lists| lists.batch.0))
            .column("high", "high", lists.map_or(0, |lists| lists.high.0))
            .column("pages", "pages", pages)
            .minor()
            .column("lock_acquisitions", "lock taken", lock_acquisitions)
            .minor()
            .column_as("lock_acquisitions_per_1000_pages", "per 1000 pages", Format::number(1), per_1000_pages)
    }
}

fn acquisitions(yard: &HostYard) -> u64 {
    yard.stats().zones().map(|zone| zone.lock.acquisitions).sum()
}

/// Every CPU allocates `pages` frames, [`STRIDE`] at a time in turn, then frees them in the same way.
fn workload(views: &[HostYard], pages: usize) -> Result<(), Failure> {
    let mut held: Vec<Vec<Pfn>> = views.iter().map(|_| Vec::with_capacity(pages)).collect();
    for first in (0..pages).step_by(STRIDE) {
        for (yard, held) in views.iter().zip(&mut held) {
            for _ in first..pages.min(first + STRIDE) {
                held.push(yard.alloc(Order(0), Gfp::KERNEL).map_err(Failure::run_time)?);
            }
        }
    }
    while held.iter().any(|held| !held.is_empty()) {
        for (yard, held) in views.iter().zip(&mut held) {
            for pfn in held.drain(..STRIDE.min(held.len())) {
                yard.free(pfn, Order(0)).map_err(Failure::run_time)?;
            }
        }
    }
    Ok(())
}
