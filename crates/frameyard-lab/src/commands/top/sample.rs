//! Samples of a yard's state, and rates from two of them. Reads a yard and draws nothing.

use std::collections::BTreeMap;
use std::fs;

use frameyard::page::FrameState;
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::{CpuId, MigrateType, Order, PageCount, Pfn, PfnRange, Platform, Yard, ZoneId};

/// Values by migration type, in the order of [`MigrateType::ALL`].
pub(super) type ByType<T> = [T; MigrateType::ALL.len()];

/// What a yard was like at a time.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sample {
    /// The time of any clock.
    pub(super) time_ns: u64,
    pub(super) policy: ZonePolicy,
    pub(super) page_bytes: u64,
    pub(super) pageblock_order: Order,
    /// The zones with memory.
    pub(super) zones: Vec<ZoneSample>,
    /// Requests that found no memory.
    pub(super) failures: u64,
    /// Page faults of the processes that use the yard, by process number.
    pub(super) faults: BTreeMap<u32, u64>,
    /// Entries of processes in the yard's table.
    pub(super) processes: usize,
}

/// A zone.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct ZoneSample {
    pub(super) name: String,
    pub(super) managed: u64,
    /// Free pages, without those on per-CPU lists.
    pub(super) free: u64,
    /// Pages on per-CPU lists.
    pub(super) per_cpu: u64,
    /// Free blocks by order.
    pub(super) blocks: Vec<ByType<u64>>,
    pub(super) pageblocks: ByType<u64>,
    pub(super) counters: Counters,
    /// The lists of each CPU.
    pub(super) lists: Vec<ListFill>,
}

/// Counters that only rise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counters {
    pub(super) allocated: u64,
    pub(super) freed: u64,
    pub(super) acquisitions: u64,
    pub(super) contended: u64,
    pub(super) moved: u64,
    pub(super) refills: u64,
    pub(super) drains: u64,
    pub(super) fallbacks: u64,
}

/// The lists of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ListFill {
    pub(super) pages: u64,
    pub(super) high: u64,
}

/// The zones with memory, in the order of a sample.
pub(super) fn zones<P: Platform>(yard: &Yard<P>) -> impl Iterator<Item = ZoneId> {
    yard.stats().zones().map(|zone| zone.id).filter(|zone| zone.kind() != ZoneKind::Device)
}

impl Sample {
    /// Reads a yard. `processes` are the numbers of those that use it.
    ///
    /// Takes no lock. Cost: a byte of each pageblock for each type, and a kilobyte for each zone and CPU.
    pub(super) fn read<P: Platform>(yard: &Yard<P>, processes: &[u32], time_ns: u64) -> Self {
        Self {
            time_ns,
            policy: yard.policy(),
            page_bytes: yard.geometry().page_size().0,
            pageblock_order: yard.geometry().pageblock_order(),
            zones: zones(yard).map(|zone| ZoneSample::read(yard, zone)).collect(),
            failures: yard.stats().failures(),
            faults: processes.iter().filter_map(|process| Some((*process, faults_of(*process)?))).collect(),
            processes: processes.len(),
        }
    }

    /// The chosen zone, or all of them as one.
    pub(super) fn zone(&self, chosen: Option<usize>) -> ZoneSample {
        match chosen.and_then(|at| self.zones.get(at)) {
            Some(zone) => zone.clone(),
            None => self.zones.iter().fold(ZoneSample::default(), |sum, zone| sum.and(zone)),
        }
    }
}

impl ZoneSample {
    fn read<P: Platform>(yard: &Yard<P>, id: ZoneId) -> Self {
        let (zone, statistics) = (yard.zone(id), yard.zone(id).statistics());
        let blocks = |order| {
            MigrateType::ALL.map(|of| zone.free_blocks(Order(order), of) + zone.blocks_in_bits(Order(order), of))
        };
        let lists = |cpu| {
            let lists = zone.pcp(CpuId(cpu)).unwrap_or_default();
            ListFill { pages: lists.pages.0, high: lists.high.0 }
        };
        Self {
            name: format!("node {} {}", id.node().0, id.kind()),
            managed: statistics.managed.0,
            free: statistics.free.0,
            per_cpu: statistics.per_cpu.0,
            blocks: (0..=yard.geometry().max_order().0).map(blocks).collect(),
            pageblocks: MigrateType::ALL.map(|of| zone.pageblocks(of)),
            counters: Counters {
                allocated: statistics.pages_allocated,
                freed: statistics.pages_freed,
                acquisitions: statistics.lock.acquisitions,
                contended: statistics.lock.contended,
                moved: statistics.pages_moved,
                refills: statistics.refills,
                drains: statistics.drains,
                fallbacks: statistics.fallbacks,
            },
            lists: (0..yard.cpus()).map(lists).collect(),
        }
    }

    /// Both zones as one.
    fn and(mut self, other: &Self) -> Self {
        "all zones".clone_into(&mut self.name);
        self.managed += other.managed;
        self.free += other.free;
        self.per_cpu += other.per_cpu;
        self.blocks.resize(self.blocks.len().max(other.blocks.len()), ByType::default());
        for (sum, blocks) in self.blocks.iter_mut().zip(&other.blocks) {
            sum.iter_mut().zip(blocks).for_each(|(sum, blocks)| *sum += blocks);
        }
        self.pageblocks.iter_mut().zip(other.pageblocks).for_each(|(sum, blocks)| *sum += blocks);
        self.counters = self.counters.zip(other.counters, u64::wrapping_add);
        self.lists.resize(self.lists.len().max(other.lists.len()), ListFill::default());
        for (sum, lists) in self.lists.iter_mut().zip(&other.lists) {
            (sum.pages, sum.high) = (sum.pages + lists.pages, sum.high + lists.high);
        }
        self
    }

    /// Free pages in blocks of each type.
    pub(super) fn free_by_type(&self) -> ByType<u64> {
        let mut free = ByType::default();
        for (order, blocks) in self.blocks.iter().enumerate() {
            free.iter_mut().zip(blocks).for_each(|(free, blocks)| *free += blocks << order);
        }
        free
    }

    /// The part of the free pages that lie in blocks below an order; `None` where nothing is free.
    pub(super) fn unusable(&self, order: Order) -> Option<f64> {
        let pages = |(order, blocks): (usize, &ByType<u64>)| blocks.iter().sum::<u64>() << order;
        let small: u64 = self.blocks.iter().enumerate().take(order.index()).map(pages).sum();
        let all: u64 = self.blocks.iter().enumerate().map(pages).sum();
        (all > 0).then(|| small as f64 / all as f64)
    }
}

impl Counters {
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            allocated: f(self.allocated, other.allocated),
            freed: f(self.freed, other.freed),
            acquisitions: f(self.acquisitions, other.acquisitions),
            contended: f(self.contended, other.contended),
            moved: f(self.moved, other.moved),
            refills: f(self.refills, other.refills),
            drains: f(self.drains, other.drains),
            fallbacks: f(self.fallbacks, other.fallbacks),
        }
    }
}

/// Rates a second between two samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rates {
    pub(super) counters: Counters,
    pub(super) faults: u64,
}

impl Rates {
    /// The rates of the chosen zone, or of all; `None` if no time has passed. A counter that fell, as the yard's CPUs are read one after
    /// the other, has rate 0.
    pub(super) fn between(before: &Sample, now: &Sample, chosen: Option<usize>) -> Option<Self> {
        let ns = now.time_ns.checked_sub(before.time_ns).filter(|ns| *ns > 0)?;
        let rate = |now: u64, before: u64| {
            let risen = now.wrapping_sub(before).cast_signed().max(0);
            (risen as f64 * 1e9 / ns as f64).round() as u64
        };
        let of = |process: (&u32, &u64)| Some(process.1.saturating_sub(*before.faults.get(process.0)?));
        let faults: u64 = now.faults.iter().filter_map(of).sum();
        let counters = now.zone(chosen).counters.zip(before.zone(chosen).counters, rate);
        Some(Self { counters, faults: rate(faults, 0) })
    }
}

/// Minor and major faults of a process; `None` if it has ended or is hidden. Fields 10 and 12 of proc(5)'s stat.
fn faults_of(process: u32) -> Option<u64> {
    faults_in(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

fn faults_in(stat: &str) -> Option<u64> {
    let (_, from_third) = stat.rsplit_once(") ")?;
    let field = |number: usize| from_third.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
    Some(field(10)? + field(12)?)
}

/// A pageblock in the map of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub(super) migrate_type: MigrateType,
    pub(super) fill: Fill,
}

/// How much of a pageblock is free. Pages on per-CPU lists count as free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fill {
    Free,
    Mixed,
    Used,
}

/// Pageblocks at equal distances in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct BlockMap {
    /// Pageblocks in memory for one in the map.
    pub(super) step: u64,
    pub(super) cells: Vec<Cell>,
}

impl BlockMap {
    /// A map of at most `most` pageblocks of a zone, or of all zones.
    ///
    /// Takes no lock. Cost: at most all page structures of these pageblocks.
    pub(super) fn read<P: Platform>(yard: &Yard<P>, zone: Option<ZoneId>, most: usize) -> Self {
        let pages = yard.geometry().pageblock_order().pages();
        let ranges = || yard.memory_ranges().filter(|(_, of)| zone.is_none_or(|zone| *of == zone));
        // A pageblock that two ranges share is in the map for each of them.
        let starts = |range: PfnRange| range.start.0 / pages.0..range.end.0.div_ceil(pages.0);
        let blocks: u64 = ranges().map(|(range, _)| starts(range).end - starts(range).start).sum();
        let step = blocks.div_ceil(most.max(1) as u64).max(1);
        let all = ranges().flat_map(|(range, _)| starts(range).map(move |block| (range, block)));
        let cells = all.step_by(step as usize).filter_map(|(range, block)| {
            let block = PfnRange::new(Pfn(block * pages.0), pages).intersection(range);
            Some(Cell { migrate_type: yard.stats().pageblock_type(block.start)?, fill: fill(yard, block) })
        });
        Self { step, cells: cells.collect() }
    }
}

fn fill<P: Platform>(yard: &Yard<P>, block: PfnRange) -> Fill {
    let (mut at, mut free, mut used) = (block.start, false, false);
    while at < block.end && !(free && used) {
        let Some(frame) = yard.stats().frame(at) else { break };
        match frame.state {
            FrameState::BuddyFree | FrameState::PerCpu | FrameState::InTransit | FrameState::Uninitialised => {
                free = true;
            }
            FrameState::Interior if !yard.stats().is_allocated(at, Order(0)) => free = true,
            _ => used = true,
        }
        at = (frame.head + frame.order.pages()).max(at + PageCount(1));
    }
    match (free, used) {
        (true, true) => Fill::Mixed,
        (true, false) => Fill::Free,
        (false, _) => Fill::Used,
    }
}

#[cfg(test)]
mod tests {
    use frameyard::{ByteSize, Gfp};
    use frameyard_host::HostYard;

    use super::*;

    fn yard() -> HostYard {
        HostYard::with_memory(ByteSize::mib(32)).unwrap()
    }

    #[test]
    fn a_sample_has_what_the_yard_has() {
        let yard = yard();
        let block = yard.frames(Order(3), Gfp::KERNEL).unwrap();
        let sample = Sample::read(yard.core(), &[std::process::id()], 5);
        let all = sample.zone(None);
        assert_eq!(all.managed, yard.stats().managed_pages().0);
        assert_eq!(all.free + all.per_cpu, yard.stats().free_pages().0);
        assert_eq!(all.managed - all.free - all.per_cpu, 8);
        assert_eq!(all.free_by_type().iter().sum::<u64>(), all.free);
        assert_eq!(all.pageblocks.iter().sum::<u64>(), 32 / 2);
        assert_eq!(all.lists.len(), yard.core().cpus() as usize);
        assert_eq!(all.lists.iter().map(|lists| lists.pages).sum::<u64>(), all.per_cpu);
        assert!(all.counters.allocated >= 8 && sample.faults[&std::process::id()] > 0);
        assert_eq!((sample.processes, sample.policy), (1, yard.core().policy()));
        drop(block);
    }

    #[test]
    fn rates_are_differences_over_time() {
        let yard = yard();
        let before = Sample::read(yard.core(), &[], 1_000_000_000);
        for _ in 0..50 {
            drop(yard.frames(Order(0), Gfp::KERNEL).unwrap());
        }
        let now = Sample::read(yard.core(), &[], 1_500_000_000);
        let rates = Rates::between(&before, &now, None).unwrap();
        assert_eq!((rates.counters.allocated, rates.counters.freed), (100, 100));
        assert_eq!(Rates::between(&now, &now, None), None);
        assert_eq!(Rates::between(&now, &before, None), None);
    }

    #[test]
    fn faults_count_for_processes_that_both_samples_have() {
        let with = |time_ns, faults: &[(u32, u64)]| Sample {
            faults: faults.iter().copied().collect(),
            ..Sample::read(yard().core(), &[], time_ns)
        };
        let (before, now) = (with(0, &[(1, 100), (2, 7)]), with(2_000_000_000, &[(1, 150), (3, 9000)]));
        assert_eq!(Rates::between(&before, &now, None).unwrap().faults, 25);
        assert_eq!(faults_in("7 (a b) c) S 1 7 7 0 -1 4194304 100 2345 3 0 1 2 150 50 20 0"), Some(103));
        assert_eq!(faults_in("7 (a) S 1"), None);
    }

    #[test]
    fn the_map_tells_free_used_and_mixed_pageblocks_apart() {
        let yard = yard();
        let count = |fill| BlockMap::read(yard.core(), None, 100).cells.iter().filter(|cell| cell.fill == fill).count();
        let mixed = count(Fill::Mixed);
        let whole = yard.frames(Order(9), Gfp::HIGHUSER_MOVABLE).unwrap();
        assert_eq!((count(Fill::Used), count(Fill::Mixed)), (1, mixed));
        let single = yard.frames(Order(0), Gfp::HIGHUSER_MOVABLE).unwrap();
        assert_eq!(count(Fill::Mixed), mixed + 1);
        let map = BlockMap::read(yard.core(), None, 100);
        assert_eq!((map.step, map.cells.len()), (1, 16));
        assert!(map.cells.iter().any(|cell| cell.migrate_type == MigrateType::Movable));
        let map = BlockMap::read(yard.core(), None, 5);
        assert_eq!((map.step, map.cells.len()), (4, 4));
        drop((whole, single));
        assert_eq!(count(Fill::Used), 0);
    }

    #[test]
    fn memory_in_small_blocks_is_unusable_for_a_large_order() {
        let of = |unmovable| ByType::from([unmovable, 0, 0, 0, 0, 0]);
        let zone = ZoneSample { blocks: vec![of(3), of(0), of(1)], ..ZoneSample::default() };
        assert_eq!(zone.unusable(Order(2)), Some(3.0 / 7.0));
        assert_eq!(zone.unusable(Order(0)), Some(0.0));
        assert_eq!(ZoneSample::default().unusable(Order(9)), None);
    }
}
