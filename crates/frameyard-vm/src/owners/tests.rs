//! What is set aside for migration, what is not and why, and that it comes back.

use frameyard::AllocError;
use frameyard::contig::BlockedBy;
use frameyard::owners::{Adoption, Block, FrameOwner, MigrateMode, MigrateProblem};
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
use crate::vm::Vm;

type TestVm<'y> = Vm<'y, TestPlatform>;

const PAGE: u64 = 4096;

fn block(pfn: Pfn) -> Block {
    Block { pfn, order: Order::ZERO }
}

/// A page counted by the test, which has one reference.
fn new_page<'y>(vm: &TestVm<'y>, kind: PageKind) -> CountedPage<'y, TestPlatform> {
    let pfn = vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    let owner = owner_word(kind, ObjectId::NONE, 0);
    let adoption = Adoption { counts: Counts { references: 1, mappings: 0 }, owner, index: 0 };
    vm.yard().adopt(pfn, Order::ZERO, adoption).unwrap();
    vm.page(pfn)
}

/// A file with that many pages in memory, and the frames that hold them, if they were free before.
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
    vm.validate().expect("valid at the end");
    vm.destroy().expect("nobody uses it");
}

#[test]
fn what_is_no_page_of_a_space_or_a_file_is_not_set_aside() {
    in_yard(|vm| {
        let isolate = |block| vm.isolate(block, MigrateMode::Sync);
        let free = vm.yard().alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        assert_eq!(isolate(block(free)), Err(MigrateProblem::Gone), "allocated, and nobody's");
        vm.yard().free(free, Order::ZERO).unwrap();
        assert_eq!(isolate(block(free)), Err(MigrateProblem::Gone), "free");
        assert_eq!(isolate(block(Pfn(1))), Err(MigrateProblem::Gone), "no memory");
        let (root, order) = vm.root().block();
        assert_eq!(isolate(Block { pfn: root, order }), Err(MigrateProblem::Unmovable));
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
fn one_alone_sets_a_page_aside_and_it_comes_back_to_its_list() {
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
fn a_page_in_a_batch_is_busy_for_those_who_do_not_wait_and_fetched_by_those_who_do() {
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
fn a_page_that_somebody_is_at_is_busy_and_one_with_pins_is_pinned() {
    in_yard(|vm| {
        let (_file, frames) = file_in_memory(&vm, 15);
        let space = vm.create_space().unwrap();
        let mapped = space.map(crate::MapRequest::anonymous(ByteSize(PAGE))).unwrap();
        space.write(mapped.start, &[7]).unwrap();
        vm.lru_drain_all();
        let mapped_frame = space.translate(mapped.start).unwrap().pfn;
        for pfn in [frames[0], mapped_frame] {
            // As who isolates it has, too, before he says so.
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
fn a_page_whose_file_goes_while_it_is_set_aside_is_freed_when_it_is_put_back() {
    in_yard(|vm| {
        let (file, frames) = file_in_memory(&vm, 15);
        assert_eq!(vm.isolate(block(frames[7]), MigrateMode::Sync), Ok(()));
        drop(file);
        assert!(vm.page(frames[7]).is_counted(), "who has set it aside has a reference");
        let to = vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
        assert_eq!(vm.migrate(block(frames[7]), to, MigrateMode::Sync), Err(MigrateProblem::Gone));
        vm.yard().free(to, Order::ZERO).unwrap();
        vm.put_back(block(frames[7]));
        vm.lru_drain();
        assert!(!vm.page(frames[7]).is_counted());
    });
}

/// Fails one step, as often as it is asked.
struct Fails(Step);

impl FaultInjector for Fails {
    fn fails(&self, step: Step) -> bool {
        self.0 == step
    }
}

#[test]
fn a_move_that_fails_at_any_step_leaves_the_page_as_it_was() {
    let steps = [Step::Isolate, Step::Freeze, Step::Copy, Step::Thaw].map(Fails);
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
    vm.validate().unwrap();
    vm.destroy().unwrap();
}

#[test]
fn what_was_not_set_aside_is_neither_moved_nor_put_back() {
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
    vm.destroy().unwrap();
}

#[test]
fn a_page_is_moved_to_nothing_but_a_block_that_was_just_allocated() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let mapped = space.map(crate::MapRequest::anonymous(frameyard::ByteSize(4096))).unwrap();
    space.write(mapped.start, &[7]).unwrap();
    let block = Block { pfn: space.translate(mapped.start).unwrap().pfn, order: Order::ZERO };
    vm.isolate(block, MigrateMode::Sync).unwrap();
    let mut others = yard.frames(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    others.bytes_mut().unwrap().fill(0x55);
    let larger = yard.alloc(Order(1), Gfp::HIGHUSER_MOVABLE).unwrap();
    for to in [others.pfn(), block.pfn, larger, larger + frameyard::PageCount(1), Pfn(0)] {
        assert_eq!(vm.migrate(block, to, MigrateMode::Sync), Err(MigrateProblem::Failed), "{to}");
    }
    assert!(others.bytes().unwrap().iter().all(|byte| *byte == 0x55), "another owner's bytes were written");
    vm.put_back(block);
    yard.free(larger, Order(1)).unwrap();
    drop(others);
    let mut byte = [0];
    space.read(mapped.start, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    drop(space);
    vm.destroy().unwrap();
}

#[test]
fn of_two_who_set_a_page_aside_the_other_hears_that_it_is_busy() {
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
                    Err(problem) => assert_eq!(problem, MigrateProblem::Busy, "nobody has pinned it"),
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

/// A range that holds a block which somebody else has set aside cannot be taken; he is not said to have pinned it.
#[test]
fn a_contiguous_range_names_the_block_that_somebody_else_has_set_aside_as_busy() {
    in_yard(|vm| {
        let (_file, frames) = file_in_memory(&vm, 15);
        vm.lru_drain_all();
        let range = PfnRange::new(frames[5], PageCount(1));
        let take = || vm.yard().request_range(range, Gfp::HIGHUSER_MOVABLE).owners(&vm.owners()).range();
        vm.isolate(block(frames[5]), MigrateMode::Sync).unwrap();
        let Err(AllocError::Blocked(blocker)) = take() else { panic!("it was set aside") };
        assert_eq!((blocker.frames(), blocker.why), (range, BlockedBy::Busy));
        assert_eq!(blocker.owner, PageKind::Cache.owner());
        vm.put_back(block(frames[5]));
        assert_eq!(take(), Ok(range));
        vm.yard().free_range(range).unwrap();
    });
}

/// Keeps a space from being found until it was looked for so often.
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
fn a_range_with_a_page_of_a_space_that_is_going_is_tried_again() {
    in_yard(|vm| {
        let space = vm.create_space().unwrap();
        let mapped = space.map(crate::MapRequest::anonymous(ByteSize(PAGE))).unwrap();
        space.write(mapped.start, &[7]).unwrap();
        vm.lru_drain_all();
        let range = PfnRange::new(space.translate(mapped.start).unwrap().pfn, PageCount(1));
        // As if its last handle was put just now.
        space.space().word(SpaceWord::USERS).store(0, Ordering::Release);
        let never = Returning { space: space.space(), left: AtomicU64::new(u64::MAX) };
        let failing = vm.with_injector(&never);
        let Err(AllocError::Blocked(blocker)) =
            vm.yard().request_range(range, Gfp::HIGHUSER_MOVABLE).owners(&failing.owners()).range()
        else {
            panic!("the page is there")
        };
        assert_eq!((blocker.frames(), blocker.why), (range, BlockedBy::Busy));
        let later = Returning { space: space.space(), left: AtomicU64::new(3) };
        let failing = vm.with_injector(&later);
        assert_eq!(vm.yard().request_range(range, Gfp::HIGHUSER_MOVABLE).owners(&failing.owners()).range(), Ok(range));
        vm.yard().free_range(range).unwrap();
    });
}
