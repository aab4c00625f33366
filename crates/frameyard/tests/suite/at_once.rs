//! The common parts of an allocation and a free, apart from the rest: what each leaves to the caller.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fixture::HeapRegion;
use frameyard::alloc::{AllocAtOnce, FreeAtOnce, FreeProblem};
use frameyard::boot::ZoneLimits;
use frameyard::platform::{OwnList, SequencesNotEnded};
use frameyard::{CpuId, Gfp, Layout, MemoryTable, NodeId, Order, Pfn, PfnRange, Platform, Yard, YardConfig};

/// A machine with one CPU.
#[derive(Debug)]
struct OneCpu {
    has_sequences: bool,
    /// The pauses after which another thread gives up the lists, each time that a thread takes them.
    pauses: u32,
    pauses_left: AtomicU32,
}

impl Platform for OneCpu {
    type Guard = ();
    fn guard(&self) {}
    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn spin(&self, round: u32) {
        assert!(round < 1000, "no other CPU has a lock");
        let _ = self.pauses_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    }
    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
    fn has_sequences(&self) -> bool {
        self.has_sequences
    }
    fn take_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> bool {
        if self.pauses_left.load(Ordering::Relaxed) > 0 {
            return false;
        }
        self.pauses_left.store(self.pauses, Ordering::Relaxed);
        self.current_cpu() == cpu && list.take(|| true)
    }
    fn end_sequences(&self, _cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        Ok(())
    }
}

/// Most of the memory: the largest run.
const LARGEST_RUN: PfnRange = PfnRange { start: Pfn(0x8000), end: Pfn(0x10000) };
/// Memory behind a hole of many sections.
const OTHER_RUN: PfnRange = PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_2000) };

/// Runs a test on a yard, which is valid and has all its frames afterwards.
fn with_yard(memory: &[PfnRange], has_sequences: bool, test: impl FnOnce(&Yard<OneCpu>)) {
    with_yard_on(OneCpu { has_sequences, pauses: 0, pauses_left: AtomicU32::new(0) }, memory, test);
}

/// The same on that machine.
fn with_yard_on(platform: OneCpu, memory: &[PfnRange], test: impl FnOnce(&Yard<OneCpu>)) {
    let memory: Vec<(PfnRange, NodeId)> = memory.iter().map(|range| (*range, NodeId(0))).collect();
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0)]) };
    let layout = Layout::plan(&table, &config).unwrap();
    let (map, control) = (HeapRegion::new(layout.map_bytes()), HeapRegion::new(layout.control_bytes()));
    // SAFETY: the regions are as large as planned and zeroed, and both outlive the yard.
    let yard = unsafe { Yard::create(&table, &config, &layout, map.raw(), control.raw(), platform) }.unwrap();
    let free = yard.stats().free_pages();
    test(&yard);
    assert_eq!(yard.stats().free_pages(), free);
    yard.validate().unwrap();
}

fn all_frames(yard: &Yard<OneCpu>) -> Vec<Pfn> {
    std::iter::from_fn(|| yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN).ok()).collect()
}

#[test]
fn blocks_of_the_own_list_come_and_go_at_once() {
    with_yard(&[LARGEST_RUN], true, |yard| {
        for order in [Order::ZERO, Order(3), Order(9)] {
            assert!(matches!(yard.at_once().alloc(order, Gfp::KERNEL), AllocAtOnce::Nothing), "the list is empty");
            let pfn = yard.alloc(order, Gfp::KERNEL).unwrap();
            assert!(matches!(yard.at_once().free(pfn, order), FreeAtOnce::Done));
            let AllocAtOnce::Done(again) = yard.at_once().alloc(order, Gfp::KERNEL) else {
                panic!("a block is listed")
            };
            assert_eq!(again, pfn);
            let other = Order(order.0 + 1);
            assert!(matches!(yard.at_once().free(pfn, other), FreeAtOnce::Nothing), "another order is refused");
            assert!(matches!(yard.at_once().free(pfn, order), FreeAtOnce::Done));
            assert!(matches!(yard.at_once().free(pfn, order), FreeAtOnce::Nothing), "it is free already");
            assert!(matches!(yard.free(pfn, order).unwrap_err().problem, FreeProblem::AlreadyFree(_)));
        }
        for flags in [Gfp::ZERO, Gfp::THISNODE, Gfp::MOVABLE | Gfp::RECLAIMABLE] {
            assert!(matches!(yard.at_once().alloc(Order::ZERO, Gfp::KERNEL | flags), AllocAtOnce::Nothing));
        }
    });
}

#[test]
fn a_free_onto_a_full_list_is_finished_by_the_caller() {
    with_yard(&[LARGEST_RUN, OTHER_RUN], true, |yard| {
        let mut unfinished = 0;
        let (largest, others): (Vec<Pfn>, Vec<Pfn>) =
            all_frames(yard).into_iter().partition(|pfn| LARGEST_RUN.contains(*pfn));
        for pfn in largest {
            match yard.at_once().free(pfn, Order::ZERO) {
                FreeAtOnce::Done => {}
                FreeAtOnce::Nothing => panic!("{pfn} is allocated"),
                FreeAtOnce::Unfinished(free) => {
                    unfinished += 1;
                    free.finish().unwrap();
                }
            }
        }
        assert!(unfinished > 0);
        others.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    });
}

#[test]
fn blocks_far_from_most_are_finished_by_the_caller() {
    with_yard(&[LARGEST_RUN, OTHER_RUN], true, |yard| {
        let frames = all_frames(yard);
        let other = *frames.iter().find(|pfn| OTHER_RUN.contains(**pfn)).expect("all frames are allocated");
        assert!(matches!(yard.at_once().free(other, Order::ZERO), FreeAtOnce::Nothing));
        yard.free(other, Order::ZERO).unwrap();
        match yard.at_once().alloc(Order::ZERO, Gfp::KERNEL) {
            AllocAtOnce::Unfinished(alloc) => assert_eq!(alloc.finish().unwrap(), other),
            other => panic!("{other:?}"),
        }
        frames.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    });
}

#[test]
fn blocks_come_and_go_at_once_under_the_lock_of_the_list() {
    with_yard(&[LARGEST_RUN], false, |yard| {
        for order in [Order::ZERO, Order(3), Order(9)] {
            assert!(
                matches!(yard.at_once().alloc_locked(order, Gfp::KERNEL), AllocAtOnce::Nothing),
                "the list is empty"
            );
            let pfn = yard.alloc(order, Gfp::KERNEL).unwrap();
            assert!(matches!(yard.at_once().alloc(order, Gfp::KERNEL), AllocAtOnce::Nothing), "there are no sequences");
            assert!(matches!(yard.at_once().free_locked(pfn, order), FreeAtOnce::Done));
            let AllocAtOnce::Done(again) = yard.at_once().alloc_locked(order, Gfp::KERNEL) else {
                panic!("a block is listed")
            };
            assert_eq!(again, pfn);
            let other = Order(order.0 + 1);
            assert!(matches!(yard.at_once().free_locked(pfn, other), FreeAtOnce::Nothing), "another order is refused");
            assert!(matches!(yard.at_once().free_locked(pfn, order), FreeAtOnce::Done));
            assert!(matches!(yard.at_once().free_locked(pfn, order), FreeAtOnce::Nothing), "it is free already");
        }
        for flags in [Gfp::ZERO, Gfp::THISNODE, Gfp::MOVABLE | Gfp::RECLAIMABLE] {
            assert!(matches!(yard.at_once().alloc_locked(Order::ZERO, Gfp::KERNEL | flags), AllocAtOnce::Nothing));
        }
        let frames = all_frames(yard);
        let mut unfinished = 0;
        for pfn in frames {
            match yard.at_once().free_locked(pfn, Order::ZERO) {
                FreeAtOnce::Done => {}
                FreeAtOnce::Nothing => panic!("{pfn} is allocated"),
                FreeAtOnce::Unfinished(free) => {
                    unfinished += 1;
                    free.finish().unwrap();
                }
            }
        }
        assert!(unfinished > 0, "lists have limits");
    });
    with_yard(&[LARGEST_RUN], true, |yard| {
        let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        assert!(matches!(yard.at_once().free_locked(pfn, Order::ZERO), FreeAtOnce::Nothing), "sequences need no lock");
        yard.free(pfn, Order::ZERO).unwrap();
        assert!(matches!(yard.at_once().alloc_locked(Order::ZERO, Gfp::KERNEL), AllocAtOnce::Nothing));
    });
}

#[test]
fn nothing_happens_at_once_without_sequences() {
    with_yard(&[LARGEST_RUN], false, |yard| {
        let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        match yard.at_once().free(pfn, Order::ZERO) {
            FreeAtOnce::Unfinished(free) => free.finish().unwrap(),
            other => panic!("{other:?}"),
        }
        assert!(matches!(yard.at_once().alloc(Order::ZERO, Gfp::KERNEL), AllocAtOnce::Nothing));
    });
}

#[test]
fn requests_pause_while_another_thread_has_the_lists() {
    let platform = OneCpu { has_sequences: true, pauses: 9, pauses_left: AtomicU32::new(0) };
    with_yard_on(platform, &[LARGEST_RUN], |yard| {
        let locks = || yard.stats().zones().map(|zone| zone.lock.acquisitions).sum::<u64>();
        let round = || {
            let frames = Vec::from_iter((0..2000).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()));
            frames.into_iter().for_each(|frame| yard.free(frame, Order::ZERO).unwrap());
        };
        round();
        let before = locks();
        round();
        assert_eq!(locks() - before, 0, "no request went to the zone instead");
    });
}
