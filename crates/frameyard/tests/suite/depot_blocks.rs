//! The policy `depot`: blocks of several frames, with and without per-CPU lists.

use crate::busy_yard::{PAGES, ZONE};
use crate::depot::{BATCH, depot, depot_yard_sized, locks};
use crate::fixture::{Fixture, order, run_on};
use frameyard::boot::Poisoning;
use frameyard::policy::ZonePolicy;
use frameyard::{CpuId, Gfp, MigrateType, Order, PageCount, Pfn};

/// Allocates most of the memory of [`large`] as blocks of an order and frees them: they are in the depot, but for what lists keep.
/// Returns their number.
fn stock_blocks(yard: &Fixture, of: Order, gfp: Gfp) -> u64 {
    run_on(0);
    let count = (6 * PAGES) >> of.0;
    let blocks: Vec<Pfn> = (0..count).map(|_| yard.alloc(of, gfp).expect("a block")).collect();
    blocks.iter().for_each(|pfn| yard.free(*pfn, of).unwrap());
    let in_depot = yard.zone(ZONE).depot_blocks(of, gfp.migrate_type().unwrap());
    assert!(in_depot + 2 * 4096 >= count, "{of}: {in_depot} of {count}");
    count
}

fn large() -> Fixture {
    depot_yard_sized(8 * PAGES, &[0; 4], Poisoning::Off, 4096)
}

#[test]
fn blocks_below_pageblock_order_move_between_cpus_without_the_zone_lock() {
    for gfp in [Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL] {
        for of in [1, 2, 3, 4, 5].map(order) {
            let yard = large();
            stock_blocks(&yard, of, gfp);
            let (before, free) = (locks(&yard), yard.stats().free_pages());
            for round in 0..8 {
                run_on(round % 4);
                let blocks: Vec<Pfn> = (0..4 * BATCH).map(|_| yard.alloc(of, gfp).unwrap()).collect();
                assert_eq!(
                    yard.stats().free_pages() + PageCount((4 * BATCH) << of.0),
                    free,
                    "blocks in the depot are free"
                );
                run_on((round + 1) % 4);
                blocks.iter().for_each(|pfn| yard.free(*pfn, of).unwrap());
            }
            assert_eq!(locks(&yard), before, "{of}");
            yard.validate().unwrap();
        }
    }
}

#[test]
fn requests_of_every_order_are_served_from_blocks_of_any_order_in_the_depot() {
    for of in [1, 2, 3, 4, 5].map(order) {
        for wanted in [0, 1, 2, 3, 4, 5].map(order) {
            let yard = large();
            stock_blocks(&yard, of, Gfp::HIGHUSER_MOVABLE);
            run_on(1);
            let managed = yard.stats().managed_pages().0;
            let taken: Vec<Pfn> =
                std::iter::from_fn(|| yard.alloc(wanted, Gfp::HIGHUSER_MOVABLE | Gfp::HIGH | Gfp::NOWARN).ok())
                    .collect();
            assert!((taken.len() as u64) << wanted.0 > managed - managed / 16, "{wanted} of {of}: {}", taken.len());
            assert_eq!(yard.zone(ZONE).depot_blocks(of, MigrateType::Movable), 0, "{wanted} of {of}");
            yard.validate().unwrap();
            taken.iter().for_each(|pfn| yard.free(*pfn, wanted).unwrap());
        }
    }
}

#[test]
fn the_last_free_blocks_of_a_small_order_are_found_in_the_depot() {
    for of in [1, 2, 3].map(order) {
        let yard = large();
        run_on(0);
        let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::HIGH | Gfp::NOWARN;
        let mut all: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(of, gfp).ok()).collect();
        let freed = all.split_off(all.len() - 5 * BATCH as usize);
        freed.iter().for_each(|pfn| yard.free(*pfn, of).unwrap());
        assert!(yard.zone(ZONE).depot_blocks(of, MigrateType::Movable) >= BATCH, "{of}");
        let before = locks(&yard);
        run_on(1);
        all.extend((0..BATCH).map(|_| yard.alloc(of, gfp).expect("a block of the depot")));
        assert_eq!(locks(&yard), before, "{of}");
        run_on(0);
        all.iter().for_each(|pfn| yard.free(*pfn, of).unwrap());
    }
}

#[test]
fn collecting_counts_the_frames_of_blocks() {
    for of in [0, 1, 2, 3, 4, 5].map(order) {
        let yard = large();
        stock_blocks(&yard, of, Gfp::HIGHUSER_MOVABLE);
        let moved = || yard.zone(ZONE).statistics().pages_moved;
        let (before, in_depot) = (moved(), yard.zone(ZONE).depot_blocks(of, MigrateType::Movable));
        let on_lists = yard.zone(ZONE).pcp(CpuId(0)).unwrap().count.0;
        yard.drain_all();
        yard.set_policy(ZonePolicy::Vanilla).unwrap();
        assert_eq!(moved() - before, (in_depot << of.0) + on_lists, "{of}");
        yard.validate().unwrap();
    }
}

#[test]
fn a_block_cut_into_blocks_of_a_small_order_gives_a_batch_under_one_hold_of_the_lock() {
    let yard = large();
    run_on(0);
    let before = locks(&yard);
    let blocks: Vec<Pfn> = (0..BATCH).map(|_| yard.alloc(order(3), Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    assert_eq!(locks(&yard), before + 1);
    assert!(blocks.chunks(8).all(|of_one| of_one.is_sorted()), "parts of a block come in ascending order");
    blocks.iter().for_each(|pfn| yard.free(*pfn, order(3)).unwrap());
}

#[test]
fn larger_blocks_of_the_depot_are_cut_without_the_zone_lock() {
    for of in [1, 2, 3, 4, 5] {
        for wanted in 0..of {
            let yard = large();
            stock_blocks(&yard, order(of), Gfp::HIGHUSER_MOVABLE);
            run_on(1);
            let (before, free) = (locks(&yard), yard.stats().free_pages());
            let larger = yard.zone(ZONE).depot_blocks(order(of), MigrateType::Movable);
            let count = (8 * BATCH) >> wanted;
            let taken: Vec<Pfn> =
                (0..count).map(|_| yard.alloc(order(wanted), Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
            assert_eq!(locks(&yard), before, "{wanted} of {of}");
            assert_eq!(
                yard.stats().free_pages() + PageCount(8 * BATCH),
                free,
                "{wanted} of {of}: pieces count as free"
            );
            let left = yard.zone(ZONE).depot_blocks(order(of), MigrateType::Movable);
            assert!(left < larger, "{wanted} of {of}: {left} of {larger}");
            yard.validate().unwrap();
            taken.iter().for_each(|pfn| yard.free(*pfn, order(wanted)).unwrap());
        }
    }
}

#[test]
fn a_request_is_served_from_the_smallest_larger_block_of_the_depot() {
    let yard = large();
    run_on(0);
    let blocks = [5, 6, 4].map(|of| (yard.alloc(order(of), Gfp::HIGHUSER_MOVABLE).unwrap(), order(of)));
    yard.drain_all();
    assert_eq!(depot(&yard).get("depot_batches"), 0, "what the allocations have carved for later is merged");
    let [five, _, four] = blocks;
    [four, five].into_iter().for_each(|(pfn, of)| yard.free(pfn, of).unwrap());
    let small = yard.alloc(order(0), Gfp::HIGHUSER_MOVABLE).unwrap();
    assert_eq!(small.align_down(order(4)), four.0, "a frame of the smallest block");
    let got = [(); 2].map(|()| yard.alloc(order(4), Gfp::HIGHUSER_MOVABLE).unwrap());
    assert_eq!(got, [five.0, five.0 + PageCount(16)]);
    yard.free(small, order(0)).unwrap();
    got.into_iter().for_each(|pfn| yard.free(pfn, order(4)).unwrap());
    yard.free(blocks[1].0, blocks[1].1).unwrap();
}

#[test]
fn larger_blocks_on_the_shelf_of_another_cpu_are_cut_once_the_zone_has_none() {
    let yard = depot_yard_sized(8 * PAGES, &[0, 1, 2, 3], Poisoning::Off, 4096);
    run_on(0);
    let blocks: Vec<Pfn> = (0..16).map(|_| yard.alloc(order(5), Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    blocks.iter().for_each(|pfn| yard.free(*pfn, order(5)).unwrap());
    let in_depot = || yard.zone(ZONE).depot_blocks(order(5), MigrateType::Movable);
    let (before, larger) = (locks(&yard), in_depot());
    assert!(larger >= 16);
    run_on(1);
    let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::HIGH | Gfp::NOWARN;
    let mut taken = vec![yard.alloc(order(0), gfp).unwrap()];
    assert_eq!((locks(&yard), in_depot()), (before + 1, larger), "the zone has blocks");
    let merged = || depot(&yard).get("depot_collected");
    let merged_before = merged();
    taken.extend(std::iter::from_fn(|| yard.alloc(order(0), gfp).ok()));
    assert_eq!(in_depot(), 0);
    // Below the low watermark some are merged.
    assert!(merged() - merged_before < larger / 2, "most are cut: {} of {larger} merged", merged() - merged_before);
    yard.validate().unwrap();
    taken.iter().for_each(|pfn| yard.free(*pfn, order(0)).unwrap());
}

#[test]
fn a_request_takes_no_block_of_another_type_out_of_the_depot() {
    let yard = large();
    stock_blocks(&yard, order(5), Gfp::HIGHUSER_MOVABLE);
    let movable = yard.zone(ZONE).depot_blocks(order(5), MigrateType::Movable);
    for of in [0, 4, 5].map(order) {
        let pfn = yard.alloc(of, Gfp::KERNEL).unwrap();
        assert_eq!(yard.stats().pageblock_type(pfn), Some(MigrateType::Unmovable));
        assert_eq!(yard.zone(ZONE).depot_blocks(order(5), MigrateType::Movable), movable, "{of}");
        yard.free(pfn, of).unwrap();
    }
}

#[test]
fn blocks_without_lists_count_as_allocated_and_freed_once() {
    let yard = large();
    let counts = || {
        let zone = yard.zone(ZONE).statistics();
        [zone.allocations, zone.pages_allocated, zone.frees, zone.pages_freed]
    };
    let before = counts();
    stock_blocks(&yard, order(5), Gfp::HIGHUSER_MOVABLE);
    let blocks = (6 * PAGES) >> 5;
    // Cut from those blocks.
    let pfn = yard.alloc(order(4), Gfp::HIGHUSER_MOVABLE).unwrap();
    yard.free(pfn, order(4)).unwrap();
    let expected = [blocks + 1, (blocks << 5) + 16, blocks + 1, (blocks << 5) + 16];
    assert_eq!(std::array::from_fn(|at| counts()[at] - before[at]), expected);
}

#[test]
fn blocks_without_lists_merge_while_whole_pageblocks_are_few() {
    let yard = large();
    run_on(0);
    let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::HIGH | Gfp::NOWARN;
    let all: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(order(4), gfp).ok()).collect();
    all.iter().for_each(|pfn| yard.free(*pfn, order(4)).unwrap());
    assert!(depot(&yard).get("depot_collected") > 0, "all of memory was taken: {:?}", depot(&yard));
    let whole: u64 =
        [6, 7, 8].map(|of| yard.zone(ZONE).free_blocks(order(of), MigrateType::Movable) << of).iter().sum();
    assert!(whole >= PAGES, "an eighth is to be there whole: {whole} frames");
    yard.validate().unwrap();
}
