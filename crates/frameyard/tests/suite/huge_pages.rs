//! Pools of huge pages: what is reserved, handed out, taken back and given up, and what is refused.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, MapCall, Moment, STORES, run_on};
use frameyard::alloc::FreeProblem;
use frameyard::boot::{InitMode, Initialiser, MapInit, ZoneLimits};
use frameyard::contig::BlockedBy;
use frameyard::huge_pages::{HugePageError, HugePageSize, HugePoolStatistics};
use frameyard::owners::Owners;
use frameyard::page::{FrameState, MapContent};
use frameyard::platform::{Access, MapNotBacked};
use frameyard::policy::ZonePolicy;
use frameyard::validate::ValidateError;
use frameyard::{AllocError, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};

use HugePageSize::{Gigantic, Huge};

/// 4 KiB of structures stay for the head: of 8 and 4096 map pages, 7 and 4095 are released.
const RELEASED: u64 = 7 * 4096;
const RELEASED_GIGANTIC: u64 = 4095 * 4096;

/// 64 MiB on node 0, and 32 MiB on node 1.
fn yard() -> Fixture {
    yard_with(MapInit::default())
}

fn yard_with(map_init: MapInit) -> Fixture {
    yard_under(ZonePolicy::default(), map_init)
}

fn yard_under(policy: ZonePolicy, map_init: MapInit) -> Fixture {
    run_on(0);
    let memory = [(frames(0x8000, 0x4000), NodeId(0)), (frames(0x10000, 0x2000), NodeId(1))];
    let cpus = [NodeId(0), NodeId(1), NodeId(0), NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, map_init, policy, ..YardConfig::new(&cpus) };
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

/// 3 GiB from 1 GiB and 4 MiB on: room for two gigantic pages.
fn large_yard() -> Fixture {
    run_on(0);
    let memory = [(frames((1 << 18) + 1024, 3 << 18), NodeId(0))];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0); 2]) };
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

fn frames(start: u64, count: u64) -> PfnRange {
    PfnRange::new(Pfn(start), PageCount(count))
}

fn reserve(yard: &Fixture, size: HugePageSize, pages: u64) -> u64 {
    yard.huge_pages().reserve(size, pages, &Owners::NONE).unwrap().pages
}

fn counts(yard: &Fixture, size: HugePageSize) -> [u64; 3] {
    let HugePoolStatistics { pages, free, map_returned } = yard.huge_pages().statistics(size);
    [pages, free, map_returned.0]
}

#[test]
fn pages_are_reserved_handed_out_taken_back_and_given_up() {
    for policy in STORES {
        let yard = yard_under(policy, MapInit::default());
        let free = yard.stats().free_pages();
        assert_eq!(reserve(&yard, Huge, 5), 5);
        assert_eq!(counts(&yard, Huge), [5, 5, 5 * RELEASED]);
        assert_eq!(yard.stats().free_pages().0, free.0 - 5 * 512);
        yard.validate().unwrap();
        let pages: Vec<_> = (0..5).map(|_| yard.huge_pages().alloc(Huge).unwrap()).collect();
        let heads: BTreeSet<Pfn> = pages.iter().map(|page| page.pfn()).collect();
        assert_eq!(heads.len(), 5, "each page is handed out once");
        for page in &pages {
            assert_eq!((page.frames().count(), page.users().references), (PageCount(512), 1));
            let inside = page.pfn() + PageCount(300);
            assert_eq!(yard.huge_pages().at(inside), Some((page.pfn(), Huge)));
            let info = yard.stats().frame(inside).unwrap();
            assert_eq!((info.state, info.head, info.order), (FrameState::Pooled, page.pfn(), Order(9)));
        }
        let exhausted = yard.huge_pages().alloc(Huge).unwrap_err();
        assert_eq!(exhausted, HugePageError::Exhausted(Huge));
        assert_eq!(yard.huge_pages().shrink(Huge, 5), Ok(0), "pages that are handed out stay");
        yard.validate().unwrap();
        drop(pages);
        assert_eq!(counts(&yard, Huge), [5, 5, 5 * RELEASED]);
        assert_eq!(yard.huge_pages().shrink(Huge, 2), Ok(2));
        assert_eq!(counts(&yard, Huge), [3, 3, 3 * RELEASED]);
        yard.validate().unwrap();
        assert_eq!(yard.huge_pages().shrink(Huge, u64::MAX), Ok(3));
        assert_eq!(counts(&yard, Huge), [0; 3]);
        assert_eq!(yard.stats().free_pages(), free);
    }
}

#[test]
fn a_gigantic_page_is_one_page_of_a_pool() {
    let yard = large_yard();
    let free = yard.stats().free_pages();
    let reserved = yard.huge_pages().reserve(Gigantic, 3, &Owners::NONE).unwrap();
    assert_eq!(reserved.pages, 2, "the yard has room for two");
    assert!(matches!(reserved.stopped, Some(AllocError::Blocked(_) | AllocError::NoPlace { .. })), "{reserved:?}");
    assert_eq!(counts(&yard, Gigantic), [2, 2, 2 * RELEASED_GIGANTIC]);
    assert_eq!(counts(&yard, Huge), [0; 3]);
    yard.validate().unwrap();
    let page = yard.huge_pages().alloc(Gigantic).unwrap();
    assert!(page.pfn().is_aligned(Order(18)));
    for offset in [0, 1, 1 << 10, (1 << 18) - 1] {
        let info = yard.stats().frame(page.pfn() + PageCount(offset)).unwrap();
        assert_eq!((info.state, info.head, info.order), (FrameState::Pooled, page.pfn(), Order(18)));
    }
    let inside = page.pfn() + PageCount(1 << 10);
    let refused = yard.free(inside, Order(10)).unwrap_err().problem;
    let state = FrameState::Pooled;
    assert_eq!(refused, FreeProblem::InsideBlock { head: page.pfn(), order: Order(18), state });
    assert_eq!(yard.free(page.pfn(), Order(10)).unwrap_err().problem, FreeProblem::NotAllocated(state));
    let wanted = PfnRange::new(inside, PageCount(64));
    match yard.request(wanted, Gfp::KERNEL).owners(&Owners::NONE).range() {
        Err(AllocError::Blocked(blocker)) => {
            assert_eq!((blocker.pfn, blocker.state, blocker.why), (page.pfn(), state, BlockedBy::Unmovable));
        }
        other => panic!("{other:?}"),
    }
    drop(page);
    assert_eq!(yard.huge_pages().shrink(Gigantic, 9), Ok(2));
    assert_eq!(yard.stats().free_pages(), free);
}

#[test]
fn a_reservation_ends_where_memory_does_and_says_how_many_pages_it_has() {
    let yard = yard();
    let reserved = yard.huge_pages().reserve(Huge, 1000, &Owners::NONE).unwrap();
    assert!((20..48).contains(&reserved.pages), "{reserved:?}");
    assert!(matches!(reserved.stopped, Some(AllocError::OutOfMemory { .. })), "{reserved:?}");
    assert_eq!(counts(&yard, Huge)[0], reserved.pages);
    yard.validate().unwrap();
    assert_eq!(yard.huge_pages().shrink(Huge, u64::MAX), Ok(reserved.pages));
}

#[test]
fn pages_come_from_the_node_that_is_named() {
    let yard = yard();
    let on = |node| yard.huge_pages().reserve_on(NodeId(node), Huge, 2, &Owners::NONE);
    assert_eq!((on(0).unwrap().pages, on(1).unwrap().pages), (2, 2));
    let page = yard.huge_pages().alloc_preferring(NodeId(1), Huge).unwrap();
    assert!(page.pfn() >= Pfn(0x10000));
    let others: Vec<_> = (0..3).map(|_| yard.huge_pages().alloc_preferring(NodeId(1), Huge).unwrap()).collect();
    assert!(others[0].pfn() >= Pfn(0x10000) && others[1].pfn() < Pfn(0x10000) && others[2].pfn() < Pfn(0x10000));
    let no_node = HugePageError::NoSuchNode(NodeId(2));
    assert_eq!(on(2).unwrap_err(), no_node);
    assert_eq!(yard.huge_pages().alloc_preferring(NodeId(2), Huge).unwrap_err(), no_node);
    drop((page, others));
    assert_eq!(yard.huge_pages().shrink(Huge, 9), Ok(4));
}

#[test]
fn bad_numbers_and_double_frees_change_nothing() {
    for policy in STORES {
        let yard = yard_under(policy, MapInit::default());
        assert_eq!(reserve(&yard, Huge, 2), 2);
        let ordinary = yard.alloc(Order(9), Gfp::KERNEL).unwrap();
        let handle = yard.huge_pages().alloc(Huge).unwrap();
        let owned = handle.pfn();
        let pools = yard.huge_pages();
        let not_pooled = |pfn, size| HugePageError::NotPooled { pfn, size };
        for pfn in [ordinary, owned + PageCount(1), owned + PageCount(511), Pfn(0), Pfn(u64::MAX), Pfn(0xc000)] {
            assert_eq!(pools.free(pfn, Huge), Err(not_pooled(pfn, Huge)), "{pfn}");
        }
        assert_eq!(pools.free(owned, Gigantic), Err(not_pooled(owned, Gigantic)), "another size");
        assert_eq!(pools.free(owned, Huge), Err(HugePageError::NotHandedOut(owned)), "a handle owns it");
        assert_eq!(pools.handle(owned, Huge).unwrap_err(), HugePageError::NotHandedOut(owned));
        let second = handle.clone();
        assert_eq!(handle.into_pfn(), owned);
        assert_eq!(counts(&yard, Huge), [2, 1, 2 * RELEASED]);
        assert_eq!(pools.free(owned, Huge), Ok(()));
        assert_eq!(pools.free(owned, Huge), Err(HugePageError::NotHandedOut(owned)), "freed twice");
        assert_eq!(counts(&yard, Huge), [2, 1, 2 * RELEASED], "the second handle keeps it");
        assert_eq!(second.into_pfn(), owned);
        let again = pools.handle(owned, Huge).unwrap();
        assert_eq!((again.users().references, again.clone().into_pfn(), again.into_pfn()), (1, owned, owned));
        assert_eq!(pools.free(owned, Huge), Ok(()), "two handles, and one number");
        assert_eq!(pools.free(owned, Huge), Err(HugePageError::NotHandedOut(owned)));
        assert_eq!(counts(&yard, Huge), [2, 2, 2 * RELEASED]);
        yard.validate().unwrap();
        assert_eq!(pools.shrink(Huge, 2), Ok(2));
        assert_eq!(pools.free(owned, Huge), Err(not_pooled(owned, Huge)));
        yard.free(ordinary, Order(9)).unwrap();
    }
}

#[test]
fn a_map_of_kernel_like_content_is_refused() {
    let (content, initialiser) = (MapContent::Kernel, Initialiser::Stream);
    let yard = yard_with(MapInit { mode: InitMode::Eager, content, initialiser, ..MapInit::default() });
    assert_eq!(yard.huge_pages().reserve(Huge, 1, &Owners::NONE), Err(HugePageError::KernelContent));
    assert_eq!(counts(&yard, Huge), [0; 3]);
}

#[test]
fn the_map_of_the_tails_is_released_once_and_asked_for_again() {
    let yard = yard();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&calls);
    yard.watch().answer_with(move |call| {
        noted.lock().unwrap().push(call);
        Ok(())
    });
    assert_eq!(reserve(&yard, Huge, 1), 1);
    let page = yard.huge_pages().alloc(Huge).unwrap();
    let tails = PfnRange { start: page.pfn() + PageCount(64), end: page.pfn() + PageCount(512) };
    drop(page);
    assert_eq!(*calls.lock().unwrap(), [MapCall::Release(tails)]);
    assert_eq!(yard.huge_pages().shrink(Huge, 1), Ok(1));
    assert_eq!(calls.lock().unwrap()[1..], [MapCall::Back(tails)]);
    yard.watch().calm();
}

#[test]
fn a_page_whose_structures_get_no_memory_stays_in_the_pool() {
    let yard = yard();
    assert_eq!(reserve(&yard, Huge, 3), 3);
    yard.watch().back_with(|_| Err(MapNotBacked));
    let refused = yard.huge_pages().shrink(Huge, 2).unwrap_err();
    assert!(matches!(refused, HugePageError::NoMapMemory(tails) if tails.count() == PageCount(448)), "{refused}");
    assert_eq!(counts(&yard, Huge), [3, 3, 3 * RELEASED]);
    yard.validate().unwrap();
    yard.watch().calm();
    assert_eq!(yard.huge_pages().shrink(Huge, 3), Ok(3));
}

#[test]
fn nothing_writes_to_the_tails_of_a_pooled_page() {
    let yard = large_yard();
    assert_eq!((reserve(&yard, Huge, 8), reserve(&yard, Gigantic, 1)), (8, 1));
    let heads: Vec<(Pfn, Order)> = {
        let pages = [&[Huge; 8][..], &[Gigantic]].concat();
        let pages: Vec<_> = pages.into_iter().map(|size| yard.huge_pages().alloc(size).unwrap()).collect();
        pages.iter().map(|page| (page.pfn(), page.size().order())).collect()
    };
    let written = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&written);
    let pooled = heads.clone();
    yard.watch().spy_with(move |moment| {
        if let Moment::Touch(pfn, Access::Write | Access::ReadModifyWrite) = moment
            && pooled.iter().any(|(head, order)| pfn > *head && pfn.align_down(*order) == *head)
        {
            noted.lock().unwrap().push(pfn);
        }
    });
    // Everything a pool does, and the allocator around it.
    let pages: Vec<_> = (0..8).map(|_| yard.huge_pages().alloc(Huge).unwrap()).collect();
    let second = pages[0].clone();
    let number = yard.huge_pages().alloc(Gigantic).unwrap().into_pfn();
    yard.validate().unwrap();
    for _ in 0..3 {
        let blocks: Vec<_> =
            (0..200).map(|at| Order(at % 11)).map(|order| (yard.alloc(order, Gfp::KERNEL).unwrap(), order)).collect();
        for (head, _) in &heads {
            assert!(yard.free(*head + PageCount(3), Order::ZERO).is_err(), "frees inside a page are refused");
            assert!(yard.stats().frame(*head + PageCount(3)).is_some());
        }
        blocks.into_iter().for_each(|(pfn, order)| yard.free(pfn, order).unwrap());
        yard.drain_all();
    }
    yard.huge_pages().free(number, Gigantic).unwrap();
    drop((pages, second));
    yard.validate().unwrap();
    assert_eq!(*written.lock().unwrap(), [], "tails were written");
    assert_eq!((yard.huge_pages().shrink(Huge, 9), yard.huge_pages().shrink(Gigantic, 9)), (Ok(8), Ok(1)));
    assert_ne!(*written.lock().unwrap(), [], "giving a gigantic page up writes the heads of its blocks");
    yard.watch().calm();
}

#[test]
fn threads_reserve_hand_out_free_and_shrink_at_the_same_time() {
    for policy in STORES {
        let yard = yard_under(policy, MapInit::default());
        let free = yard.stats().free_pages();
        assert_eq!(reserve(&yard, Huge, 8), 8);
        // Other threads run while a pool changes, even on one processor.
        yard.watch().spy_with(|moment| {
            if let Moment::Touch(pfn, Access::Write) = moment
                && pfn.is_aligned(Order(9))
            {
                thread::yield_now();
            }
        });
        let done: u64 = thread::scope(|scope| {
            let run = |cpu: u32| {
                let yard = &yard;
                move || {
                    run_on(cpu);
                    let (mut random, mut held, mut done) = (Random::new(u64::from(cpu)), Vec::new(), 0);
                    let pools = yard.huge_pages();
                    for _ in 0..1000 {
                        match random.below(8) {
                            0 => drop(pools.reserve(Huge, random.below(3), &Owners::NONE).unwrap()),
                            1 => drop(pools.shrink(Huge, random.below(3)).unwrap()),
                            2..5 => held.extend(pools.alloc(Huge).map(|page| page.into_pfn())),
                            _ if held.is_empty() => {}
                            5 => drop(pools.handle(held.swap_remove(0), Huge).unwrap()),
                            _ => {
                                let pfn = held.swap_remove(random.below(held.len() as u64) as usize);
                                pools.free(pfn, Huge).unwrap();
                                done += 1;
                            }
                        }
                    }
                    held.into_iter().for_each(|pfn| pools.free(pfn, Huge).unwrap());
                    done
                }
            };
            let threads: Vec<_> = (0..4).map(|cpu| scope.spawn(run(cpu))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        yard.watch().calm();
        assert!(done > 200, "{done} pages were freed by number");
        yard.validate().unwrap();
        let [pages, all_free, _] = counts(&yard, Huge);
        assert_eq!(pages, all_free);
        assert_eq!(yard.huge_pages().shrink(Huge, u64::MAX), Ok(pages));
        assert_eq!(yard.stats().free_pages(), free);
    }
}

#[test]
fn of_racing_frees_by_number_one_wins() {
    let yard = yard();
    assert_eq!(reserve(&yard, Huge, 1), 1);
    for _ in 0..200 {
        let pfn = yard.huge_pages().alloc(Huge).unwrap().into_pfn();
        let won: usize = thread::scope(|scope| {
            let free = || yard.huge_pages().free(pfn, Huge).is_ok();
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(free)).collect();
            threads.into_iter().filter(|_| true).map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!((won, counts(&yard, Huge)[1]), (1, 1));
    }
    assert_eq!(yard.huge_pages().shrink(Huge, 1), Ok(1));
}

#[test]
fn a_second_view_uses_the_same_pools() {
    let yard = yard();
    assert_eq!(reserve(&yard, Huge, 1), 1);
    let other = yard.attach();
    let page = other.huge_pages().alloc(Huge).unwrap();
    assert_eq!(yard.huge_pages().alloc(Huge).unwrap_err(), HugePageError::Exhausted(Huge));
    let pfn = page.into_pfn();
    yard.huge_pages().free(pfn, Huge).unwrap();
    assert_eq!(other.huge_pages().shrink(Huge, 1), Ok(1));
}

#[test]
fn a_damaged_list_of_a_pool_ends_where_it_leads_elsewhere() {
    for leads_to in ["outside the map", "a tail", "an ordinary block"] {
        let yard = yard();
        assert_eq!(reserve(&yard, Huge, 3), 3);
        yard.watch().expect_damage();
        let ordinary = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        let first = yard.huge_pages().alloc(Huge).unwrap().pfn();
        let place_of = |pfn| yard.map_offset(pfn).unwrap().0 / 64;
        let link = match leads_to {
            "outside the map" => u32::MAX,
            "a tail" => place_of(first + PageCount(0x40)) as u32 + 1,
            _ => place_of(ordinary) as u32 + 1,
        };
        // SAFETY: inside the map of a yard at rest.
        unsafe { yard.map.raw().base.as_ptr().cast::<u32>().add(place_of(first) as usize * 16 + 2).write(link) };
        let page = yard.huge_pages().alloc(Huge).unwrap();
        assert_eq!(yard.huge_pages().alloc(Huge).unwrap_err(), HugePageError::Exhausted(Huge), "{leads_to}");
        assert_eq!(yard.huge_pages().shrink(Huge, 9), Ok(0));
        assert_eq!(yard.huge_pages().at(page.pfn()), Some((page.pfn(), Huge)));
        drop(page);
        yard.drop_unchecked();
    }
}

#[test]
fn the_validator_names_damaged_pools() {
    /// Words of a page structure.
    enum Word {
        Tag = 0,
        Links = 1,
        Counts = 3,
        Owner = 4,
        Index = 5,
    }
    type Expected = fn(&ValidateError) -> bool;
    let cases: [(Word, u64, Expected); 6] = [
        (Word::Links, 3, |error| matches!(error, ValidateError::BrokenList { .. })),
        (Word::Counts, 1, |error| matches!(error, ValidateError::Count { what: "free huge pages of a pool", .. })),
        (Word::Counts, 1 << 32, |error| matches!(error, ValidateError::WordsNotZero(_, FrameState::Pooled))),
        (Word::Owner, 1, |error| matches!(error, ValidateError::WordsNotZero(_, FrameState::Pooled))),
        (Word::Index, 5, |error| {
            matches!(error, ValidateError::Count { what: "bytes of the map returned for a pool", .. })
        }),
        (Word::Tag, 1 << 8, |error| matches!(error, ValidateError::Misplaced(..))),
    ];
    for (word, value, expected) in cases {
        let yard = yard();
        assert_eq!(reserve(&yard, Huge, 2), 2);
        let [second, first] = [(); 2].map(|()| yard.huge_pages().alloc(Huge).unwrap());
        let head = first.pfn();
        drop((second, first));
        let word = word as usize;
        let place = yard.map_offset(head).unwrap().0 as usize / 8 + word;
        let words = yard.map.raw().base.as_ptr().cast::<u64>();
        // SAFETY: inside the map of a yard at rest.
        let written = unsafe { words.add(place) };
        // SAFETY: as above.
        let before = unsafe { written.read() };
        // SAFETY: as above.
        unsafe { written.write(before ^ value) };
        let error = yard.validate().unwrap_err();
        assert!(expected(&error), "word {word}: {error}");
        // SAFETY: as above.
        unsafe { written.write(before) };
        yard.validate().unwrap();
        assert_eq!(yard.huge_pages().shrink(Huge, 2), Ok(2));
    }
}
