//! Address spaces against plain bytes: random operations, and concurrent threads.

use std::num::NonZeroUsize;
use std::thread;

use crate::fixture::{HUGE, PAGE, TestMachine, TestSpace, at, expect, fill, in_yard, range, run_on};
use crate::space_model::{Action, BYTES_PER_ACTION, run};
use frameyard::{ByteSize, PageCount};
use frameyard_vm::{ExitOutcome, HugeAdvice, MapRequest, MemoryAccess, ThpMode, VirtAddr, VirtRange, VmConfig};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_spaces_are_independent(
        actions in prop::collection::vec(any::<[u8; BYTES_PER_ACTION]>().prop_map(Action::from_bytes), 1..80),
        workers in 1..3usize,
    ) {
        run(&actions, NonZeroUsize::new(workers).unwrap());
    }
}

/// The work of a thread in a space that other threads use.
fn map_use_unmap(space: &TestSpace<'_>, thread: u64, rounds: u64) {
    for round in 0..rounds {
        let pages = 1 + (thread * 7 + round * 13) % 96;
        let advice = HugeAdvice::ALL[(thread + round) as usize % HugeAdvice::ALL.len()];
        let mapped = space.map(MapRequest::anonymous(ByteSize(pages * PAGE)).advised(advice)).unwrap();
        let seed = thread << 32 | round << 16;
        fill(space, mapped, seed);
        expect(space, mapped, seed);
        let cut = pages / 2;
        let boundary = VirtAddr(mapped.start.0 + cut * PAGE);
        if cut > 0 {
            let unmapped = space.unmap(VirtRange { start: mapped.start, end: boundary }).unwrap();
            assert_eq!(unmapped.pages, PageCount(cut));
        }
        expect(space, VirtRange { start: boundary, end: mapped.end }, seed + cut);
        // Some memory stays for the exit.
        if round % 3 != 0 {
            space.unmap(VirtRange { start: boundary, end: mapped.end }).unwrap();
        }
    }
}

const FOUR_CPUS: TestMachine = TestMachine { cpus: 4, nodes: 2, memory: ByteSize::mib(96), ..TestMachine::PLAIN };

#[test]
fn threads_share_a_space() {
    in_yard(FOUR_CPUS, VmConfig { thp: ThpMode::Always, ..VmConfig::default() }, |vm| {
        let space = vm.create_space().unwrap();
        thread::scope(|scope| {
            for number in 0..4 {
                let space = &space;
                scope.spawn(move || {
                    run_on(number);
                    map_use_unmap(space, number.into(), 30);
                });
            }
        });
        vm.validate().expect("the state is valid after all threads end");
        assert!(matches!(space.exit(NonZeroUsize::new(4).unwrap()).unwrap(), ExitOutcome::Gone(_)));
    });
}

#[test]
fn threads_create_and_exit_spaces() {
    in_yard(FOUR_CPUS, VmConfig::default(), |vm| {
        thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || {
                    run_on(number);
                    for _ in 0..4 {
                        let space = vm.create_space().unwrap();
                        map_use_unmap(&space, number.into(), 9);
                        let id = space.id();
                        drop(space);
                        assert!(vm.space(id).is_none(), "the space outlived its last handle");
                    }
                });
            }
        });
        vm.validate().expect("the state is valid after all threads end");
    });
}

#[test]
fn threads_fault_the_same_addresses_at_once() {
    for thp in ThpMode::ALL {
        in_yard(FOUR_CPUS, VmConfig { thp, ..VmConfig::default() }, |vm| {
            let space = vm.create_space().unwrap();
            let mapped = space.map(MapRequest::anonymous(ByteSize(2 * HUGE)).advised(HugeAdvice::Huge)).unwrap();
            let pages = mapped.size().0 / PAGE;
            thread::scope(|scope| {
                for number in 0..4u32 {
                    let space = &space;
                    scope.spawn(move || {
                        run_on(number);
                        for page in 0..pages {
                            let addr = VirtAddr(mapped.start.0 + page * PAGE + u64::from(number));
                            space.write(addr, &[number as u8 + 1]).unwrap();
                        }
                    });
                }
            });
            for page in 0..pages {
                let mut seen = [0; 5];
                space.read(VirtAddr(mapped.start.0 + page * PAGE), &mut seen).unwrap();
                assert_eq!(seen, [1, 2, 3, 4, 0], "page {page}: a write was lost");
            }
            assert_eq!(space.statistics().resident, PageCount(pages));
            vm.validate().unwrap();
        });
    }
}

#[test]
fn handles_race_look_ups_of_the_space() {
    in_yard(FOUR_CPUS, VmConfig::default(), |vm| {
        for _ in 0..50 {
            let space = vm.create_space().unwrap();
            let id = space.id();
            space.map(crate::fixture::anonymous(range(0, PAGE))).unwrap();
            let last: usize = thread::scope(|scope| {
                let workers: Vec<_> = (0..3)
                    .map(|number| {
                        scope.spawn(move || {
                            run_on(number);
                            let Some(handle) = vm.space(id) else { return 0 };
                            handle.touch(at(0), MemoryAccess::Write).unwrap();
                            usize::from(handle.exit(NonZeroUsize::MIN).unwrap() != ExitOutcome::StillUsed)
                        })
                    })
                    .collect();
                let own = usize::from(space.exit(NonZeroUsize::MIN).unwrap() != ExitOutcome::StillUsed);
                own + workers.into_iter().map(|worker| worker.join().unwrap()).sum::<usize>()
            });
            assert_eq!(last, 1, "more or fewer than one handle was the last");
            assert!(vm.space(id).is_none());
        }
    });
}
