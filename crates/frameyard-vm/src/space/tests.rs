//! Handles and visits.

use core::num::NonZeroUsize;
use core::sync::atomic::Ordering;
use std::thread;

use frameyard::platform::LockError;
use frameyard::{ByteSize, PageCount};

use super::{HANDLES, SpaceRef, SpaceWord, VISIT};
use crate::object_id::ObjectKind;
use crate::test_yard::{TestPlatform, TestYard, limit_waits, run_on};
use crate::{ExitOutcome, ExitProblem, MapRequest, Vm, VmConfig, VmError};

fn in_yard(test: impl FnOnce(Vm<'_, TestPlatform>)) {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    test(vm);
    vm.finish();
}

fn users(space: SpaceRef<'_, TestPlatform>) -> u64 {
    space.word(SpaceWord::USERS).load(Ordering::Acquire)
}

#[test]
fn visit_of_a_dead_space_fails_and_leaves_no_count() {
    in_yard(|vm| {
        let handle = vm.create_space().unwrap();
        let space = handle.space();
        let visit = space.visit().expect("it lives");
        assert_eq!(users(space), VISIT + 1);
        drop(visit);
        assert_eq!(users(space), 1);
        drop(handle);
        assert!(space.visit().is_none());
        assert!(!space.get_handle());
        assert_eq!(users(space), 0);
    });
}

#[test]
fn last_handle_waits_for_visits() {
    in_yard(|vm| {
        let handle = vm.create_space().unwrap();
        let space = handle.space();
        let visit = space.visit().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                run_on(1);
                drop(handle);
            });
            while users(space) & HANDLES != 0 {
                thread::yield_now();
            }
            // From here on visits fail, and the space exists until the visit ends.
            assert!(space.visit().is_none());
            assert!(!space.get_handle());
            assert_eq!(vm.live_objects(ObjectKind::Space), 1);
            assert!(visit.root_table().is_some());
            drop(visit);
        });
        assert_eq!(vm.live_objects(ObjectKind::Space), 0);
    });
}

#[test]
fn stalled_exit_returns_the_handle() {
    in_yard(|vm| {
        let handle = vm.create_space().unwrap();
        let range = handle.map(MapRequest::anonymous(ByteSize::kib(64))).unwrap();
        handle.write(range.start, &[5]).unwrap();
        let visit = handle.space().visit().unwrap();
        let stalled = handle.exit(NonZeroUsize::MIN).unwrap_err();
        assert_eq!(stalled.problem, ExitProblem::Visited);
        assert!(stalled.to_string().ends_with("has not ended: exit again"), "{stalled}");
        let handle = stalled.space;
        let mut byte = [0];
        handle.read(range.start, &mut byte).unwrap();
        assert_eq!(byte, [5], "nothing has changed");
        assert!(vm.space(handle.id()).is_some(), "the space is to be found again");
        drop(visit);
        assert!(matches!(handle.exit(NonZeroUsize::MIN), Ok(ExitOutcome::Gone(_))));
    });
}

#[test]
fn exit_names_a_visitor_that_reads_the_map_and_does_not_go_on() {
    in_yard(|vm| {
        // From now on the yard counts as shared, and the process is number 7.
        limit_waits(20);
        let handle = vm.create_space().unwrap();
        let visit = handle.space().visit().unwrap();
        let reading = visit.map_lock().read().unwrap();
        let stalled = handle.exit(NonZeroUsize::MIN).unwrap_err();
        let is_named =
            matches!(stalled.problem, ExitProblem::Vm(VmError::Lock(LockError::LockStuck { holder: 7, .. })));
        assert!(is_named, "{:?}", stalled.problem);
        drop((reading, visit));
        assert!(matches!(stalled.space.exit(NonZeroUsize::MIN), Ok(ExitOutcome::Gone(_))));
        limit_waits(u32::MAX);
    });
}

#[test]
fn last_visitor_tears_down_an_abandoned_space() {
    in_yard(|vm| {
        let free = vm.yard().stats().free_pages();
        let handle = vm.create_space().unwrap();
        let range = handle.map(MapRequest::anonymous(ByteSize::kib(64))).unwrap();
        handle.write(range.start, &[5]).unwrap();
        let [first, last] = [handle.space().visit().unwrap(), handle.space().visit().unwrap()];
        let id = handle.id();
        drop(handle);
        assert!(vm.space(id).is_none() && last.visit().is_none());
        drop(first);
        assert_eq!(vm.live_objects(ObjectKind::Space), 1, "the other visitor is there");
        assert!(last.root_table().is_some());
        drop(last);
        assert_eq!(vm.live_objects(ObjectKind::Space), 0);
        vm.lru_drain_all();
        // The frame of the space objects stays with the root.
        assert_eq!(vm.yard().stats().free_pages() + PageCount(1), free);
    });
}

#[test]
fn validator_detects_leaked_visit_and_map_lock() {
    in_yard(|vm| {
        let handle = vm.create_space().unwrap();
        let visit = handle.space().visit();
        let leaked = "visits of quiet spaces, which killed processes leave: 1 kept, 0 found";
        assert_eq!(vm.validate().unwrap_err().to_string(), leaked);
        drop(visit);
        let dropped = vm.create_space().unwrap();
        let visit = dropped.space().visit();
        drop(dropped);
        assert_eq!(vm.validate().unwrap_err().to_string(), leaked, "a space without handles");
        drop(visit);
        let reading = handle.space().map_lock().read().unwrap();
        assert_eq!(vm.validate().unwrap_err().to_string(), "map lock of a quiet space: 1 kept, 0 found");
        drop(reading);
    });
}
