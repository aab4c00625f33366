//! Random gets, pins and releases against a plain count of references: per page and batched, with and without locks.

use std::collections::HashMap;

use crate::fixture::{HUGE, PAGE, TestSpace, TestVm, at, in_small_yard, range};
use frameyard::Pfn;
use frameyard_vm::{
    Dirty, HugeAdvice, MapRequest, MemoryAccess, PageRun, PinCall, PinError, PinFlags, PinPath, PinRequest, Protection,
    RefHandling,
};
use proptest::prelude::*;

/// Addresses of three huge pages.
const PAGES: u64 = 3 * HUGE / PAGE;

#[derive(Clone, Debug)]
enum Action {
    Map {
        page: u64,
        pages: u64,
        huge: HugeAdvice,
        protection: Protection,
    },
    Unmap {
        page: u64,
        pages: u64,
    },
    Touch {
        page: u64,
        pages: u64,
    },
    Take {
        page: u64,
        pages: u64,
        request: PinRequest,
        runs: bool,
    },
    /// Selects one of the taken sets, and the path of its release.
    Give {
        which: usize,
        refs: RefHandling,
    },
    Compact,
}

fn pages() -> impl Strategy<Value = (u64, u64)> {
    let huge = HUGE / PAGE;
    prop_oneof![
        3 => (0..PAGES, 1..20u64),
        2 => (0..3u64, 1..3u64).prop_map(move |(first, count)| (first * huge, count * huge)),
        1 => (0..PAGES, 1..PAGES),
    ]
    .prop_map(|(page, pages)| (page, pages.min(PAGES - page)))
}

fn requests() -> impl Strategy<Value = PinRequest> {
    let call = prop::sample::select(vec![PinRequest::GET, PinRequest::PIN]);
    let path = prop::sample::select(PinPath::ALL.to_vec());
    let refs = prop::sample::select(RefHandling::ALL.to_vec());
    let flags = prop::sample::select(vec![
        PinFlags::NONE,
        PinFlags::WRITE,
        PinFlags::LONGTERM,
        PinFlags::FORCE,
        PinFlags::WRITE | PinFlags::FORCE,
    ]);
    (call, path, refs, flags).prop_map(|(call, path, refs, flags)| call.by(path).counted(refs).with(flags))
}

fn actions() -> impl Strategy<Value = Action> {
    let advice = prop::sample::select(HugeAdvice::ALL.to_vec());
    let refs = prop::sample::select(RefHandling::ALL.to_vec());
    prop_oneof![
        3 => (pages(), advice, prop::sample::select(Protection::ALL.to_vec()))
            .prop_map(|((page, pages), huge, protection)| Action::Map { page, pages, huge, protection }),
        2 => pages().prop_map(|(page, pages)| Action::Unmap { page, pages }),
        3 => pages().prop_map(|(page, pages)| Action::Touch { page, pages }),
        8 => (pages(), requests(), any::<bool>())
            .prop_map(|((page, pages), request, runs)| Action::Take { page, pages, request, runs }),
        4 => (any::<usize>(), refs).prop_map(|(which, refs)| Action::Give { which, refs }),
        1 => Just(Action::Compact),
    ]
}

enum Taken {
    Frames(Vec<Pfn>),
    Runs(Vec<PageRun>),
}

impl Taken {
    fn frames(&self) -> Vec<Pfn> {
        match self {
            Self::Frames(frames) => frames.clone(),
            Self::Runs(runs) => runs.iter().flat_map(|run| run.first.0..run.end().0).map(Pfn).collect(),
        }
    }
}

struct Run<'a, 'y> {
    vm: TestVm<'y>,
    space: &'a TestSpace<'y>,
    taken: Vec<(PinCall, Taken)>,
}

impl Run<'_, '_> {
    fn act(&mut self, action: &Action) {
        match *action {
            Action::Map { page, pages, huge, protection } => {
                let asked = range(page * PAGE, pages * PAGE);
                let request = MapRequest::anonymous(asked.size()).at(asked.start);
                let _ = self.space.map(request.advised(huge).protected(protection));
            }
            Action::Unmap { page, pages } => {
                let _ = self.space.unmap(range(page * PAGE, pages * PAGE));
            }
            Action::Touch { page, pages } => {
                for page in page..page + pages {
                    let _ = self.space.touch(at(page * PAGE), MemoryAccess::Write);
                }
            }
            Action::Take { page, pages, request, runs } => self.take(page, pages, request, runs),
            Action::Give { which, refs } if !self.taken.is_empty() => {
                let (call, taken) = self.taken.swap_remove(which % self.taken.len());
                self.give(call, &taken, refs);
            }
            Action::Give { .. } => {}
            Action::Compact => {
                let zone = self.vm.yard().stats().zones().next().unwrap().id;
                self.vm.yard().compaction().zone(
                    zone,
                    frameyard::compaction::CompactRequest::WHOLE_ZONE,
                    &self.vm.owners(),
                );
            }
        }
        self.check();
    }

    fn take(&mut self, page: u64, pages: u64, request: PinRequest, runs: bool) {
        let start = at(page * PAGE);
        let taken = if runs {
            let mut found = vec![PageRun::default(); 12];
            self.space.take_runs(range(page * PAGE, pages * PAGE), request, &mut found).map(|taken| {
                found.truncate(taken.runs);
                assert_eq!(found.iter().map(|run| run.pages.0).sum::<u64>(), taken.pages.0);
                Taken::Runs(found)
            })
        } else {
            let mut frames = vec![Pfn(0); pages as usize];
            self.space.take_pages(start, request, &mut frames).map(|taken| {
                frames.truncate(taken.0 as usize);
                Taken::Frames(frames)
            })
        };
        match taken {
            Ok(taken) => {
                for (nth, pfn) in taken.frames().into_iter().enumerate() {
                    let mapped = self.space.translate(at((page + nth as u64) * PAGE)).expect("the page is mapped");
                    assert_eq!(mapped.pfn, pfn);
                }
                self.taken.push((request.call, taken));
            }
            Err(PinError::NotFast(at)) => assert_eq!((request.path, at), (PinPath::FastOnly, start)),
            Err(problem) => {
                let is_written = request.flags.contains(PinFlags::WRITE) && !request.flags.contains(PinFlags::FORCE);
                let access = if is_written { MemoryAccess::Write } else { MemoryAccess::Read };
                let first = self.space.touch(start, access);
                assert_eq!(first.map_err(PinError::Fault), Err(problem), "a usable page was not taken");
            }
        }
    }

    fn give(&self, call: PinCall, taken: &Taken, refs: RefHandling) {
        match (call, taken) {
            (PinCall::Get, Taken::Frames(frames)) => self.vm.put_pages(frames, refs),
            (PinCall::Pin, Taken::Frames(frames)) => self.vm.unpin_pages(frames, refs, Dirty::Mark),
            (PinCall::Get, Taken::Runs(runs)) => self.vm.put_runs(runs, refs),
            (PinCall::Pin, Taken::Runs(runs)) => self.vm.unpin_runs(runs, refs, Dirty::Keep),
        }
        .expect("the pages are pinned");
    }

    /// Asserts that all pages have the references and pins taken, plus those of their mappings.
    fn check(&self) {
        self.vm.lru_drain_all();
        let (mut references, mut pins) = (HashMap::new(), HashMap::new());
        for (call, taken) in &self.taken {
            for pfn in taken.frames() {
                let info = self.vm.yard().stats().frame(pfn).unwrap();
                let each = if info.order.0 == 0 && *call == PinCall::Pin { 1024 } else { 1 };
                *references.entry(info.head).or_insert(0) += each;
                *pins.entry(info.head).or_insert(0) += u64::from(*call == PinCall::Pin);
            }
        }
        for (head, expected) in references {
            // SAFETY: only reads.
            let page = unsafe { self.vm.yard().counted().page(head) }.unwrap();
            let counts = page.counts();
            assert_eq!(counts.references - counts.mappings, expected, "{head}");
            // A large number of references of a single page looks like a pin.
            let found =
                page.pins() - if page.tag().order().0 == 0 { (u64::from(expected) / 1024) - pins[&head] } else { 0 };
            assert_eq!(found, pins[&head], "{head}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pins_agree_with_a_model(actions in prop::collection::vec(actions(), 1..60)) {
        in_small_yard(|vm| {
            let space = vm.create_space().unwrap();
            space.map(MapRequest::anonymous(frameyard::ByteSize(PAGES * PAGE)).at(at(0)).advised(HugeAdvice::Huge)).unwrap();
            let mut run = Run { vm, space: &space, taken: Vec::new() };
            actions.iter().for_each(|action| run.act(action));
            vm.validate().expect("the state is valid before the exit");
            let taken = core::mem::take(&mut run.taken);
            drop(space);
            vm.lru_drain_all();
            vm.validate().expect("the state is valid while pinned pages outlive their space");
            for (call, taken) in taken {
                let refs = RefHandling::Batched;
                match (call, &taken) {
                    (PinCall::Get, Taken::Frames(frames)) => vm.put_pages(frames, refs),
                    (PinCall::Pin, Taken::Frames(frames)) => vm.unpin_pages(frames, refs, Dirty::Keep),
                    (PinCall::Get, Taken::Runs(runs)) => vm.put_runs(runs, refs),
                    (PinCall::Pin, Taken::Runs(runs)) => vm.unpin_runs(runs, refs, Dirty::Keep),
                }
                .expect("the pages are pinned");
            }
        });
    }
}
