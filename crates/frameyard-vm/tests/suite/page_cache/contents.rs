//! Files return written bytes, regardless of what happens to their pages.

use std::num::NonZeroU64;

use frameyard::owners::MigrateMode;
use frameyard::{ByteSize, PageCount};
use frameyard_vm::{FileError, FileId, PatternStore, StoreError, Vm, VmCounter, VmError};
use proptest::prelude::*;

use super::stores::MemoryStore;
use crate::page_cache::{PAGE, move_all, with_vm, with_vm_on};
use crate::test_yard::{TestMachine, TestYard};

/// The largest size of a model's file.
const MOST: u64 = 40 * PAGE;

#[derive(Clone, Debug)]
enum Action {
    Read { offset: u64, len: usize },
    Write { offset: u64, len: usize, byte: u8 },
    Truncate(u64),
    Sync,
    DropClean,
    Move,
    Reclaim,
}

fn offsets() -> impl Strategy<Value = u64> {
    // Near page boundaries, and anywhere.
    prop_oneof![(0..40_u64, 0..3_u64).prop_map(|(page, by)| (page * PAGE + by).saturating_sub(1)), 0..MOST]
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(1), Just(PAGE as usize), Just(2 * PAGE as usize), 0..3 * PAGE as usize]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        5 => (offsets(), lengths()).prop_map(|(offset, len)| Action::Read { offset, len }),
        5 => (offsets(), lengths(), 1..=255_u8).prop_map(|(offset, len, byte)| Action::Write { offset, len, byte }),
        2 => offsets().prop_map(Action::Truncate),
        2 => Just(Action::Sync),
        2 => Just(Action::DropClean),
        1 => Just(Action::Move),
        1 => Just(Action::Reclaim),
    ]
}

/// Bytes that encode their offset and writer.
fn bytes_of(len: usize, byte: u8) -> Vec<u8> {
    (0..len).map(|at| byte.wrapping_add((at / 7) as u8)).collect()
}

fn check_read(file: &frameyard_vm::File<'_, crate::page_cache::TestPlatform>, model: &[u8], offset: u64, len: usize) {
    let mut bytes = vec![0xaa; len];
    let read = file.read(offset, &mut bytes).unwrap();
    let start = (offset as usize).min(model.len());
    let end = (start + len).min(model.len());
    assert_eq!(read, end - start, "the number of bytes from {offset}");
    assert!(bytes[..read] == model[start..end], "the bytes at {offset} differ from the model");
    assert!(bytes[read..].iter().all(|byte| *byte == 0xaa), "the read wrote behind the end of the file");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn file_reads_like_a_vector_of_bytes(actions in prop::collection::vec(action(), 1..60)) {
        let yard = TestYard::of(TestMachine { memory: ByteSize::mib(8), ..TestMachine::default() });
        let store = MemoryStore::default();
        with_vm_on(&yard, |vm| {
            let vm = vm.with_store(&store);
            let file = vm.create_file(11, ByteSize(0)).unwrap();
            let other = vm.file(file.id()).unwrap();
            let mut model: Vec<u8> = Vec::new();
            for action in actions {
                match action {
                    Action::Read { offset, len } => check_read(&file, &model, offset, len),
                    Action::Write { offset, len, byte } => {
                        let bytes = bytes_of(len, byte);
                        other.write(offset, &bytes).unwrap();
                        if len > 0 {
                            let (start, end) = (offset as usize, offset as usize + len);
                            model.resize(model.len().max(end), 0);
                            model[start..end].copy_from_slice(&bytes);
                        }
                    }
                    Action::Truncate(size) => {
                        file.truncate(ByteSize(size)).unwrap();
                        model.resize(size as usize, 0);
                    }
                    Action::Sync => {
                        let dirty = file.dirty_pages();
                        assert_eq!(file.sync(), Ok(dirty));
                        assert_eq!(file.dirty_pages(), PageCount(0));
                    }
                    Action::DropClean => {
                        let clean = file.pages() - file.dirty_pages();
                        assert_eq!(file.drop_clean(), clean);
                    }
                    Action::Move => {
                        // The scan meets a page that moved upwards again.
                        assert!(move_all(vm, MigrateMode::Sync) >= file.pages().0);
                    }
                    Action::Reclaim => {
                        let wanted = PageCount(8);
                        vm.reclaim_pages(frameyard::NodeId(0), frameyard::units::ZoneKind::Movable, wanted);
                    }
                }
                assert_eq!(other.size(), ByteSize(model.len() as u64));
                vm.validate().unwrap();
            }
            check_read(&other, &model, 0, model.len() + 10);
            file.sync().unwrap();
            file.drop_clean();
            check_read(&file, &model, 0, model.len());
            assert_eq!(vm.cached_pages(), file.pages());
        });
    }
}

#[test]
fn pattern_pages_can_be_verified() {
    with_vm(|vm| {
        let file = vm.create_file(0xfeed, ByteSize(100 * PAGE + 5)).unwrap();
        let mut bytes = vec![0; 101 * PAGE as usize];
        assert_eq!(file.read(0, &mut bytes), Ok(100 * PAGE as usize + 5));
        for (at, byte) in bytes[..100 * PAGE as usize + 5].iter().enumerate().step_by(97) {
            assert_eq!(*byte, PatternStore::expected(0xfeed, at as u64 / PAGE, at as u64 % PAGE));
        }
        assert_eq!(file.pages(), PageCount(101));
        assert_eq!(file.drop_clean(), PageCount(101));
        assert_eq!(vm.counted(VmCounter::PgcacheAdd), 101);
    });
}

#[test]
fn read_only_store_keeps_dirty_pages() {
    with_vm(|vm| {
        let file = vm.create_file(7, ByteSize(4 * PAGE)).unwrap();
        file.write(PAGE + 1, b"mine").unwrap();
        assert_eq!(file.sync(), Err(FileError::Store(StoreError::ReadOnly { key: 7 })));
        assert_eq!(file.dirty_pages(), PageCount(1));
        assert_eq!(file.drop_clean(), PageCount(0));
        let mut bytes = [0; 6];
        file.read(PAGE, &mut bytes).unwrap();
        assert_eq!(&bytes[1..5], b"mine");
        assert_eq!(bytes[0], PatternStore::expected(7, 1, 0), "the rest of the page is not from the store");
        assert_eq!(bytes[5], PatternStore::expected(7, 1, 5));
    });
}

#[test]
fn full_page_write_skips_the_fill() {
    let store = MemoryStore::default();
    with_vm(|vm| {
        let file = vm.with_store(&store).create_file(7, ByteSize(0)).unwrap();
        file.write(0, &[1; 3 * PAGE as usize]).unwrap();
        assert_eq!(store.fills(), 0);
        file.write(3 * PAGE, &[1; 10]).unwrap();
        assert_eq!(store.fills(), 1);
    });
}

#[test]
fn write_back_stops_at_the_end_of_the_file() {
    let store = MemoryStore::default();
    with_vm(|vm| {
        let file = vm.with_store(&store).create_file(7, ByteSize(0)).unwrap();
        file.write(0, &[1; PAGE as usize + 10]).unwrap();
        assert_eq!(file.sync(), Ok(PageCount(2)));
        assert_eq!(store.page(7, 0).unwrap().len(), PAGE as usize);
        assert_eq!(store.page(7, 1).unwrap(), [1; 10]);
        assert_eq!(file.sync(), Ok(PageCount(0)), "clean pages were written back");
        assert_eq!(vm.counted(VmCounter::Pgwriteback), 2);
    });
}

#[test]
fn distant_pages_cost_few_nodes() {
    let store = MemoryStore::default();
    with_vm(|vm| {
        let vm = vm.with_store(&store);
        let file = vm.create_file(7, ByteSize(0)).unwrap();
        let offsets = [0, 1 << 20, 1 << 32, (1 << 44) + 5, (1 << 62) - 3, u64::MAX - 20];
        for (byte, offset) in offsets.iter().enumerate() {
            file.write(*offset, &[byte as u8 + 1; 7]).unwrap();
        }
        vm.validate().unwrap();
        assert_eq!(file.size(), ByteSize(u64::MAX - 13));
        assert_eq!(file.pages(), PageCount(7), "the writes touch seven pages");
        assert!(vm.object_frames() <= PageCount(12), "{}", vm.object_frames());
        assert_eq!(file.sync(), Ok(PageCount(7)));
        assert_eq!(file.drop_clean(), PageCount(7));
        for (byte, offset) in offsets.iter().enumerate() {
            let mut bytes = [9; 7];
            assert_eq!(file.read(*offset, &mut bytes), Ok(7));
            assert_eq!(bytes, [byte as u8 + 1; 7]);
        }
        let problem = FileError::TooLarge { offset: u64::MAX - 3, bytes: 7 };
        assert_eq!(file.write(u64::MAX - 3, &[1; 7]), Err(problem));
        file.truncate(ByteSize(10)).unwrap();
        assert_eq!(file.pages(), PageCount(1));
        vm.validate().unwrap();
    });
}

#[test]
fn file_lives_while_it_has_handles() {
    let yard = TestYard::new();
    with_vm_on(&yard, |vm| {
        let file = vm.create_file(5, ByteSize(3 * PAGE)).unwrap();
        file.read(0, &mut [0; 3 * PAGE as usize]).unwrap();
        let id = FileId::from_bits(file.id().to_bits());
        let elsewhere = Vm::attach(&*yard).unwrap();
        let same = elsewhere.file(id).unwrap();
        drop(file);
        assert_eq!((same.key(), same.pages(), same.size()), (5, PageCount(3), ByteSize(3 * PAGE)));
        // SAFETY: a file remains, so the call fails.
        let destroyed = unsafe { vm.destroy() };
        assert_eq!(destroyed, Err(VmError::InUse("address spaces or files remain: drop them first")));
        drop(same);
        assert_eq!(vm.cached_pages(), PageCount(0));
        assert!(elsewhere.file(id).is_none());
        let next = vm.create_file(6, ByteSize(0)).unwrap();
        assert!(vm.file(id).is_none(), "a new file has the identifier of a dropped one");
        assert_eq!(next.pages(), PageCount(0));
        for bits in [0, 1, 0x17, u64::MAX, 1 << 39] {
            assert!(vm.file(FileId::from_bits(bits)).is_none());
        }
    });
}

#[test]
fn reads_a_file_larger_than_memory() {
    let yard = TestYard::of(TestMachine { memory: ByteSize::mib(8), ..TestMachine::default() });
    with_vm_on(&yard, |vm| {
        let pages = 3 * 2048;
        let file = vm.create_file(5, ByteSize(pages * PAGE)).unwrap();
        let mut bytes = vec![0; PAGE as usize];
        for page in 0..pages {
            assert_eq!(file.read(page * PAGE, &mut bytes), Ok(PAGE as usize));
            let word = u64::from_le_bytes(bytes[800..808].try_into().unwrap());
            assert_eq!(word, PatternStore::expected_word(5, page, 100));
        }
        assert!(NonZeroU64::new(vm.counted(VmCounter::PgstealDirect)).is_some());
        vm.validate().unwrap();
    });
}

#[test]
fn write_fails_when_dirty_pages_fill_memory() {
    let yard = TestYard::of(TestMachine { memory: ByteSize::mib(8), ..TestMachine::default() });
    with_vm_on(&yard, |vm| {
        let file = vm.create_file(5, ByteSize(0)).unwrap();
        let failed = (0..4096_u64).find_map(|page| file.write(page * PAGE, &[page as u8; PAGE as usize]).err());
        assert!(matches!(failed, Some(FileError::Vm(VmError::OutOfMemory(_)))), "{failed:?}");
        assert_eq!(file.dirty_pages(), file.pages());
        assert_eq!(file.size(), ByteSize(file.pages().0 * PAGE), "the size differs from the pages that were written");
        let mut byte = [0];
        for page in 0..file.pages().0 {
            file.read(page * PAGE + 77, &mut byte).unwrap();
            assert_eq!(byte[0], page as u8);
        }
        vm.validate().unwrap();
    });
}
