//! Migration (compaction, contiguous ranges, reclaim, scanners by frame number) against accesses, pins, partial unmaps
//! and exits. No write, frame or count is lost.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::fixture::{HUGE, PAGE, TestMachine, TestSpace, TestVm, at, in_yard, range, run_on};
use frameyard::compaction::CompactRequest;
use frameyard::owners::{Block, FrameOwner, MigrateMode};
use frameyard::{ByteSize, Gfp, Order, PageCount, Pfn, PfnRange};
use frameyard_vm::{FaultError, HugeAdvice, LruPolicy, MapRequest, MemoryAccess, VirtAddr, VmConfig, VmCounter};

const ROUNDS: u64 = 60;

/// Pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Writes a number to both ends of a page and between.
fn write_page(space: &TestSpace<'_>, page: VirtAddr, number: u64) {
    for offset in [0, 2048, PAGE - 8] {
        retry(|| space.write(VirtAddr(page.0 + offset), &number.to_le_bytes()));
    }
}

fn read_page(space: &TestSpace<'_>, page: VirtAddr, number: u64) {
    for offset in [0, 2048, PAGE - 8] {
        let mut bytes = [0; 8];
        retry(|| space.read(VirtAddr(page.0 + offset), &mut bytes));
        assert_eq!(u64::from_le_bytes(bytes), number, "page {page}, offset {offset}");
    }
}

/// A migration may lose its CPU for long.
fn retry(mut work: impl FnMut() -> Result<(), FaultError>) {
    loop {
        match work() {
            Err(FaultError::Moving(_)) => thread::yield_now(),
            done => return done.expect("mapped memory"),
        }
    }
}

/// Maps, writes, unmaps in part and pins, in its own addresses of a shared space.
fn use_addresses(vm: &TestVm<'_>, space: &TestSpace<'_>, thread: u64) {
    let mut dice = Dice(thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let base = thread * 64 * HUGE;
    // The moving threads may not have run yet.
    let is_moved = || vm.counted(VmCounter::PgmigrateSuccess) > 0;
    for round in (0_u64..).take_while(|round| *round < ROUNDS || !is_moved()) {
        let pages = 2 * HUGE / PAGE;
        let mapped = range(base, 2 * HUGE);
        let advice = if dice.below(2) == 0 { HugeAdvice::Huge } else { HugeAdvice::Never };
        space.map(MapRequest::anonymous(mapped.size()).at(mapped.start).advised(advice)).expect("room");
        let number = |page: u64| thread << 48 | round << 16 | page;
        (0..pages).for_each(|page| write_page(space, at(base + page * PAGE), number(page)));
        let pin = (dice.below(3) == 0).then(|| space.pin(at(base + dice.below(pages) * PAGE)).expect("a pin"));
        let first = dice.below(pages);
        let count = 1 + dice.below(pages - first);
        space.unmap(range(base + first * PAGE, count * PAGE)).expect("the range is mapped");
        let is_left = |page: &u64| *page < first || *page >= first + count;
        for _ in 0..3 {
            (0..pages).filter(is_left).for_each(|page| read_page(space, at(base + page * PAGE), number(page)));
        }
        drop(pin);
        if first > 0 {
            space.unmap(range(base, first * PAGE)).expect("the range is mapped");
        }
        if first + count < pages {
            space
                .unmap(range(base + (first + count) * PAGE, (pages - first - count) * PAGE))
                .expect("the range is mapped");
        }
    }
}

/// Creates and exits spaces, some with pins that outlive them.
fn create_and_drop_spaces(vm: &TestVm<'_>) {
    let mut pins = Vec::new();
    for round in 0..ROUNDS {
        let space = vm.create_space().expect("a space");
        let mapped = range(0, 3 * HUGE);
        let advice = if round % 2 == 0 { HugeAdvice::Huge } else { HugeAdvice::Never };
        space.map(MapRequest::anonymous(mapped.size()).at(mapped.start).advised(advice)).expect("room");
        for page in 0..3 * HUGE / PAGE {
            retry(|| space.touch(at(page * PAGE), MemoryAccess::Write));
        }
        pins.push(space.pin(at(round % 1536 * PAGE)).expect("a pin"));
        if pins.len() > 2 {
            pins.remove(0);
        }
        let _ = space.exit(NonZeroUsize::new(1 + round as usize % 2).unwrap()).unwrap();
    }
}

/// Takes references by frame number, like a scanner with stale data.
fn look_at_frames(vm: &TestVm<'_>, stop: &AtomicBool, seed: u64) {
    let mut dice = Dice(seed);
    let memory = vm.yard().memory_ranges().next().unwrap().0;
    while !stop.load(Ordering::Relaxed) {
        let pfn = Pfn(memory.start.0 + dice.below(memory.count().0));
        // All pins are still held, and few frames are pinned for long.
        let order = if dice.below(4) == 0 { Order(9) } else { Order::ZERO };
        let block = Block { pfn: if order == Order::ZERO { pfn } else { Pfn(pfn.0 & !511) }, order };
        if vm.isolate(block, MigrateMode::Async).is_ok() {
            thread::yield_now();
            vm.put_back(block);
        }
    }
}

fn move_about(vm: &TestVm<'_>, stop: &AtomicBool) {
    let zone = vm.yard().stats().zones().next().unwrap().id;
    let memory = vm.yard().memory_ranges().next().unwrap().0;
    let mut dice = Dice(77);
    while !stop.load(Ordering::Relaxed) {
        vm.yard().compaction().zone(zone, CompactRequest::WHOLE_ZONE, &vm.owners());
        vm.reclaim_step(zone.node());
        let start = Pfn((memory.start.0 + dice.below(memory.count().0 - 1024)) & !511);
        let wanted = PfnRange::new(start, PageCount(1 + dice.below(1024)));
        if let Ok(range) = vm.yard().request(wanted, Gfp::HIGHUSER_MOVABLE).owners(&vm.owners()).range() {
            vm.yard().free_range(range).expect("the range is allocated");
        }
        vm.compact_step(zone.node());
        vm.set_lru_policy(if dice.below(2) == 0 { LruPolicy::Vanilla } else { LruPolicy::Sharded });
        vm.lru_drain_all();
    }
}

fn read_files(vm: &TestVm<'_>, stop: &AtomicBool) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let file = vm.create_file(round, ByteSize(256 * PAGE)).expect("a file");
        let mut bytes = [0; PAGE as usize];
        (0..256).for_each(|page| assert_eq!(file.read(page * PAGE, &mut bytes), Ok(PAGE as usize)));
        file.write(round % 256 * PAGE, b"dirty").expect("a page");
    }
}

#[test]
fn concurrent_migration_loses_no_write_frame_or_count() {
    run_on(0);
    let machine = TestMachine { cpus: 4, ..TestMachine::default() };
    let config = VmConfig { lru: LruPolicy::Sharded, shards: 2, ..VmConfig::default() };
    in_yard(machine, config, |vm| {
        let stop = AtomicBool::new(false);
        let shared = vm.create_space().unwrap();
        thread::scope(|scope| {
            let (vm, stop, shared) = (&vm, &stop, &shared);
            let users = [0, 1].map(|cpu| {
                scope.spawn(move || {
                    run_on(cpu);
                    use_addresses(vm, shared, 1 + u64::from(cpu));
                })
            });
            let comers = scope.spawn(move || {
                run_on(2);
                create_and_drop_spaces(vm);
            });
            scope.spawn(move || {
                run_on(3);
                move_about(vm, stop);
            });
            scope.spawn(move || {
                run_on(2);
                look_at_frames(vm, stop, 99);
            });
            scope.spawn(move || {
                run_on(1);
                read_files(vm, stop);
            });
            let users = users.into_iter().chain([comers]);
            let ended: Vec<_> = users.map(thread::ScopedJoinHandle::join).collect();
            stop.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|end| end.expect("no thread fails"));
        });
        drop(shared);
        vm.lru_drain_all();
        vm.validate().unwrap();
    });
}

#[test]
fn block_split_while_pinned_can_move_after_unpin() {
    run_on(0);
    for unmapped in [0, 1, 300, 511] {
        in_yard(TestMachine::default(), VmConfig::default(), |vm| {
            let space = vm.create_space().unwrap();
            let mapped = range(0, HUGE);
            space.map(MapRequest::anonymous(mapped.size()).at(mapped.start).advised(HugeAdvice::Huge)).unwrap();
            (0..512).for_each(|page| write_page(&space, at(page * PAGE), page + 7));
            let pin = space.pin(at(3 * PAGE)).unwrap();
            let head = Pfn(pin.pfn().0 - 3);
            space.unmap(range(unmapped * PAGE, PAGE)).unwrap();
            assert_eq!(vm.counted(VmCounter::ThpSplitPageFailed), 1, "a pinned block was split");
            let block = PfnRange::new(head, PageCount(512));
            let take = || vm.yard().request(block, Gfp::HIGHUSER_MOVABLE).owners(&vm.owners()).range();
            let problem = take().unwrap_err();
            assert!(problem.to_string().contains("pinned"), "{problem}");
            drop(pin);
            assert_eq!(take(), Ok(block));
            vm.validate().unwrap();
            (0..512).filter(|page| *page != unmapped).for_each(|page| read_page(&space, at(page * PAGE), page + 7));
            vm.yard().free_range(block).unwrap();
        });
    }
}
