//! The policy `depot` under threads: no frame is lost or given twice, whatever happens meanwhile.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use crate::busy_yard::{FIRST, PAGES, ZONE, at};
use crate::depot::{BATCH, depot, depot_yard, give, locks, one_shelf, stock, take};
use crate::fixture::random::Random;
use crate::fixture::{Fixture, Moment, order, run_on};
use frameyard::boot::Poisoning;
use frameyard::compaction::CompactRequest;
use frameyard::owners::Owners;
use frameyard::platform::Access;
use frameyard::policy::ZonePolicy;
use frameyard::stats::MechanismCounts;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Gfp, Order, PageCount, Pfn, PfnRange};

thread_local! {
    /// Whether this thread is to stop when it next reads a page.
    static STOPS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `meanwhile` while a thread of CPU 3 stands in a pop, under the lock of its lists. Passes the frame of the page that the thread
/// reads. Returns the frame that the thread allocates.
pub(crate) fn stopped_in_a_pop(yard: &Fixture, meanwhile: impl FnOnce(Pfn)) -> Pfn {
    let gates = Arc::new((Barrier::new(2), Barrier::new(2), Mutex::new(None)));
    let at_gate = gates.clone();
    yard.watch().spy_with(move |moment| {
        if let Moment::Touch(head, Access::Read) = moment
            && STOPS.replace(false)
        {
            *at_gate.2.lock().unwrap() = Some(head);
            at_gate.0.wait();
            at_gate.1.wait();
        }
    });
    let allocated = thread::scope(|scope| {
        let stopped = scope.spawn(|| {
            run_on(3);
            STOPS.set(true);
            yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()
        });
        gates.0.wait();
        meanwhile(gates.2.lock().unwrap().expect("it stands at a page"));
        gates.1.wait();
        stopped.join().unwrap()
    });
    yard.watch().calm();
    allocated
}

#[test]
fn a_thread_stopped_inside_a_pop_neither_blocks_other_threads_nor_loses_frames() {
    const ROUNDS: u64 = 200;
    let yard = one_shelf();
    stock(&yard, Gfp::HIGHUSER_MOVABLE, 6);
    // CPU 3 has nothing: its next allocation pops, and it first reads the head page on top.
    let popped = stopped_in_a_pop(&yard, |head| {
        let mut random = Random::new(1);
        run_on(1);
        for _ in 0..ROUNDS {
            let mut frames = take(&yard, Gfp::HIGHUSER_MOVABLE, 6 * BATCH);
            for at in (1..frames.len()).rev() {
                frames.swap(at, random.below(at as u64 + 1) as usize);
            }
            // The head is first in the batch that is pushed last, so it is on top again, above another batch.
            let place = frames.iter().position(|pfn| *pfn == head).expect("the head was popped");
            frames.swap(place, 3 * BATCH as usize);
            give(&yard, frames);
        }
    });
    give(&yard, [popped]);
    assert!(depot(&yard).get("depot_retries") > 0, "the pop did not retry: {:?}", depot(&yard));
    yard.validate().unwrap();
}

#[test]
fn a_cpu_whose_lists_are_in_use_takes_a_neighbours_rather_than_the_zone_lock() {
    let yard = one_shelf();
    stock(&yard, Gfp::HIGHUSER_MOVABLE, 4);
    let before = locks(&yard);
    let popped = stopped_in_a_pop(&yard, |_| {
        run_on(3);
        give(&yard, take(&yard, Gfp::HIGHUSER_MOVABLE, 10));
        assert_eq!(locks(&yard), before);
    });
    give(&yard, [popped]);
}

/// Takes and gives single frames and blocks, on a CPU that changes; checks that no other thread holds the same frames.
fn work(yard: &Fixture, owners: &[AtomicU64], seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    let kinds =
        [Gfp::HIGHUSER_MOVABLE, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL, Gfp::KERNEL | Gfp::RECLAIMABLE, Gfp::ATOMIC];
    let owner = |pfn: Pfn| &owners[(pfn.0 - FIRST.0) as usize];
    let give_one = |(pfn, order): (Pfn, Order)| {
        for frame in 0..order.pages().0 {
            assert_eq!(owner(pfn + PageCount(frame)).swap(0, Ordering::Relaxed), seed);
        }
        yard.free(pfn, order).unwrap();
    };
    for step in 0..steps {
        if step % 256 == 0 {
            run_on(random.below(4) as u32);
        }
        // A tide, so that whole batches come and go.
        if step / 600 % 2 == 0 {
            let order = order(random.pick(&[0, 0, 0, 0, 0, 0, 0, 1, 3, 6]));
            if let Ok(pfn) = yard.alloc(order, random.pick(&kinds) | Gfp::NOWARN) {
                for frame in 0..order.pages().0 {
                    let before = owner(pfn + PageCount(frame)).swap(seed, Ordering::Relaxed);
                    assert_eq!(before, 0, "{pfn} is held by {before}, too");
                }
                held.push((pfn, order));
            }
        } else if !held.is_empty() {
            give_one(held.swap_remove(random.below(held.len() as u64) as usize));
        }
    }
    held.into_iter().for_each(give_one);
}

fn live(shelves: &[u16], poisoning: Poisoning, steps: u64) {
    const ROUNDS: u64 = 20;
    let yard = depot_yard(shelves, poisoning);
    // Where threads have to wait for a CPU, another policy may be in force for most of a round.
    let both_ways = |found: MechanismCounts| found.get("depot_pushes") > 0 && found.get("depot_collected") > 0;
    let crossed = (0..ROUNDS).any(|round| {
        live_a_while(&yard, round, steps);
        both_ways(depot(&yard))
    });
    assert!(crossed, "{:?}", depot(&yard));
    yard.validate().unwrap();
}

fn live_a_while(yard: &Fixture, round: u64, steps: u64) {
    const WORKERS: u64 = 5;
    let owners: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (owners, over) = (&owners[..], &over);
        scope.spawn(move || {
            let mut random = Random::new(100 * round + 50);
            let policies = [ZonePolicy::Depot, ZonePolicy::Vanilla, ZonePolicy::Depot];
            while !over.load(Ordering::Relaxed) {
                match random.below(6) {
                    0 => yard.drain_all(),
                    1 => _ = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::NONE),
                    2 => _ = yard.set_policy(random.pick(&policies)),
                    3 => yard.zone(ZONE).drain_cpu(CpuId(random.below(4) as u32)),
                    4 => yard.lists().resize(PcpSizing::Fixed(random.pick(&[100, 128, 500, 2000]))),
                    _ => {
                        _ = yard
                            .request_range(at(random.below(PAGES - 64), 64), Gfp::KERNEL)
                            .range()
                            .map(|range| yard.free_range(range).unwrap());
                    }
                }
                thread::yield_now();
            }
        });
        scope.spawn(move || {
            let mut random = Random::new(100 * round + 51);
            while !over.load(Ordering::Relaxed) {
                let range = at(random.below(PAGES / 64) * 64, 64 * (1 + random.below(2)));
                if let Ok(range) =
                    yard.request_range(range.intersection(at(0, PAGES)), Gfp::KERNEL).owners(&Owners::NONE).range()
                {
                    range_is_ours(owners, range);
                    yard.free_range(range).unwrap();
                }
                thread::yield_now();
            }
        });
        let workers: Vec<_> =
            (1..=WORKERS).map(|worker| scope.spawn(move || work(yard, owners, 100 * round + worker, steps))).collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
}

fn range_is_ours(owners: &[AtomicU64], range: PfnRange) {
    for frame in 0..range.count().0 {
        let pfn = range.start + PageCount(frame);
        assert_eq!(owners[(pfn.0 - FIRST.0) as usize].load(Ordering::Relaxed), 0, "{pfn} has another owner");
    }
}

#[test]
fn nothing_is_lost_while_threads_collect_compact_isolate_and_switch() {
    live(&[0; 4], Poisoning::Off, 60_000);
    live(&[0, 0, 1, 2], Poisoning::Off, 60_000);
}

#[test]
fn free_frames_keep_their_poison_in_the_depot() {
    live(&[0, 1, 0, 1], Poisoning::On, 10_000);
}
