//! Counts of touched lines and locks: lines of page structures per frame that moves between lists and a zone.

use std::cell::Cell;

use crate::fixture::{Fixture, TestPlatform, run_on};
use frameyard::counting::{Counted, CountingPlatform, PageTouches, TaskCounters};
use frameyard::platform::LockKind;
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::{Gfp, NodeId, Order, Pfn, Yard, ZoneId};

const NORMAL: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);

thread_local! {
    static TASK: Cell<u32> = const { Cell::new(0) };
}

type CountingYard<'r, const LINES: usize> = Yard<CountingPlatform<'r, TestPlatform, fn() -> u32, LINES>>;

fn rows<const LINES: usize>(count: usize) -> Vec<TaskCounters<LINES>> {
    std::iter::repeat_with(TaskCounters::default).take(count).collect()
}

/// A view of a yard through which everything is counted.
fn counting<'r, const LINES: usize>(yard: &'r Fixture, rows: &'r [TaskCounters<LINES>]) -> CountingYard<'r, LINES> {
    let who: fn() -> u32 = || TASK.get();
    let platform = CountingPlatform::new(yard.platform(), rows, who);
    // SAFETY: both regions are the yard's and stay mapped as long as the fixture lives, which is borrowed.
    unsafe { Yard::attach(yard.map.raw(), yard.control.raw(), platform) }.unwrap()
}

/// Makes free lists of single frames that do not merge; returns what is to be freed at the end.
fn scatter(yard: &Fixture, count: usize) -> Vec<Pfn> {
    let held: Vec<Pfn> = (0..count).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    for pfn in held.iter().step_by(2) {
        yard.free(*pfn, Order::ZERO).unwrap();
    }
    yard.drain_all();
    held.into_iter().skip(1).step_by(2).collect()
}

/// The counts of allocating and freeing `count` single frames of scattered memory.
fn churn(policy: ZonePolicy, count: usize) -> Counted {
    let yard = Fixture::small_under(policy, 1, 32 << 10);
    run_on(0);
    TASK.set(0);
    let kept = scatter(&yard, 4 * count);
    // Room for all that the last drain touches in one hold.
    let rows = rows::<16384>(1);
    let counting = counting(&yard, &rows);
    let before = counting.platform().counted();
    let held: Vec<Pfn> = (0..count).map(|_| counting.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    for pfn in held {
        counting.free(pfn, Order::ZERO).unwrap();
    }
    counting.drain_all();
    let counted = counting.platform().counted().since(&before);
    kept.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    counted
}

#[test]
fn vanilla_touches_lines_under_the_lock_per_frame() {
    let counted = churn(ZonePolicy::Vanilla, 2000);
    // A frame that is taken off its list is one line, and the next on the list is another that is taken next: together
    // at least one for each frame.
    let refill = counted.refill.lines_under_lock_per_page().unwrap();
    assert!((1.0..3.0).contains(&refill), "{counted:?}");
    // A freed frame is one line, and its buddy, which the merge reads, is another.
    let drain = counted.drain.lines_under_lock_per_page().unwrap();
    assert!((1.0..6.0).contains(&drain), "{counted:?}");
    assert!(counted.drain.outside.lines > 0, "no line was prefetched outside the lock: {counted:?}");
    assert_eq!((counted.forgotten, counted.lost), (0, 0));
}

#[test]
fn bits_move_frames_without_the_zone_lock() {
    let yard = Fixture::small_under(ZonePolicy::Bits, 1, 32 << 10);
    run_on(0);
    TASK.set(0);
    let rows = rows::<1024>(1);
    let counting = counting(&yard, &rows);
    let held: Vec<Pfn> = (0..3000).map(|_| counting.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    held.into_iter().for_each(|pfn| counting.free(pfn, Order::ZERO).unwrap());
    let counted = counting.platform().counted();
    assert_eq!(counted.locks(LockKind::Zone).acquisitions, 0, "{counted:?}");
    assert!(counted.refill.pages.min(counted.drain.pages) > 2000, "too few frames moved: {counted:?}");
}

#[test]
fn counts_agree_with_the_yards_statistics() {
    let yard = Fixture::small_under(ZonePolicy::Vanilla, 1, 32 << 10);
    run_on(0);
    TASK.set(0);
    let rows = rows::<1024>(1);
    let counting = counting(&yard, &rows);
    let before = counting.zone(NORMAL).statistics();
    let held: Vec<Pfn> = (0..3000).map(|_| counting.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    let large = counting.alloc(Order(7), Gfp::KERNEL).unwrap();
    held.into_iter().for_each(|pfn| counting.free(pfn, Order::ZERO).unwrap());
    counting.free(large, Order(7)).unwrap();
    counting.drain_all();
    let after = counting.zone(NORMAL).statistics();
    let counted = counting.platform().counted();
    let holds = after.lock.since(before.lock).acquisitions;
    assert_eq!(counted.locks(LockKind::Zone).acquisitions, holds);
    assert_eq!(counted.refill.spans, after.refills - before.refills);
    assert_eq!(counted.drain.spans, after.drains - before.drains);
    assert_eq!(counted.refill.zone_holds + counted.drain.zone_holds + counted.elsewhere.zone_holds, holds);
    // Every refilled frame was drained, and 128 frames bypassed the lists in both directions.
    let transferred = counted.refill.pages + counted.drain.pages + 2 * 128;
    assert_eq!(transferred, after.pages_moved - before.pages_moved);
    assert_eq!(counted.refill.pages, counted.drain.pages);
    // One to allocate and one to free each, and one for each drain.
    assert!(counted.locks(LockKind::PerCpu).acquisitions >= 6000, "{counted:?}");
    assert_eq!(counted.locks(LockKind::Zone).contended, 0);
}

#[test]
fn counts_prefetches_of_policies() {
    let vanilla = churn(ZonePolicy::Vanilla, 2000);
    assert_eq!((vanilla.refill.under_lock.prefetches, vanilla.refill.outside), (0, PageTouches::default()));
    let prefetch = churn(ZonePolicy::Prefetch, 2000);
    let per_page = prefetch.refill.under_lock.prefetches as f64 / prefetch.refill.pages as f64;
    assert!((0.9..=1.0).contains(&per_page), "{prefetch:?}");
    let ahead = churn(ZonePolicy::PrefetchBeforeLock, 2000);
    assert_eq!(ahead.refill.under_lock.prefetches, 0);
    let per_page = ahead.refill.outside.lines as f64 / ahead.refill.pages as f64;
    assert!((0.9..=1.1).contains(&per_page), "{ahead:?}");
    // It asks for lines earlier, not for fewer.
    assert_eq!(ahead.refill.under_lock.lines, vanilla.refill.under_lock.lines);
    assert_eq!(prefetch.refill.under_lock.lines, vanilla.refill.under_lock.lines);
}

#[test]
fn counts_lines_again_in_each_hold() {
    let each = churn(ZonePolicy::LockPerPage, 2000);
    assert_eq!(each.refill.zone_holds, each.refill.pages);
    assert_eq!(each.drain.zone_holds, each.drain.pages);
    let vanilla = churn(ZonePolicy::Vanilla, 2000);
    assert!(each.refill.under_lock.lines > vanilla.refill.under_lock.lines, "{each:?} {vanilla:?}");
}

#[test]
fn counts_a_line_once_per_hold() {
    let counted = churn(ZonePolicy::Vanilla, 2000);
    let under_lock = counted.refill.under_lock;
    assert!(under_lock.accesses > 2 * under_lock.lines, "{under_lock:?}");
    assert!(under_lock.lines <= 2 * counted.refill.pages + counted.refill.spans, "{counted:?}");
}

#[test]
fn reports_lines_that_it_cannot_remember() {
    let yard = Fixture::small_under(ZonePolicy::Vanilla, 1, 32 << 10);
    run_on(0);
    TASK.set(0);
    let kept = scatter(&yard, 2000);
    let rows = rows::<4>(1);
    let counting = counting(&yard, &rows);
    let pfn = counting.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    let counted = counting.platform().counted();
    assert_eq!(counted.refill.lines_under_lock(), 3, "three quarters of 4");
    assert!(counted.forgotten > 0);
    counting.free(pfn, Order::ZERO).unwrap();
    kept.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
}

#[test]
fn tasks_without_counters_count_as_lost() {
    let yard = Fixture::small_under(ZonePolicy::Vanilla, 2, 32 << 10);
    let rows = rows::<1024>(2);
    let counting = counting(&yard, &rows);
    let work = |task: u32| {
        run_on(task % 2);
        TASK.set(task);
        let held: Vec<Pfn> = (0..1000).map(|_| counting.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
        held.into_iter().for_each(|pfn| counting.free(pfn, Order::ZERO).unwrap());
    };
    std::thread::scope(|scope| {
        for task in 0..2 {
            scope.spawn(move || work(task));
        }
    });
    let counted = counting.platform().counted();
    assert_eq!(counted.lost, 0);
    // What a CPU did past its lists is direct; the rest of the zone's holds were refills and drains.
    let statistics = counting.zone(NORMAL).statistics();
    assert_eq!(counted.refill.spans, statistics.refills);
    assert_eq!(counted.drain.spans, statistics.drains);
    std::thread::scope(|scope| {
        scope.spawn(|| work(2));
    });
    let later = counting.platform().counted();
    assert!(later.lost > 0, "row 0 is task 0's");
    assert_eq!(later.refill, counted.refill);
    yard.drain_all();
}
