//! Failures of map initialisation: missing memory for the map, workers that panic, and invalid options.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::fixture::{Fixture, Frames, MapWatch, Moment, order, panic_if, run_on};
use crate::maps::{
    LATE, Machine, frames, give_back, machine, machines, pages_at_rest, plain, reference, take_everything, way,
};
use frameyard::boot::{BootError, InitError, InitJobs, InitMode, Initialiser, JobGranularity, MapInit, ZoneLimits};
use frameyard::page::MapContent;
use frameyard::platform::{InitProgress, LockId, MapNotBacked};
use frameyard::units::PhysAddr;
use frameyard::{AllocError, Gfp, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange};

/// Fails if `work` does not end. The time limit affects nothing else.
fn watchdog(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let worker = thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(120)) {
        panic!("the test hangs");
    }
    if let Err(panic) = worker.join() {
        resume_unwind(panic);
    }
}

/// Two nodes of four sections each.
fn pair() -> Machine {
    let memory = vec![(frames(0x800, 0xc00), NodeId(0)), (frames(0xc00, 0x1000), NodeId(1))];
    Machine { memory, ..plain() }
}

/// Makes the platform refuse memory for the page structures of these frames.
fn without(watch: &MapWatch, missing: PfnRange) {
    let refuse = move |range: PfnRange| if range.intersection(missing).is_empty() { Ok(()) } else { Err(MapNotBacked) };
    watch.back_with(refuse);
}

fn watched(machine: &Machine, init: MapInit, missing: PfnRange) -> Result<Fixture, BootError> {
    let watch = Arc::new(MapWatch::default());
    without(&watch, missing);
    Fixture::watched(&machine.table(), &machine.config(init), Frames::Phantom, watch)
}

fn jobs(granularity: JobGranularity, threads: usize) -> InitJobs {
    InitJobs { granularity, threads: Some(threads), ..InitJobs::default() }
}

fn every_job() -> Vec<InitJobs> {
    JobGranularity::ALL.iter().flat_map(|granularity| [1, 2, 4].map(|threads| jobs(*granularity, threads))).collect()
}

#[test]
fn creation_fails_without_memory_for_early_parts() {
    run_on(0);
    for jobs in every_job() {
        for missing in [frames(0x800, 0x900), frames(0xb00, 0xc00), frames(0xfff, 0x1000), frames(0, 0x2000)] {
            let refused = watched(&plain(), MapInit { jobs, ..way(InitMode::Eager) }, missing).err();
            let Some(BootError::MapNotBacked(range)) = refused else { panic!("{refused:?}") };
            assert!(!range.intersection(missing).is_empty(), "{range}, {missing}");
        }
    }
    let refused = watched(&plain(), way(InitMode::Deferred), frames(0x880, 0x881)).err();
    assert_eq!(refused, Some(BootError::MapNotBacked(frames(0x800, 0x900))));
    let cma = Machine { cma: vec![frames(0xe00, 0xe20)], ..plain() };
    for mode in LATE {
        let refused = watched(&cma, way(mode), frames(0xe00, 0xe01)).err();
        assert_eq!(refused, Some(BootError::MapNotBacked(frames(0xe00, 0xe20))), "{mode}");
        assert!(watched(&cma, way(mode), frames(0xd00, 0xd01)).is_ok(), "{mode}");
    }
}

#[test]
fn failed_pass_can_be_repeated() {
    run_on(0);
    for machine in machines().map(Machine::with_free_lists) {
        let expected = machine.create_yard(reference(MapContent::Kernel));
        let sections = machine.sections();
        for (at, jobs) in (0..).zip(every_job()) {
            let missing = sections[(sections.len() - 1 - at % sections.len()).max(sections.len() / 2)];
            for mode in LATE {
                if mode == InitMode::Deferred
                    && machine
                        .create_yard(way(mode))
                        .watch()
                        .written()
                        .iter()
                        .any(|range| !range.intersection(missing).is_empty())
                {
                    continue;
                }
                if machine.cma.iter().any(|area| !area.intersection(missing).is_empty()) {
                    continue;
                }
                let yard = watched(&machine, MapInit { jobs, ..way(mode) }, missing).unwrap();
                for _ in 0..2 {
                    let Err(InitError::MapNotBacked(range)) = yard.init().finish() else { panic!("{}", machine.name) };
                    assert!(!range.intersection(missing).is_empty() && !range.is_empty(), "{range}, {missing}");
                    yard.validate().unwrap();
                }
                let mut taken = Vec::new();
                take_everything(&yard, |pfn| taken.push(pfn));
                assert!(taken.iter().all(|pfn| !missing.contains(*pfn)));
                yard.validate().unwrap();
                give_back(&yard, &taken);
                yard.watch().calm();
                assert_eq!(yard.init().finish(), Ok(()));
                yard.validate().unwrap();
                for section in &sections {
                    assert_eq!(pages_at_rest(&yard, *section), pages_at_rest(&expected, *section));
                }
                assert_eq!(yard.stats().managed_pages(), expected.stats().managed_pages());
            }
        }
    }
}

#[test]
fn unbacked_section_hides_no_other() {
    run_on(0);
    for mode in LATE {
        let machine = plain();
        for missing in [0x900, 0xb00, 0xf00].map(|start| frames(start, start + 0x100)) {
            let yard = watched(&machine, way(mode), missing).unwrap();
            let mut taken = Vec::new();
            take_everything(&yard, |pfn| taken.push(pfn));
            assert_eq!(taken.len(), 0x700, "{mode}: all but {missing}");
            yard.validate().unwrap();
            let refused = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap_err();
            assert!(matches!(refused, AllocError::OutOfMemory { .. }));
            assert_eq!(yard.init().next_section(NodeId(0)), Err(InitError::MapNotBacked(missing)));
            assert_eq!(yard.init().range(missing), Err(InitError::MapNotBacked(missing)));
            let range = PfnRange::new(missing.start, PageCount(3));
            assert_eq!(yard.request(range, Gfp::KERNEL).range(), Err(AllocError::NotInitialised(range)));
            yard.watch().calm();
            take_everything(&yard, |pfn| taken.push(pfn));
            assert_eq!(taken.len(), 0x800);
            yard.validate().unwrap();
            give_back(&yard, &taken);
        }
    }
}

#[test]
fn idle_worker_skips_unbacked_section() {
    run_on(0);
    let yard = watched(&plain(), way(InitMode::Lazy), frames(0xa00, 0xb00)).unwrap();
    for left in (1..8).rev() {
        assert_eq!(yard.init().next_section(NodeId(0)), Ok(Some(PageCount(left * 0x100))));
    }
    assert_eq!(yard.init().next_section(NodeId(0)), Err(InitError::MapNotBacked(frames(0xa00, 0xb00))));
}

#[test]
fn other_nodes_serve_if_local_map_is_unbacked() {
    run_on(0);
    let yard = watched(&pair(), way(InitMode::Lazy), frames(0x800, 0xc00)).unwrap();
    let mut taken = Vec::new();
    while let Ok(pfn) = yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN) {
        taken.push(pfn);
    }
    assert_eq!(taken.len(), 0x400);
    assert!(yard.request(Order::ZERO, Gfp::KERNEL | Gfp::THISNODE).node(NodeId(0)).frame().is_err());
    yard.validate().unwrap();
    yard.watch().calm();
    taken.push(yard.request(Order::ZERO, Gfp::KERNEL | Gfp::THISNODE).node(NodeId(0)).frame().unwrap());
    give_back(&yard, &taken);
}

#[test]
fn other_types_serve_if_map_is_unbacked() {
    run_on(0);
    let yard = watched(&plain(), way(InitMode::Lazy), frames(0x900, 0x1000)).unwrap();
    // Movable frames in every pageblock, of which the test frees one each: no pageblock is whole.
    let movable: Vec<Pfn> = (0..0x100).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    let (back, held): (Vec<Pfn>, Vec<Pfn>) = movable.into_iter().partition(|pfn| pfn.0 % 8 == 3);
    give_back(&yard, &back);
    assert!(yard.alloc(order(1), Gfp::KERNEL).is_err());
    let mut taken = Vec::new();
    while let Ok(pfn) = yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN) {
        taken.push(pfn);
    }
    assert_eq!(taken.len(), back.len());
    assert!(taken.iter().collect::<BTreeSet<_>>().is_subset(&back.iter().collect()));
    yard.validate().unwrap();
    give_back(&yard, &taken);
    give_back(&yard, &held);
}

#[test]
fn worker_panic_fails_the_creation() {
    watchdog(|| {
        run_on(0);
        for machine in [plain(), pair(), machine("nodes")] {
            for jobs in every_job() {
                for (at, listens) in (0..5).flat_map(|at| [(at, false), (at, true)]) {
                    let watch = Arc::new(MapWatch::default());
                    let calls = AtomicU64::new(0);
                    let count = move || panic_if(calls.fetch_add(1, Ordering::Relaxed) == at);
                    if listens {
                        watch.listen_with(move |_| count());
                    } else {
                        watch.back_with(move |_| {
                            count();
                            Ok(())
                        });
                    }
                    let config = machine.config(MapInit { jobs, ..way(InitMode::Eager) });
                    let created = Fixture::watched(&machine.table(), &config, Frames::Phantom, watch);
                    match created {
                        Err(refused) => assert_eq!(refused, BootError::WorkerPanicked),
                        Ok(_) => assert!(at > 0, "fewer calls than {at}"),
                    }
                }
            }
        }
    });
}

#[test]
fn worker_panic_fails_the_pass_only() {
    watchdog(|| {
        run_on(0);
        for (machine, mode) in
            [plain(), pair()].into_iter().flat_map(|machine| LATE.map(|mode| (machine.clone(), mode)))
        {
            for jobs in every_job() {
                for (at, listens) in (0..4).flat_map(|at| [(at, false), (at, true)]) {
                    let yard = machine.create_yard(MapInit { jobs, ..way(mode) });
                    let calls = AtomicU64::new(0);
                    let count = move || panic_if(calls.fetch_add(1, Ordering::Relaxed) == at);
                    if listens {
                        yard.watch().listen_with(move |progress| {
                            if matches!(progress, InitProgress::Written(_)) {
                                count();
                            }
                        });
                    } else {
                        yard.watch().back_with(move |_| {
                            count();
                            Ok(())
                        });
                    }
                    assert_eq!(yard.init().finish(), Err(InitError::WorkerPanicked), "{mode}, {jobs:?}, {at}");
                    yard.watch().calm();
                    yard.validate().unwrap();
                    let mut taken = Vec::new();
                    take_everything(&yard, |pfn| taken.push(pfn));
                    yard.validate().unwrap();
                    give_back(&yard, &taken);
                    // The panic came before or after the writes of a part, so no part is lost.
                    assert_eq!(yard.init().finish(), Ok(()));
                    assert_eq!(yard.init().deferred_pages(), PageCount(0), "{mode}, {jobs:?}, {at}, {listens}");
                    yard.validate().unwrap();
                }
            }
        }
    });
}

#[test]
fn pass_waits_for_earlier_claims() {
    watchdog(|| {
        run_on(0);
        for mode in LATE {
            let yard = plain().create_yard(way(mode));
            let expected = plain().create_yard(way(InitMode::Eager));
            let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
            let missing = frames(0xd00, 0xe00);
            let (begins, goes_on) = (begun.clone(), go_on.clone());
            yard.watch().back_with(move |range| {
                if range.start == missing.start {
                    begins.wait();
                    while !goes_on.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                }
                Ok(())
            });
            thread::scope(|scope| {
                let grower = scope.spawn(|| yard.init().range(missing));
                begun.wait();
                // The stopped worker continues when the pass waits for it.
                let release = go_on.clone();
                yard.watch().spy_with(move |moment| {
                    if moment == Moment::Wait {
                        release.store(true, Ordering::Relaxed);
                    }
                });
                let (finished, left) = (yard.init().finish(), yard.init().deferred_pages());
                go_on.store(true, Ordering::Relaxed);
                assert_eq!(grower.join().unwrap(), Ok(PageCount(0x100)));
                assert_eq!((finished, left), (Ok(()), PageCount(0)), "{mode}");
            });
            for (found, expected) in yard.stats().zones().zip(expected.stats().zones()) {
                assert_eq!((found.managed, found.watermarks), (expected.managed, expected.watermarks), "{mode}");
            }
        }
    });
}

#[test]
fn pass_wait_is_bounded() {
    watchdog(|| {
        run_on(0);
        for mode in LATE {
            let yard = plain().create_yard(way(mode));
            let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
            let (begins, goes_on) = (begun.clone(), go_on.clone());
            yard.watch().back_with(move |range| {
                if range.start == Pfn(0xd00) {
                    begins.wait();
                    goes_on.wait();
                    return Err(MapNotBacked);
                }
                Ok(())
            });
            thread::scope(|scope| {
                let grower = scope.spawn(|| yard.init().range(frames(0xd00, 0xe00)));
                begun.wait();
                let finished = yard.init().finish();
                let range = yard.request(frames(0xd10, 0xd11), Gfp::KERNEL).range();
                go_on.wait();
                assert_eq!(finished, Err(InitError::Unfinished(PageCount(0x100))), "{mode}");
                assert_eq!(range, Err(AllocError::NotInitialised(frames(0xd10, 0xd11))));
                assert_eq!(grower.join().unwrap(), Err(InitError::MapNotBacked(frames(0xd00, 0xe00))));
            });
            yard.watch().calm();
            assert_eq!(yard.init().finish(), Ok(()));
            assert_eq!(yard.stats().managed_pages(), PageCount(0x800));
        }
    });
}

#[test]
fn range_request_waits_for_frames_in_transit() {
    watchdog(|| {
        run_on(0);
        for mode in LATE {
            let yard = plain().create_yard(way(mode));
            let (published, go_on) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
            thread::scope(|scope| {
                let (publishes, goes_on) = (published.clone(), go_on.clone());
                let grower = thread::Builder::new().name("grower".into());
                // The first lock that the worker takes is the zone lock, after it has published the pages.
                let seen = AtomicBool::new(false);
                yard.watch().spy_with(move |moment| {
                    let grows = thread::current().name() == Some("grower");
                    match moment {
                        Moment::Lock(LockId::Zone(_)) if grows && !seen.swap(true, Ordering::Relaxed) => {
                            publishes.wait();
                            while !goes_on.load(Ordering::Relaxed) {
                                thread::yield_now();
                            }
                        }
                        Moment::Wait if !grows => goes_on.store(true, Ordering::Relaxed),
                        _ => {}
                    }
                });
                let grower = grower.spawn_scoped(scope, || yard.init().range(frames(0xd00, 0xe00))).unwrap();
                published.wait();
                let range = frames(0xd10, 0xd35);
                let taken = yard.request(range, Gfp::KERNEL).range();
                go_on.store(true, Ordering::Relaxed);
                assert_eq!(grower.join().unwrap(), Ok(PageCount(0x100)));
                assert_eq!(taken, Ok(range), "{mode}");
                yard.free_range(range).unwrap();
            });
        }
    });
}

fn refused(machine: &Machine, init: MapInit) -> BootError {
    let created = Fixture::watched(&machine.table(), &machine.config(init), Frames::Phantom, Arc::default());
    created.err().unwrap_or_else(|| panic!("{init:?} is accepted"))
}

#[test]
fn invalid_job_options_are_refused() {
    run_on(0);
    let block = plain().geometry.max_order().pages();
    let with = |jobs| MapInit { jobs, ..way(InitMode::Eager) };
    for mode in InitMode::ALL {
        for threads in [0, 5, usize::MAX] {
            let init = MapInit { mode, ..with(InitJobs { threads: Some(threads), ..InitJobs::default() }) };
            assert_eq!(refused(&plain(), init), BootError::BadThreads { threads, cpus: 4 });
        }
        for alignment in [0, 1, 16, 33, 96, 0x101, u64::MAX].map(PageCount) {
            let init = MapInit { mode, ..with(InitJobs { alignment: Some(alignment), ..InitJobs::default() }) };
            assert_eq!(refused(&plain(), init), BootError::BadAlignment { alignment, least: block });
        }
        let init = MapInit { mode, initialiser: Initialiser::None, ..with(InitJobs::default()) };
        assert_eq!(refused(&plain(), init), BootError::ContentNotWritten(MapContent::Kernel));
    }
}

#[test]
fn extreme_job_sizes_initialise_everything() {
    run_on(0);
    let block = plain().geometry.max_order().pages().0;
    for machine in machines() {
        let expected = machine.create_yard(reference(MapContent::Kernel));
        let least = machine.geometry.max_order().pages();
        for granularity in JobGranularity::ALL {
            for alignment in [None, Some(least), Some(PageCount(1 << 40)), Some(PageCount(1 << 63))] {
                for min_chunk in [None, Some(0), Some(1), Some(block + 1), Some(u64::MAX)] {
                    let min_chunk = min_chunk.map(PageCount);
                    let jobs = InitJobs { granularity, threads: Some(3), alignment, min_chunk };
                    let yard = machine.create_yard(MapInit { jobs, ..way(InitMode::Eager) });
                    assert_eq!(
                        yard.stats().managed_pages(),
                        expected.stats().managed_pages(),
                        "{}, {jobs:?}",
                        machine.name
                    );
                    let late = machine.create_yard(MapInit { jobs, ..way(InitMode::Deferred) });
                    assert_eq!(late.init().finish(), Ok(()), "{}, {jobs:?}", machine.name);
                    assert_eq!(
                        late.stats().managed_pages(),
                        expected.stats().managed_pages(),
                        "{}, {jobs:?}",
                        machine.name
                    );
                }
            }
        }
    }
}

#[test]
fn memory_that_is_reported_twice_is_refused() {
    let plan = |memory: &[(PfnRange, NodeId)]| {
        let machine = Machine { memory: memory.to_vec(), ..plain() };
        let table = MemoryTable { memory: &machine.memory, ..MemoryTable::default() };
        Layout::plan(&table, &machine.config(way(InitMode::Lazy))).map(|_| ()).unwrap_err()
    };
    let (first, second) = (frames(0x800, 0x900), frames(0x900, 0xa00));
    let twice = plan(&[(first, NodeId(0)), (second, NodeId(0)), (second, NodeId(0))]);
    assert_eq!(twice, BootError::OverlappingMemory(second, second));
    let other_node = plan(&[(first, NodeId(0)), (first, NodeId(1))]);
    assert_eq!(other_node, BootError::OverlappingMemory(first, first));
    let partly = frames(0x8ff, 0x9ff);
    assert_eq!(plan(&[(first, NodeId(0)), (partly, NodeId(0))]), BootError::OverlappingMemory(first, partly));
    let empty = frames(0xa00, 0xa00);
    assert_eq!(plan(&[(first, NodeId(0)), (empty, NodeId(0))]), BootError::EmptyMemory(empty));
}

#[test]
fn messages_are_one_line_each() {
    let range = frames(0x800, 0x900);
    let boot = [
        BootError::MapNotBacked(range),
        BootError::WorkerPanicked,
        BootError::BadThreads { threads: 0, cpus: 4 },
        BootError::BadAlignment { alignment: PageCount(3), least: PageCount(32) },
        BootError::ContentNotWritten(MapContent::Kernel),
        BootError::OverlappingMemory(range, range),
        BootError::EmptyMemory(range),
    ];
    let init = [
        InitError::WorkerPanicked,
        InitError::MapNotBacked(range),
        InitError::OutsideMap(range),
        InitError::AlreadyInitialised(range),
        InitError::NotTheCreator,
        InitError::Unfinished(PageCount(3)),
    ];
    let mut messages: Vec<String> = boot.iter().map(ToString::to_string).collect();
    messages.extend(init.iter().map(ToString::to_string));
    messages.push(AllocError::NotInitialised(range).to_string());
    messages.push(MapNotBacked.to_string());
    for message in messages {
        assert!(!message.is_empty() && !message.contains('\n'), "{message}");
        assert!(
            message.chars().next().unwrap().is_ascii_lowercase() || message.starts_with(char::is_numeric),
            "{message}"
        );
    }
}

#[test]
fn idle_worker_continues_in_lower_zones() {
    watchdog(|| {
        run_on(0);
        let limit = PhysAddr(0xc00 << 12);
        let machine =
            Machine { zone_limits: ZoneLimits { dma: PhysAddr(0), dma32: limit }, ..plain().with_free_lists() };
        let yard = machine.create_yard(way(InitMode::Lazy));
        yard.watch().spy_with(|moment| panic_if(matches!(moment, Moment::Lock(LockId::Zone(_)))));
        let lost = frames(0xc00, 0xd00);
        let attempt = catch_unwind(AssertUnwindSafe(|| yard.init().range(lost)));
        assert!(attempt.is_err());
        yard.watch().calm();
        for left in (1..8).rev() {
            assert_eq!(yard.init().next_section(NodeId(0)), Ok(Some(PageCount(left * 0x100))));
        }
        assert_eq!(yard.init().next_section(NodeId(0)), Ok(Some(lost.count())), "the lost frames stay deferred");
        assert_eq!(yard.init().finish(), Err(InitError::Unfinished(lost.count())));
        // A lost part stays lost. The yard does not validate, but its other frames can be allocated.
        let mut taken = Vec::new();
        take_everything(&yard, |pfn| taken.push(pfn));
        assert_eq!(taken.len(), 0x700);
        yard.drop_unchecked();
    });
}
