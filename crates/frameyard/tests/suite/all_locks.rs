//! All locks of a yard at once, as `fork` handlers take them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::devices;
use crate::emptying;
use crate::fixture::{Fixture, HeapRegion, Moment, run_on};
use frameyard::boot::ZoneLimits;
use frameyard::platform::{LockError, LockId, LockKind, SequencesNotEnded};
use frameyard::{CpuId, Gfp, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, Yard, YardConfig};

/// The kinds in lock order.
const ORDER: [LockKind; 4] = [LockKind::PerCpu, LockKind::Zone, LockKind::HugePages, LockKind::Devices];

#[test]
fn all_locks_are_taken_in_their_order_and_others_wait_until_they_are_released() {
    let yard = devices::yard();
    let taken = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&taken);
    yard.watch().spy_with(move |moment| {
        if let Moment::Lock(id) = moment {
            seen.lock().unwrap().push(id);
        }
    });
    let guard = yard.platform().guard();
    yard.lock_all().unwrap();
    yard.watch().calm();
    let taken: Vec<LockId> = std::mem::take(&mut *taken.lock().unwrap());
    let place = |id: &LockId| ORDER.iter().position(|kind| *kind == id.kind()).expect("a kind of the list");
    assert!(taken.is_sorted_by_key(place), "{taken:?}");
    let count = |kind| taken.iter().filter(|id| id.kind() == kind).count();
    let zones = count(LockKind::Zone);
    let cpus = yard.cpus() as usize;
    assert!(zones > 1 && cpus > 1);
    assert_eq!(count(LockKind::Devices), 1);
    assert_eq!(count(LockKind::HugePages), 2 * zones, "of two sizes");
    assert_eq!(count(LockKind::PerCpu), 2 * zones * cpus, "both owner words");
    let is_drained = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            yard.drain_all();
            is_drained.store(true, Ordering::Relaxed);
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!is_drained.load(Ordering::Relaxed), "a drain waits for the lists");
        // SAFETY: this thread has all locks, and the other threads of the process go on.
        unsafe { yard.unlock_all() };
    });
    drop(guard);
    let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    yard.free(pfn, Order::ZERO).unwrap();
}

/// Frees frames until a free past the lists has made `changes` changes without a lock, where its thread ends. Whether one did.
fn end_a_free(yard: &Fixture, frames: &mut Vec<Pfn>, changes: u32) -> bool {
    let seen = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&seen);
    yard.watch().spy_with(move |moment| {
        if moment == Moment::ChangeFree && count.fetch_add(1, Ordering::Relaxed) == changes {
            std::panic::resume_unwind(Box::new(()));
        }
    });
    let has_ended = std::iter::from_fn(|| frames.pop()).any(|pfn| {
        seen.store(0, Ordering::Relaxed);
        catch_unwind(AssertUnwindSafe(|| yard.free(pfn, Order::ZERO))).is_err()
    });
    yard.watch().calm();
    has_ended
}

#[test]
fn a_copy_is_sound_wherever_a_free_past_the_lists_has_stopped() {
    let mut unsound = 0;
    for changes in 0.. {
        let (mut yard, mut frames, _) = emptying::in_use(0xf0f0 + u64::from(changes));
        yard.watch().lose_thread();
        let has_ended = end_a_free(&yard, &mut frames, changes);
        unsound += u32::from(yard.validate().is_err());
        let guard = yard.platform().guard();
        yard.lock_all().unwrap();
        // SAFETY: this thread has all locks, and the thread that ended is gone.
        unsafe { yard.unlock_all_of_copy() };
        drop(guard);
        yard.validate().unwrap();
        frames.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
        let lost = yard.stats().managed_pages() - yard.stats().free_pages();
        assert!(lost <= PageCount(has_ended.into()), "at most the frame that was being freed");
        yard.keep(lost);
        if !has_ended {
            assert!(unsound > 0, "no stop left counts or lists behind the bits");
            return;
        }
    }
}

/// A platform whose restartable sequences cannot be ended.
struct Endless;

impl Platform for Endless {
    type Guard = ();
    fn guard(&self) {}
    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn spin(&self, round: u32) {
        assert!(round < 1000, "a lock is free");
    }
    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
    fn has_sequences(&self) -> bool {
        true
    }
    fn end_sequences(&self, _cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        Err(SequencesNotEnded)
    }
}

#[test]
fn no_lock_stays_held_if_sequences_cannot_be_ended() {
    run_on(0);
    let memory = [(PfnRange::new(Pfn(0x8000), PageCount(0x2000)), NodeId(0))];
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0); 2]) };
    let layout = Layout::plan(&table, &config).unwrap();
    let (map, control) = (HeapRegion::new(layout.map_bytes()), HeapRegion::new(layout.control_bytes()));
    // SAFETY: the regions are as large as planned and zeroed, and both outlive the yard.
    let yard = unsafe { Yard::create(&table, &config, &layout, map.raw(), control.raw(), Endless) }.unwrap();
    for _ in 0..2 {
        assert!(matches!(yard.lock_all(), Err(LockError::SequencesNotEnded { .. })));
    }
    let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    yard.free(pfn, Order::ZERO).unwrap();
}
