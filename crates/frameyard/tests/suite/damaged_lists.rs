//! The validator ends, and reads nothing outside the map, whatever links, packed batches and tables hold: in a yard whose words were
//! overwritten, and in one that is in use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::busy_yard::{FIRST, PAGES, geometry};
use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, run_on};
use frameyard::boot::ZoneLimits;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, RawRegion, YardConfig};

/// The policies whose lists differ.
const POLICIES: [ZonePolicy; 3] = [ZonePolicy::Vanilla, ZonePolicy::ClusterBulk, ZonePolicy::Bits];
/// Those whose lists lie in page structures.
const LINKED: [ZonePolicy; 2] = [ZonePolicy::Vanilla, ZonePolicy::ClusterBulk];

/// A yard of four CPUs.
fn yard_of(policy: ZonePolicy) -> Fixture {
    let config = YardConfig {
        geometry: geometry(),
        zone_limits: ZoneLimits::NONE,
        pcp_sizing: PcpSizing::Fixed(400),
        policy,
        ..YardConfig::new(&[NodeId(0); 4])
    };
    let memory = [(PfnRange::new(FIRST, PageCount(PAGES)), NodeId(0))];
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    yard.watch().expect_damage();
    yard
}

/// A yard with blocks of all orders on lists of all kinds: long chains of packed batches, or bits. Returns what stays allocated.
fn filled(policy: ZonePolicy, random: &mut Random) -> (Fixture, Vec<(Pfn, Order)>) {
    let yard = yard_of(policy);
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    for cpu in 0..4 {
        run_on(cpu);
        for _ in 0..900 {
            let order = Order(random.pick(&[0, 0, 0, 0, 0, 1, 2, 6]));
            held.extend(yard.alloc(order, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).map(|pfn| (pfn, order)));
        }
        for _ in 0..700 {
            if held.is_empty() {
                break;
            }
            let (pfn, order) = held.swap_remove(random.below(held.len() as u64) as usize);
            yard.free(pfn, order).unwrap();
        }
    }
    yard.validate().unwrap();
    (yard, held)
}

/// The words of a region of a yard at rest.
fn words(region: RawRegion) -> Vec<u32> {
    let count = region.size.0 as usize / 4;
    // SAFETY: the fixture keeps the region; no other thread uses it.
    unsafe { std::slice::from_raw_parts(region.base.cast::<u32>().as_ptr(), count) }.to_vec()
}

fn put(region: RawRegion, at: usize, word: u32) {
    assert!((at + 1) * 4 <= region.size.0 as usize);
    // SAFETY: in the region; no other thread uses it.
    unsafe { region.base.cast::<u32>().add(at).write(word) }
}

/// A link that leads anywhere: into the map, just behind it, far away.
fn wild(random: &mut Random) -> u32 {
    match random.below(4) {
        0 => random.below(1 << 32) as u32,
        1 => (PAGES + random.below(1000)) as u32,
        _ => random.below(PAGES + 1) as u32,
    }
}

/// Overwrites some of the words of a region that `may_change` admits, validates, and restores the yard.
fn damage(
    yard: &Fixture,
    region: RawRegion,
    random: &mut Random,
    rounds: usize,
    may_change: impl Fn(usize, u32) -> bool,
) {
    let (sound, map) = (words(region), words(yard.map.raw()));
    let places: Vec<usize> = (0..sound.len()).filter(|at| may_change(*at, sound[*at])).collect();
    let mut found = 0;
    for _ in 0..rounds {
        let changed: Vec<usize> = (0..=random.below(8)).map(|_| random.pick(&places)).collect();
        for at in changed {
            put(region, at, wild(random));
        }
        found += usize::from(yard.validate().is_err());
        // All of it: a hold of a lock may have acted on a damaged word.
        sound.iter().enumerate().for_each(|(at, word)| put(region, at, *word));
        // Where the damaged words hid pages from it, the validation could not clear its marks there.
        map.iter().enumerate().for_each(|(at, word)| put(yard.map.raw(), at, *word));
    }
    assert_eq!(yard.validate(), Ok(()));
    assert!(found > rounds / 10, "of {rounds} damages {found} were found");
}

#[test]
fn validate_ends_whatever_page_structures_hold() {
    for policy in LINKED {
        let random = &mut Random::new(policy as u64);
        let (mut yard, held) = filled(policy, random);
        damage(&yard, yard.map.raw(), random, 1500, |_, word| word != 0);
        yard.keep(held.iter().map(|(_, order)| order.pages()).sum());
    }
}

#[test]
fn validate_ends_whatever_the_control_region_holds() {
    for policy in POLICIES {
        let random = &mut Random::new(policy as u64);
        let (mut yard, held) = filled(policy, random);
        // Behind the header of 96 words. Locks are free, so a word that is not zero is no lock.
        damage(&yard, yard.control.raw(), random, 1500, |at, word| at >= 192 && word != 0);
        yard.keep(held.iter().map(|(_, order)| order.pages()).sum());
    }
}

#[test]
fn validate_ends_on_chains_without_end() {
    for policy in LINKED {
        let random = &mut Random::new(1);
        let (mut yard, held) = filled(policy, random);
        let map = yard.map.raw();
        let sound = words(map);
        // The third word of a page, of sixteen, is its first link. Those of free blocks and of packed batches lead on.
        let links = sound.iter().enumerate().filter(|(at, word)| at % 16 == 2 && **word != 0);
        let mut count = 0;
        for (at, word) in links {
            put(map, at, (at / 16 + 1) as u32);
            assert!(yard.validate().is_err(), "{policy}, page {}: a link leads to its own page", at / 16);
            put(map, at, *word);
            assert_eq!(yard.validate(), Ok(()));
            count += 1;
        }
        assert!(count > 20, "{policy}: {count} links");
        yard.keep(held.iter().map(|(_, order)| order.pages()).sum());
    }
}

#[test]
fn validate_ends_while_threads_work() {
    for policy in POLICIES {
        let yard = yard_of(policy);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for cpu in 0..2 {
                let (yard, done) = (&yard, &done);
                scope.spawn(move || {
                    run_on(cpu * 2);
                    let mut held = Vec::new();
                    while !done.load(Ordering::Relaxed) {
                        let wanted = || yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).ok();
                        held.extend(std::iter::from_fn(wanted).take(1000));
                        held.drain(..).for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
                    }
                });
            }
            run_on(1);
            // What it finds is no damage: blocks are in transit.
            let found = (0..400).filter(|_| yard.validate().is_err()).count();
            done.store(true, Ordering::Relaxed);
            assert!(found > 0, "{policy}: no validation met a thread at work");
        });
        assert_eq!(yard.validate(), Ok(()), "{policy}");
    }
}
