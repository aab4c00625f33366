//! The background reclaimer, which ages pages of spaces and drops file pages, against accesses, unmaps, exits,
//! migration, and reads of more file pages than fit in memory. No write, frame or count is lost.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::fixture::{HUGE, PAGE, TestMachine, TestSpace, TestVm, at, in_yard, range, run_on};
use frameyard::compaction::CompactRequest;
use frameyard::{ByteSize, NodeId};
use frameyard_vm::{
    FaultError, HugeAdvice, LruList, LruPolicy, MapRequest, MemoryAccess, VirtAddr, VmConfig, VmCounter,
};

const NODE: NodeId = NodeId(0);
/// The smallest number of rounds of a user.
const ROUNDS: u64 = 12;

/// A migration may lose its CPU for long, and so may a thread that frees memory.
fn retry(mut work: impl FnMut() -> Result<(), FaultError>) {
    loop {
        match work() {
            Err(FaultError::Moving(_)) => thread::yield_now(),
            done => return done.expect("mapped memory"),
        }
    }
}

fn write_page(space: &TestSpace<'_>, page: VirtAddr, number: u64) {
    for offset in [0, PAGE - 8] {
        retry(|| space.write(VirtAddr(page.0 + offset), &number.to_le_bytes()));
    }
}

fn check_page(space: &TestSpace<'_>, page: VirtAddr, number: u64) {
    for offset in [0, PAGE - 8] {
        let mut bytes = [0; 8];
        retry(|| space.read(VirtAddr(page.0 + offset), &mut bytes));
        assert_eq!(u64::from_le_bytes(bytes), number, "page {page}, offset {offset}");
    }
}

/// Whether the other threads have reached the tested case.
fn has_met_all(vm: &TestVm<'_>) -> bool {
    let met =
        [VmCounter::ReclaimAnonymous, VmCounter::PgstealKswapd, VmCounter::PgmigrateSuccess, VmCounter::Pgactivate];
    met.into_iter().all(|counter| vm.counted(counter) > 0)
}

/// Maps, writes, touches a part repeatedly, checks, and unmaps in part, in its own addresses of a shared space.
fn use_addresses(vm: &TestVm<'_>, space: &TestSpace<'_>, thread: u64) {
    let base = thread * 64 * HUGE;
    for round in (0_u64..).take_while(|round| *round < ROUNDS || !has_met_all(vm)) {
        let mapped = range(base, HUGE);
        let advice = if round % 2 == 0 { HugeAdvice::Huge } else { HugeAdvice::Never };
        space.map(MapRequest::anonymous(mapped.size()).at(mapped.start).advised(advice)).expect("room");
        let pages = HUGE / PAGE;
        let number = |page: u64| thread << 48 | round << 16 | page;
        (0..pages).for_each(|page| write_page(space, at(base + page * PAGE), number(page)));
        for _ in 0..8 {
            (0..pages / 4).for_each(|page| {
                retry(|| space.touch(at(base + page * PAGE), MemoryAccess::Read));
            });
            thread::yield_now();
        }
        (0..pages).for_each(|page| check_page(space, at(base + page * PAGE), number(page)));
        let (first, count) = (round * 37 % pages, 1 + round * 11 % 40);
        let count = count.min(pages - first);
        let _ = space.unmap(range(base + first * PAGE, count * PAGE)).expect("the range is mapped");
        let is_left = |page: &u64| *page < first || *page >= first + count;
        (0..pages).filter(is_left).for_each(|page| check_page(space, at(base + page * PAGE), number(page)));
        for (first, end) in [(0, first), (first + count, pages)] {
            if first < end {
                let _ = space.unmap(range(base + first * PAGE, (end - first) * PAGE)).expect("the range is mapped");
            }
        }
    }
}

/// Creates and exits spaces.
fn map_and_unmap(vm: &TestVm<'_>, stop: &AtomicBool) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let space = vm.create_space().expect("a space");
        let mapped = range(0, HUGE);
        space.map(MapRequest::anonymous(mapped.size()).at(mapped.start).advised(HugeAdvice::Never)).expect("room");
        (0..HUGE / PAGE).for_each(|page| write_page(&space, at(page * PAGE), round ^ page));
        (0..HUGE / PAGE).for_each(|page| check_page(&space, at(page * PAGE), round ^ page));
        let _ = space.exit(NonZeroUsize::new(1 + round as usize % 2).unwrap());
    }
}

/// Reads files with more pages than fit in memory.
fn read_files(vm: &TestVm<'_>, stop: &AtomicBool) {
    let file = vm.create_file(5, ByteSize(64 << 20)).expect("a file");
    let mut bytes = [0; PAGE as usize];
    for page in (0..(64 << 20) / PAGE).cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
        assert_eq!(file.read(page * PAGE, &mut bytes), Ok(PAGE as usize));
    }
}

fn reclaim_and_move(vm: &TestVm<'_>, stop: &AtomicBool) {
    let zone = vm.yard().stats().zones().next().expect("a zone").id;
    for round in (0_u64..).take_while(|_| !stop.load(Ordering::Relaxed)) {
        let _ = vm.reclaim_step(NODE);
        if round % 16 == 0 {
            let _ = vm.yard().compaction().zone(zone, CompactRequest::WHOLE_ZONE, &vm.owners());
            vm.set_lru_policy(if round % 32 == 0 { LruPolicy::Sharded } else { LruPolicy::Vanilla });
        }
        thread::yield_now();
    }
}

/// Stops the other threads on drop, even after a panic.
struct StopsOthers<'a>(&'a AtomicBool);

impl Drop for StopsOthers<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn concurrent_ageing_loses_no_write_frame_or_count() {
    run_on(0);
    let machine = TestMachine { cpus: 4, memory: ByteSize::mib(32), ..TestMachine::default() };
    for lru in LruPolicy::ALL {
        in_yard(machine, VmConfig { lru, shards: 2, ..VmConfig::default() }, |vm| {
            let stop = AtomicBool::new(false);
            let shared = vm.create_space().unwrap();
            thread::scope(|scope| {
                let (vm, stop, shared) = (&vm, &stop, &shared);
                type Work = fn(&TestVm<'_>, &AtomicBool);
                let background: [(u32, Work); 4] =
                    [(2, map_and_unmap), (3, reclaim_and_move), (0, reclaim_and_move), (1, read_files)];
                for (cpu, work) in background {
                    scope.spawn(move || {
                        run_on(cpu);
                        work(vm, stop);
                    });
                }
                let _stops = StopsOthers(stop);
                let users = [0, 1].map(|cpu| {
                    scope.spawn(move || {
                        run_on(cpu);
                        use_addresses(vm, shared, 1 + u64::from(cpu));
                    })
                });
                let ended = users.map(thread::ScopedJoinHandle::join);
                ended.into_iter().for_each(|end| end.expect("no thread fails"));
            });
            drop(shared);
            vm.lru_drain_all();
            vm.validate().unwrap();
            let lists = vm.lru_statistics(NODE);
            assert!(LruList::ALL.into_iter().all(|list| lists.on(list).0 == 0), "{lists:?}");
        });
    }
}
