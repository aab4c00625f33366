//! The lines that single operations touch, under the default policy, against counts on paper.

use std::ptr::NonNull;

use crate::fixture::HeapRegion;
use frameyard::boot::ZoneLimits;
use frameyard::counting::{Counted, CountingPlatform, SpanTouches, TaskCounters};
use frameyard::platform::SequencesNotEnded;
use frameyard::{CpuId, Gfp, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, Yard, YardConfig};

/// One CPU without memory behind its frames, which uses its lists under locks or in restartable sequences.
struct OneCpu {
    access: ListAccess,
}

/// How it uses them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListAccess {
    Locks,
    Sequences,
}

impl Platform for OneCpu {
    type Guard = ();
    fn guard(&self) {}
    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn spin(&self, _round: u32) {}
    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
    fn has_sequences(&self) -> bool {
        self.access == ListAccess::Sequences
    }
    fn end_sequences(&self, _cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        Ok(())
    }
}

const HUGE: Order = Order(9);
/// Entries of a list that lie on its first line, behind its word.
const ON_FIRST_LINE: usize = 10;

type CountedYard = Yard<CountingPlatform<'static, OneCpu, fn() -> u32, 4096>>;

/// A fresh yard of 2 GiB, so that lists of huge blocks reach past their first line. Stays until the program ends.
fn yard(access: ListAccess) -> CountedYard {
    let memory = [(PfnRange::new(Pfn(0x8000), PageCount(1 << 19)), NodeId(0))];
    let source = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0)]) };
    let layout = Layout::plan(&source, &config).unwrap();
    let regions = [layout.map_bytes(), layout.control_bytes()].map(|size| Box::leak(Box::new(HeapRegion::new(size))));
    let [map, control] = regions.map(|region| region.raw());
    let tasks: &'static [TaskCounters<4096>] = Box::leak(Box::new([TaskCounters::default()]));
    let platform = CountingPlatform::new(Box::leak(Box::new(OneCpu { access })), tasks, (|| 0) as fn() -> u32);
    // SAFETY: the regions are fresh, zeroed, of the planned sizes, and never freed.
    unsafe { Yard::create(&source, &config, &layout, map, control, platform) }.unwrap()
}

fn take(yard: &CountedYard, order: Order) -> Pfn {
    yard.alloc(order, Gfp::HIGHUSER_MOVABLE).unwrap()
}

/// Lines, each counted once: page structures and other lines, outside of the zone lock and under it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Lines {
    pages: u64,
    others: u64,
    pages_under_lock: u64,
    others_under_lock: u64,
}

fn lines_of(yard: &CountedYard, work: impl FnOnce()) -> Lines {
    let before = yard.platform().counted();
    yard.platform().in_one_stretch(work);
    let counted = yard.platform().counted().since(&before);
    assert_eq!((counted.forgotten, counted.lost), (0, 0));
    let Counted { refill, drain, elsewhere, .. } = counted;
    let sum = |of: fn(&SpanTouches) -> u64| [refill, drain, elsewhere].iter().map(of).sum();
    Lines {
        pages: sum(|span| span.outside.lines),
        others: sum(|span| span.others_outside.lines),
        pages_under_lock: sum(|span| span.under_lock.lines),
        others_under_lock: sum(|span| span.others_under_lock.lines),
    }
}

/// Leaves `held` blocks in the list of the CPU.
fn hold(yard: &CountedYard, order: Order, held: usize) {
    let blocks: Vec<Pfn> = (0..held).map(|_| take(yard, order)).collect();
    yard.drain_all();
    blocks.iter().for_each(|block| yard.free(*block, order).unwrap());
}

/// How a yard's CPU uses its lists, and the lines that all entries of a list lie on. In the locked lists of a kernel, entries have the
/// first line to themselves.
const ACCESSES: [(ListAccess, u64); 2] = [(ListAccess::Locks, 8), (ListAccess::Sequences, 9)];

#[test]
fn a_pair_touches_four_lines_and_a_fifth_if_its_entry_is_not_on_the_first_line_of_the_list() {
    for (access, _) in ACCESSES {
        for order in [Order::ZERO, HUGE] {
            for held in [1, ON_FIRST_LINE, ON_FIRST_LINE + 1] {
                let yard = yard(access);
                hold(&yard, order, held);
                let pair = lines_of(&yard, || yard.free(take(&yard, order), order).unwrap());
                // The owner words (the first is the lock), the list, the block's byte in the allocation map, its pageblock's word.
                let others = if held > ON_FIRST_LINE { 5 } else { 4 };
                assert_eq!(pair, Lines { others, ..Lines::default() }, "{order}, {held} held, {access:?}");
            }
        }
    }
}

#[test]
fn a_refill_from_bits_touches_no_page_and_no_lock() {
    for (access, of_list) in ACCESSES {
        for order in [Order::ZERO, Order(2), Order(4)] {
            let yard = yard(access);
            // The next refill finds the line of bits that the first one has reserved.
            _ = take(&yard, order);
            yard.drain_all();
            let refill = lines_of(&yard, || _ = take(&yard, order));
            // The owner words, the byte in the allocation map, the bits, and what the CPU has reserved and counted.
            assert_eq!(refill, Lines { others: of_list + 4, ..Lines::default() }, "{order}, {access:?}");
        }
    }
}
