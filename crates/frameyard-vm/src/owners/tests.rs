//! Isolation for migration: accepted and rejected pages, and their return.

use frameyard::AllocError;
use frameyard::contig::BlockedBy;
use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, Ownership};
use frameyard::page::{CountedPage, Counts};
use frameyard::sync::{AtomicU64, Ordering};
use frameyard::{ByteSize, Gfp, NodeId, Order, PageCount, Pfn, PfnRange};

use crate::VmCounter;
use crate::cache::File;
use crate::inject::{FaultInjector, Step};
use crate::lru::LruList;
use crate::object_id::ObjectId;
use crate::page::{Flags, PageKind, owner_word};
use crate::root::VmConfig;
use crate::space::{SpaceRef, SpaceWord};
use crate::test_yard::{TestPlatform, TestYard, run_on};
use crate::vm::{TestVm, Vm};

const PAGE: u64 = 4096;

fn block(pfn: Pfn) -> Block {
    Block { pfn, order: Order::ZERO }
}

/// A page of the test with one reference.
fn new_page<'y>(vm: &TestVm<'y>, kind: PageKind) -> CountedPage<'y, TestPlatform> {
    let pfn = vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    let owner = owner_word(kind, ObjectId::NONE, 0);
    let ownership = Ownership { counts: Counts { references: 1, mappings: 0 }, owner, index: 0 };
    vm.yard().counted().init_refs(pfn, Order::ZERO, ownership).unwrap();
    vm.page(pfn)
}

/// A file with `count` resident pages, and their frames.
fn file_in_memory<'y>(vm: &TestVm<'y>, pages: u64) -> (File<'y, TestPlatform>, Vec<Pfn>) {
    let file = vm.create_file(3, ByteSize(pages * PAGE)).unwrap();
    let mut bytes = [0; PAGE as usize];
    (0..pages).for_each(|page| assert!(file.read(page * PAGE, &mut bytes).is_ok()));
    let all = vm.yard().frame_range();
    let is_cache = |pfn: &Pfn| {
        let page = vm.try_page(*pfn).filter(CountedPage::is_counted);
        page.is_some_and(|page| PageKind::of_word(page.owner()) == Some(PageKind::Cache))
    };
    let frames: Vec<_> = (all.start.0..all.end.0).map(Pfn).filter(is_cache).collect();
    assert_eq!(frames.len() as u64, pages);
    (file, frames)
}

fn in_yard(test: impl FnOnce(TestVm<'_>)) {
    run_on(0);
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    test(vm);
    vm.lru_drain_all();
    vm.finish();
}

#[test]
fn rejects_isolation_of_foreign_frames() {
    in_yard(|vm| {
        let isolate = |block| vm.isolate(block, MigrateMode::Sync);
        let free = vm.yard().alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        assert_eq!(isolate(block(free)), Err(MigrateProblem::Gone), "allocated without owner");
        vm.yard().free(free, Order::ZERO).unwrap();
        assert_eq!(isolate(block(free)), Err(MigrateProblem::Gone), "free");
        assert_eq!(isolate(block(Pfn(1))), Err(MigrateProblem::Gone), "no memory");
        assert_eq!(isolate(vm.root().block()), Err(MigrateProblem::Unmovable));
        let plain = new_page(&vm, PageKind::Plain);
        assert_eq!(isolate(block(plain.pfn())), Err(MigrateProblem::Unmovable));
        let small = new_page(&vm, PageKind::Anonymous);
        let order = Order(1);
        assert_eq!(isolate(Block { pfn: small.pfn(), order }), Err(MigrateProblem::Gone), "of another order");
        for page in [plain, small] {
            assert_eq!(page.counts().references, 1, "no reference is left behind");
            vm.put_page(page);
        }
    });
}

#[test]
fn isolation_is_exclusive_and_returns_the_page() {
    in_yard(|vm| {
        let (_file, frames) = file_in_memory(&vm, 15);
        vm.lru_drain();
        let on_list = || vm.lru_statistics(NodeId(0)).on(LruList::InactiveFile).0;
        let page = vm.page(frames[4]);
        assert_eq!(on_list(), 15);
        assert_eq!(vm.isolate(block(frames[4]), MigrateMode::Async), Ok(()));
        assert_eq!((on_list(), page.counts().references), (14, 2));
        for mode in MigrateMode::ALL {
            assert_eq!(vm.isolate(block(frames[4]), mode), Err(MigrateProblem::Busy));
        }
        assert_eq!(page.counts().references, 2);
        vm.put_back(block(frames[4]));
        vm.lru_drain();
        assert_eq!((on_list(), page.counts().references), (15, 1));
        assert_eq!(page.owner() & Flags::ISOLATED, 0);
    });
}

#[test]
fn async_isolation_skips_batched_pages_and_sync_drains_them() {
    in_yard(|vm| {
        run_on(1);
        let (_file, frames) = file_in_memory(&vm, 3);
        run_on(0);
        assert_eq!(vm.isolate(block(frames[0]), MigrateMode::Async), Err(MigrateProblem::Busy));
        assert_eq!(vm.isolate(block(frames[0]), MigrateMode::Sync), Ok(()));
        vm.put_back(block(frames[0]));
    });
}

#[test]
fn isolation_distinguishes_busy_and_pinned_pages() {
    in_yard(|vm| {
        let (_file, frames) = file_in_memory(&vm, 15);
        let space = vm.create_space().unwrap();
        let mapped = space.map(crate::MapRequest::anonymous(ByteSize(PAGE))).unwrap();
        space.write(mapped.start, &[7]).unwrap();
        vm.lru_drain_all();
        let mapped_frame = space.translate(mapped.start).unwrap().pfn;
        for pfn in [frames[0], mapped_frame] {
            // Like an isolator's reference before it sets the flag.
            let page = vm.page(pfn);
            page.get();
            for mode in MigrateMode::ALL {
                assert_eq!(vm.isolate(block(pfn), mode), Err(MigrateProblem::Busy));
            }
            vm.put_page(page);
        }
        let pin = space.pin(mapped.start).unwrap();
        for mode in MigrateMode::ALL {
            assert_eq!(vm.isolate(block(mapped_frame), mode), Err(MigrateProblem::Pinned));
        }
        drop(pin);
        for pfn in [frames[0], mapped_frame] {
            assert_eq!(vm.isolate(block(pfn), MigrateMode::Async), Ok(()));
            vm.put_back(block(pfn));
        }
    });
}

#[test]
fn isolated_page_of_a_deleted_file_is_freed_on_return() {
    in_yard(|vm| {
        let (file, frames) = file_in_memory(&vm, 15);
        assert_eq!(vm.isolate(block(frames[7]), MigrateMode::Sync), Ok(()));
        drop(file);
        assert!(vm.page(frames[7]).is_counted(), "the isolator has a reference");
        let to = vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
        assert_eq!(vm.migrate(block(frames[7]), to, MigrateMode::Sync), Err(MigrateProblem::Gone));
        vm.yard().free(to, Order::ZERO).unwrap();
        vm.put_back(block(frames[7]));
        vm.lru_drain();
        assert!(!vm.page(frames[7]).is_counted());
    });
}

#[test]
fn discards_clean_pages_that_are_not_active() {
    in_yard(|vm| {
        let (file, frames) = file_in_memory(&vm, 15);
        vm.lru_drain();
        let frame_of = |index| *frames.iter().find(|pfn| vm.page(**pfn).index() == index).unwrap();
        let [clean, dirty, active] = [4, 5, 6].map(frame_of).map(block);
        assert_eq!(vm.discard(clean), Err(MigrateProblem::Gone), "nobody has isolated it");
        assert!(file.write(5 * PAGE, &[1]).is_ok());
        vm.lru_drain();
        for stays in [dirty, active] {
            assert_eq!(vm.isolate(stays, MigrateMode::Sync), Ok(()));
            // Isolated, it is on no list: the flag names the one that it goes back to.
            if stays == active {
                vm.page(active.pfn).set_owner_bits(Flags::ACTIVE);
            }
            assert_eq!(vm.discard(stays), Err(MigrateProblem::Failed));
            vm.put_back(stays);
        }
        let (mut before, mut after) = ([0; PAGE as usize], [0; PAGE as usize]);
        assert!(file.read(4 * PAGE, &mut before).is_ok());
        vm.lru_drain();
        assert_eq!(vm.isolate(clean, MigrateMode::Sync), Ok(()));
        vm.page(clean.pfn).clear_owner_bits(Flags::ACTIVE);
        assert_eq!(vm.discard(clean), Ok(()));
        vm.yard().free(clean.pfn, Order::ZERO).expect("the caller's, as after a migration");
        assert!(file.read(4 * PAGE, &mut after).is_ok());
        assert_eq!(before, after, "its bytes are read again");
        vm.lru_drain_all();
        vm.validate().unwrap();
    });
}

/// Fails one step a number of times.
struct Fails(Step);

impl FaultInjector for Fails {
    fn fails(&self, step: Step) -> bool {
        self.0 == step
    }
}

#[test]
fn failed_migration_leaves_the_page_unchanged() {
    let steps = [Step::Isolate, Step::Freeze, Step::Copy, Step::Unfreeze].map(Fails);
    run_on(0);
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let (file, frames) = file_in_memory(&vm, 15);
    let from = block(frames[3]);
    let to = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    for step in &steps {
        let failing = vm.with_injector(step);
        let isolated = failing.isolate(from, MigrateMode::Sync);
        let wanted = if step.0 == Step::Isolate { Err(MigrateProblem::Failed) } else { Ok(()) };
        assert_eq!(isolated, wanted, "{:?}", step.0);
        if isolated.is_ok() {
            let moved = failing.migrate(from, to, MigrateMode::Sync);
            assert_eq!(moved, Err(MigrateProblem::Failed), "{:?}", step.0);
            failing.put_back(from);
        }
        vm.lru_drain();
        assert_eq!(vm.page(from.pfn).counts().references, 1, "{:?}", step.0);
        vm.validate().unwrap();
    }
    assert_eq!(vm.isolate(from, MigrateMode::Sync), Ok(()));
    assert_eq!(vm.migrate(from, to, MigrateMode::Sync), Ok(()));
    yard.free(from.pfn, Order::ZERO).expect("the caller's, as if just allocated");
    assert_eq!(vm.counted(VmCounter::PgmigrateSuccess), 1);
    assert_eq!(vm.counted(VmCounter::PgmigrateFail), 3);
    drop(file);
    vm.finish();
}

#[test]
fn ignores_pages_that_are_not_isolated() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let mapped = space.map(crate::MapRequest::anonymous(frameyard::ByteSize(4096))).unwrap();
    space.write(mapped.start, &[7]).unwrap();
    vm.lru_drain_all();
    let used = space.translate(mapped.start).unwrap().pfn;
    let to = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    for pfn in [used, to, Pfn(0), Pfn(u64::MAX >> 12)] {
        let block = Block { pfn, order: Order::ZERO };
        vm.put_back(block);
        assert_eq!(vm.migrate(block, to, MigrateMode::Sync), Err(MigrateProblem::Gone));
    }
    yard.free(to, Order::ZERO).unwrap();
    vm.lru_drain_all();
    vm.validate().unwrap();
    drop(space);
    vm.finish();
}

#[test]
fn rejects_migration_targets_that_are_in_use() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let mapped = space.map(crate::MapRequest::anonymous(frameyard::ByteSize(4096))).unwrap();
    space.write(mapped.start, &[7]).unwrap();
    let block = Block { pfn: space.translate(mapped.start).unwrap().pfn, order: Order::ZERO };
    vm.isolate(block, MigrateMode::Sync).unwrap();
    let mut foreign = yard.frames(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    foreign.bytes_mut().unwrap().fill(0x55);
    let larger = yard.alloc(Order(1), Gfp::HIGHUSER_MOVABLE).unwrap();
    for to in [foreign.pfn(), block.pfn, larger, larger + frameyard::PageCount(1), Pfn(0)] {
        assert_eq!(vm.migrate(block, to, MigrateMode::Sync), Err(MigrateProblem::Failed), "{to}");
    }
    assert!(foreign.bytes().unwrap().iter().all(|byte| *byte == 0x55), "another owner's bytes were written");
    vm.put_back(block);
    yard.free(larger, Order(1)).unwrap();
    drop(foreign);
    let mut byte = [0];
    space.read(mapped.start, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    drop(space);
    vm.finish();
}

#[test]
fn second_isolation_is_busy() {
    in_yard(|vm| {
        let (_file, frames) = file_in_memory(&vm, 15);
        vm.lru_drain_all();
        let from = block(frames[5]);
        let rivals = |cpu| {
            run_on(cpu);
            let mut had = 0;
            for turn in 0..20_000 {
                match vm.isolate(from, MigrateMode::ALL[turn % 2]) {
                    Ok(()) => {
                        had += 1;
                        vm.put_back(from);
                    }
                    Err(problem) => assert_eq!(problem, MigrateProblem::Busy, "an unpinned page fails only as busy"),
                }
            }
            had
        };
        let had = std::thread::scope(|scope| {
            let other = scope.spawn(|| rivals(1));
            rivals(0) + other.join().unwrap()
        });
        assert!(had > 0);
    });
}

/// A range with a block that another caller has isolated cannot be taken. The error is busy, not pinned.
#[test]
fn contiguous_range_reports_an_isolated_block_as_busy() {
    in_yard(|vm| {
        let (_file, frames) = file_in_memory(&vm, 15);
        vm.lru_drain_all();
        let range = PfnRange::new(frames[5], PageCount(1));
        let take = || vm.yard().request(range, Gfp::HIGHUSER_MOVABLE).owners(&vm.owners()).range();
        vm.isolate(block(frames[5]), MigrateMode::Sync).unwrap();
        let Err(AllocError::Blocked(blocker)) = take() else { panic!("the isolated page does not block the request") };
        assert_eq!((blocker.frames(), blocker.why), (range, BlockedBy::Busy));
        assert_eq!(blocker.owner, PageKind::Cache.owner());
        vm.put_back(block(frames[5]));
        assert_eq!(take(), Ok(range));
        vm.yard().free_range(range).unwrap();
    });
}

/// Hides a space for a number of look-ups.
struct Returning<'y> {
    space: SpaceRef<'y, TestPlatform>,
    left: AtomicU64,
}

impl FaultInjector for Returning<'_> {
    fn fails(&self, step: Step) -> bool {
        if step == Step::Visit && self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.space.word(SpaceWord::USERS).store(1, Ordering::Release);
        }
        false
    }
}

#[test]
fn contiguous_range_retries_pages_of_an_exiting_space() {
    in_yard(|vm| {
        let space = vm.create_space().unwrap();
        let mapped = space.map(crate::MapRequest::anonymous(ByteSize(PAGE))).unwrap();
        space.write(mapped.start, &[7]).unwrap();
        vm.lru_drain_all();
        let range = PfnRange::new(space.translate(mapped.start).unwrap().pfn, PageCount(1));
        // Like a space whose last handle was just dropped.
        space.space().word(SpaceWord::USERS).store(0, Ordering::Release);
        let never = Returning { space: space.space(), left: AtomicU64::new(u64::MAX) };
        let failing = vm.with_injector(&never);
        let Err(AllocError::Blocked(blocker)) =
            vm.yard().request(range, Gfp::HIGHUSER_MOVABLE).owners(&failing.owners()).range()
        else {
            panic!("the page is there")
        };
        assert_eq!((blocker.frames(), blocker.why), (range, BlockedBy::Busy));
        let later = Returning { space: space.space(), left: AtomicU64::new(3) };
        let failing = vm.with_injector(&later);
        assert_eq!(vm.yard().request(range, Gfp::HIGHUSER_MOVABLE).owners(&failing.owners()).range(), Ok(range));
        vm.yard().free_range(range).unwrap();
    });
}
