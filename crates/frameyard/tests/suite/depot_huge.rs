//! The policy `depot` and huge blocks: batches of pageblocks move between CPUs without the zone lock and without a look at their page
//! structures, and every request that needs their frames gets them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::busy_yard::{FIRST, PAGES, ZONE};
use crate::depot::{depot, depot_yard_of};
use crate::fixture::random::Random;
use crate::fixture::{Fixture, Moment, order, run_on};
use frameyard::boot::Poisoning;
use frameyard::compaction::CompactRequest;
use frameyard::owners::Owners;
use frameyard::platform::LockId;
use frameyard::policy::ZonePolicy;
use frameyard::validate::ValidateError;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Gfp, MigrateType, Order, PageCount, Pfn, PfnRange, RawRegion};

/// A zone in which the lists of each of four CPUs keep two batches of four blocks.
const FRAMES: u64 = 0x1_0000;
const BLOCKS: u64 = FRAMES / 64;
/// Whole pageblocks.
const HUGE: Order = Order(6);

/// Something that empties the depot.
type End = fn(&Fixture);

fn yard_of(frames: u64) -> Fixture {
    depot_yard_of(frames, &[0; 4], Poisoning::Off)
}

fn take(yard: &Fixture, gfp: Gfp, count: u64) -> Vec<Pfn> {
    (0..count).map(|_| yard.alloc(HUGE, gfp).expect("a block")).collect()
}

fn take_all(yard: &Fixture, of: Order, gfp: Gfp) -> Vec<Pfn> {
    std::iter::from_fn(|| yard.alloc(of, gfp | Gfp::NOWARN).ok()).collect()
}

fn give(yard: &Fixture, of: Order, blocks: impl IntoIterator<Item = Pfn>) {
    blocks.into_iter().for_each(|pfn| yard.free(pfn, of).unwrap());
}

/// All memory as blocks of the depot and of lists, but for what a list of another type may keep.
fn all_huge() -> Fixture {
    let yard = yard_of(FRAMES);
    run_on(0);
    let blocks = take_all(&yard, HUGE, Gfp::HIGHUSER_MOVABLE | Gfp::HIGH);
    assert!(blocks.len() as u64 > BLOCKS - BLOCKS / 16);
    give(&yard, HUGE, blocks);
    assert!(depot(&yard).get("depot_huge_blocks") > BLOCKS - BLOCKS / 8, "{:?}", depot(&yard));
    assert_eq!(
        yard.stats().free_pages(),
        yard.stats().managed_pages(),
        "blocks in the depot and on lists count as free"
    );
    yard
}

#[test]
fn a_refill_takes_batches_for_the_stack_under_the_same_hold_of_the_lock() {
    let yard = yard_of(FRAMES);
    run_on(0);
    // The list has given out twice the number that a refill takes at most, which is eight batches of four.
    let mut blocks = take(&yard, Gfp::HIGHUSER_MOVABLE, 2 * 4 * 8);
    let locks = || yard.zone(ZONE).statistics().lock.acquisitions;
    while yard.zone(ZONE).pcp(CpuId(0)).unwrap().pages.0 > 0 || depot(&yard).get("depot_huge_blocks") > 0 {
        blocks.extend(take(&yard, Gfp::HIGHUSER_MOVABLE, 1));
    }
    let before = locks();
    blocks.extend(take(&yard, Gfp::HIGHUSER_MOVABLE, 4 * 8));
    assert_eq!(locks() - before, 1, "eight batches of four");
    blocks.extend(take(&yard, Gfp::HIGHUSER_MOVABLE, 1));
    assert_eq!(locks() - before, 2);
    yard.validate().unwrap();
    give(&yard, HUGE, blocks);
}

#[test]
fn a_refill_takes_at_most_half_of_what_the_list_has_given_out() {
    let yard = yard_of(FRAMES);
    run_on(0);
    let held = || (yard.zone(ZONE).pcp(CpuId(0)).unwrap().pages.0 >> HUGE.0) + depot(&yard).get("depot_huge_blocks");
    let mut blocks = Vec::new();
    for given_out in 1..=64 {
        blocks.extend(take(&yard, Gfp::HIGHUSER_MOVABLE, 1));
        assert!(held() <= given_out / 2, "{} held after {given_out}", held());
    }
    assert!(held() > 0);
    give(&yard, HUGE, blocks);
}

#[test]
fn a_refill_takes_nothing_for_later_while_whole_pageblocks_are_few() {
    let yard = yard_of(FRAMES);
    run_on(0);
    let blocks = take(&yard, Gfp::HIGHUSER_MOVABLE, BLOCKS - BLOCKS / 8);
    assert_eq!(depot(&yard).get("depot_huge_blocks"), 0);
    give(&yard, HUGE, blocks);
}

#[test]
fn huge_blocks_move_past_the_zone_lock_and_touch_no_page() {
    let yard = all_huge();
    yard.watch().spy_with(move |moment| match moment {
        Moment::Lock(LockId::Zone(_)) => panic!("the zone lock is taken"),
        Moment::Touch(pfn, _) => panic!("the page of {pfn} is touched"),
        _ => {}
    });
    for round in 0..8 {
        run_on(round % 4);
        let blocks = take(&yard, Gfp::HIGHUSER_MOVABLE, 300);
        run_on((round + 1) % 4);
        give(&yard, HUGE, blocks);
    }
    yard.watch().calm();
    yard.validate().unwrap();
}

#[test]
fn lists_keep_huge_blocks_in_proportion_to_the_zone() {
    // Of 64 blocks two, since the lists of single frames keep as many.
    for (frames, most) in [(PAGES, 2), (FRAMES, 8), (2 * FRAMES, 16), (4 * FRAMES, 32), (8 * FRAMES, 32)] {
        let yard = yard_of(frames);
        run_on(0);
        let blocks = take(&yard, Gfp::HIGHUSER_MOVABLE, 60);
        yard.drain_all();
        give(&yard, HUGE, blocks);
        let held = yard.zone(ZONE).statistics().per_cpu.0 / 64;
        assert!(held <= most && held + most / 2 >= most, "{held} of {most} in a zone of {frames} frames");
    }
}

#[test]
fn requests_for_larger_blocks_merge_huge_blocks() {
    for gfp in [Gfp::ATOMIC, Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE | Gfp::NORETRY] {
        let yard = all_huge();
        run_on(1);
        let large = take_all(&yard, order(8), gfp);
        assert!(large.len() as u64 * 256 > FRAMES - FRAMES / 16, "{gfp}: {} blocks", large.len());
        give(&yard, order(8), large);
        yard.validate().unwrap();
    }
}

#[test]
fn requests_for_smaller_blocks_and_other_types_split_huge_blocks() {
    for of in [0, 3, 6] {
        for gfp in [Gfp::ATOMIC, Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE | Gfp::NORETRY] {
            let yard = all_huge();
            run_on(1);
            let small = take_all(&yard, order(of), gfp);
            let got = small.len() as u64 * order(of).pages().0;
            assert!(got > FRAMES - FRAMES / 16, "{gfp}, order {of}: {got} frames");
            give(&yard, order(of), small);
            yard.validate().unwrap();
        }
    }
}

#[test]
fn everything_that_needs_memory_to_be_merged_empties_the_depot() {
    let ends: [(&str, End); 3] = [
        ("drain", |yard| yard.drain_all()),
        ("compaction", |yard| _ = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::NONE)),
        ("another policy", |yard| yard.set_policy(ZonePolicy::Vanilla).unwrap()),
    ];
    for (name, end) in ends {
        let yard = all_huge();
        end(&yard);
        assert_eq!(depot(&yard).get("depot_huge_blocks"), 0, "{name}");
        yard.drain_all();
        let whole: u64 = MigrateType::ALL.map(|of| yard.zone(ZONE).free_blocks(order(8), of)).iter().sum();
        assert_eq!(whole, FRAMES / 256, "{name}: all has merged");
    }
}

#[test]
fn a_contiguous_range_takes_huge_blocks_from_the_depot() {
    let yard = all_huge();
    let range = PfnRange::new(FIRST + PageCount(1), PageCount(FRAMES - 2));
    assert_eq!(yard.request_range(range, Gfp::KERNEL).owners(&Owners::NONE).range(), Ok(range));
    yard.free_range(range).unwrap();
}

/// Takes and gives blocks, most of them huge, in tides that move whole batches. Checks that no other thread has them.
fn work(yard: &Fixture, owners: &[AtomicU64], seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    let owners_of = |pfn: Pfn, of: Order| {
        let first = (pfn.0 - FIRST.0) as usize;
        owners[first..first + of.pages().0 as usize].iter().step_by(1 << of.0.min(6))
    };
    let give_one = |(pfn, of): (Pfn, Order)| {
        owners_of(pfn, of).for_each(|owner| assert_eq!(owner.swap(0, Ordering::Relaxed), seed));
        yard.free(pfn, of).unwrap();
    };
    for step in 0..steps {
        if step % 256 == 0 {
            run_on(random.below(4) as u32);
        }
        if step / 300 % 2 == 0 {
            let of = Order(random.pick(&[6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 8, 0]));
            let gfp = random.pick(&[Gfp::HIGHUSER_MOVABLE, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL, Gfp::ATOMIC]);
            if let Ok(pfn) = yard.alloc(of, gfp | Gfp::NOWARN) {
                owners_of(pfn, of).for_each(|owner| assert_eq!(owner.swap(seed, Ordering::Relaxed), 0, "{pfn}"));
                held.push((pfn, of));
            }
        } else if !held.is_empty() {
            give_one(held.swap_remove(random.below(held.len() as u64) as usize));
        }
    }
    held.into_iter().for_each(give_one);
}

#[test]
fn no_huge_block_is_lost_while_threads_collect_compact_isolate_and_switch() {
    let steps = if std::env::var_os("FRAMEYARD_LONG_RUNS").is_some() { 20_000_000 } else { 60_000 };
    let yard = depot_yard_of(FRAMES, &[0, 0, 1, 2], Poisoning::Off);
    let owners: Vec<AtomicU64> = (0..FRAMES).map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (yard, owners, over) = (&yard, &owners[..], &over);
        scope.spawn(move || {
            let mut random = Random::new(50);
            while !over.load(Ordering::Relaxed) {
                match random.below(40) {
                    0 => yard.drain_all(),
                    1 => _ = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::NONE),
                    2 => _ = yard.set_policy(random.pick(&[ZonePolicy::Depot, ZonePolicy::Vanilla])),
                    3 => yard.lists().resize(PcpSizing::Fixed(random.pick(&[0, 100, 2000]))),
                    4..10 => {
                        let range = PfnRange::new(FIRST + PageCount(64 * random.below(BLOCKS - 8)), PageCount(256));
                        if let Ok(range) = yard.request_range(range, Gfp::KERNEL).owners(&Owners::NONE).range() {
                            let first = (range.start.0 - FIRST.0) as usize;
                            let mut of_range = owners[first..first + range.count().0 as usize].iter();
                            assert!(of_range.all(|owner| owner.load(Ordering::Relaxed) == 0), "{range} has an owner");
                            yard.free_range(range).unwrap();
                        }
                    }
                    _ => _ = yard.set_policy(ZonePolicy::Depot),
                }
                thread::yield_now();
            }
        });
        let workers: Vec<_> = (1..=4).map(|seed| scope.spawn(move || work(yard, owners, seed, steps))).collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    let counts = depot(&yard);
    for name in ["depot_huge_pushed", "depot_huge_popped", "depot_huge_stolen", "depot_huge_collected"] {
        assert!(counts.get(name) > 0, "{name}: {counts:?}");
    }
    yard.validate().unwrap();
}

fn word(region: RawRegion, at: usize) -> *mut u32 {
    assert!((at + 1) * 4 <= region.size.0 as usize);
    // SAFETY: in the region.
    unsafe { region.base.cast::<u32>().as_ptr().add(at) }
}

fn read(region: RawRegion, at: usize) -> u32 {
    // SAFETY: a word of a region that the fixture keeps; no other thread uses it.
    unsafe { word(region, at).read() }
}

fn write(region: RawRegion, at: usize, value: u32) {
    // SAFETY: as in `read`.
    unsafe { word(region, at).write(value) }
}

/// An entry of the table for a block.
fn entry(pfn: Pfn) -> u32 {
    (pfn.0 - FIRST.0) as u32 + 1
}

/// The index of the word behind the link of the batch that has these members.
fn line_of(yard: &Fixture, batch: &[Pfn]) -> usize {
    let control = yard.control.raw();
    let fits = |at: &usize| batch[1..].iter().zip(*at..).all(|(pfn, at)| read(control, at) == entry(*pfn));
    let lines: Vec<usize> = (1..control.size.0 as usize / 4 - 16).step_by(16).filter(fits).collect();
    assert_eq!(lines.len(), 1, "one line has the members");
    lines[0]
}

/// A yard with one batch in the depot, of blocks 0 to 3, and the blocks. The last is in use.
fn one_batch() -> (Fixture, Vec<Pfn>) {
    let yard = yard_of(FRAMES);
    run_on(0);
    let blocks = take(&yard, Gfp::HIGHUSER_MOVABLE, 10);
    yard.drain_all();
    give(&yard, HUGE, blocks[..9].iter().copied());
    assert_eq!(depot(&yard).get("depot_huge_blocks"), 4, "the oldest blocks are in the depot");
    (yard, blocks)
}

#[test]
fn validation_finds_damaged_entries_of_the_table() {
    let (yard, blocks) = one_batch();
    let (control, line) = (yard.control.raw(), line_of(&yard, &blocks[..4]));
    let head = |link: Pfn| ((link.0 - FIRST.0) >> HUGE.0) as u32 + 1;
    let broken = Some(ValidateError::BrokenMechanism { what: "stack of the depot", zone: ZONE, at: blocks[0] });
    let cases = [
        ("a member twice", line, entry(blocks[2]), broken),
        ("the head as a member", line + 1, entry(blocks[0]), broken),
        ("a block of a list", line, entry(blocks[6]), None),
        ("a block that is in use", line + 1, entry(blocks[9]), broken),
        ("a place inside a block", line, entry(blocks[1]) + 1, broken),
        ("a place behind the map", line + 2, FRAMES as u32 + 1, broken),
        ("a member less", line + 2, 0, None),
        ("a member more", line + 3, entry(blocks[6]), None),
        ("a batch below", line - 1, head(blocks[6]), None),
        ("the batch itself below", line - 1, head(blocks[0]), None),
    ];
    for (name, at, value, expected) in cases {
        let sound = read(control, at);
        write(control, at, value);
        let found = yard.validate().expect_err(name);
        assert!(expected.is_none_or(|expected| expected == found), "{name}: {found:?}");
        write(control, at, sound);
        yard.validate().unwrap_or_else(|error| panic!("{name}, restored: {error}"));
    }
    give(&yard, HUGE, [blocks[9]]);
}

#[test]
fn damaged_entries_cost_blocks_but_no_panic() {
    let (yard, blocks) = one_batch();
    give(&yard, HUGE, [blocks[9]]);
    let (control, map, line) = (yard.control.raw(), yard.map.raw(), line_of(&yard, &blocks[..4]));
    let words =
        |region: RawRegion| -> Vec<u32> { (0..region.size.0 as usize / 4).map(|at| read(region, at)).collect() };
    let sound = [control, map].map(words);
    yard.watch().expect_damage();
    let mut random = Random::new(7);
    for _ in 0..200 {
        for _ in 0..=random.below(4) {
            let place = random.below(2 * FRAMES) as u32;
            let value = random.pick(&[place, place & !63 | 1, u32::MAX, u32::MAX - 62]);
            write(control, line - 1 + random.below(16) as usize, value);
        }
        for cpu in 1..4 {
            run_on(cpu);
            let gfp = random.pick(&[Gfp::HIGHUSER_MOVABLE, Gfp::ATOMIC, Gfp::KERNEL]) | Gfp::NOWARN;
            let held: Vec<_> = (0..20).map_while(|_| yard.alloc(HUGE, gfp).ok()).collect();
            for pfn in held {
                let _ = yard.free(pfn, HUGE);
            }
        }
        let _ = yard.validate();
        if random.below(2) == 0 {
            yard.drain_all();
        }
        for (region, sound) in [control, map].into_iter().zip(&sound) {
            sound.iter().enumerate().for_each(|(at, value)| write(region, at, *value));
        }
    }
}
