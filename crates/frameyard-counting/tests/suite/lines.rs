//! The lines that single operations touch, under the default policy unless a test names one, against counts on paper.

use std::ptr::NonNull;

use crate::fixture::HeapRegion;
use frameyard::boot::ZoneLimits;
use frameyard::platform::{MapBacking, Probe, SectionsNotEnded};
use frameyard::policy::ZonePolicy;
use frameyard::{CpuId, Gfp, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, Yard, YardConfig};
use frameyard_counting::{Counted, CountingPlatform, SpanTouches, TaskCounters};

/// One CPU without memory behind its frames, which uses its lists under locks or in sections.
struct OneCpu {
    access: ListAccess,
}

/// How it uses them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListAccess {
    Locks,
    Sections,
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
    fn has_sections(&self) -> bool {
        self.access == ListAccess::Sections
    }
    fn end_sections(&self, _cpu: Option<CpuId>) -> Result<(), SectionsNotEnded> {
        Ok(())
    }
}

impl MapBacking for OneCpu {}
impl Probe for OneCpu {}

const HUGE: Order = Order(9);
/// Frames of a full batch, and the batches that a refill carves.
const BATCH: usize = 64;
const CARVED: u64 = 8;
/// The batches that a refill moves to the list at once.
const FOR_LIST: u64 = 4;
/// Huge blocks of a full batch, and the batches that a refill fetches from the zone.
const HUGE_BATCH: usize = 16;
const HUGE_FETCHED: u64 = 8;
/// Entries of a list that lie on its first line, behind its word.
const ON_FIRST_LINE: usize = 10;

type CountedYard = Yard<CountingPlatform<'static, OneCpu, fn() -> u32, 4096>>;

/// A fresh yard of 2 GiB, so that lists of huge blocks hold two batches of 16. Stays until the program ends.
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

/// Allocates and frees huge blocks until a refill may take as much as ever: at most half of what its list has given out.
fn use_huge_blocks(yard: &CountedYard) {
    let blocks: Vec<Pfn> = (0..2 * HUGE_FETCHED as usize * HUGE_BATCH).map(|_| take(yard, HUGE)).collect();
    blocks.iter().for_each(|block| yard.free(*block, HUGE).unwrap());
    yard.drain_all();
}

/// How a yard's CPU uses its lists, and the lines that all entries of a list lie on. In the locked lists of a kernel, entries have the
/// first line to themselves.
const ACCESSES: [(ListAccess, u64); 2] = [(ListAccess::Locks, 8), (ListAccess::Sections, 9)];

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

/// Lines of each refill, whatever its order: the owner words, the byte in the allocation map, watermarks, the zone's count of free
/// frames (and the bits of its free lists), quiescence, and the stack.
const OF_REFILL: u64 = 6;
/// The lists of whole pageblocks: a refill asks whether they are few.
const WHOLE_PAGEBLOCKS: u64 = 2;
/// The stacks of larger blocks: a refill that finds no batch would cut one of these.
const LARGER_STACKS: u64 = 8;
/// The word of the zone lock, outside of it, and its counters that the CPU has, under it.
const LOCK: u64 = 1;
const LOCK_COUNTERS: u64 = 1;

#[test]
fn a_refill_that_carves_touches_a_page_for_each_batch_and_three_under_the_lock() {
    let healing = ACCESSES.map(|case| (case, ZonePolicy::Healing));
    for ((access, of_list), policy) in ACCESSES.map(|case| (case, ZonePolicy::Depot)).into_iter().chain(healing) {
        let yard = yard(access);
        yard.set_policy(policy).unwrap();
        let carved = lines_of(&yard, || _ = take(&yard, Order::ZERO));
        let expected = Lines {
            // The heads of the batches, which are their last frames.
            pages: CARVED,
            others: OF_REFILL + WHOLE_PAGEBLOCKS + LARGER_STACKS + LOCK + of_list,
            // The head of the block that was cut, the next block of its list, and the head of the rest.
            pages_under_lock: 3,
            others_under_lock: LOCK_COUNTERS,
        };
        assert_eq!(carved, expected, "{access:?}, {policy}");
    }
}

#[test]
fn frames_of_carved_batches_come_to_the_cpu_by_the_page_of_their_head_alone() {
    for (access, of_list) in ACCESSES {
        let yard = yard(access);
        let allocs: Vec<Lines> =
            (0..CARVED as usize * BATCH).map(|_| lines_of(&yard, || _ = take(&yard, Order::ZERO))).collect();
        for (number, batch) in (0..).zip(allocs.chunks(BATCH)).skip(1) {
            let others = match number % FOR_LIST {
                // One exchange on the stack moves several batches.
                0 => OF_REFILL + WHOLE_PAGEBLOCKS + of_list,
                // The batch was in the list's chain: owner words, byte, list.
                _ => 2 + of_list,
            };
            let pages = if number % FOR_LIST == 0 { FOR_LIST } else { 1 };
            assert_eq!(batch[0], Lines { pages, others, ..Lines::default() }, "batch {number}, {access:?}");
            let most = Lines { others: 4, ..Lines::default() };
            assert!(
                batch[1..].iter().all(|alloc| alloc.others <= 4 && Lines { others: 4, ..*alloc } == most),
                "{batch:?}"
            );
        }
    }
}

#[test]
fn a_refill_of_huge_blocks_touches_the_page_of_each_once_and_none_if_they_were_in_the_depot() {
    for (access, of_list) in ACCESSES {
        let yard = yard(access);
        use_huge_blocks(&yard);
        let first = lines_of(&yard, || _ = take(&yard, HUGE));
        let expected = Lines {
            // The second halves of blocks of two pageblocks.
            pages: HUGE_FETCHED * HUGE_BATCH as u64 / 2,
            // The lines of the batches that went to the stack.
            others: OF_REFILL + WHOLE_PAGEBLOCKS + LOCK + of_list + (HUGE_FETCHED - 1),
            // Each block of two pageblocks, and the next block of the list.
            pages_under_lock: HUGE_FETCHED * HUGE_BATCH as u64 / 2 + 1,
            others_under_lock: LOCK_COUNTERS,
        };
        assert_eq!(first, expected, "{access:?}");
        (1..HUGE_BATCH).for_each(|_| _ = take(&yard, HUGE));
        let second = lines_of(&yard, || _ = take(&yard, HUGE));
        // The batch's line in the table, and two of the list: 16 entries do not fit the first.
        assert_eq!(second, Lines { others: OF_REFILL + 1 + 2, ..Lines::default() }, "{access:?}");
    }
}
