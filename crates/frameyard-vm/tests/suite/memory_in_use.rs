//! Compaction, reclaim and allocation with spaces and files that use the memory. Moved pages keep their bytes, and
//! droppable pages never make an allocation fail.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::fixture::{PAGE, TestMachine, TestVm, anonymous, expect, fill, in_yard, range, run_on};
use frameyard::compaction::CompactRequest;
use frameyard::{ByteSize, Gfp, Order, Pfn, ZoneId};
use frameyard_vm::{BackingStore, File, LruPolicy, PatternStore, VmConfig, VmCounter};

const HUGE: Order = Order(9);

fn four_cpus() -> TestMachine {
    run_on(0);
    TestMachine { cpus: 4, ..TestMachine::default() }
}

fn sharded() -> VmConfig {
    VmConfig { lru: LruPolicy::Sharded, shards: 2, ..VmConfig::default() }
}

fn read_page(file: &File<'_, crate::fixture::TestPlatform>, page: u64) {
    let (mut found, mut wanted) = ([0; PAGE as usize], [0; PAGE as usize]);
    assert_eq!(file.read(page * PAGE, &mut found).expect("a page is read"), PAGE as usize);
    PatternStore.fill(file.key(), page, 0, &mut wanted).unwrap();
    assert!(found == wanted, "page {page} differs from the store");
}

fn free_huge_blocks(vm: &TestVm<'_>) -> u64 {
    vm.yard().drain_all();
    let blocks = |order| vm.yard().stats().zones().map(move |zone| (zone.id, order)).collect::<Vec<_>>();
    let types = frameyard::MigrateType::ALL;
    let count = |(zone, order): (ZoneId, Order)| {
        types.into_iter().map(|kind| vm.yard().zone(zone).free_blocks(order, kind)).sum::<u64>() << (order.0 - HUGE.0)
    };
    (HUGE.0..=vm.yard().geometry().max_order().0).flat_map(|order| blocks(Order(order))).map(count).sum()
}

#[test]
fn compaction_moves_pages_with_their_bytes() {
    in_yard(four_cpus(), VmConfig::default(), |vm| {
        let space = vm.create_space().unwrap();
        let half = vm.yard().stats().managed_pages().0 * 45 / 100;
        let mapped = range(0, half / 2 * PAGE);
        space.map(anonymous(mapped)).unwrap();
        let [kept, gone] = [1, 2].map(|key| vm.create_file(key, ByteSize(half * PAGE)).unwrap());
        // One page of each in turn, so that memory is fragmented when every second page is gone.
        for page in 0..half / 2 {
            read_page(&gone, page);
            fill(&space, range(page * PAGE, PAGE), page);
            read_page(&gone, page + half / 2);
            read_page(&kept, page);
        }
        drop(gone);
        vm.lru_drain_all();
        let free = vm.yard().stats().free_pages().0;
        let possible = free >> HUGE.0;
        let before = free_huge_blocks(&vm);
        assert!(before < possible / 2, "{before} of {possible} blocks: memory is not fragmented");
        let zone = vm.yard().stats().zones().next().unwrap().id;
        let outcome = vm.yard().compaction().zone(zone, CompactRequest::WHOLE_ZONE, &vm.owners());
        let after = free_huge_blocks(&vm);
        assert!(after * 100 >= possible * 80, "{after} of {possible} blocks: {outcome:?}");
        assert_eq!(vm.counted(VmCounter::PgmigrateSuccess), outcome.migrated.0);
        assert!(outcome.migrated.0 > half / 8);
        vm.validate().unwrap();
        (0..half / 2).for_each(|page| expect(&space, range(page * PAGE, PAGE), page));
        let misses = vm.counted(VmCounter::PgcacheMiss);
        (0..half / 2).for_each(|page| read_page(&kept, page));
        assert_eq!(vm.counted(VmCounter::PgcacheMiss), misses, "a moved page left the cache");
    });
}

#[test]
fn reclaim_keeps_and_counts_pages_of_spaces() {
    in_yard(four_cpus(), VmConfig::default(), |vm| {
        let space = vm.create_space().unwrap();
        let pages = vm.yard().stats().managed_pages().0 * 2;
        let all = space.map(anonymous(range(0, pages * PAGE))).unwrap();
        let write =
            |page: &u64| space.write(frameyard_vm::VirtAddr(all.start.0 + page * PAGE), &[*page as u8]).is_err();
        let written = (0..pages).find(write).expect("the writes exceed the memory");
        assert!(written > pages * 4 / 10, "{written} of {} pages", pages / 2);
        assert!(vm.counted(VmCounter::ReclaimAnonymous) > 0);
        let mut byte = [0];
        for page in 0..written {
            space.read(frameyard_vm::VirtAddr(all.start.0 + page * PAGE), &mut byte).unwrap();
            assert_eq!(byte[0], page as u8, "page {page}");
        }
    });
}

#[test]
fn allocates_huge_blocks_from_clean_cache() {
    in_yard(four_cpus(), sharded(), |vm| {
        let pages = vm.yard().stats().managed_pages().0;
        let file = vm.create_file(5, ByteSize(pages * 2 * PAGE)).unwrap();
        for page in 0..pages * 2 {
            run_on((page / 32 % 4) as u32);
            read_page(&file, page);
        }
        let wanted = (pages >> HUGE.0) / 2;
        let alloc = |_| vm.yard().request(HUGE, Gfp::HIGHUSER_MOVABLE).owners(&vm.owners()).frame().ok();
        let had: Vec<Pfn> = (0..wanted).filter_map(alloc).collect();
        assert!(had.len() as u64 * 10 >= wanted * 8, "{} of {wanted}", had.len());
        had.into_iter().for_each(|pfn| vm.yard().free(pfn, HUGE).unwrap());
    });
}

#[test]
fn all_operations_at_once_lose_nothing() {
    in_yard(four_cpus(), sharded(), |vm| {
        let pages = vm.yard().stats().managed_pages().0;
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (vm, done) = (&vm, &done);
            let readers = (0..2).map(|cpu| {
                scope.spawn(move || {
                    run_on(cpu);
                    let file = vm.create_file(u64::from(cpu), ByteSize(pages * PAGE)).unwrap();
                    (0..pages).for_each(|page| read_page(&file, page));
                })
            });
            let writer = scope.spawn(move || {
                run_on(2);
                let space = vm.create_space().unwrap();
                for round in 0..6 {
                    let mapped = range(0, pages / 5 * PAGE);
                    space.map(anonymous(mapped)).unwrap();
                    fill(&space, mapped, round);
                    expect(&space, mapped, round);
                    space.unmap(mapped).unwrap();
                }
            });
            scope.spawn(move || {
                run_on(3);
                let zone = vm.yard().stats().zones().next().unwrap().id;
                let mut policies = LruPolicy::ALL.into_iter().cycle();
                while !done.load(Ordering::Relaxed) {
                    vm.reclaim_step(zone.node());
                    vm.yard().compaction().zone(zone, CompactRequest::WHOLE_ZONE, &vm.owners());
                    vm.compact_step(zone.node());
                    policies.by_ref().take(1).for_each(|policy| vm.set_lru_policy(policy));
                }
            });
            let workers: Vec<_> = readers.collect::<Vec<_>>().into_iter().chain([writer]).collect();
            let ended: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            done.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|end| end.expect("no thread fails"));
        });
        vm.validate().unwrap();
    });
}
