//! `bench pcp-reset`: how often zone locks are taken where per-CPU lists keep the size that early memory gave them,
//! and where they are sized again when the last page is in. Under the policy `vanilla`, which visits the zone for every batch.
//!
//! Nothing is timed: one thread is each CPU in turn, through a view of the same yard for each, so that the counts
//! are exact.

use std::io::{self, Write};

use frameyard::boot::{InitMode, MapInit, PcpReset, ZoneLimits};
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{ByteSize, CpuId, Geometry, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{CpuIdentity, HostTopology, HostYard, SharedFrames};
use serde::Serialize;

use crate::Failure;
use crate::cli::PcpResetArgs;
use crate::output::{self, Outcome, RoundedSize, RowError, Rows, Table, progress_bar};

/// Nodes, of one zone each.
const NODES: u64 = 2;
/// Frames that a CPU allocates or frees before it is the next one's turn.
const TURN: usize = 64;

/// Counts for every size, number of CPUs and way.
pub(super) fn run(args: &PcpResetArgs) -> Result<(), Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    for size in &args.zone_sizes {
        check_size(*size, args, &host)?;
    }
    let bar = progress_bar("bench pcp-reset", (args.zone_sizes.len() * args.cpus.len() * 2) as u64);
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
    output::print(&Counts { rows }, &args.output)
}

/// Refuses zones without whole sections, or in which the workload would run out of memory.
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
    // Bring-up writes to a page of the map for each maximum-order block.
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
        let (first, file) =
            as_cpu(0).build_shared(&table, &config, SharedFrames::Phantom, host).map_err(Failure::run_time)?;
        first.finish_init().map_err(Failure::run_time)?;
        let others = (1..all_cpus).map(|cpu| as_cpu(cpu).attach(&file, host));
        let mut views = vec![first];
        views.extend(others.collect::<Result<Vec<_>, _>>().map_err(Failure::run_time)?);
        let before = acquisitions(&views[0]);
        workload(&views, self.pages as usize)?;
        let lock_acquisitions = acquisitions(&views[0]) - before;
        Ok(self.row(&views[0], lock_acquisitions))
    }

    fn row(&self, yard: &HostYard, lock_acquisitions: u64) -> Row {
        // All lists of this machine are alike: it has one kind of zone, of one size.
        let lists = yard.zones().next().and_then(|zone| yard.pcp_statistics(zone.id, CpuId(0)));
        let pages = u64::from(self.pages) * yard.cpus() as u64;
        Row {
            pcp_reset: self.reset.name(),
            cpus: self.cpus,
            zone_bytes: self.zone_size.0,
            batch: lists.map_or(0, |lists| lists.batch.0),
            high: lists.map_or(0, |lists| lists.high.0),
            pages,
            lock_acquisitions,
            lock_acquisitions_per_1000_pages: lock_acquisitions as f64 * 1000.0 / pages as f64,
        }
    }
}

fn acquisitions(yard: &HostYard) -> u64 {
    yard.zones().map(|zone| zone.lock.acquisitions).sum()
}

/// Every CPU allocates so many frames, a few at a time while the others do too, then frees them in the same way.
fn workload(views: &[HostYard], pages: usize) -> Result<(), Failure> {
    let mut held: Vec<Vec<Pfn>> = views.iter().map(|_| Vec::with_capacity(pages)).collect();
    for turn in (0..pages).step_by(TURN) {
        for (yard, held) in views.iter().zip(&mut held) {
            for _ in turn..pages.min(turn + TURN) {
                held.push(yard.alloc(Order(0), Gfp::KERNEL).map_err(Failure::run_time)?);
            }
        }
    }
    while held.iter().any(|held| !held.is_empty()) {
        for (yard, held) in views.iter().zip(&mut held) {
            for pfn in held.drain(..TURN.min(held.len())) {
                yard.free(pfn, Order(0)).map_err(Failure::run_time)?;
            }
        }
    }
    Ok(())
}

/// A zone size, a number of CPUs of its node, and whether lists were sized again.
#[derive(Serialize, Debug)]
struct Row {
    pcp_reset: &'static str,
    cpus: u32,
    zone_bytes: u64,
    batch: u64,
    high: u64,
    /// Allocated and freed, by all CPUs.
    pages: u64,
    lock_acquisitions: u64,
    lock_acquisitions_per_1000_pages: f64,
}

/// All rows of a run.
struct Counts {
    rows: Vec<Row>,
}

impl Outcome for Counts {
    fn command(&self) -> &'static str {
        "bench pcp-reset"
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table =
            Table::new(["reset", "CPUs a zone", "zone", "batch", "high", "pages", "lock taken", "per 1000 pages"]);
        for row in &self.rows {
            table.push([
                row.pcp_reset.to_owned(),
                row.cpus.to_string(),
                RoundedSize(ByteSize(row.zone_bytes)).to_string(),
                row.batch.to_string(),
                row.high.to_string(),
                row.pages.to_string(),
                row.lock_acquisitions.to_string(),
                format!("{:.1}", row.lock_acquisitions_per_1000_pages),
            ]);
        }
        table.write(out)?;
        writeln!(
            out,
            "\nTwo nodes of one zone each, phantom frames; every page is allocated once and freed once. What the reset \
             saves of a page grows with the zone until its batch is the largest, of the lock with the CPUs that share it."
        )
    }
}
