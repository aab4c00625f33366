//! Pins of mappings of files and of shared memory.

use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem};
use frameyard::{ByteSize, Order, PageCount, Pfn};
use frameyard_vm::{
    BackingStore, Dirty, File, MapRequest, MemoryAccess, PatternStore, PinCall, PinError, PinFlags, PinPath,
    PinRequest, Protection, RefHandling, ReleaseProblem, Sharing, StoreError, VirtAddr,
};

use crate::fixture::{PAGE, TestPlatform, TestSpace, TestVm, in_small_yard};

const PAGES: usize = 8;
const SIZE: ByteSize = ByteSize(PAGES as u64 * PAGE);
const WRITE: PinRequest = PinRequest { flags: PinFlags::WRITE, ..PinRequest::PIN };
const LONG: PinRequest = PinRequest { flags: PinFlags::LONGTERM, ..PinRequest::PIN };

/// A store that accepts what is written back.
struct Accepting;

impl BackingStore for Accepting {
    fn fill(&self, key: u64, page: u64, offset: usize, bytes: &mut [u8]) -> Result<(), StoreError> {
        PatternStore.fill(key, page, offset, bytes)
    }

    fn write_back(&self, _key: u64, _page: u64, _bytes: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Runs a test with a file of eight pages, which is not mapped yet.
fn with_file(test: impl FnOnce(TestVm<'_>, &File<'_, TestPlatform>, &TestSpace<'_>)) {
    in_small_yard(|vm| {
        let vm = vm.with_store(&Accepting);
        let file = vm.create_file(7, SIZE).unwrap();
        let space = vm.create_space().unwrap();
        test(vm, &file, &space);
    });
}

fn map(space: &TestSpace<'_>, file: &File<'_, TestPlatform>, sharing: Sharing) -> VirtAddr {
    space.map(MapRequest::file(file.id(), 0, SIZE, sharing)).unwrap().start
}

fn take(space: &TestSpace<'_>, at: VirtAddr, request: PinRequest) -> Result<Vec<Pfn>, PinError> {
    let mut frames = vec![Pfn(0); PAGES];
    let taken = space.take_pages(at, request, &mut frames)?;
    frames.truncate(taken.0 as usize);
    Ok(frames)
}

fn frames(space: &TestSpace<'_>, at: VirtAddr) -> Vec<Pfn> {
    let addrs = (0..PAGES as u64).map(|page| VirtAddr(at.0 + page * PAGE));
    addrs.map(|addr| space.translate(addr).expect("mapped").pfn).collect()
}

fn touch(space: &TestSpace<'_>, at: VirtAddr, access: MemoryAccess) {
    (0..PAGES as u64).for_each(|page| space.touch(VirtAddr(at.0 + page * PAGE), access).unwrap());
}

fn release(vm: TestVm<'_>, request: PinRequest, frames: &[Pfn]) {
    match request.call {
        PinCall::Get => vm.put_pages(frames, request.refs).unwrap(),
        PinCall::Pin => vm.unpin_pages(frames, request.refs, Dirty::Keep).unwrap(),
    }
}

#[test]
fn all_paths_take_the_pages_of_a_file() {
    with_file(|vm, file, space| {
        for sharing in Sharing::ALL {
            let at = map(space, file, sharing);
            touch(space, at, MemoryAccess::Read);
            for call in [PinRequest::GET, PinRequest::PIN] {
                for path in PinPath::ALL {
                    for refs in RefHandling::ALL {
                        let request = call.by(path).counted(refs);
                        let taken = take(space, at, request).unwrap();
                        assert_eq!(taken, frames(space, at), "{request:?}");
                        // Counts the taken references.
                        vm.validate().unwrap();
                        release(vm, request, &taken);
                        vm.validate().unwrap();
                    }
                }
            }
        }
    });
}

#[test]
fn pins_fault_pages_of_files_in() {
    with_file(|vm, file, space| {
        let shared = map(space, file, Sharing::Shared);
        let taken = take(space, shared, WRITE).unwrap();
        assert_eq!((taken.len(), file.dirty_pages()), (PAGES, PageCount(PAGES as u64)));
        release(vm, WRITE, &taken);
        let private = map(space, file, Sharing::Private);
        let taken = take(space, private, PinRequest::PIN).unwrap();
        assert_eq!(taken, frames(space, shared), "a read pin of a private mapping takes the file's pages");
        release(vm, PinRequest::PIN, &taken);
    });
}

#[test]
fn write_pins_of_private_mappings_take_copies() {
    with_file(|vm, file, space| {
        let (shared, private) = (map(space, file, Sharing::Shared), map(space, file, Sharing::Private));
        for at in [shared, private] {
            touch(space, at, MemoryAccess::Read);
        }
        assert_eq!(take(space, private, WRITE.by(PinPath::FastOnly)), Err(PinError::NotFast(private)));
        let taken = take(space, private, WRITE).unwrap();
        assert_eq!(taken, frames(space, private));
        assert!(taken.iter().zip(frames(space, shared)).all(|(own, file)| *own != file));
        assert_eq!((space.statistics().resident, file.dirty_pages()), (PageCount(PAGES as u64), PageCount(0)));
        release(vm, WRITE, &taken);
    });
}

#[test]
fn write_pins_make_shared_entries_writable_and_pages_dirty() {
    with_file(|vm, file, space| {
        let at = map(space, file, Sharing::Shared);
        touch(space, at, MemoryAccess::Read);
        let taken = take(space, at, WRITE).unwrap();
        assert_eq!(taken, frames(space, at));
        assert!(space.translate(at).unwrap().flags.is_writable());
        assert_eq!(file.dirty_pages(), PageCount(PAGES as u64));
        release(vm, WRITE, &taken);
    });
}

#[test]
fn longterm_pins_follow_the_kernel_s_rules_for_files() {
    with_file(|vm, file, space| {
        let long_write = LONG.with(PinFlags::WRITE);
        for path in [PinPath::FastThenSlow, PinPath::SlowOnly] {
            let shared = map(space, file, Sharing::Shared);
            touch(space, shared, MemoryAccess::Write);
            assert_eq!(take(space, shared, long_write.by(path)), Err(PinError::WritableFile(shared)));
            let taken = take(space, shared, LONG.by(path)).unwrap();
            assert_eq!(taken, frames(space, shared), "for reading they stay");
            release(vm, LONG, &taken);

            let private = map(space, file, Sharing::Private);
            touch(space, private, MemoryAccess::Read);
            let taken = take(space, private, LONG.by(path)).unwrap();
            assert!(taken != frames(space, shared), "for reading, a private mapping gets its own pages");
            assert_eq!(taken, frames(space, private));
            space.write(private, b"seen by the device").unwrap();
            assert_eq!(taken, frames(space, private), "a write does not separate it from the pinned page");
            release(vm, LONG, &taken);
        }
        let memory = vm.create_shared_memory(SIZE).unwrap();
        let at = map(space, &memory, Sharing::Shared);
        touch(space, at, MemoryAccess::Write);
        for path in PinPath::ALL {
            let taken = take(space, at, long_write.by(path)).unwrap();
            assert_eq!(taken, frames(space, at));
            release(vm, long_write, &taken);
        }
    });
}

#[test]
fn writes_by_force_get_copies_only_in_private_mappings() {
    with_file(|vm, file, space| {
        let force = WRITE.with(PinFlags::FORCE);
        for sharing in Sharing::ALL {
            let request = MapRequest::file(file.id(), 0, SIZE, sharing).protected(Protection::ReadOnly);
            let at = space.map(request).unwrap().start;
            touch(space, at, MemoryAccess::Read);
            let shown = frames(space, at);
            let taken = take(space, at, force);
            match sharing {
                Sharing::Shared => assert!(matches!(taken, Err(PinError::Fault(_))), "{taken:?}"),
                Sharing::Private => {
                    let taken = taken.unwrap();
                    assert!(taken != shown && taken == frames(space, at));
                    release(vm, force, &taken);
                }
            }
        }
        assert_eq!(file.dirty_pages(), PageCount(0));
        let at = map(space, file, Sharing::Shared);
        let taken = take(space, at, force).unwrap();
        assert_eq!(taken, frames(space, at), "a writable mapping needs no force");
        release(vm, force, &taken);
    });
}

#[test]
fn pinned_pages_stay_when_they_are_unmapped() {
    with_file(|vm, file, space| {
        let mapped = space.map(MapRequest::file(file.id(), 0, SIZE, Sharing::Shared)).unwrap();
        touch(space, mapped.start, MemoryAccess::Write);
        let taken = take(space, mapped.start, WRITE).unwrap();
        let _ = space.unmap(mapped).unwrap();
        vm.lru_drain_all();
        // The device may still write.
        assert_eq!((file.sync().unwrap(), file.dirty_pages()), (PageCount(8), PageCount(8)));
        assert_eq!(file.drop_clean(), PageCount(0));
        let from = Block { pfn: taken[0], order: Order::ZERO };
        assert_eq!(vm.isolate(from, MigrateMode::Sync), Err(MigrateProblem::Pinned));
        vm.validate().unwrap();
        // Pages outlive their place in the file, and the file.
        file.truncate(ByteSize(4 * PAGE)).unwrap();
        vm.validate().unwrap();
        release(vm, WRITE, &taken);
        assert_eq!((file.sync().unwrap(), file.dirty_pages()), (PageCount(4), PageCount(0)));
        assert_eq!(file.drop_clean(), PageCount(4));
    });
}

#[test]
fn pinned_pages_outlive_their_file() {
    in_small_yard(|vm| {
        let file = vm.create_shared_memory(SIZE).unwrap();
        let space = vm.create_space().unwrap();
        let at = map(&space, &file, Sharing::Shared);
        let taken = take(&space, at, WRITE).unwrap();
        drop((space, file));
        vm.validate().unwrap();
        vm.unpin_pages(&taken, RefHandling::Batched, Dirty::Mark).unwrap();
    });
}

#[test]
fn release_marks_pages_dirty_that_were_taken_for_reading() {
    with_file(|vm, file, space| {
        let at = map(space, file, Sharing::Shared);
        let taken = take(space, at, PinRequest::PIN).unwrap();
        assert_eq!(file.dirty_pages(), PageCount(0));
        vm.unpin_pages(&taken[..2], RefHandling::Batched, Dirty::Mark).unwrap();
        vm.unpin_pages(&taken[2..], RefHandling::Batched, Dirty::Keep).unwrap();
        assert_eq!(file.dirty_pages(), PageCount(2));
        vm.validate().unwrap();
    });
}

#[test]
fn only_taken_references_of_files_are_released_by_number() {
    with_file(|vm, file, space| {
        let mut byte = [0];
        file.read(0, &mut byte).unwrap();
        let at = map(space, file, Sharing::Shared);
        touch(space, at, MemoryAccess::Read);
        let all = frames(space, at);
        let refused = |frames: &[Pfn]| {
            for problem in [
                vm.put_pages(frames, RefHandling::Batched).unwrap_err(),
                vm.unpin_pages(frames, RefHandling::Batched, Dirty::Keep).unwrap_err(),
            ] {
                assert!(matches!(problem.problem, ReleaseProblem::Underflow(_)), "{problem:?}");
                assert_eq!((problem.pfn, problem.released), (frames[0], PageCount(0)));
            }
        };
        refused(&all);
        let taken = take(space, at, PinRequest::GET).unwrap();
        let twice = [taken[0], taken[1], taken[0]];
        let problem = vm.put_pages(&twice, RefHandling::Batched).unwrap_err();
        assert_eq!((problem.pfn, problem.released), (taken[0], PageCount(2)));
        refused(&all[..2]);
        vm.put_pages(&taken[2..], RefHandling::Batched).unwrap();
        vm.validate().unwrap();
    });
}
