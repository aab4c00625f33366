//! Address spaces against plain bytes: random operations, and concurrent threads.

use std::num::NonZeroUsize;
use std::thread;

use crate::fixture::{
    HUGE, PAGE, TestMachine, TestSpace, TestVm, at, expect, fill, in_small_yard, in_yard, range, run_on,
};
use frameyard::{ByteSize, PageCount};
use frameyard_vm::{
    ExitOutcome, FaultError, HugeAdvice, MapError, MapRequest, MemoryAccess, PinnedPage, ThpMode, VirtAddr, VirtRange,
    VmConfig,
};
use proptest::prelude::*;

/// The model's range: four huge pages.
const WINDOW: u64 = 4 * HUGE;
const PAGES: u64 = WINDOW / PAGE;

#[derive(Clone, Copy, Debug)]
enum Action {
    Map { page: u64, pages: u64, huge: HugeAdvice },
    Unmap { page: u64, pages: u64 },
    Write { offset: u64, len: u64, byte: u8 },
    Read { offset: u64, len: u64 },
    Touch { page: u64, access: MemoryAccess },
    Pin { page: u64 },
    Unpin,
    Mode(ThpMode),
}

/// A page range: a few pages anywhere, or whole huge pages, so that those occur.
fn pages() -> impl Strategy<Value = (u64, u64)> {
    let huge = HUGE / PAGE;
    prop_oneof![
        2 => (0..PAGES, 1..40u64),
        2 => (0..4u64, 1..4u64).prop_map(move |(first, count)| (first * huge, count * huge)),
        1 => (0..PAGES, 1..PAGES),
    ]
    .prop_map(|(page, pages)| (page, pages.min(PAGES - page)))
}

fn spans() -> impl Strategy<Value = (u64, u64)> {
    (0..WINDOW, 1..5 * PAGE).prop_map(|(offset, len)| (offset, len.min(WINDOW - offset)))
}

fn actions() -> impl Strategy<Value = Action> {
    let advice = prop::sample::select(HugeAdvice::ALL.to_vec());
    let access = prop::sample::select(vec![MemoryAccess::Read, MemoryAccess::Write]);
    prop_oneof![
        6 => (pages(), advice).prop_map(|((page, pages), huge)| Action::Map { page, pages, huge }),
        4 => pages().prop_map(|(page, pages)| Action::Unmap { page, pages }),
        8 => (spans(), 1..=255u8).prop_map(|((offset, len), byte)| Action::Write { offset, len, byte }),
        5 => spans().prop_map(|(offset, len)| Action::Read { offset, len }),
        2 => (0..PAGES, access).prop_map(|(page, access)| Action::Touch { page, access }),
        1 => (0..PAGES).prop_map(|page| Action::Pin { page }),
        1 => Just(Action::Unpin),
        1 => prop::sample::select(ThpMode::ALL.to_vec()).prop_map(Action::Mode),
    ]
}

/// The expected contents of a space.
struct Model {
    bytes: Vec<u8>,
    mapped: Vec<bool>,
}

impl Model {
    fn new() -> Self {
        Self { bytes: vec![0; WINDOW as usize], mapped: vec![false; PAGES as usize] }
    }

    /// The first page of a range that is mapped or not.
    fn first(&self, page: u64, pages: u64, mapped: bool) -> Option<VirtAddr> {
        (page..page + pages).find(|page| self.mapped[*page as usize] == mapped).map(|page| at(page * PAGE))
    }

    /// The number of usable bytes from an offset, and the first unusable address if that is fewer than requested.
    fn usable(&self, offset: u64, len: u64) -> (usize, Result<(), FaultError>) {
        let pages = (offset + len - 1) / PAGE - offset / PAGE + 1;
        match self.first(offset / PAGE, pages, false) {
            Some(hole) => {
                let hole = hole.max(at(offset));
                ((hole.0 - at(offset).0) as usize, Err(FaultError::NotMapped(hole)))
            }
            None => (len as usize, Ok(())),
        }
    }
}

struct Run<'a, 'y> {
    vm: TestVm<'y>,
    space: &'a TestSpace<'y>,
    model: Model,
    pins: Vec<PinnedPage<'y, crate::fixture::TestPlatform>>,
}

impl Run<'_, '_> {
    fn act(&mut self, action: Action) {
        match action {
            Action::Map { page, pages, huge } => self.map(page, pages, huge),
            Action::Unmap { page, pages } => self.unmap(page, pages),
            Action::Write { offset, len, byte } => {
                let (usable, expected) = self.model.usable(offset, len);
                let written: Vec<u8> = (0..len).map(|at| byte.wrapping_add(at as u8)).collect();
                assert_eq!(self.space.write(at(offset), &written), expected);
                self.model.bytes[offset as usize..][..usable].copy_from_slice(&written[..usable]);
            }
            Action::Read { offset, len } => {
                let (usable, expected) = self.model.usable(offset, len);
                let mut read = vec![0; len as usize];
                assert_eq!(self.space.read(at(offset), &mut read), expected);
                assert!(read[..usable] == self.model.bytes[offset as usize..][..usable], "{len} bytes at {offset}");
            }
            Action::Touch { page, access } => {
                let addr = at(page * PAGE);
                let (_, expected) = self.model.usable(page * PAGE, 1);
                assert_eq!(self.space.touch(addr, access), expected);
                let seen = self.space.translate(addr);
                assert_eq!(seen.is_some(), expected.is_ok());
                assert!(access == MemoryAccess::Read || seen.is_none_or(|seen| seen.flags.is_dirty()));
            }
            Action::Pin { page } => {
                let (_, expected) = self.model.usable(page * PAGE, 1);
                match self.space.pin(at(page * PAGE)) {
                    Ok(pin) => self.pins.push(pin),
                    Err(problem) => assert_eq!(Err(problem), expected),
                }
            }
            Action::Unpin => drop(self.pins.pop()),
            Action::Mode(mode) => self.vm.set_thp_mode(mode),
        }
    }

    fn map(&mut self, page: u64, pages: u64, huge: HugeAdvice) {
        let asked = range(page * PAGE, pages * PAGE);
        let request = MapRequest::anonymous(asked.size()).at(asked.start).advised(huge);
        match self.model.first(page, pages, true) {
            Some(first) => {
                let found = self.space.map(request);
                assert!(matches!(found, Err(MapError::Overlap(there)) if there.start == first), "{found:?}");
            }
            None => {
                assert_eq!(self.space.map(request), Ok(asked));
                self.model.mapped[page as usize..][..pages as usize].fill(true);
                self.model.bytes[(page * PAGE) as usize..][..asked.size().0 as usize].fill(0);
            }
        }
    }

    fn unmap(&mut self, page: u64, pages: u64) {
        let asked = range(page * PAGE, pages * PAGE);
        let found = self.space.unmap(asked);
        match self.model.first(page, pages, false) {
            Some(first) => {
                assert!(matches!(found, Err(MapError::NotMapped(hole)) if hole.start == first), "{found:?}");
            }
            None => {
                assert!(found.unwrap().pages <= PageCount(pages));
                self.model.mapped[page as usize..][..pages as usize].fill(false);
            }
        }
    }

    fn check(&self) {
        let mapped = self.model.mapped.iter().filter(|mapped| **mapped).count() as u64;
        assert_eq!(self.space.statistics().mapped, ByteSize(mapped * PAGE));
        let mut read = vec![0; PAGE as usize];
        for page in (0..PAGES).filter(|page| self.model.mapped[*page as usize]) {
            self.space.read(at(page * PAGE), &mut read).unwrap();
            assert!(read == self.model.bytes[(page * PAGE) as usize..][..PAGE as usize], "page {page}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_spaces_are_independent(
        actions in prop::collection::vec((0..2usize, actions()), 1..80),
        workers in 1..3usize,
    ) {
        in_small_yard(|vm| {
            let spaces = [vm.create_space().unwrap(), vm.create_space().unwrap()];
            let [first, second] = &spaces;
            let run = |space| Run { vm, space, model: Model::new(), pins: Vec::new() };
            let mut runs = [run(first), run(second)];
            for (which, action) in actions {
                runs[which].act(action);
            }
            vm.validate().expect("the state is valid before the exit");
            runs.iter().for_each(Run::check);
            let pins: Vec<_> = runs.into_iter().flat_map(|run| run.pins).collect();
            for space in spaces {
                assert!(matches!(space.exit(NonZeroUsize::new(workers).unwrap()).unwrap(), ExitOutcome::Gone(_)));
            }
            vm.validate().expect("the state is valid while pinned pages outlive their spaces");
            drop(pins);
        });
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
