//! All operations of the crate with a failure at each step in turn, at random steps, and with less memory each time.
//! Nothing is lost, written bytes remain, and repeating a failed call completes it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::num::NonZeroUsize;
use std::sync::Mutex;

use crate::fixture::{
    HUGE, PAGE, TestMachine, TestSpace, TestVm, anonymous, at, expect, in_yard, pattern, range, run_on,
};
use crate::page_cache::stores::MemoryStore;
use crate::test_yard::{TestYard, unmap_all_after};
use frameyard::compaction::CompactRequest;
use frameyard::units::ZoneKind;
use frameyard::{ByteSize, Gfp, NodeId, Order, PageCount, Pfn, PfnRange};
use frameyard_vm::{
    AddressSpace, Dirty, ExitOutcome, FaultInjector, File, HugeAdvice, MapRequest, MemoryAccess, MemoryRegion,
    PinFlags, PinRequest, RefHandling, Sharing, Step, VirtAddr, VirtRange, Vm, VmConfig, VmError,
};

const SMALL: TestMachine = TestMachine { memory: ByteSize::mib(32), ..TestMachine::PLAIN };
/// Pages of the space that are mapped one by one.
const PAGES: u64 = 40;
const LONGTERM: PinRequest = PinRequest { flags: PinFlags::LONGTERM, ..PinRequest::PIN };
const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

type TestFile<'y> = File<'y, crate::fixture::TestPlatform>;

/// The schedule of failures.
#[derive(Clone, Copy, Debug)]
enum When {
    Never,
    /// The n-th step of these kinds, counted from 0.
    Once(u64, fn(Step) -> bool),
    /// The n-th occurrence of a kind.
    OnceAt(u64, Step),
    /// One of `n`, by a generator with this seed.
    AtRandom(u64, u64),
}

/// Injects failures and records the steps.
struct Failing {
    when: When,
    state: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    asked: u64,
    random: u64,
    has_failed: bool,
    steps: BTreeSet<String>,
}

impl Failing {
    fn new(when: When) -> Self {
        let random = if let When::AtRandom(_, seed) = when { seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 } else { 0 };
        Self { when, state: Mutex::new(Seen { random, ..Seen::default() }) }
    }

    fn has_failed(&self) -> bool {
        self.state.lock().unwrap().has_failed
    }
}

impl FaultInjector for Failing {
    fn fails(&self, step: Step) -> bool {
        let mut seen = self.state.lock().unwrap();
        seen.steps.insert(format!("{step:?}"));
        let counts = match self.when {
            When::Never => false,
            When::Once(_, of) => of(step),
            When::OnceAt(_, only) => only == step,
            When::AtRandom(..) => true,
        };
        if !counts {
            return false;
        }
        let number = seen.asked;
        seen.asked += 1;
        let fails = match self.when {
            When::Never => false,
            When::Once(n, _) | When::OnceAt(n, _) => number == n,
            When::AtRandom(one_in, _) => {
                seen.random ^= seen.random << 13;
                seen.random ^= seen.random >> 7;
                seen.random ^= seen.random << 17;
                seen.random.is_multiple_of(one_in)
            }
        };
        seen.has_failed |= fails;
        fails
    }
}

/// The reaction to a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    /// Retry until success.
    AsksAgain,
    /// Give up: memory will not increase.
    GivesUp,
}

/// The operation was abandoned.
#[derive(Debug)]
struct GaveUp;

/// The thread that runs all operations, and its progress.
struct Life<'y> {
    vm: TestVm<'y>,
    patience: Patience,
    failures: Cell<u64>,
}

impl<'y> Life<'y> {
    /// Runs an operation until it succeeds, or gives up. Only expected errors may occur.
    fn must<T, E: Debug + Display>(&self, mut deed: impl FnMut() -> Result<T, E>) -> Result<T, GaveUp> {
        for _ in 0..1000 {
            let problem = match deed() {
                Ok(done) => return Ok(done),
                Err(problem) => format!("{problem:?}: {problem}"),
            };
            self.failures.set(self.failures.get() + 1);
            let reason = if self.patience == Patience::AsksAgain { "injected failure" } else { "OutOfMemory" };
            assert!(problem.contains(reason), "{problem}");
            if self.patience == Patience::GivesUp {
                return Err(GaveUp);
            }
        }
        panic!("the operation always fails");
    }

    fn write(&self, space: &TestSpace<'y>, range: VirtRange, seed: u64) -> Result<(), GaveUp> {
        for page in 0..range.size().0 / PAGE {
            let addr = frameyard_vm::VirtAddr(range.start.0 + page * PAGE);
            self.must(|| space.write(addr, &pattern(seed + page)))?;
        }
        Ok(())
    }

    /// Small pages alternate with file pages, so that memory is fragmented when one of the files is gone.
    fn fill(&self, space: &TestSpace<'y>, kept: &TestFile<'y>) -> Result<(), GaveUp> {
        let vm = &self.vm;
        let gone = self.must(|| vm.create_file(2, ByteSize(PAGES * PAGE)))?;
        self.must(|| space.map(anonymous(range(0, PAGES * PAGE))))?;
        for page in 0..PAGES {
            self.must(|| gone.read(page * PAGE, &mut [0; PAGE as usize]))?;
            self.write(space, range(page * PAGE, PAGE), page)?;
            self.must(|| kept.write(page * PAGE, &pattern(1000 + page)))?;
        }
        // Far away, so that the tree grows.
        self.must(|| kept.write(5000 * PAGE + 7, b"far"))?;
        drop(gone);
        self.check_file(kept, PAGES)
    }

    fn check_file(&self, file: &TestFile<'y>, pages: u64) -> Result<(), GaveUp> {
        let mut bytes = [0; PAGE as usize];
        for page in 0..pages {
            assert_eq!(self.must(|| file.read(page * PAGE, &mut bytes))?, bytes.len());
            assert!(bytes[..] == pattern(1000 + page), "page {page} of the file");
        }
        Ok(())
    }

    /// Huge pages with partial unmaps, one of them while pinned.
    fn split(&self, space: &TestSpace<'y>) -> Result<(), GaveUp> {
        let huge = range(4 * HUGE, 2 * HUGE);
        self.must(|| space.map(anonymous(huge).advised(HugeAdvice::Huge)))?;
        for offset in [0, 100 * PAGE, HUGE, HUGE + 100 * PAGE] {
            self.write(space, range(4 * HUGE + offset, 2 * PAGE), offset / PAGE)?;
        }
        let pin = self.must(|| space.pin(at(5 * HUGE)))?;
        let head = pin.pfn();
        let region = self.must(|| MemoryRegion::register(space, range(5 * HUGE, HUGE), MemoryAccess::Write))?;
        region.deregister().expect("the region's pages are pinned");
        for hole in [4 * HUGE + 50 * PAGE, 5 * HUGE + 50 * PAGE] {
            self.must(|| space.unmap(range(hole, 10 * PAGE)))?;
        }
        drop(pin);
        self.move_away(head);
        for offset in [0, 100 * PAGE, HUGE, HUGE + 100 * PAGE] {
            expect(space, range(4 * HUGE + offset, 2 * PAGE), offset / PAGE);
        }
        Ok(())
    }

    /// Takes the pageblock of a frame, if possible, and returns it.
    fn move_away(&self, pfn: Pfn) {
        let vm = &self.vm;
        let wanted = PfnRange::new(Pfn(pfn.0 & !511), PageCount(512));
        if let Ok(range) = vm.yard().request(wanted, Gfp::HIGHUSER_MOVABLE).owners(&vm.owners()).range() {
            vm.yard().free_range(range).expect("the range is allocated");
        }
        vm.validate().expect("the state is valid after pages moved");
    }

    /// Moves pages and drops what can be dropped.
    fn press(&self, space: &TestSpace<'y>, file: &TestFile<'y>) -> Result<(), GaveUp> {
        let vm = &self.vm;
        let zone = vm.yard().stats().zones().next().unwrap().id;
        for effort in frameyard::compaction::CompactEffort::ALL {
            vm.yard().compaction().zone(zone, CompactRequest { effort, ..CompactRequest::WHOLE_ZONE }, &vm.owners());
        }
        self.move_away(space.translate(at(0)).expect("the page was written").pfn);
        expect(space, range(0, PAGES * PAGE), 0);
        self.must(|| file.sync())?;
        vm.reclaim_pages(NodeId(0), ZoneKind::Movable, PageCount(16));
        file.drop_clean();
        self.check_file(file, PAGES)
    }

    /// Truncates a file with resident pages, and extends it again.
    fn cut(&self, file: &TestFile<'y>) -> Result<(), GaveUp> {
        self.must(|| file.write((PAGES - 1) * PAGE, &pattern(1000 + PAGES - 1)))?;
        self.must(|| {
            let done = file.truncate(ByteSize(20 * PAGE + 100));
            self.vm.validate().expect("the state is valid after a complete or failed truncation");
            done
        })?;
        assert_eq!(file.size(), ByteSize(20 * PAGE + 100));
        self.check_file(file, 20)?;
        self.must(|| file.truncate(ByteSize(30 * PAGE)))?;
        let mut bytes = [1; 9 * PAGE as usize];
        self.must(|| file.read(21 * PAGE, &mut bytes))?;
        assert!(bytes.iter().all(|byte| *byte == 0), "a truncated page has contents");
        self.must(|| file.read(20 * PAGE + 100, &mut bytes[..PAGE as usize - 100]))?;
        assert!(bytes.iter().all(|byte| *byte == 0), "the truncated part of the last page has contents");
        Ok(())
    }

    /// Maps a file of at least ten pages shared and private, writes to both, pins pages, and unmaps in pieces.
    fn map_file(&self, space: &TestSpace<'y>, file: &TestFile<'y>) -> Result<(), GaveUp> {
        let (vm, size) = (&self.vm, ByteSize(10 * PAGE));
        let places = [range(8 * HUGE, size.0), range(9 * HUGE - 5 * PAGE, size.0)];
        for (place, sharing) in places.iter().zip(Sharing::ALL) {
            self.must(|| space.map(MapRequest::file(file.id(), 0, size, sharing).at(place.start)))?;
        }
        let [shared, private] = places;
        let page = |range: VirtRange, nth: u64| VirtAddr(range.start.0 + nth * PAGE);
        let mut bytes = vec![0; PAGE as usize];
        for nth in 0..10 {
            self.must(|| space.write(page(shared, nth), &pattern(2000 + nth)))?;
            self.must(|| space.read(page(private, nth), &mut bytes))?;
            assert!(bytes == pattern(2000 + nth), "page {nth}");
        }
        self.must(|| space.write(page(private, 3), b"own"))?;
        for (call, at) in [(LONGTERM, private), (PinRequest::PIN, shared)] {
            let mut frames = [Pfn(0); 4];
            let taken = self.must(|| space.take_pages(at.start, call, &mut frames))?;
            vm.validate().expect("the state is valid while pages of files are pinned");
            for frame in &frames[..taken.0 as usize] {
                self.must(|| vm.unpin_pages(&[*frame], RefHandling::Batched, Dirty::Mark))?;
            }
        }
        self.must(|| file.sync())?;
        self.must(|| space.read(page(private, 3), &mut bytes))?;
        assert!(bytes[..3] == *b"own" && bytes[3..] == pattern(2003)[3..], "the copy");
        vm.validate().expect("the state is valid while a file is mapped");
        let middle = VirtRange { start: page(shared, 4), end: page(shared, 6) };
        self.must(|| space.unmap(middle))?;
        self.must(|| space.unmap(VirtRange { end: middle.start, ..shared }))?;
        self.must(|| space.unmap(VirtRange { start: middle.end, ..shared }))?;
        self.must(|| file.read(3 * PAGE, &mut bytes))?;
        assert!(bytes == pattern(2003), "the file has what was written to the shared mapping");
        Ok(())
    }

    /// All operations.
    fn live(&self) -> Result<(), GaveUp> {
        let vm = &self.vm;
        let kept = self.must(|| vm.create_file(1, ByteSize(0)))?;
        let space: AddressSpace<'_, _> = self.must(|| vm.create_space())?;
        self.fill(&space, &kept)?;
        self.split(&space)?;
        vm.validate().expect("the state is valid while everything is in use");
        self.press(&space, &kept)?;
        self.cut(&kept)?;
        self.map_file(&space, &kept)?;
        self.must(|| space.unmap(range(4 * PAGE, 10 * PAGE)))?;
        self.must(|| space.map(MapRequest::anonymous(ByteSize(PAGE))))?;
        expect(&space, range(0, 4 * PAGE), 0);
        expect(&space, range(14 * PAGE, (PAGES - 14) * PAGE), 14);
        let mut outcome = space.exit(TWO);
        while let Err(stalled) = outcome {
            vm.validate().expect("the state is valid after an incomplete exit");
            outcome = stalled.space.exit(TWO);
        }
        assert!(matches!(outcome, Ok(ExitOutcome::Gone(_))));
        Ok(())
    }
}

/// All operations in a new yard, which is valid afterwards and has all memory back.
fn live(failing: &Failing) {
    run_on(0);
    let store = MemoryStore::default();
    in_yard(SMALL, VmConfig { lru_batch: 4, ..VmConfig::default() }, |vm| {
        let life = Life {
            vm: vm.with_store(&store).with_injector(failing),
            patience: Patience::AsksAgain,
            failures: Cell::new(0),
        };
        life.live().expect("retries succeed");
        vm.lru_drain_all();
    });
}

#[test]
fn test_passes_every_step_except_the_migration_wait() {
    let failing = Failing::new(When::Never);
    live(&failing);
    let seen = std::mem::take(&mut failing.state.lock().unwrap().steps);
    let missing = Step::ALL.into_iter().filter(|step| !seen.contains(&format!("{step:?}")));
    assert_eq!(missing.collect::<Vec<_>>(), [Step::AwaitMove]);
}

#[test]
fn survives_failure_of_each_allocation_in_turn() {
    for n in 0.. {
        let failing = Failing::new(When::Once(n, Step::allocates));
        live(&failing);
        if !failing.has_failed() {
            assert!(n > 200, "only {n} allocations");
            return;
        }
    }
}

#[test]
fn survives_a_failure_at_each_occurrence_of_each_step() {
    for step in Step::ALL {
        // Repeated operations become uniform after a while.
        let times = std::iter::successors(Some(0), |n| Some(n * 5 / 4 + 1));
        for n in times {
            let failing = Failing::new(When::OnceAt(n, step));
            live(&failing);
            if !failing.has_failed() {
                assert!(n > 0 || step == Step::AwaitMove, "{step:?} cannot fail");
                break;
            }
        }
    }
}

#[test]
fn survives_random_failures() {
    for seed in 1..=40 {
        let failing = Failing::new(When::AtRandom([3, 8, 30, 100][seed as usize % 4], seed));
        live(&failing);
        assert!(failing.has_failed());
    }
}

#[test]
fn survives_out_of_memory_at_every_size() {
    let (mut gave_up, mut left) = (0, 0);
    loop {
        let mut failures = 0;
        run_on(0);
        let (store, failing) = (MemoryStore::default(), Failing::new(When::Never));
        in_yard(SMALL, VmConfig { lru_batch: 4, ..VmConfig::default() }, |vm| {
            let mut held = Vec::new();
            while let Ok(pfn) = vm.yard().alloc(Order::ZERO, Gfp::KERNEL) {
                held.push(pfn);
            }
            let few = held.len().saturating_sub(left);
            held.drain(few..).for_each(|pfn| vm.yard().free(pfn, Order::ZERO).unwrap());
            let vm = vm.with_store(&store).with_injector(&failing);
            let life = Life { vm, patience: Patience::GivesUp, failures: Cell::new(0) };
            let lived = life.live();
            failures = life.failures.get();
            assert_eq!(lived.is_err(), failures > 0);
            vm.lru_drain_all();
            vm.validate().expect("the state is valid after the thread gave up");
            held.into_iter().for_each(|pfn| vm.yard().free(pfn, Order::ZERO).unwrap());
        });
        if failures == 0 {
            break;
        }
        gave_up += 1;
        left += if left < 100 { 1 } else { 23 };
    }
    assert!(gave_up > 60, "only {gave_up} runs gave up");
}

#[test]
fn a_root_that_cannot_be_written_leaves_no_block() {
    // The yard requires every frame back when it is dropped.
    for mapped in 0..12 {
        let yard = TestYard::of(TestMachine::default());
        unmap_all_after(mapped);
        let vm = Vm::create(&yard, &VmConfig::default());
        unmap_all_after(u32::MAX);
        match vm {
            // SAFETY: the only view.
            Ok(vm) => unsafe { vm.destroy() }.unwrap(),
            Err(problem) => assert!(matches!(problem, VmError::NoFrameBytes(_)), "{problem}"),
        }
    }
}
