//! Frames that go offline and come back: counts, refusals, and both beside threads that allocate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::busy_yard::{FIRST, Made, PAGES, ZONE, at, fill, made};
use crate::fixture::random::Random;
use crate::fixture::{Fixture, run_on};
use crate::movers::{KIND, Movers};
use frameyard::contig::{BlockedBy, OnlineError};
use frameyard::owners::Owners;
use frameyard::page::FrameState;
use frameyard::{AllocError, Gfp, Order, PageCount, Pfn, PfnRange};

/// The zone's present, managed and free frames.
fn counts(yard: &Fixture) -> [u64; 3] {
    yard.drain_all();
    let zone = yard.zone(ZONE).statistics();
    [zone.present.0, zone.managed.0, zone.free.0]
}

fn without(counts: [u64; 3], pages: u64) -> [u64; 3] {
    counts.map(|count| count - pages)
}

#[test]
fn offline_frames_leave_all_counts_and_come_back() {
    let yard = made(&Made::default());
    let before = counts(&yard);
    // Whole maximum-order blocks, parts of pageblocks, the last frame.
    let ranges = [at(0, 512), at(1100, 3), at(1300, 777), at(PAGES - 1, 1)];
    let mut left = before;
    for range in ranges {
        yard.offline(range, &Owners::NONE).unwrap();
        left = without(left, range.count().0);
        assert_eq!(counts(&yard), left);
        yard.validate().unwrap();
    }
    assert_eq!(yard.stats().frame(FIRST).unwrap().state, FrameState::Offline);
    assert!(yard.free(FIRST, Order(8)).is_err(), "nobody can free them");
    let all: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(Order::ZERO, Gfp::ATOMIC).ok()).collect();
    assert!(all.iter().all(|pfn| ranges.iter().all(|range| !range.contains(*pfn))), "nobody can allocate them");
    all.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    for range in ranges {
        yard.online(range).unwrap();
        yard.validate().unwrap();
    }
    assert_eq!(counts(&yard), before);
}

#[test]
fn a_part_that_consists_of_whole_blocks_comes_back_alone() {
    let yard = made(&Made::default());
    let before = counts(&yard);
    yard.offline(at(0, 512), &Owners::NONE).unwrap();
    let part = OnlineError::PartOfBlock { head: FIRST, order: Order(8) };
    assert_eq!(yard.online(at(0, 100)), Err(part));
    yard.online(at(256, 256)).unwrap();
    assert_eq!(counts(&yard), without(before, 256));
    let online = yard.online(at(0, 512));
    assert!(matches!(online, Err(OnlineError::NotOffline { pfn, .. }) if pfn == at(256, 1).start), "{online:?}");
    assert_eq!(counts(&yard), without(before, 256));
    yard.online(at(0, 256)).unwrap();
}

#[test]
fn refuses_holes_and_frames_in_use_or_offline() {
    let yard = made(&Made { reserved: &[at(2048, 1)], cma: &[at(3072, 256)], ..Made::default() });
    let used = yard.alloc(Order(2), Gfp::KERNEL).unwrap();
    let of = |pfn| PfnRange::new(pfn, PageCount(1));
    let gone = at(1024, 256);
    yard.offline(gone, &Owners::NONE).unwrap();
    let before = counts(&yard);
    for (range, why, state) in [
        (of(used), BlockedBy::Unmovable, FrameState::Allocated),
        (at(1000, 100), BlockedBy::Offline, FrameState::Offline),
        (at(2000, 100), BlockedBy::Reserved, FrameState::Reserved),
        (at(PAGES - 1, 2), BlockedBy::Hole, FrameState::Interior),
    ] {
        match yard.offline(range, &Owners::NONE) {
            Err(AllocError::Blocked(blocker)) => assert_eq!((blocker.why, blocker.state), (why, state)),
            other => panic!("{range}: {other:?}"),
        }
    }
    let area = yard.offline(at(3072, 64), &Owners::NONE);
    assert!(matches!(area, Err(AllocError::Blocked(blocker)) if blocker.why == BlockedBy::Area), "{area:?}");
    assert_eq!(yard.offline(at(7, 0), &Owners::NONE), Err(AllocError::Empty));
    let allocated = OnlineError::NotOffline { pfn: used, state: FrameState::Allocated };
    assert_eq!(yard.online(of(used)), Err(allocated));
    let hole = OnlineError::NotOffline { pfn: at(PAGES, 1).start, state: FrameState::Interior };
    assert_eq!(yard.online(at(PAGES, 1)), Err(hole));
    assert_eq!(counts(&yard), before, "nothing has changed");
    yard.online(gone).unwrap();
    yard.free(used, Order(2)).unwrap();
}

#[test]
fn owners_move_their_blocks_out_of_the_range() {
    let yard = made(&Made::default());
    let movers = Movers::new(&yard);
    fill(&yard, &movers, &mut Random::new(3), 30);
    let owners = Owners::NONE.with(KIND, &movers);
    yard.offline(at(512, 1024), &owners).unwrap();
    assert!(movers.moved.load(Ordering::Relaxed) > 0, "something was in the way");
    yard.validate().unwrap();
    movers.check_all();
    yard.online(at(512, 1024)).unwrap();
    movers.give_all_back();
}

#[test]
fn ranges_go_and_come_back_beside_threads_that_allocate() {
    let yard = made(&Made::default());
    let before = counts(&yard);
    let is_done = AtomicBool::new(false);
    let gone = thread::scope(|scope| {
        for cpu in 0..2 {
            let (yard, is_done) = (&yard, &is_done);
            scope.spawn(move || {
                run_on(cpu);
                let mut random = Random::new(u64::from(cpu));
                let mut held = Vec::new();
                while !is_done.load(Ordering::Relaxed) {
                    let order = Order(random.below(4) as u8);
                    match yard.alloc(order, Gfp::HIGHUSER_MOVABLE) {
                        Ok(pfn) if held.len() < 64 => held.push((pfn, order)),
                        Ok(pfn) => yard.free(pfn, order).unwrap(),
                        Err(_) => {}
                    }
                    if random.below(2) == 0 && !held.is_empty() {
                        let (pfn, order) = held.swap_remove(random.below(held.len() as u64) as usize);
                        yard.free(pfn, order).unwrap();
                    }
                }
                held.into_iter().for_each(|(pfn, order)| yard.free(pfn, order).unwrap());
            });
        }
        let mover = |cpu: u32| {
            let yard = &yard;
            move || {
                run_on(cpu);
                let mut random = Random::new(u64::from(cpu));
                let (mut offline, mut rounds) = (Vec::new(), 0);
                for _ in 0..60 {
                    let range = at(64 * random.below(PAGES / 64 - 4), 1 + random.below(200));
                    if yard.offline(range, &Owners::NONE).is_ok() {
                        offline.push(range);
                        rounds += 1;
                    }
                    if offline.len() > 4 {
                        let range = offline.swap_remove(random.below(4) as usize);
                        yard.online(range).unwrap();
                    }
                }
                offline.into_iter().for_each(|range| yard.online(range).unwrap());
                rounds
            }
        };
        let movers = [2, 3].map(|cpu| scope.spawn(mover(cpu)));
        let gone: u32 = movers.map(|mover| mover.join().unwrap()).into_iter().sum();
        is_done.store(true, Ordering::Relaxed);
        gone
    });
    assert!(gone > 10, "{gone} ranges went offline");
    yard.validate().unwrap();
    assert_eq!(counts(&yard), before);
}
