//! Injected failures at each step in turn: nothing is lost.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frameyard::owners::MigrateMode;
use frameyard::{ByteSize, PageCount};
use frameyard_vm::{
    BackingStore, FaultInjector, File, FileError, PatternStore, Step, StoreError, Vm, VmConfig, VmError,
};

use super::stores::MemoryStore;
use crate::page_cache::{PAGE, move_all, with_vm, with_vm_on};
use crate::test_yard::{TestPlatform, TestYard};

/// Fails one step, counted from when it was armed.
#[derive(Default)]
struct OneFailure {
    left: AtomicU64,
    failed: AtomicBool,
    only: Option<Step>,
}

impl OneFailure {
    fn arm(&self, n: u64) {
        self.left.store(n + 1, Ordering::Relaxed);
        self.failed.store(false, Ordering::Relaxed);
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

impl FaultInjector for OneFailure {
    fn fails(&self, step: Step) -> bool {
        if self.only.is_some_and(|only| only != step) {
            return false;
        }
        let fails = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) == Ok(1);
        if fails {
            self.failed.store(true, Ordering::Relaxed);
        }
        fails
    }
}

/// The operations on a file and on the reference vector.
type Deed = fn(&File<'_, TestPlatform>, &mut Vec<u8>) -> Result<(), FileError>;

fn write(file: &File<'_, TestPlatform>, model: &mut Vec<u8>, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
    let done = file.write(offset, bytes);
    if done.is_ok() {
        let end = offset as usize + bytes.len();
        model.resize(model.len().max(end), 0);
        model[offset as usize..end].copy_from_slice(bytes);
    }
    done
}

const DEEDS: [Deed; 7] = [
    |file, model| write(file, model, 0, &[1; 3 * PAGE as usize]),
    |file, model| write(file, model, 80 * PAGE + 7, &[2; 5000]),
    |file, model| write(file, model, (1 << 22) - 3, &[3; 6]),
    |file, _| file.read(70 * PAGE, &mut [0; 20 * PAGE as usize]).map(drop),
    |file, _| file.sync().map(drop),
    |file, model| {
        file.truncate(ByteSize(81 * PAGE + 1))?;
        model.truncate(81 * PAGE as usize + 1);
        Ok(())
    },
    |file, model| write(file, model, 200 * PAGE, &[4; 1]),
];

fn check(file: &File<'_, TestPlatform>, model: &[u8]) {
    let mut bytes = vec![0; model.len()];
    assert_eq!(file.read(0, &mut bytes), Ok(model.len()));
    assert!(bytes == *model, "the file differs from the model");
}

#[test]
fn survives_failure_of_each_allocation() {
    let mut visited = 0;
    for (number, _) in DEEDS.iter().enumerate() {
        for n in 0.. {
            let (store, injector) = (MemoryStore::default(), OneFailure::default());
            let mut failed = false;
            with_vm(|vm| {
                let vm = vm.with_store(&store).with_injector(&injector);
                let file = vm.create_file(7, ByteSize(0)).unwrap();
                let mut model = Vec::new();
                for deed in &DEEDS[..number] {
                    deed(&file, &mut model).unwrap();
                }
                vm.validate().unwrap();
                file.drop_clean();
                injector.arm(n);
                let done = DEEDS[number](&file, &mut model);
                failed = injector.has_failed();
                injector.arm(u64::MAX - 1);
                vm.validate().unwrap();
                if let Err(problem) = done {
                    assert!(
                        matches!(
                            problem,
                            FileError::Vm(VmError::Injected) | FileError::NotTruncated { why: VmError::Injected, .. }
                        ),
                        "{problem}"
                    );
                    DEEDS[number](&file, &mut model).unwrap();
                }
                assert_eq!(file.size(), ByteSize(model.len() as u64));
                check(&file, &model);
            });
            if !failed {
                break;
            }
            visited += 1;
        }
    }
    assert!(visited > 20, "only {visited} failures");
}

#[test]
fn stalled_truncation_ends_at_the_locked_page_and_can_be_repeated() {
    let (store, injector) =
        (MemoryStore::default(), OneFailure { only: Some(Step::LockPage), ..OneFailure::default() });
    with_vm(|vm| {
        let vm = vm.with_store(&store).with_injector(&injector);
        let file = vm.create_file(7, ByteSize(0)).unwrap();
        let mut model = Vec::new();
        let bytes: Vec<u8> = (0..10 * PAGE).map(|at| (at / PAGE) as u8 + 1).collect();
        write(&file, &mut model, 0, &bytes).unwrap();
        write(&file, &mut model, 10 * PAGE, &[9; 70]).unwrap();
        let wanted = ByteSize(3 * PAGE + 5);
        let ends = [10 * PAGE + 70, 9 * PAGE, 3 * PAGE + 5];
        // The last page, the third from the end, and the one that the truncation shortens.
        for (pages_had, end) in [0, 2, 5].into_iter().zip(ends) {
            injector.arm(pages_had);
            let problem = file.truncate(wanted).unwrap_err();
            assert_eq!(problem, FileError::NotTruncated { wanted, end: ByteSize(end), why: VmError::Injected });
            let message = format!("the file ends at {end} and not at 12293 yet: injected failure: truncate it again");
            assert_eq!(problem.to_string(), message);
            vm.validate().unwrap();
            assert_eq!((file.size(), file.pages()), (ByteSize(end), PageCount(end.div_ceil(PAGE))));
            model.truncate(end as usize);
            check(&file, &model);
            assert_eq!(
                file.sync().unwrap() > PageCount(0),
                pages_had == 0,
                "the remaining pages were not written back"
            );
        }
        file.truncate(wanted).unwrap();
        file.truncate(ByteSize(6 * PAGE)).unwrap();
        model.resize(6 * PAGE as usize, 0);
        check(&file, &model);
    });
}

#[test]
fn failed_creation_of_a_file_leaves_nothing() {
    let injector = OneFailure::default();
    with_vm(|vm| {
        let vm = vm.with_injector(&injector);
        injector.arm(0);
        assert_eq!(vm.create_file(1, ByteSize(0)).err(), Some(VmError::Injected));
        assert!(vm.create_file(1, ByteSize(0)).is_ok());
    });
}

#[test]
fn failed_file_migration_changes_nothing() {
    for step in [Step::Isolate, Step::Freeze, Step::Copy, Step::Unfreeze] {
        let injector = OneFailure { only: Some(step), ..OneFailure::default() };
        with_vm(|vm| {
            let vm = vm.with_injector(&injector);
            let file = vm.create_file(9, ByteSize(20 * PAGE)).unwrap();
            let mut before = vec![0; 20 * PAGE as usize];
            file.write(3 * PAGE, b"dirty").unwrap();
            file.read(0, &mut before).unwrap();
            // The scan includes frames without file pages, so isolation may fail for one of those.
            for n in 0..20 {
                injector.arm(n);
                let moved = move_all(vm, MigrateMode::Sync);
                assert!(injector.has_failed());
                assert!(moved >= 19, "only {moved} of {} pages moved", file.pages());
                vm.validate().unwrap();
                let mut bytes = vec![0; 20 * PAGE as usize];
                file.read(0, &mut bytes).unwrap();
                assert!(bytes == before);
                assert_eq!(file.dirty_pages(), PageCount(1));
            }
        });
    }
}

#[test]
fn failed_fill_leaves_no_page() {
    let store = MemoryStore::default();
    with_vm(|vm| {
        let vm = vm.with_store(&store);
        let file = vm.create_file(7, ByteSize(100 * PAGE)).unwrap();
        store.fail_fill(0);
        let failed = FileError::Store(StoreError::Failed { key: 7, page: 50 });
        assert_eq!(file.read(50 * PAGE, &mut [0; 1]), Err(failed));
        store.fail_fill(0);
        assert_eq!(file.write(50 * PAGE + 1, &[1; 1]), Err(failed));
        assert_eq!((file.pages(), file.dirty_pages()), (PageCount(0), PageCount(0)));
        vm.validate().unwrap();
        // A failed readahead is silent, and the page is read on demand.
        store.fail_fill(2);
        file.read(0, &mut [0; 1]).unwrap();
        assert_eq!(file.pages(), PageCount(2));
        let mut bytes = [9; 4 * PAGE as usize];
        file.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
        vm.validate().unwrap();
    });
}

#[test]
fn failed_write_back_leaves_the_page_dirty() {
    let store = MemoryStore::default();
    with_vm(|vm| {
        let vm = vm.with_store(&store);
        let file = vm.create_file(7, ByteSize(0)).unwrap();
        file.write(0, &[5; 4 * PAGE as usize]).unwrap();
        store.fail_write(2);
        assert_eq!(file.sync(), Err(FileError::Store(StoreError::Failed { key: 7, page: 2 })));
        assert_eq!(file.dirty_pages(), PageCount(2));
        vm.validate().unwrap();
        assert_eq!(file.sync(), Ok(PageCount(2)));
    });
}

/// A store that panics once.
#[derive(Default)]
struct Panicking {
    panicked: AtomicBool,
}

impl BackingStore for Panicking {
    fn fill(&self, key: u64, page: u64, offset: usize, bytes: &mut [u8]) -> Result<(), StoreError> {
        if !self.panicked.swap(true, Ordering::Relaxed) {
            resume_unwind(Box::new("on purpose"));
        }
        PatternStore.fill(key, page, offset, bytes)
    }

    fn write_back(&self, key: u64, _: u64, _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly { key })
    }
}

#[test]
fn next_reader_fills_a_page_after_a_panic() {
    let (store, yard) = (Panicking::default(), TestYard::new());
    with_vm_on(&yard, |vm| {
        let vm = vm.with_store(&store);
        let file = vm.create_file(4, ByteSize(PAGE)).unwrap();
        let mut byte = [0];
        assert!(catch_unwind(AssertUnwindSafe(|| file.read(8, &mut byte))).is_err());
        vm.validate().unwrap();
        assert_eq!(file.read(8, &mut byte), Ok(1));
        assert_eq!(byte[0], PatternStore::expected(4, 0, 8));
    });
}

#[test]
fn files_need_frames_with_bytes() {
    let yard = TestYard::of(crate::test_yard::TestMachine { phantom: true, ..Default::default() });
    assert!(matches!(Vm::create(&*yard, &VmConfig::default()), Err(VmError::NoFrameBytes(_))));
}
