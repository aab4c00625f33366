//! Threads look up and use pages of devices while other threads split, join, map and remove them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::devices::{HUGE, frames, request, yard};
use crate::fixture::random::Random;
use crate::fixture::run_on;
use frameyard::devices::{DeviceError, MapLayout, Removal};
use frameyard::{Order, PageCount, Pfn, PfnRange};

const PAGES: u64 = 4;
const ROUNDS: u64 = 3_000;

/// The page that was found covers the frame as long as there are references on it.
fn use_pages(yard: &crate::fixture::Fixture, seed: u64, stop: &AtomicBool, got: &AtomicU64) {
    let mut random = Random::new(seed);
    let range = frames(0, PAGES * 512);
    while !stop.load(Ordering::Relaxed) {
        let pfn = range.start + PageCount(random.below(range.count().0));
        let Some(page) = yard.devices().page(pfn).filter(|page| page.try_get(3)) else { continue };
        let tag = page.tag();
        let covers = PfnRange::new(page.head(), tag.order().pages()).contains(pfn);
        assert!(covers && tag.order() == page.order(), "{pfn}: {page:?}, {tag:?}");
        assert!(page.counts().references >= 4);
        // SAFETY: got above.
        assert!(unsafe { page.put(3) }.unwrap() >= 1);
        got.fetch_add(1, Ordering::Relaxed);
    }
}

fn split_and_join(yard: &crate::fixture::Fixture, seed: u64) {
    let mut random = Random::new(seed);
    for _ in 0..ROUNDS {
        let head = frames(512 * random.below(PAGES), 1).start;
        let answer = if random.below(2) == 0 { yard.devices().split(head) } else { yard.devices().join(head) };
        let busy = matches!(
            answer,
            Err(DeviceError::Busy(_)
                | DeviceError::InUse { .. }
                | DeviceError::NotDevice(_)
                | DeviceError::NoSuchDevice(_))
        );
        let done = matches!(answer, Ok(()) | Err(DeviceError::IsSplit(_) | DeviceError::NotSplit(_)));
        let other_order = matches!(answer, Err(DeviceError::BasePages(_) | DeviceError::LayoutCannotSplit(_)));
        assert!(busy || done || other_order, "{answer:?}");
    }
}

fn map_and_remove(yard: &crate::fixture::Fixture, seed: u64) {
    let mut random = Random::new(seed);
    for _ in 0..ROUNDS / 20 {
        let layout = MapLayout::ALL[random.below(3) as usize];
        let order = if random.below(4) == 0 { Order::ZERO } else { HUGE };
        let removal = Removal::ALL[random.below(2) as usize];
        let device = yard.devices().list().next().map(|device| device.id);
        let answer = device.map_or(Ok(()), |device| yard.devices().unmap(device, removal));
        match answer {
            Ok(()) => {
                yard.devices().map(request(frames(0, PAGES * 512), order, layout)).unwrap();
            }
            Err(DeviceError::Busy(_) | DeviceError::InUse { .. }) => {}
            Err(problem) => panic!("{problem}"),
        }
    }
}

#[test]
fn references_stay_on_the_counting_page() {
    let yard = yard();
    yard.devices().map(request(frames(0, PAGES * 512), HUGE, MapLayout::Deduplicated)).unwrap();
    let (stop, got) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for user in 0..2 {
            let (yard, stop, got) = (&yard, &stop, &got);
            scope.spawn(move || {
                run_on(user);
                use_pages(yard, u64::from(user) + 1, stop, got);
            });
        }
        let changers = [
            scope.spawn(|| split_and_join(&yard, 11)),
            scope.spawn(|| split_and_join(&yard, 12)),
            scope.spawn(|| map_and_remove(&yard, 13)),
        ];
        let ended: Vec<_> = changers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    yard.validate().unwrap();
    assert!(got.load(Ordering::Relaxed) > 0);
    let device = yard.devices().list().next().unwrap().id;
    yard.devices().unmap(device, Removal::Refuse).unwrap();
    assert!((0..PAGES * 512).all(|at| yard.page_words(Pfn(frames(0, 1).start.0 + at)) == [0; 8]));
}
