//! The validator finds damage that is done to a yard's memory map and control region on purpose, and names it.

use crate::fixture::words::FIRST_SPAN;
use crate::fixture::{Fixture, Frames, order};
use frameyard::boot::ZoneLimits;
use frameyard::page::{FrameState, PAGE_WORDS};
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::validate::{ListKind, ValidateError};
use frameyard::watermarks::PcpSizing;
use frameyard::{
    ByteSize, Geometry, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, RawRegion, YardConfig,
    ZoneId,
};

const FIRST: Pfn = Pfn(0x1000);
const PAGES: u64 = 0x1000;
const PAGE_BYTES: usize = 64;
const ZONE: ZoneId = ZoneId(ZoneKind::Normal as u16);

/// The numbers of tables; of two parts of the allocation map also the order of the frames that share a byte.
const PAGEBLOCKS: usize = 6;
const PAGEBLOCK_MARKS: (usize, Order) = (22, Order(6));
const GROUP_MARKS: (usize, Order) = (23, Order(4));
const ALLOCATION_MAP: usize = 24;

/// What that table says of a movable block of an order.
const fn mark(order: Order) -> u8 {
    order.0 << 3 | (MigrateType::Movable as u8 + 1)
}

/// Pageblocks of 64 frames, maximum blocks of 256.
fn geometry() -> Geometry {
    Geometry::new(ByteSize::kib(4), ByteSize::mib(4), Order(6), Order(8)).unwrap()
}

/// A place in one of the yard's regions.
#[derive(Clone, Copy)]
struct Place {
    region: RawRegion,
    offset: usize,
}

impl Place {
    fn read<T>(self) -> T {
        assert!(self.offset + size_of::<T>() <= self.region.size.0 as usize);
        // SAFETY: in the region, which the fixture keeps; no other thread uses it; any bytes are an integer.
        unsafe { self.region.base.as_ptr().add(self.offset).cast::<T>().read() }
    }

    fn write<T>(self, value: T) {
        assert!(self.offset + size_of::<T>() <= self.region.size.0 as usize);
        // SAFETY: as in `read`.
        unsafe { self.region.base.as_ptr().add(self.offset).cast::<T>().write(value) }
    }
}

fn copy_of(region: RawRegion) -> Vec<u8> {
    // SAFETY: the fixture keeps the region; no other thread uses it.
    unsafe { std::slice::from_raw_parts(region.base.as_ptr(), region.size.0 as usize) }.to_vec()
}

fn restore(region: RawRegion, bytes: &[u8]) {
    // SAFETY: as in `copy_of`; the copy is as long as the region.
    unsafe { region.base.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
}

/// A yard with something of everything in it.
struct Scene {
    yard: Fixture,
    /// Held single frames, each the buddy of a free one on the order-0 list.
    held: Vec<Pfn>,
    /// Free single frames, in the order of their list.
    free: Vec<Pfn>,
    /// A free block on the list of its order.
    free_pair: Pfn,
    /// A held block of order 5.
    block: Pfn,
    /// A pageblock all of which is held.
    full_pageblock: Pfn,
    /// A free block of the maximum order.
    largest: Pfn,
    /// Frames on the CPU's list of single frames, oldest first.
    per_cpu: Vec<Pfn>,
    /// Where the zone's free pages are counted.
    free_pages: Place,
}

impl Scene {
    fn new() -> Self {
        let memory = [(PfnRange::new(FIRST, PageCount(PAGES)), NodeId(0))];
        let cpus = [NodeId(0)];
        let policy = ZonePolicy::Vanilla;
        let zone_limits = ZoneLimits::NONE;
        let config = YardConfig { geometry: geometry(), zone_limits, policy, ..YardConfig::new(&cpus) };
        let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
        let yard = Fixture::new(&table, &config, Frames::Phantom);
        yard.lists().resize(PcpSizing::Fixed(0));
        let alloc = |order: Order| yard.alloc(order, Gfp::HIGHUSER_MOVABLE).unwrap();
        let full_pageblock = alloc(order(6));
        yard.split(full_pageblock, order(6)).unwrap();
        let before = counted(&yard);
        let singles: Vec<Pfn> = (0..32).map(|_| alloc(Order::ZERO)).collect();
        assert!(singles.is_sorted() && singles[0].is_aligned(order(5)));
        let free_pages = went_between(&yard, &before, &counted(&yard), 8);
        let block = alloc(order(5));
        let pairs: Vec<Pfn> = (0..4).map(|_| alloc(order(1))).collect();
        yard.free(pairs[1], order(1)).unwrap();
        let (free, held) = singles[..16].iter().partition::<Vec<Pfn>, _>(|pfn| pfn.is_aligned(order(1)));
        for pfn in free.iter().rev() {
            yard.free(*pfn, Order::ZERO).unwrap();
        }
        yard.lists().resize(PcpSizing::Fixed(64));
        yard.free(pairs[3], order(1)).unwrap();
        let per_cpu: Vec<Pfn> = [9, 3, 14, 6].map(|at| singles[16 + at]).to_vec();
        for pfn in &per_cpu {
            yard.free(*pfn, Order::ZERO).unwrap();
        }
        let largest = FIRST;
        assert_eq!(yard.stats().frame(largest).unwrap().state, FrameState::BuddyFree);
        yard.validate().unwrap();
        let mut scene =
            Self { held, free, free_pair: pairs[1], block, full_pageblock, largest, per_cpu, free_pages, yard };
        let taken = scene.yard.stats().managed_pages() - scene.yard.stats().free_pages();
        scene.yard.keep(taken);
        scene
    }

    fn word(&self, pfn: Pfn, name: &str) -> Place {
        let word = PAGE_WORDS.iter().find(|word| word.name == name).expect("a word of that name");
        Place { region: self.yard.map.raw(), offset: (pfn.0 - FIRST.0) as usize * PAGE_BYTES + word.offset }
    }

    /// Overwrites bits of a frame's tag.
    fn set_tag(&self, pfn: Pfn, shift: u32, mask: u64, value: u64) {
        let place = self.word(pfn, "tag");
        place.write(place.read::<u64>() & !(mask << shift) | value << shift);
    }

    fn set_state(&self, pfn: Pfn, state: FrameState) {
        self.set_tag(pfn, 0, 0xff, state as u64);
    }

    /// Changes the link of a free block to name that frame.
    fn set_link(&self, pfn: Pfn, name: &str, to: u64) {
        self.word(pfn, name).write(u32::try_from(to - FIRST.0 + 1).unwrap());
    }

    /// Overwrites a frame's byte in the allocation map.
    fn set_mark(&self, pfn: Pfn, mark: u8) {
        self.in_table(ALLOCATION_MAP, (pfn.0 - FIRST.0) as usize).write(mark);
    }

    /// Overwrites the byte of the group of frames, or of the pageblock, that begins at a frame.
    fn set_shared_mark(&self, (table, order): (usize, Order), pfn: Pfn, mark: u8) {
        self.in_table(table, (pfn.0 - FIRST.0) as usize >> order.0).write(mark);
    }

    /// Overwrites the type of a frame's pageblock.
    fn set_type(&self, pfn: Pfn, migrate_type: MigrateType) {
        self.pageblock(pfn).write(migrate_type as u8 + 1);
    }

    /// The word of a frame's pageblock.
    fn pageblock(&self, pfn: Pfn) -> Place {
        let block = (pfn.0 - FIRST.0) as usize >> geometry().pageblock_order().0;
        self.in_table(PAGEBLOCKS, 4 * block)
    }

    /// A place in one of the tables, by its offset there.
    fn in_table(&self, table: usize, offset: usize) -> Place {
        let region = self.yard.control.raw();
        let table = Place { region, offset: 8 * (FIRST_SPAN as usize + 2 * table) }.read::<u64>() as usize;
        Place { region, offset: table + offset }
    }

    /// The slots of the CPU's list.
    fn slot(&self, at: usize) -> Place {
        let wanted: Vec<u8> = self.per_cpu.iter().flat_map(|pfn| ((pfn.0 - FIRST.0) as u32).to_ne_bytes()).collect();
        let found = only_place(self.yard.control.raw(), |bytes| bytes.starts_with(&wanted));
        Place { offset: found.offset + 4 * at, ..found }
    }

    /// A word of the header in front of the slots, by its offset there.
    fn list_header(&self, offset: usize) -> Place {
        let slots = self.slot(0);
        Place { offset: slots.offset - LIST_HEADER + offset, ..slots }
    }
}

/// The only place of a region that the bytes from there on fit.
fn only_place(region: RawRegion, fits: impl Fn(&[u8]) -> bool) -> Place {
    let bytes = copy_of(region);
    let mut found = (0..bytes.len()).step_by(4).filter(|at| fits(&bytes[*at..]));
    let offset = found.next().expect("a place");
    assert_eq!(found.next(), None, "there is one such place");
    Place { region, offset }
}

type Counted = (Vec<u8>, u64);

fn counted(yard: &Fixture) -> Counted {
    (copy_of(yard.control.raw()), yard.zone(ZONE).statistics().free.0)
}

/// The only place where one count stood before and the other stands now.
fn went_between(yard: &Fixture, before: &Counted, after: &Counted, width: usize) -> Place {
    let (old, new) = (before.1.to_ne_bytes(), after.1.to_ne_bytes());
    let offset = (0..after.0.len())
        .step_by(width)
        .filter(|at| before.0[*at..].starts_with(&old[..width]) && after.0[*at..].starts_with(&new[..width]))
        .collect::<Vec<_>>();
    assert_eq!(offset.len(), 1, "one word went from {} to {}", before.1, after.1);
    Place { region: yard.control.raw(), offset: offset[0] }
}

/// The size of a list's header, and the offsets of its limit and its number of packed blocks.
const LIST_HEADER: usize = 24;
const LIMIT: usize = 1;
const PACKED_BLOCKS: usize = 12;

/// What is done, how, and what the validator must say of it.
type Case = (&'static str, fn(&Scene), fn(&Scene) -> Expected);

/// An error, or the equation that must not hold.
enum Expected {
    Error(ValidateError),
    Count(&'static str),
}

fn broken(kind: ListKind, at: Pfn) -> Expected {
    Expected::Error(ValidateError::BrokenList { kind, zone: ZONE, at })
}

fn inside(pfn: Pfn, head: Pfn) -> Expected {
    Expected::Error(ValidateError::InteriorNotZero { pfn, head })
}

fn check(cases: &[Case]) {
    let scene = Scene::new();
    let (map, control) = (scene.yard.map.raw(), scene.yard.control.raw());
    let (sound_map, sound_control) = (copy_of(map), copy_of(control));
    for (name, damage, expected) in cases {
        damage(&scene);
        let found = scene.yard.validate().expect_err(name);
        match expected(&scene) {
            Expected::Error(expected) => assert_eq!(found, expected, "{name}"),
            Expected::Count(expected) => {
                assert!(
                    matches!(found, ValidateError::Count { what, zone: ZONE, kept, found } if what == expected && kept != found),
                    "{name}: {found:?}"
                );
            }
        }
        assert!(!found.to_string().is_empty());
        restore(map, &sound_map);
        restore(control, &sound_control);
        scene.yard.validate().unwrap();
    }
}

#[test]
fn damaged_tags_are_found() {
    check(&[
        (
            "a held frame forgotten",
            |s| {
                s.set_tag(s.held[0], 0, u64::MAX, 0);
                s.set_mark(s.held[0], 0);
            },
            |s| Expected::Error(ValidateError::Uncovered(s.held[0])),
        ),
        (
            "a held block forgotten",
            |s| {
                s.set_tag(s.block, 0, u64::MAX, 0);
                s.set_shared_mark(GROUP_MARKS, s.block, 0);
            },
            |s| Expected::Error(ValidateError::Uncovered(s.block)),
        ),
        (
            "a frame forgotten that no list has",
            |s| s.set_tag(s.free[0], 0, u64::MAX, 0),
            |s| Expected::Error(ValidateError::Uncovered(s.free[0])),
        ),
        (
            "a state that does not exist",
            |s| s.set_tag(s.held[0], 0, 0xff, 0x20),
            |s| Expected::Error(ValidateError::BadTag(s.held[0])),
        ),
        (
            "a type that does not exist",
            |s| s.set_tag(s.free[1], 16, 0xff, 7),
            |s| Expected::Error(ValidateError::BadTag(s.free[1])),
        ),
        (
            "a bit that means nothing",
            |s| s.set_tag(s.block, 60, 1, 1),
            |s| Expected::Error(ValidateError::BadTag(s.block)),
        ),
        (
            "a mark left by a validator",
            |s| s.set_tag(s.block, 24, 1, 1),
            |s| Expected::Error(ValidateError::BadTag(s.block)),
        ),
        (
            "another zone",
            |s| s.set_tag(s.held[0], 32, 0xffff, 3),
            |s| Expected::Error(ValidateError::WrongZone(s.held[0], ZoneId(3))),
        ),
        (
            "an order that the frame is not aligned to",
            |s| s.set_tag(s.held[0], 8, 0xff, 1),
            |s| Expected::Error(ValidateError::Misplaced(s.held[0], Order(1))),
        ),
        (
            "an order above the maximum",
            |s| s.set_tag(s.largest, 8, 0xff, 9),
            |s| Expected::Error(ValidateError::Misplaced(s.largest, Order(9))),
        ),
        ("a larger order, over a neighbour", |s| s.set_tag(s.free[0], 8, 0xff, 1), |s| inside(s.held[0], s.free[0])),
        (
            "a smaller order, with frames left over",
            |s| s.set_tag(s.largest, 8, 0xff, 7),
            |s| Expected::Error(ValidateError::Uncovered(s.largest + PageCount(128))),
        ),
        (
            "a smaller order than was allocated",
            |s| s.set_tag(s.block, 8, 0xff, 4),
            |s| Expected::Error(ValidateError::WrongMapEntry(s.block)),
        ),
        (
            "left on its way",
            |s| s.set_state(s.held[2], FrameState::InTransit),
            |s| Expected::Error(ValidateError::InTransit(s.held[2])),
        ),
        (
            "held, and said to be reserved",
            |s| {
                s.set_state(s.block, FrameState::Reserved);
                s.set_shared_mark(GROUP_MARKS, s.block, 0);
            },
            |_| Expected::Count("managed pages"),
        ),
    ]);
}

#[test]
fn words_that_should_be_zero_are_found() {
    check(&[
        (
            "inside a held block",
            |s| s.word(s.block + PageCount(31), "owner").write(1u64),
            |s| inside(s.block + PageCount(31), s.block),
        ),
        (
            "a link inside a free block",
            |s| s.word(s.largest + PageCount(7), "prev").write(9u32),
            |s| inside(s.largest + PageCount(7), s.largest),
        ),
        (
            "a head left inside a free block",
            |s| s.word(s.largest + PageCount(128), "tag").write(2u64),
            |s| inside(s.largest + PageCount(128), s.largest),
        ),
        (
            "a link of a held frame",
            |s| s.word(s.held[1], "next").write(1u32),
            |s| Expected::Error(ValidateError::WordsNotZero(s.held[1], FrameState::Allocated)),
        ),
        (
            "the payload of a free frame",
            |s| s.word(s.free[1], "owner").write(1u64),
            |s| Expected::Error(ValidateError::WordsNotZero(s.free[1], FrameState::BuddyFree)),
        ),
    ]);
}

#[test]
fn broken_free_lists_are_found() {
    check(&[
        (
            "a list that ends too early",
            |s| s.word(s.free[2], "next").write(0u32),
            |_| Expected::Count("blocks on a free list"),
        ),
        (
            "a block that leads back to the wrong one",
            |s| s.set_link(s.free[3], "prev", s.free[1].0),
            |s| broken(ListKind::Free, s.free[3]),
        ),
        (
            "a block that leads to itself",
            |s| s.set_link(s.free[2], "next", s.free[2].0),
            |s| broken(ListKind::Free, s.free[2]),
        ),
        (
            "a block that leads back to the first",
            |s| s.set_link(s.free[4], "next", s.free[0].0),
            |s| broken(ListKind::Free, s.free[0]),
        ),
        (
            "a block on two lists",
            |s| s.set_link(s.free[2], "next", s.free_pair.0),
            |s| broken(ListKind::Free, s.free_pair),
        ),
        (
            "a held frame on a list",
            |s| s.set_link(s.free[2], "next", s.held[0].0),
            |s| broken(ListKind::Free, s.held[0]),
        ),
        (
            "a link out of the map",
            |s| s.set_link(s.free[2], "next", FIRST.0 + 5 * PAGES),
            |_| broken(ListKind::Free, FIRST + PageCount(5 * PAGES)),
        ),
        (
            "a linked block that is said to be on a CPU's list",
            |s| s.set_state(s.free[2], FrameState::PerCpu),
            |s| broken(ListKind::PerCpu, s.free[2]),
        ),
        (
            "the only block of a list that is said to be held",
            |s| {
                s.set_state(s.free_pair, FrameState::Allocated);
                s.set_mark(s.free_pair, mark(order(1)));
            },
            |_| Expected::Count("blocks of a free list"),
        ),
        (
            "a held frame that is said to be free, beside its free buddy",
            |s| {
                s.set_state(s.held[3], FrameState::BuddyFree);
                s.set_mark(s.held[3], 0);
            },
            |s| Expected::Error(ValidateError::UnmergedBuddies(s.free[3], Order::ZERO)),
        ),
        (
            "a block on the list of another type",
            |s| s.set_tag(s.free[1], 16, 0xff, 0),
            |s| Expected::Error(ValidateError::WrongList(s.free[1], MigrateType::Unmovable)),
        ),
    ]);
}

#[test]
fn wrong_control_counts_are_detected() {
    check(&[
        (
            "the zone's free pages",
            |s| s.free_pages.write(s.free_pages.read::<u64>() + 1),
            |_| Expected::Count("free pages"),
        ),
        (
            "the frames of a CPU's lists",
            |s| s.list_header(PACKED_BLOCKS).write(1u32),
            |_| Expected::Count("frames on a CPU's lists"),
        ),
        (
            "the limit of a CPU's list",
            |s| s.list_header(LIMIT).write(u8::MAX),
            |_| Expected::Count("frames that a CPU's lists may take over their limit"),
        ),
        (
            "the sum of the parts of a CPU's limit",
            |s| s.list_header(LIMIT).write(s.list_header(LIMIT).read::<u8>() - 1),
            |_| Expected::Count("frames of the parts of a CPU's lists"),
        ),
        (
            "the type of a free block's pageblock",
            |s| s.set_type(s.largest, MigrateType::Cma),
            |s| Expected::Error(ValidateError::WrongList(s.largest, MigrateType::Movable)),
        ),
        (
            "the type of a free block's last pageblock",
            |s| s.set_type(s.largest + PageCount(192), MigrateType::Reclaimable),
            |s| Expected::Error(ValidateError::WrongList(s.largest, MigrateType::Movable)),
        ),
        (
            "the zone of a pageblock",
            |s| s.pageblock(s.full_pageblock).write(u32::from(ZONE.0 + 1) << 16 | 2),
            |s| Expected::Error(ValidateError::WrongZone(s.full_pageblock, ZoneId(ZONE.0 + 1))),
        ),
        (
            "a pageblock kept back by mistake",
            |s| s.set_type(s.full_pageblock, MigrateType::HighAtomic),
            |_| Expected::Count("high-atomic pages"),
        ),
    ]);
}

#[test]
fn broken_per_cpu_lists_are_found() {
    check(&[
        (
            "an entry listed twice",
            |s| s.slot(1).write(s.slot(0).read::<u32>()),
            |s| broken(ListKind::PerCpu, s.per_cpu[0]),
        ),
        (
            "an entry that is held",
            |s| s.slot(2).write((s.held[0].0 - FIRST.0) as u32),
            |s| broken(ListKind::PerCpu, s.held[0]),
        ),
        (
            "an entry out of the map",
            |s| s.slot(2).write(7 * PAGES as u32),
            |_| broken(ListKind::PerCpu, FIRST + PageCount(7 * PAGES)),
        ),
        (
            "a listed frame that is said to be held",
            |s| s.set_mark(s.per_cpu[3], mark(Order::ZERO)),
            |s| broken(ListKind::PerCpu, s.per_cpu[3]),
        ),
        (
            "a listed frame of another order",
            |s| s.set_tag(s.per_cpu[2], 8, 0xff, 1),
            |s| broken(ListKind::PerCpu, s.per_cpu[2]),
        ),
        (
            "a held frame that is said to be listed",
            |s| s.set_mark(s.held[0], 0),
            |s| broken(ListKind::PerCpu, s.held[0]),
        ),
    ]);
}

#[test]
fn validation_finds_wrong_entries_of_the_allocation_map() {
    check(&[
        (
            "a free block that can be freed",
            |s| s.set_mark(s.free_pair, mark(order(1))),
            |s| Expected::Error(ValidateError::WrongMapEntry(s.free_pair)),
        ),
        (
            "a frame inside a free block",
            |s| s.set_mark(s.largest + PageCount(255), mark(Order::ZERO)),
            |s| Expected::Error(ValidateError::WrongMapEntry(s.largest + PageCount(255))),
        ),
        (
            "a frame inside a held block",
            |s| s.set_mark(s.block + PageCount(1), mark(Order::ZERO)),
            |s| Expected::Error(ValidateError::WrongMapEntry(s.block + PageCount(1))),
        ),
        (
            "a held block as one of another order",
            |s| s.set_shared_mark(GROUP_MARKS, s.block, mark(order(4))),
            |s| Expected::Error(ValidateError::WrongMapEntry(s.block)),
        ),
        (
            "a free pageblock that can be freed",
            |s| s.set_shared_mark(PAGEBLOCK_MARKS, s.largest, mark(geometry().pageblock_order())),
            |s| Expected::Error(ValidateError::WrongMapEntry(s.largest)),
        ),
        (
            "a held frame of a type that does not exist",
            |s| s.set_mark(s.held[1], mark(Order::ZERO) | 7),
            |s| Expected::Error(ValidateError::WrongMapEntry(s.held[1])),
        ),
    ]);
}

#[test]
fn tags_of_blocks_outside_the_zone_are_ignored() {
    let scene = Scene::new();
    for state in [FrameState::PerCpu, FrameState::Allocated] {
        scene.set_state(scene.held[0], state);
        scene.set_state(scene.per_cpu[0], state);
        scene.yard.validate().unwrap();
        let found = [scene.held[0], scene.per_cpu[0]].map(|pfn| scene.yard.stats().frame(pfn).unwrap().state);
        assert_eq!(found, [FrameState::Allocated, FrameState::PerCpu]);
    }
}

/// The count of frees on a list has 48 bits. It goes on behind them.
#[test]
fn the_count_of_frees_to_a_list_may_wrap() {
    const FREES: usize = 2;
    let scene = Scene::new();
    let frees = || {
        let statistics = scene.yard.zone(ZONE).statistics();
        (statistics.frees, statistics.frees.wrapping_sub(statistics.allocations))
    };
    let header = scene.list_header(FREES);
    let before = frees();
    let had = u64::from(header.read::<u16>());
    [0, 2, 4].iter().for_each(|at| Place { offset: header.offset + at, ..header }.write(u16::MAX));
    let jump = (1 << 48) - 1 - had;
    assert_eq!(frees(), (before.0 + jump, before.1));
    for _ in 0..3 {
        let pfn = scene.yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
        scene.yard.free(pfn, Order::ZERO).unwrap();
    }
    assert_eq!(frees(), (before.0 + jump + 3, before.1));
    scene.yard.validate().unwrap();
}
