//! Reclaim: dropped pages, kept pages, and termination.

use std::thread;

use frameyard::owners::{ReclaimRequest, Reclaimer};
use frameyard::units::ZoneKind;
use frameyard::watermarks::WatermarkLevel;
use frameyard::{AllocError, ByteSize, Gfp, NodeId, Order, PageCount, Pfn};

use super::ReclaimStep;
use super::scan::inactive_is_low;
use crate::VmCounter;
use crate::cache::File;
use crate::error::VmError;
use crate::inject::Step;
use crate::lru::{LruList, LruStatistics};
use crate::page::{Flags, PageKind};
use crate::root::{LruPolicy, VmConfig};
use crate::store::{BackingStore, PatternStore};
use crate::test_yard::{TestMachine, TestPlatform, TestYard, run_on};
use crate::vm::{TestVm, Vm};

const NODE: NodeId = NodeId(0);
const PAGE: usize = 4096;
const KEY: u64 = 7;

fn four_cpus() -> TestYard {
    run_on(0);
    TestYard::of(TestMachine { cpus: 4, memory: ByteSize::mib(32), ..TestMachine::default() })
}

/// Reads a page of a file and compares it with the store.
fn read_page(file: &File<'_, TestPlatform>, page: u64) {
    let (mut found, mut wanted) = ([0; PAGE], [0; PAGE]);
    assert_eq!(file.read(page * PAGE as u64, &mut found).expect("a page is read"), PAGE);
    PatternStore.fill(file.key(), page, 0, &mut wanted).unwrap();
    assert!(found == wanted, "page {page} has the contents of the store");
}

fn request(pages: u64) -> ReclaimRequest {
    let (highest_zone, order) = (ZoneKind::Movable, Order::ZERO);
    ReclaimRequest { node: NODE, highest_zone, order, wanted: PageCount(pages) }
}

fn on(vm: &TestVm<'_>, list: LruList) -> u64 {
    vm.lru_statistics(NODE).on(list).0
}

fn end(vm: TestVm<'_>) {
    vm.finish();
}

/// Allocates until memory is exhausted.
fn exhaust(vm: &TestVm<'_>) -> (Vec<Pfn>, VmError) {
    let mut frames = Vec::new();
    loop {
        match vm.alloc_frames(Order::ZERO, Gfp::KERNEL, Step::AllocatePage) {
            Ok(block) => frames.push(block.into_pfn()),
            Err(error) => return (frames, error),
        }
    }
}

#[test]
fn allocations_reclaim_clean_file_pages() {
    for lru in LruPolicy::ALL {
        let yard = four_cpus();
        let vm = Vm::create(&yard, &VmConfig { lru, shards: 2, ..VmConfig::default() }).unwrap();
        let pages = yard.stats().managed_pages().0;
        let file = vm.create_file(KEY, ByteSize(pages * 3 * PAGE as u64)).unwrap();
        for page in 0..pages * 3 {
            run_on((page / 50 % 4) as u32);
            read_page(&file, page);
        }
        vm.validate().unwrap();
        assert!(vm.counted(VmCounter::Allocstall) > 0 && vm.counted(VmCounter::PgstealDirect) > pages);
        let (frames, error) = exhaust(&vm);
        assert!(frames.len() as u64 > pages * 8 / 10, "{lru:?}: the cache made room for {} frames", frames.len());
        assert!(matches!(error, VmError::OutOfMemory(AllocError::OutOfMemory { .. })), "{error:?}");
        frames.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
        read_page(&file, 5);
        drop(file);
        end(vm);
    }
}

#[test]
fn reclaim_keeps_dirty_pages_and_reports_no_memory() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let pages = yard.stats().managed_pages().0;
    let file = vm.create_file(KEY, ByteSize(pages * 2 * PAGE as u64)).unwrap();
    let mut written = 0;
    let failed = loop {
        match file.write(written * PAGE as u64, &[written as u8; PAGE]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(written > pages * 8 / 10, "{written} of {pages} pages before {failed}");
    assert!(vm.counted(VmCounter::ReclaimDirty) > 0);
    assert_eq!(vm.counted(VmCounter::PgstealDirect), 0);
    vm.validate().unwrap();
    let mut found = [0; PAGE];
    for page in 0..written {
        file.read(page * PAGE as u64, &mut found).unwrap();
        assert!(found == [page as u8; PAGE], "page {page} is as it was written");
    }
    file.truncate(ByteSize(0)).unwrap();
    drop(file);
    end(vm);
}

#[test]
fn recently_used_pages_get_a_second_chance() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let file = vm.create_file(KEY, ByteSize(2048 * PAGE as u64)).unwrap();
    (0..2048).for_each(|page| read_page(&file, page));
    vm.lru_drain_all();
    let cached = |pfn: &Pfn| {
        let page = vm.try_page(*pfn).filter(|page| page.is_counted());
        page.is_some_and(|page| PageKind::of_word(page.owner()) == Some(PageKind::Cache))
    };
    let all = yard.frame_range();
    let pages = (all.start.0..all.end.0).map(Pfn).filter(cached).map(|pfn| vm.page(pfn));
    let oldest = |index: u64| index < 64;
    pages.filter(|page| !oldest(page.index())).for_each(|page| _ = page.clear_owner_bits(Flags::REFERENCED));
    assert!(vm.reclaim(request(500)).0 >= 500);
    let misses = vm.counted(VmCounter::PgcacheMiss);
    (0..64).for_each(|page| read_page(&file, page));
    assert_eq!(vm.counted(VmCounter::PgcacheMiss), misses, "younger ones that were not used went first");
    drop(file);
    end(vm);
}

#[test]
fn reused_pages_become_active_and_are_reclaimed_last() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let file = vm.create_file(KEY, ByteSize(2048 * PAGE as u64)).unwrap();
    (0..2048).for_each(|page| read_page(&file, page));
    vm.lru_drain_all();
    let (misses, reads) = (vm.counted(VmCounter::PgcacheMiss), 64);
    // The oldest pages are used again and become active.
    (0..reads).for_each(|page| read_page(&file, page));
    let freed = vm.reclaim(request(1000));
    assert!(freed.0 >= 1000, "{freed:?}");
    (0..reads).for_each(|page| read_page(&file, page));
    assert_eq!(vm.counted(VmCounter::PgcacheMiss), misses, "no page that was used again was dropped");
    drop(file);
    end(vm);
}

#[test]
fn reclaims_every_clean_page_and_then_stops() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig { lru: LruPolicy::Sharded, shards: 4, ..VmConfig::default() }).unwrap();
    let file = vm.create_file(KEY, ByteSize(1000 * PAGE as u64)).unwrap();
    for page in 0..1000 {
        run_on((page / 250) as u32);
        read_page(&file, page);
        read_page(&file, page);
    }
    assert_eq!(vm.lru_statistics(NODE).shards, 4);
    assert_eq!(vm.reclaim(request(2000)), PageCount(1000));
    assert_eq!(vm.cached_pages(), PageCount(0));
    assert_eq!(vm.reclaim(request(2000)), PageCount(0));
    drop(file);
    end(vm);
}

#[test]
fn scans_shards_in_proportion_under_any_policy() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig { lru: LruPolicy::Sharded, shards: 4, ..VmConfig::default() }).unwrap();
    let file = vm.create_file(KEY, ByteSize(2400 * PAGE as u64)).unwrap();
    for page in 0..2400 {
        // The last CPU adds three of four pages.
        run_on(if page % 400 < 300 { 3 } else { 0 });
        read_page(&file, page);
    }
    vm.lru_drain_all();
    run_on(0);
    vm.set_lru_policy(LruPolicy::Vanilla);
    let of_shard = |shard| {
        vm.shard(crate::lru::ShardKey { node: NODE, shard })
            .unwrap()
            .pages_racy(LruList::InactiveFile, PageCount(u64::MAX))
            .0
    };
    let before = [of_shard(0), of_shard(3)];
    assert!(before[0] > 500 && before[1] > 1500, "{before:?}");
    vm.reclaim(request(1600));
    let taken = [before[0] - of_shard(0), before[1] - of_shard(3)];
    assert!(taken[0] > 0 && taken[1] > taken[0], "{taken:?} of {before:?}");
    vm.validate().unwrap();
    drop(file);
    end(vm);
}

#[test]
fn ages_active_pages_when_few_are_inactive() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let file = vm.create_file(KEY, ByteSize(1500 * PAGE as u64)).unwrap();
    for _ in 0..3 {
        (0..1500).for_each(|page| read_page(&file, page));
        vm.lru_drain_all();
    }
    assert_eq!((on(&vm, LruList::ActiveFile), on(&vm, LruList::InactiveFile)), (1500, 0));
    assert!(vm.reclaim(request(100)).0 >= 100);
    assert!(vm.counted(VmCounter::Pgdeactivate) >= 100 && vm.counted(VmCounter::Pgrefill) >= 100);
    assert!(on(&vm, LruList::ActiveFile) > 0, "no more than needed");
    vm.validate().unwrap();
    drop(file);
    end(vm);
}

#[test]
fn inactive_share_shrinks_with_memory() {
    let gib = 1 << 18;
    let low = |inactive, active| inactive_is_low(PageCount(inactive), PageCount(active), PAGE as u64);
    assert!(low(49, 51) && !low(51, 49));
    assert!(low(gib / 5, gib) && !low(gib / 3 + 1, gib), "a third of a gibibyte");
    assert!(low(2 * gib, 98 * gib) && !low(4 * gib, 96 * gib), "a thirtieth of a hundred");
}

#[test]
fn background_reclaim_starts_below_low_and_stops_above_high() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    assert_eq!(vm.reclaim_step(NODE), ReclaimStep::Idle);
    let zone = || yard.stats().zones().next().expect("a zone");
    let level = |level| zone().watermarks.level(level);
    let file = vm.create_file(KEY, ByteSize(yard.stats().managed_pages().0 * PAGE as u64)).unwrap();
    let mut page = 0;
    while zone().free > level(WatermarkLevel::Low) {
        read_page(&file, page);
        page += 1;
    }
    let mut steps = 0;
    while vm.reclaim_step(NODE) != ReclaimStep::Idle {
        steps += 1;
        assert!(steps < 1000, "it comes to an end");
    }
    yard.drain_all();
    assert!(steps > 0 && zone().free > level(WatermarkLevel::High));
    assert_eq!(vm.counted(VmCounter::Pageoutrun), 1);
    assert!(vm.counted(VmCounter::PgstealKswapd) > 0 && vm.counted(VmCounter::PgscanKswapd) > 0);
    assert_eq!(vm.counted(VmCounter::Allocstall), 0);
    drop(file);
    end(vm);
}

#[test]
fn background_reclaim_removes_boosts() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let zone = || yard.stats().zones().next().expect("a zone");
    let file = vm.create_file(KEY, ByteSize(yard.stats().managed_pages().0 * PAGE as u64)).unwrap();
    (0..yard.stats().managed_pages().0).for_each(|page| read_page(&file, page));
    while vm.reclaim_step(NODE) != ReclaimStep::Idle {}
    let mut frames = Vec::new();
    while zone().watermarks.boost.0 == 0 {
        frames.push(
            yard.request(Order::ZERO, Gfp::KERNEL).owners(&vm.owners()).frame().expect("a frame before types must mix"),
        );
    }
    let ReclaimStep::Progress(_) = vm.reclaim_step(NODE) else { panic!("it wakes for the boost") };
    while vm.reclaim_step(NODE) != ReclaimStep::Idle {}
    assert_eq!(zone().watermarks.boost, PageCount(0));
    assert!(zone().free > zone().watermarks.high);
    assert!(vm.compact_step(NODE).is_some(), "it wakes the compactor");
    frames.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    drop(file);
    end(vm);
}

#[test]
fn background_reclaim_reports_stuck() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let file = vm.create_file(KEY, ByteSize(yard.stats().managed_pages().0 * 2 * PAGE as u64)).unwrap();
    let mut written = 0;
    while file.write(written * PAGE as u64, &[1; PAGE]).is_ok() {
        written += 1;
    }
    let is_over = |step: &ReclaimStep| *step != ReclaimStep::Progress(PageCount(0));
    let end_of_run = (0..10_000).map(|_| vm.reclaim_step(NODE)).find(is_over);
    assert_eq!(end_of_run, Some(ReclaimStep::Stuck));
    file.truncate(ByteSize(0)).unwrap();
    vm.lru_drain_all();
    assert_eq!(vm.reclaim_step(NODE), ReclaimStep::Idle);
    drop(file);
    end(vm);
}

#[test]
fn background_reclaim_serves_readers_of_a_large_file() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig { lru: LruPolicy::Sharded, shards: 2, ..VmConfig::default() }).unwrap();
    let pages = yard.stats().managed_pages().0;
    let files: Vec<_> = (0..3).map(|key| vm.create_file(key, ByteSize(pages * PAGE as u64)).unwrap()).collect();
    thread::scope(|scope| {
        for (cpu, file) in files.iter().enumerate() {
            let vm = &vm;
            scope.spawn(move || {
                run_on(cpu as u32);
                for page in 0..pages {
                    read_page(file, page);
                    if page % 64 == 0 {
                        vm.reclaim_step(NODE);
                    }
                }
            });
        }
    });
    vm.validate().unwrap();
    drop(files);
    end(vm);
}

#[test]
fn reclaim_of_an_unknown_node_does_nothing() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig { lru_batch: 31, shards: 1, ..VmConfig::default() }).unwrap();
    let file = vm.create_file(1, ByteSize((30 * PAGE) as u64)).unwrap();
    (0..30).for_each(|page| read_page(&file, page));
    for node in 1..20 {
        assert_eq!(vm.reclaim_step(NodeId(node)), ReclaimStep::Idle);
        assert_eq!(vm.lru_statistics(NodeId(node)), LruStatistics::default());
    }
    vm.lru_drain_all();
    assert_eq!(on(&vm, LruList::InactiveFile) + on(&vm, LruList::ActiveFile), 30);
    drop(file);
    end(vm);
}
