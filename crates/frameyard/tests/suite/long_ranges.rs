//! Ranges of many blocks: the zone lock is held for a bounded number of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::clusters;
use crate::fixture::{Fixture, Moment, most_touched_under_a_guard};
use frameyard::platform::LockId;
use frameyard::policy::ZonePolicy;
use frameyard::{AllocError, CpuId, Gfp, Order, PageCount, PfnRange};

/// A yard whose memory is free and single frames, in a list of 8192.
fn of_single_frames() -> Fixture {
    let yard = clusters::yard(ZonePolicy::SkipMerge, 64);
    clusters::give(&yard, clusters::take_all(&yard));
    yard.zone(clusters::ZONE).drain_cpu(CpuId(0));
    assert!(yard.zone(clusters::ZONE).mechanism_counts().get("unmerged_pages") > 6000);
    yard
}

#[test]
fn long_range_is_taken_in_short_holds_of_the_zone_lock() {
    let yard = of_single_frames();
    let range = PfnRange::new(clusters::FIRST, PageCount(clusters::PAGES));
    let most = most_touched_under_a_guard(|| _ = yard.request(range, Gfp::KERNEL).range().unwrap());
    // A maximum-order block in single frames, each with its tag, its neighbours on the list and their links, seen twice.
    assert!(most <= 1024 * 16, "{most} accesses in one hold");
    yard.validate().unwrap();
    yard.free_range(range).unwrap();
}

#[test]
fn long_range_is_put_back_if_another_cpu_takes_a_frame_of_it_meanwhile() {
    for nth in [1, 9, 10, 12, 15] {
        let yard = of_single_frames();
        let range = PfnRange::new(clusters::FIRST, PageCount(clusters::PAGES));
        let view = Arc::new(yard.attach());
        // The spy belongs to the platform, which belongs to the view.
        let other = Arc::downgrade(&view);
        let (locked, taken) = (AtomicU64::new(0), Arc::new(Mutex::new(None)));
        let takes = taken.clone();
        yard.watch().spy_with(move |moment| {
            if matches!(moment, Moment::Lock(LockId::Zone(_))) && locked.fetch_add(1, Ordering::Relaxed) == nth {
                // As a CPU that comes first: this one has not got the lock yet. The newest frame is the last of the range.
                *takes.lock().unwrap() =
                    other.upgrade().map(|view| view.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap());
            }
        });
        let outcome = yard.request(range, Gfp::KERNEL).range();
        yard.watch().calm();
        let taken = taken.lock().unwrap().take().expect("there are more holds");
        assert!(matches!(outcome, Err(AllocError::InUse { head, .. }) if head == taken), "{nth}: {outcome:?}, {taken}");
        yard.free(taken, Order::ZERO).unwrap();
        yard.drain_all();
        yard.validate().unwrap();
        assert_eq!(yard.stats().free_pages(), yard.stats().managed_pages());
    }
}
