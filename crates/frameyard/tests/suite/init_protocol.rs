//! The protocol of deferred initialisation: when pages become visible, how much one claim covers, and which CPU waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use crate::fixture::{Moment, run_on};
use crate::maps::{LATE, Machine, frames, give_back, listed, plain, way};
use frameyard::boot::{InitJobs, JobGranularity, MapInit};
use frameyard::page::FrameState;
use frameyard::platform::Access;
use frameyard::{Gfp, NodeId, Order, PageCount, Pfn, PfnRange};

#[test]
fn pages_are_published_after_writing_and_tagging() {
    run_on(0);
    for mode in LATE {
        // The last frame of each block is reserved, so its tag is the last word that the worker writes.
        let reserved: Vec<PfnRange> = (0x81f..0x1000).step_by(0x20).map(|pfn| frames(pfn, pfn + 1)).collect();
        let yard = Machine { reserved: reserved.clone(), ..plain() }.create_yard(way(mode));
        let view = Arc::new(yard.attach());
        // The spy belongs to the platform, which belongs to the view.
        let seen = Arc::downgrade(&view);
        let tagged = Arc::new(AtomicU64::new(0));
        let count = tagged.clone();
        yard.watch().spy_with(move |moment| {
            let Moment::Touch(pfn, Access::Write) = moment else { return };
            if (0xc00..0xe00).contains(&pfn.0) && pfn.0 % 0x20 == 0x1f {
                let block = pfn.0 - 0x1f..=pfn.0;
                let view = seen.upgrade().unwrap();
                let states = block.map(|pfn| view.stats().frame(Pfn(pfn)).unwrap().state);
                assert!(states.into_iter().all(|state| state == FrameState::Uninitialised), "{pfn} is visible");
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let freed = yard.init().range(frames(0xc00, 0xe00));
        yard.watch().calm();
        assert_eq!((freed, tagged.load(Ordering::Relaxed)), (Ok(PageCount(0x1f0)), 0x10), "{mode}");
    }
}

#[test]
fn pass_claims_one_section_at_a_time() {
    run_on(0);
    for (mode, granularity) in
        LATE.iter().flat_map(|mode| JobGranularity::ALL.iter().map(move |granularity| (*mode, *granularity)))
    {
        let jobs = InitJobs { granularity, threads: Some(1), ..InitJobs::default() };
        let yard = plain().create_yard(MapInit { jobs, ..way(mode) });
        yard.init().finish().unwrap();
        let sections: Vec<PfnRange> = (0x800..0x1000).step_by(0x100).map(|at| frames(at, at + 0x100)).collect();
        assert_eq!(yard.watch().written(), sections, "{mode}, {granularity}");
    }
}

#[test]
fn allocation_waits_for_initialisation_in_progress() {
    run_on(0);
    for (mode, gfp) in LATE.iter().flat_map(|mode| [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE].map(|gfp| (*mode, gfp))) {
        let yard = plain().create_yard(way(mode));
        yard.init().next_section(NodeId(0)).unwrap();
        let mut taken = Vec::new();
        while yard.init().deferred_pages() > PageCount(0x100) || listed(&yard) > 0 {
            taken.push(yard.alloc(Order::ZERO, gfp).unwrap());
        }
        let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
        let (begins, goes_on) = (begun.clone(), go_on.clone());
        yard.watch().back_with(move |_| {
            begins.wait();
            while !goes_on.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Ok(())
        });
        std::thread::scope(|scope| {
            let other = scope.spawn(|| yard.init().next_section(NodeId(0)));
            begun.wait();
            let release = go_on.clone();
            yard.watch().spy_with(move |moment| {
                if moment == Moment::Wait {
                    release.store(true, Ordering::Relaxed);
                }
            });
            while taken.len() < 0x800 {
                let had = yard.alloc(Order::ZERO, gfp);
                go_on.store(had.is_err(), Ordering::Relaxed);
                taken.push(had.unwrap());
            }
            assert_eq!(other.join().unwrap(), Ok(Some(PageCount(0))));
        });
        yard.watch().calm();
        give_back(&yard, &taken);
    }
}
