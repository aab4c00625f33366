//! Mappings of files and of shared memory: faults, copies on write, and what happens to mapped pages.

use std::num::NonZeroUsize;
use std::sync::Mutex;

use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem};
use frameyard::units::ZoneKind;
use frameyard::{ByteSize, NodeId, Order, PageCount};
use frameyard_vm::{
    BackingStore, ExitOutcome, FaultError, FileError, MapError, MapRequest, MemoryAccess, PatternStore, Protection,
    Sharing, StoreError, VirtAddr, VmError,
};

use crate::fixture::{PAGE, at, bytes, in_small_yard, range};

/// A store that keeps what is written back of one file, and starts as [`PatternStore`].
#[derive(Default)]
struct Kept(Mutex<std::collections::BTreeMap<u64, Vec<u8>>>);

impl BackingStore for Kept {
    fn fill(&self, key: u64, page: u64, offset: usize, bytes: &mut [u8]) -> Result<(), StoreError> {
        match self.0.lock().unwrap().get(&page) {
            Some(kept) => bytes.copy_from_slice(&kept[offset..][..bytes.len()]),
            None => PatternStore.fill(key, page, offset, bytes)?,
        }
        Ok(())
    }

    fn write_back(&self, _key: u64, page: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.0.lock().unwrap().insert(page, bytes.to_vec());
        Ok(())
    }
}

/// The bytes of a page of file 7 as [`PatternStore`] has them.
fn stored(page: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE as usize];
    PatternStore.fill(7, page, 0, &mut bytes).unwrap();
    bytes
}

const SIZE: ByteSize = ByteSize(8 * PAGE);

#[test]
fn shared_mapping_shows_the_file_and_writes_to_it() {
    in_small_yard(|vm| {
        let store = Kept::default();
        let vm = vm.with_store(&store);
        let file = vm.create_file(7, SIZE).unwrap();
        let space = vm.create_space().unwrap();
        let mapped = space.map(MapRequest::file(file.id(), 2, bytes(4 * PAGE), Sharing::Shared)).unwrap();
        let mut found = vec![0; PAGE as usize];
        space.read(mapped.start, &mut found).unwrap();
        assert_eq!(found, stored(2));
        let seen = space.translate(mapped.start).unwrap();
        assert!(!seen.flags.is_writable(), "a read maps the page read-only");
        assert_eq!(file.dirty_pages(), PageCount(0));

        space.write(VirtAddr(mapped.start.0 + 5), b"mapped").unwrap();
        let written = space.translate(mapped.start).unwrap();
        assert_eq!(written.pfn, seen.pfn, "it is the file's page");
        assert!(written.flags.is_writable() && written.flags.is_dirty());
        assert_eq!(file.dirty_pages(), PageCount(1));
        let mut read = [0; 6];
        file.read(2 * PAGE + 5, &mut read).unwrap();
        assert_eq!(&read, b"mapped");
        file.write(2 * PAGE + 5, b"handle").unwrap();
        space.read(VirtAddr(mapped.start.0 + 5), &mut read).unwrap();
        assert_eq!(&read, b"handle");

        // A mapped page stays dirty, because the mapping may write to it at any time.
        assert_eq!((file.sync().unwrap(), file.dirty_pages()), (PageCount(1), PageCount(1)));
        space.touch(mapped.start, MemoryAccess::Write).unwrap();
        let unmapped = space.unmap(mapped).unwrap();
        assert_eq!((unmapped.pages, unmapped.file), (PageCount(0), PageCount(1)));
        assert_eq!((file.sync().unwrap(), file.dirty_pages()), (PageCount(1), PageCount(0)));
        assert_eq!(&store.0.lock().unwrap()[&2][5..11], b"handle");
    });
}

#[test]
fn two_spaces_see_each_other_s_writes_in_a_shared_mapping() {
    in_small_yard(|vm| {
        let file = vm.create_shared_memory(SIZE).unwrap();
        let spaces = [vm.create_space().unwrap(), vm.create_space().unwrap()];
        let mapped =
            spaces.each_ref().map(|space| space.map(MapRequest::file(file.id(), 0, SIZE, Sharing::Shared)).unwrap());
        spaces[0].write(mapped[0].start, b"one").unwrap();
        let mut found = [0; 3];
        spaces[1].read(mapped[1].start, &mut found).unwrap();
        assert_eq!(&found, b"one");
        spaces[1].write(mapped[1].start, b"two").unwrap();
        spaces[0].read(mapped[0].start, &mut found).unwrap();
        assert_eq!(&found, b"two");
        let frames = [0, 1].map(|at: usize| spaces[at].translate(mapped[at].start).unwrap().pfn);
        assert_eq!(frames[0], frames[1]);
        vm.validate().unwrap();
    });
}

#[test]
fn private_mapping_copies_a_page_on_its_first_write() {
    in_small_yard(|vm| {
        let file = vm.create_file(7, SIZE).unwrap();
        let spaces = [vm.create_space().unwrap(), vm.create_space().unwrap()];
        let request = MapRequest::file(file.id(), 0, SIZE, Sharing::Private);
        let mapped = spaces.each_ref().map(|space| space.map(request).unwrap());
        let mut found = vec![0; PAGE as usize];
        spaces[0].read(mapped[0].start, &mut found).unwrap();
        assert_eq!(found, stored(0));
        let before = spaces[0].translate(mapped[0].start).unwrap().pfn;
        // A write to a mapped page, and one to a page that was not mapped yet.
        for page in [0, 3] {
            spaces[0].write(VirtAddr(mapped[0].start.0 + page * PAGE + 1), b"own").unwrap();
        }
        let own = spaces[0].translate(mapped[0].start).unwrap();
        assert!(own.pfn != before && own.flags.is_writable());
        assert_eq!((spaces[0].statistics().resident, file.dirty_pages()), (PageCount(2), PageCount(0)));
        for page in [0, 3] {
            let mut copied = stored(page);
            copied[1..4].copy_from_slice(b"own");
            spaces[0].read(VirtAddr(mapped[0].start.0 + page * PAGE), &mut found).unwrap();
            assert_eq!(found, copied, "the rest of the copy is the file's");
            spaces[1].read(VirtAddr(mapped[1].start.0 + page * PAGE), &mut found).unwrap();
            assert_eq!(found, stored(page), "the other space sees the file");
        }
        vm.validate().unwrap();
        let unmapped = spaces[0].unmap(mapped[0]).unwrap();
        assert_eq!((unmapped.pages, unmapped.file), (PageCount(2), PageCount(0)));
    });
}

#[test]
fn read_only_mapping_refuses_writes() {
    in_small_yard(|vm| {
        let file = vm.create_file(7, SIZE).unwrap();
        let space = vm.create_space().unwrap();
        for sharing in Sharing::ALL {
            let request = MapRequest::file(file.id(), 0, SIZE, sharing).protected(Protection::ReadOnly);
            let mapped = space.map(request).unwrap();
            assert_eq!(space.write(mapped.start, &[1]), Err(FaultError::ReadOnly(mapped.start)));
            space.touch(mapped.start, MemoryAccess::Read).unwrap();
            assert_eq!(space.write(mapped.start, &[1]), Err(FaultError::ReadOnly(mapped.start)));
        }
        assert_eq!(file.dirty_pages(), PageCount(0));
    });
}

#[test]
fn accesses_behind_the_end_fail_until_the_file_grows() {
    in_small_yard(|vm| {
        let file = vm.create_shared_memory(ByteSize(PAGE + 1)).unwrap();
        let space = vm.create_space().unwrap();
        for sharing in Sharing::ALL {
            let mapped = space.map(MapRequest::file(file.id(), 0, SIZE, sharing)).unwrap();
            let third = VirtAddr(mapped.start.0 + 2 * PAGE);
            space.touch(VirtAddr(mapped.start.0 + PAGE), MemoryAccess::Write).unwrap();
            for access in [MemoryAccess::Read, MemoryAccess::Write] {
                assert_eq!(space.touch(third, access), Err(FaultError::BehindFile(third)));
            }
        }
        file.truncate(SIZE).unwrap();
        let mapped = space.map(MapRequest::file(file.id(), 2, bytes(PAGE), Sharing::Shared)).unwrap();
        space.write(mapped.start, &[1]).unwrap();
    });
}

#[test]
fn mapped_pages_are_neither_dropped_nor_moved_nor_truncated() {
    in_small_yard(|vm| {
        let file = vm.create_file(7, SIZE).unwrap();
        let space = vm.create_space().unwrap();
        let mapped = space.map(MapRequest::file(file.id(), 0, SIZE, Sharing::Shared)).unwrap();
        let last = VirtAddr(mapped.end.0 - PAGE);
        space.touch(last, MemoryAccess::Read).unwrap();
        let mut found = [0; 8];
        file.read(0, &mut found).unwrap();
        vm.lru_drain_all();
        let pfn = space.translate(last).unwrap().pfn;

        let from = Block { pfn, order: Order::ZERO };
        assert_eq!(vm.isolate(from, MigrateMode::Sync), Err(MigrateProblem::Busy));
        let others = file.pages() - PageCount(1);
        assert!(others > PageCount(0));
        assert_eq!(file.drop_clean(), others, "all but the mapped page");
        assert_eq!(vm.reclaim_pages(NodeId(0), ZoneKind::Normal, PageCount(32)), PageCount(0));
        let problem = file.truncate(ByteSize(0)).unwrap_err();
        assert!(matches!(problem, FileError::NotTruncated { end: SIZE, why: VmError::InUse(_), .. }), "{problem:?}");
        assert_eq!(space.translate(last).unwrap().pfn, pfn);
        vm.validate().unwrap();

        let _ = space.unmap(mapped).unwrap();
        assert_eq!(vm.isolate(from, MigrateMode::Sync), Ok(()));
        vm.put_back(from);
        file.truncate(ByteSize(0)).unwrap();
        assert_eq!(file.pages(), PageCount(0));
    });
}

#[test]
fn file_lives_while_it_is_mapped() {
    in_small_yard(|vm| {
        let file = vm.create_shared_memory(SIZE).unwrap();
        let id = file.id();
        let space = vm.create_space().unwrap();
        let mapped = space.map(MapRequest::file(id, 0, SIZE, Sharing::Shared)).unwrap();
        space.write(mapped.start, b"kept").unwrap();
        drop(file);
        let mut found = [0; 4];
        space.read(mapped.start, &mut found).unwrap();
        assert_eq!(&found, b"kept");
        // A hole in the middle makes two areas, of which each is a user.
        let _ = space.unmap(range(mapped.start.0 + 2 * PAGE - at(0).0, PAGE)).unwrap();
        let _ = space.unmap(range(mapped.start.0 - at(0).0, 2 * PAGE)).unwrap();
        vm.validate().unwrap();
        let file = vm.file(id).expect("the second area uses the file");
        file.read(0, &mut found).unwrap();
        assert_eq!(&found, b"kept");
        drop(file);
        assert!(matches!(space.exit(NonZeroUsize::MIN).unwrap(), ExitOutcome::Gone(_)));
        assert!(vm.file(id).is_none(), "the exit ends the last use");
        let space = vm.create_space().unwrap();
        let gone = space.map(MapRequest::file(id, 0, SIZE, Sharing::Shared));
        assert_eq!(gone, Err(MapError::NoFile(id)));
    });
}

#[test]
fn each_part_of_a_split_mapping_maps_its_own_pages() {
    in_small_yard(|vm| {
        let file = vm.create_file(7, SIZE).unwrap();
        let space = vm.create_space().unwrap();
        let mapped = space.map(MapRequest::file(file.id(), 0, SIZE, Sharing::Private)).unwrap();
        let _ = space.unmap(range(mapped.start.0 + 3 * PAGE - at(0).0, PAGE)).unwrap();
        let mut found = vec![0; PAGE as usize];
        for page in [0, 2, 4, 7] {
            space.read(VirtAddr(mapped.start.0 + page * PAGE), &mut found).unwrap();
            assert_eq!(found, stored(page));
        }
        assert_eq!(space.statistics().areas, 2);
    });
}

#[test]
fn exit_with_several_workers_returns_every_mapping() {
    in_small_yard(|vm| {
        let file = vm.create_shared_memory(ByteSize(64 * PAGE)).unwrap();
        let space = vm.create_space().unwrap();
        for sharing in Sharing::ALL {
            let mapped = space.map(MapRequest::file(file.id(), 0, ByteSize(64 * PAGE), sharing)).unwrap();
            for page in 0..64 {
                let access = if page % 3 == 0 { MemoryAccess::Write } else { MemoryAccess::Read };
                space.touch(VirtAddr(mapped.start.0 + page * PAGE), access).unwrap();
            }
        }
        let outcome = space.exit(NonZeroUsize::new(2).unwrap()).unwrap();
        let ExitOutcome::Gone(unmapped) = outcome else { panic!("{outcome:?}") };
        assert_eq!((unmapped.pages, unmapped.file), (PageCount(22), PageCount(64 + 42)));
        vm.validate().unwrap();
        file.truncate(ByteSize(0)).unwrap();
    });
}
