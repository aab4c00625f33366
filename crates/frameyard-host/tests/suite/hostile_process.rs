//! A process that shares a yard writes anything anywhere in its memory file. This process goes on: it loses frames or gets errors.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frameyard::devices::{DeviceRequest, MapLayout, MapPlacement};
use frameyard::page::FrameState;
use frameyard::platform::{LockError, LockId};
use frameyard::policy::ZonePolicy;
use frameyard::validate::ValidateError;
use frameyard::{AllocError, Gfp, NodeId, Order, PageCount};
use frameyard_host::{DeviceMapProblem, HostDeviceError, HostYard, HostYardError, SharedFrames};

use crate::hostile_writes::{DEVICES, Random, STEP, Target, User, run, run_with_threads};

/// The number of schedules; 200 unless this is set.
const SCHEDULES: &str = "FRAMEYARD_SCHEDULES";
/// The first schedule.
const FIRST: &str = "FRAMEYARD_FIRST_SCHEDULE";

/// More processor time than all bounded waits of a schedule or case take. All of them together take a few seconds.
const HANGS: Duration = Duration::from_secs(60);

/// The processor time that this thread has had, which a busy host does not change.
fn processor_time() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).try_into().expect("a time since the thread began")
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The bytes of a schedule: the policies in turn, and steps of which a quarter corrupts the file.
fn schedule(seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let steps = (0..40).flat_map(|_| random.next().to_le_bytes());
    core::iter::once(seed as u8).chain(steps.take(40 * STEP)).collect()
}

#[test]
fn random_schedules_of_corruption_end_without_a_panic() {
    let memory = SharedFrames::Memory;
    let lists = ZonePolicy::Vanilla;
    let targets = [Target::under(lists, memory), Target::without_holes(lists, memory), Target::new(memory)];
    let first = number(FIRST, 0);
    let mut failed = Vec::new();
    let mut uses = 0;
    for seed in first..first + number(SCHEDULES, 200) {
        if std::env::var_os(FIRST).is_some() {
            eprintln!("schedule {seed}");
        }
        let begin = processor_time();
        let target = &targets[seed as usize / ZonePolicy::ALL.len() % targets.len()];
        match catch_unwind(AssertUnwindSafe(|| run(target, &schedule(seed)))) {
            Ok(done) => uses += done,
            Err(_) => failed.push(seed),
        }
        let took = processor_time() - begin;
        if took >= HANGS {
            println!("schedule {seed} took {took:?}");
            failed.push(seed);
        }
    }
    println!("{uses} uses");
    assert!(failed.is_empty(), "these schedules panic or hang: {failed:?}");
}

#[test]
fn threads_go_on_beside_a_process_that_corrupts_the_file() {
    let targets = [ZonePolicy::Vanilla, ZonePolicy::Bits].map(|policy| Target::under(policy, SharedFrames::Memory));
    let first = number(FIRST, 0);
    let seeds = first..first + number(SCHEDULES, 50);
    let uses: u64 = seeds.map(|seed| run_with_threads(&targets[seed as usize % targets.len()], &schedule(seed))).sum();
    println!("{uses} uses");
}

/// A yard whose free blocks of more than a frame have an order that no block has.
fn corrupt_yard(target: &Target) -> HostYard {
    let yard = target.view(0);
    yard.drain_all();
    // SAFETY: what the yard does with words that no yard writes is what the test checks.
    let words = unsafe { yard.map_region().words() };
    let pages = words.chunks_exact(8).take(yard.core().frame_range().count().0 as usize);
    for tag in pages.map(|page| &page[0]) {
        let bits = tag.load(Ordering::Relaxed);
        if bits as u8 == FrameState::BuddyFree as u8 && bits >> 8 & 0xff != 0 {
            tag.store(bits & !0xff00 | 200 << 8, Ordering::Relaxed);
        }
    }
    yard
}

#[test]
fn a_corrupt_list_is_an_error_that_names_it_and_stays() {
    let target = Target::new(SharedFrames::Phantom);
    let yard = corrupt_yard(&target);
    let error = (0..100_000).find_map(|_| yard.alloc(Order(3), Gfp::HIGHUSER_MOVABLE).err()).expect("an error");
    let AllocError::Lock(corrupt @ LockError::Corrupt { lock: LockId::Zone(_) }) = error else { panic!("{error}") };
    assert_eq!(yard.alloc(Order(0), Gfp::KERNEL), Err(error), "no list is used again");
    assert_eq!(yard.validate(), Err(ValidateError::Lock(corrupt)));
    assert!(corrupt.to_string().ends_with("is corrupt: the yard is damaged, end all its processes"), "{corrupt}");
    let attached = target.attach(2).map(drop).unwrap_err();
    assert!(matches!(attached, HostYardError::Lock(found) if found == corrupt), "{attached}");

    // The other process takes the note in the file back; this process has its own.
    target.restore();
    assert_eq!(yard.alloc(Order(0), Gfp::KERNEL), Err(error));
    drop(target.attach(2).expect("a yard that is new again"));
}

#[test]
fn an_entry_of_a_list_that_names_no_frame_is_not_given_out() {
    let target = Target::under(ZonePolicy::Vanilla, SharedFrames::Phantom);
    for (entry, order) in [(0x4800, 0), (0x00ff_ffff, 0), (u32::MAX, 0), (0x4800 + 8, 3), (17, 3)] {
        target.restore();
        let (yard, order) = (target.view(0), Order(order));
        let held: Vec<_> = (0..200).map(|_| yard.alloc(order, Gfp::HIGHUSER_MOVABLE).expect("a block")).collect();
        let last = *held.iter().max().expect("blocks");
        yard.free(last, order).expect("it was allocated");
        let index = yard.core().counted().link(last).bits() - 1;
        // SAFETY: as above.
        for word in unsafe { yard.control_region().words() } {
            let halves = [word.load(Ordering::Relaxed) as u32, (word.load(Ordering::Relaxed) >> 32) as u32];
            let [low, high] = halves.map(|half| if half == index { entry } else { half });
            word.store(u64::from(high) << 32 | u64::from(low), Ordering::Relaxed);
        }
        let error = yard.alloc(order, Gfp::HIGHUSER_MOVABLE).expect_err("the list is corrupt");
        assert!(matches!(error, AllocError::Lock(LockError::Corrupt { lock: LockId::PerCpu(..) })), "{entry}: {error}");
    }
}

#[test]
fn a_word_that_keeps_the_right_to_change_views_ends_a_call_at_the_limit_for_locks() {
    let target = Target::new(SharedFrames::Phantom);
    let yard = target.view(0);
    target.hold_right_to_change_views();
    let (range, node, order) = (DEVICES, NodeId(0), Order(9));
    let (layout, placement) = (MapLayout::Deduplicated, MapPlacement::Memory);
    let error =
        yard.map_device(DeviceRequest { range, node, order, layout, placement }).expect_err("a right that is held");
    let HostDeviceError::Map { problem: DeviceMapProblem::Changing { process, waited }, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(process, std::process::id());
    // The limit is 2 ms; the rest is for a busy host.
    assert!(waited < HANGS, "{waited:?}");
}

#[test]
fn links_to_tails_of_a_device_end_no_process() {
    let target = Target::under(ZonePolicy::Vanilla, SharedFrames::Phantom);
    for policy in ZonePolicy::CHANGEABLE {
        target.restore();
        let yard = target.view(0);
        yard.core().set_policy(policy).expect("a policy");
        let (range, node, order) = (DEVICES, NodeId(0), Order(9));
        let (layout, placement) = (MapLayout::Deduplicated, MapPlacement::Memory);
        yard.devices().map(DeviceRequest { range, node, order, layout, placement }).expect("a device");
        yard.drain_all();
        let tail = u64::from(yard.core().counted().link(DEVICES.start + PageCount(100)).bits());
        // SAFETY: as above.
        let words = unsafe { yard.map_region().words() };
        let pages = words.chunks_exact(8).take(yard.core().frame_range().count().0 as usize);
        for page in pages.filter(|page| page[0].load(Ordering::Relaxed) as u8 == FrameState::BuddyFree as u8) {
            page[1].store(tail << 32 | tail, Ordering::Relaxed);
        }
        for order in [0, 3, 0, 9, 0].map(Order) {
            let got: Vec<_> = (0..300).map_while(|_| yard.alloc(order, Gfp::HIGHUSER_MOVABLE).ok()).collect();
            for pfn in got {
                let _ = yard.free(pfn, order);
            }
            yard.drain_all();
        }
    }
}

/// The page structures of the map, in order.
fn pages(map: &[AtomicU64]) -> impl Iterator<Item = &[AtomicU64]> {
    map.chunks_exact(8)
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// Free lists: each block is followed by the next lower one of its list, wherever it stands.
fn twice_on_free_lists(map: &[AtomicU64], _: &[AtomicU64]) {
    let mut last = BTreeMap::new();
    for (link, page) in (1..).zip(pages(map)).filter(|(_, page)| load(&page[0]) as u8 == FrameState::BuddyFree as u8) {
        let before = last.insert(load(&page[0]), link).unwrap_or(link);
        store(&page[1], load(&page[1]) & !0xffff_ffff | before);
    }
}

/// Entries of the lists of CPUs: both halves of a word name the same frame.
fn twice_on_cpu_lists(map: &[AtomicU64], control: &[AtomicU64]) {
    let is_entry = |half: u64| {
        let page = pages(map).nth(half as usize).filter(|_| half > 64);
        // A single frame may have no tag.
        page.is_some_and(|page| matches!(load(&page[0]) as u8, 0 | 3 | 5))
    };
    for word in control.iter().filter(|word| is_entry(load(word) & 0xffff_ffff) && is_entry(load(word) >> 32)) {
        store(word, load(word) & 0xffff_ffff | load(word) << 32);
    }
}

/// Packed batches: every step is 0, and both halves of a word name the same frame. `chains` says whether each batch is followed by
/// itself.
fn twice_in_batches(map: &[AtomicU64], chains: bool) {
    // Frames of a carved block have no tag.
    let is_packed = |page: &&[AtomicU64]| {
        load(&page[0]) as u8 == FrameState::PerCpu as u8
            || (load(&page[0]) == 0 && page[1..].iter().any(|word| load(word) != 0))
    };
    for (link, page) in (1..).zip(pages(map)).filter(|(_, page)| is_packed(page)) {
        let stepped = load(&page[1]) >> 63 != 0;
        for word in [2, 4, 5, 6, 7].map(|word| &page[word]) {
            store(word, if stepped { 0 } else { load(word) & 0xffff_ffff | load(word) << 32 });
        }
        if chains && load(&page[1]) >> 32 != 0 {
            store(&page[1], load(&page[1]) & !0xffff_ffff | link);
        }
    }
}

/// Records of clusters: each has the last page of the one before.
fn twice_in_clusters(_: &[AtomicU64], control: &[AtomicU64]) {
    let records = || control.iter().filter(|word| load(word) >> 48 == 1 && load(word) as u32 != 0);
    let tails: Vec<u64> = records().map(|word| load(word) & 0xffff_ffff).collect();
    for (word, tail) in records().skip(1).zip(tails) {
        store(word, load(word) & !0xffff_ffff | tail);
    }
}

#[test]
fn a_frame_in_two_places_ends_no_call_badly() {
    type Forge = fn(&[AtomicU64], &[AtomicU64]);
    let kinds: [(&str, Forge); 5] = [
        ("free lists", twice_on_free_lists),
        ("lists of CPUs", twice_on_cpu_lists),
        ("packed batches", |map, _| twice_in_batches(map, false)),
        ("chains of batches", |map, _| twice_in_batches(map, true)),
        ("clusters", twice_in_clusters),
    ];
    let words = |region: &[AtomicU64]| region.iter().map(load).collect::<Vec<u64>>();
    let mut failed = Vec::new();
    let mut effects = BTreeMap::<&str, (usize, usize)>::new();
    let (lists, frames) = (ZonePolicy::Vanilla, SharedFrames::Phantom);
    let targets = [Target::under(lists, frames), Target::without_holes(lists, frames)];
    for (machine, target) in targets.iter().enumerate() {
        // Each kind under each policy, half of them in each machine.
        let cases = ZonePolicy::CHANGEABLE.into_iter().flat_map(|policy| kinds.map(|kind| (policy, kind)));
        for (policy, (name, forge)) in cases.skip(machine).step_by(2) {
            target.restore();
            let yard = target.view(0);
            yard.core().set_policy(policy).expect("a policy");
            let (mut user, mut random) = (User::default(), Random(7));
            // Frames in no order on the lists of the CPU, in batches and in clusters.
            let mut held: Vec<_> = (0..4000).filter_map(|_| yard.alloc(Order(0), Gfp::HIGHUSER_MOVABLE).ok()).collect();
            while !held.is_empty() {
                let at = random.next() as usize % held.len();
                yard.free(held.swap_remove(at), Order(0)).expect("it was allocated");
            }
            // SAFETY: as above.
            let (map, control) = unsafe { (yard.map_region().words(), yard.control_region().words()) };
            let before = [words(map), words(control)];
            forge(map, control);
            let changed = before.into_iter().flatten().zip([words(map), words(control)].into_iter().flatten());
            let effect = effects.entry(name).or_default();
            effect.0 += changed.filter(|(before, after)| before != after).count();
            let begin = processor_time();
            let used = catch_unwind(AssertUnwindSafe(|| {
                let taken: Vec<_> =
                    (0..20_000).map_while(|_| yard.alloc(Order(0), Gfp::HIGHUSER_MOVABLE).ok()).collect();
                effect.1 += taken.len() - taken.iter().collect::<BTreeSet<_>>().len();
                for pfn in taken {
                    let _ = yard.free(pfn, Order(0));
                }
                yard.drain_all();
                (0..300).for_each(|_| user.operate(&yard, &mut random));
            }));
            let took = processor_time() - begin;
            if used.is_err() || took >= HANGS {
                failed.push((policy, name, took));
            }
        }
    }
    println!("words forged and frames given out twice: {effects:?}");
    assert!(effects.values().all(|(forged, _)| *forged > 0), "{effects:?}");
    assert!(failed.is_empty(), "{failed:?}");
}
