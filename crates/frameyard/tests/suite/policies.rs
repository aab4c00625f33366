//! The page-wise policies, as counted and as seen by callers; and changing the policy of a yard in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::fixture::random::Random;
use crate::fixture::{Fixture, Moment, run_on};
use frameyard::platform::LockId;
use frameyard::policy::{PolicyError, ZonePolicy};
use frameyard::units::ZoneKind;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Gfp, MigrateType, NodeId, Order, PageCount, Pfn, ZoneId};

const NORMAL: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);
/// The policies that move page by page.
const SIMPLE: [ZonePolicy; 7] = [
    ZonePolicy::Vanilla,
    ZonePolicy::Vanilla416,
    ZonePolicy::Vanilla417,
    ZonePolicy::BigPcp,
    ZonePolicy::Prefetch,
    ZonePolicy::PrefetchBeforeLock,
    ZonePolicy::LockPerPage,
];

fn yard_of(policy: ZonePolicy) -> Fixture {
    let yard = Fixture::small_under(policy, 2, 32 << 10);
    run_on(0);
    yard
}

fn allocate(yard: &Fixture, count: usize) -> Vec<Pfn> {
    (0..count).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect()
}

fn limits(yard: &Fixture, cpu: u32) -> (u64, u64) {
    let lists = yard.zone(NORMAL).pcp(CpuId(cpu)).unwrap();
    (lists.high.0, lists.batch.0)
}

#[test]
fn every_simple_policy_gives_the_same_frames_in_the_same_order() {
    let run = |policy| {
        let yard = yard_of(policy);
        // The size of the lists decides which frames are fetched: the same for all but big-pcp.
        let mut random = Random::new(7);
        let mut held = Vec::new();
        let mut seen = Vec::new();
        for _ in 0..20_000 {
            if held.is_empty() || random.below(5) < 3 {
                let order = Order([0, 0, 0, 1, 3][random.below(5) as usize]);
                let Ok(pfn) = yard.alloc(order, Gfp::HIGHUSER_MOVABLE) else { continue };
                held.push((pfn, order));
                seen.push(pfn);
            } else {
                let (pfn, order) = held.swap_remove(random.below(held.len() as u64) as usize);
                yard.free(pfn, order).unwrap();
            }
        }
        for (pfn, order) in held {
            yard.free(pfn, order).unwrap();
        }
        yard.validate().unwrap();
        seen
    };
    let vanilla = run(ZonePolicy::Vanilla);
    // Blocks that a drain joins before it frees them take the list positions of blocks merged one by one, except for the order of
    // blocks of the same size: policies that free one by one may allocate in another order.
    for policy in [ZonePolicy::Prefetch, ZonePolicy::PrefetchBeforeLock] {
        assert_eq!(run(policy), vanilla, "{policy}");
    }
    for policy in [ZonePolicy::Vanilla416, ZonePolicy::Vanilla417] {
        assert_eq!(run(policy), run(ZonePolicy::LockPerPage), "{policy}");
    }
}

#[test]
fn frames_merge_again_under_every_simple_policy() {
    for policy in SIMPLE {
        let yard = yard_of(policy);
        let blocks =
            || (0..=10).map(|of| yard.zone(NORMAL).free_blocks(Order(of), MigrateType::Movable)).collect::<Vec<_>>();
        yard.drain_all();
        let before = blocks();
        let held = allocate(&yard, 5000);
        yard.validate().unwrap();
        for pfn in held.into_iter().rev() {
            yard.free(pfn, Order::ZERO).unwrap();
        }
        yard.drain_all();
        assert_eq!(blocks(), before, "{policy}");
    }
}

#[test]
fn lock_per_page_takes_the_lock_for_each_page_and_the_others_for_each_batch() {
    for policy in SIMPLE {
        let yard = yard_of(policy);
        let before = yard.zone(NORMAL).statistics();
        let held = allocate(&yard, 1000);
        for pfn in held {
            yard.free(pfn, Order::ZERO).unwrap();
        }
        yard.drain_all();
        let after = yard.zone(NORMAL).statistics();
        let uses = after.lock.since(before.lock).acquisitions;
        let moved = after.pages_moved - before.pages_moved;
        let transfers = after.refills + after.drains - before.refills - before.drains;
        match policy {
            // A refill that finds no more takes the lock once for nothing; there is more here.
            ZonePolicy::LockPerPage => assert_eq!(uses, moved),
            _ => assert_eq!(uses, transfers, "{policy}"),
        }
        assert!(moved >= 2000 && moved.is_multiple_of(2), "{policy}: {moved}");
    }
}

#[test]
fn vanilla_reads_ahead_before_the_lock_and_older_forms_read_less_or_nothing() {
    let touched_before_lock = |policy| {
        let yard = yard_of(policy);
        let held = allocate(&yard, 3000);
        // The pages that a drain touches between the lock of the lists and that of the zone.
        let (armed, touched) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let seen = Arc::clone(&touched);
        let lists_are_held = Arc::clone(&armed);
        yard.watch().spy_with(move |moment| match moment {
            Moment::Lock(LockId::PerCpu(..)) => lists_are_held.store(true, Ordering::Relaxed),
            Moment::Lock(LockId::Zone(_)) => lists_are_held.store(false, Ordering::Relaxed),
            Moment::Touch(..) if lists_are_held.load(Ordering::Relaxed) => _ = seen.fetch_add(1, Ordering::Relaxed),
            _ => {}
        });
        for pfn in held.iter().step_by(64) {
            yard.free(*pfn, Order::ZERO).unwrap();
        }
        armed.store(false, Ordering::Relaxed);
        touched.store(0, Ordering::Relaxed);
        yard.zone(NORMAL).drain_cpu(CpuId(0));
        yard.watch().calm();
        for (at, pfn) in held.into_iter().enumerate().filter(|(at, _)| at % 64 != 0) {
            assert_eq!(yard.free(pfn, Order::ZERO), Ok(()), "{at}");
        }
        touched.load(Ordering::Relaxed)
    };
    let [today, first_buddies, nothing] =
        [ZonePolicy::Vanilla, ZonePolicy::Vanilla417, ZonePolicy::Vanilla416].map(touched_before_lock);
    assert!(today > first_buddies && first_buddies > 0, "{today}, {first_buddies}");
    assert_eq!(nothing, 0);
}

#[test]
fn prefetching_before_the_lock_touches_the_pages_of_the_refill() {
    let yard = yard_of(ZonePolicy::PrefetchBeforeLock);
    // Single frames on the free list, none of which merges.
    let held = allocate(&yard, 2000);
    for pfn in held.iter().step_by(2) {
        yard.free(*pfn, Order::ZERO).unwrap();
    }
    yard.drain_all();
    let touched = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (seen, locked) = (Arc::clone(&touched), AtomicBool::new(false));
    yard.watch().spy_with(move |moment| match moment {
        Moment::Lock(LockId::Zone(_)) => locked.store(true, Ordering::Relaxed),
        Moment::Touch(pfn, _) if !locked.load(Ordering::Relaxed) => seen.lock().unwrap().push(pfn),
        _ => {}
    });
    let pfn = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    yard.watch().calm();
    let touched = touched.lock().unwrap().clone();
    let batch = yard.zone(NORMAL).pcp(CpuId(0)).unwrap().batch.0 as usize;
    assert!(touched.contains(&pfn));
    assert!(touched.len() >= batch, "{} of a batch of {batch}", touched.len());
    yard.free(pfn, Order::ZERO).unwrap();
    held.into_iter().skip(1).step_by(2).for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
}

#[test]
fn big_pcp_has_its_own_sizes_and_gives_the_lists_back_theirs() {
    let yard = Fixture::small_under(ZonePolicy::Vanilla, 2, 128 << 10);
    let own = limits(&yard, 0);
    assert_ne!(own, (65532, 10922));
    let other = yard.attach();
    yard.set_policy(ZonePolicy::BigPcp).unwrap();
    for cpu in 0..2 {
        assert_eq!(limits(&yard, cpu), (65532, 10922));
    }
    assert_eq!(
        (other.policy(), other.zone(NORMAL).pcp(CpuId(1)).unwrap().high),
        (ZonePolicy::BigPcp, PageCount(65532))
    );
    run_on(0);
    let held = allocate(&yard, 20_000);
    let refills = yard.zone(NORMAL).statistics().refills;
    assert_eq!(refills, 2);
    for pfn in held {
        yard.free(pfn, Order::ZERO).unwrap();
    }
    assert_eq!(yard.zone(NORMAL).statistics().drains, 0);
    yard.validate().unwrap();
    // Sizes that are set meanwhile are those of afterwards.
    yard.lists().resize(PcpSizing::Fixed(100));
    assert_eq!(limits(&yard, 0), (65532, 10922));
    // Another view ends it: what the lists' own sizes are stands in the yard, not in the view.
    other.set_policy(ZonePolicy::Vanilla).unwrap();
    assert_eq!((limits(&yard, 0), limits(&yard, 1)), ((100, 25), (100, 25)));
    assert_eq!(yard.zone(NORMAL).statistics().per_cpu, PageCount(0));
    yard.lists().resize(PcpSizing::Scaled);
    assert_eq!(limits(&yard, 0), own);
}

#[test]
fn a_second_switch_is_refused_when_the_first_does_not_end() {
    let yard = Fixture::small_under(ZonePolicy::Vanilla, 1, 8 << 10);
    run_on(0);
    let inner = yard.attach();
    let seen = Arc::new(AtomicU64::new(0));
    let refused = Arc::clone(&seen);
    let inner = Arc::new(inner);
    // The spy belongs to the platform, which belongs to the view.
    let asked = Arc::downgrade(&inner);
    let busy = AtomicBool::new(false);
    yard.watch().spy_with(move |moment| {
        if matches!(moment, Moment::Lock(LockId::PerCpu(..))) && !busy.swap(true, Ordering::Relaxed) {
            let asked = asked.upgrade().unwrap();
            // Another thread: it may wait, and holds no lock.
            let changed = thread::spawn(move || asked.set_policy(ZonePolicy::Vanilla416)).join().unwrap();
            assert_eq!(changed, Err(PolicyError::Busy));
            refused.fetch_add(1, Ordering::Relaxed);
        }
    });
    yard.set_policy(ZonePolicy::Prefetch).unwrap();
    yard.watch().calm();
    assert_eq!((seen.load(Ordering::Relaxed), yard.policy()), (1, ZonePolicy::Prefetch));
    // And not afterwards.
    inner.set_policy(ZonePolicy::Vanilla416).unwrap();
    assert_eq!(yard.policy(), ZonePolicy::Vanilla416);
}

#[test]
fn policies_change_while_other_cpus_allocate_and_free() {
    let yard = Fixture::small_under(ZonePolicy::Vanilla, 3, 32 << 10);
    let running = AtomicU64::new(2);
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            let (yard, running) = (&yard, &running);
            scope.spawn(move || {
                run_on(cpu);
                let mut random = Random::new(u64::from(cpu));
                for _ in 0..60 {
                    let mut held = allocate(yard, 100 + random.below(400) as usize);
                    while !held.is_empty() {
                        let pfn = held.swap_remove(random.below(held.len() as u64) as usize);
                        yard.free(pfn, Order::ZERO).unwrap();
                    }
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        run_on(2);
        let mut at = 0;
        loop {
            yard.set_policy(SIMPLE[at % SIMPLE.len()]).unwrap();
            at += 1;
            if running.load(Ordering::Relaxed) == 0 {
                break;
            }
        }
    });
    run_on(0);
    yard.set_policy(ZonePolicy::Vanilla).unwrap();
}
