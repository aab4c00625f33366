//! Look-ups of device pages during splits, joins and removals, and racing removals and mappings (`devices`).
//!
//! The device has one compound page of four frames. The platform checks that no thread writes to a tail while its map
//! page is shared. A thread with references checks that the page stays what it is, and the device stays mapped.

use std::sync::{Arc, Mutex};

use super::machine::{Flaw, LARGEST, Locks, Machine, Runner, Setup, TAIL_WRITTEN};
use super::{assert_fails_within, explore_within};
use crate::boot::{InitMode, MapInit};
use crate::devices::{DeviceError, DeviceId, DeviceRequest, MapLayout, MapPlacement, Removal};
use crate::memmap::Initialiser;
use crate::platform::SpeculativeGets;
use crate::sync::{AtomicU32, Ordering, Weakness, weakened};
use crate::units::{NodeId, Order, PageCount, Pfn, PfnRange};
use crate::watermarks::PcpSizing;

/// Involuntary switches: what is broken here is found with two.
const PREEMPTIONS: usize = 2;

/// The messages of references to a page that does not count the frame's users.
const OTHER_PAGE: &str = "references to another page";
/// The messages of a device that goes away while a page of it is in use.
const GONE: &str = "removed under its user";
/// The messages of two devices, or two removals, that get the same thing.
const BOTH: &str = "both succeeded";

fn boot(locks: Locks) -> Runner {
    boot_with(locks, SpeculativeGets::Unmarked)
}

fn boot_with(locks: Locks, gets: SpeculativeGets) -> Runner {
    let map_init = MapInit { mode: InitMode::Eager, initialiser: Initialiser::None, ..MapInit::default() };
    let sizing = PcpSizing::Fixed(0);
    Machine::boot_with(
        1,
        Setup { sizing, locks, map_init, init_flaw: None, workers: 1, reserved: &[], devices: 1, gets },
    )
}

fn map(runner: &Runner, order: Order, layout: MapLayout) -> Result<DeviceId, DeviceError> {
    let range = runner.device_space();
    runner.yard.devices().map(DeviceRequest { range, node: NodeId(0), order, layout, placement: MapPlacement::Memory })
}

/// How often references were got to the whole, to a part, and not at all, over all executions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    whole: bool,
    part: bool,
    nothing: bool,
}

/// Whether a thread has references, so that no thread may remove the device. Follows the order that loom has chosen.
type Held = Arc<Mutex<bool>>;

/// Looks a frame up, takes references, and asks whether they are on the page that counts the frame's users.
fn use_page(runner: &Runner, pfn: Pfn, held: &Held, seen: &Mutex<Seen>) {
    let page = runner.yard.devices().page(pfn).filter(|page| page.try_get(2));
    let Some(page) = page else {
        seen.lock().unwrap().nothing = true;
        return;
    };
    *held.lock().unwrap() = true;
    let order = page.tag().order();
    let covered = PfnRange::new(page.head(), order.pages()).contains(pfn);
    assert!(covered && page.order() == order, "{OTHER_PAGE}: {pfn} is not in {} of {order}", page.head());
    *held.lock().unwrap() = false;
    // SAFETY: got above.
    let left = unsafe { page.put(2) }.expect("references of ours");
    assert!(left > 0);
    let mut seen = seen.lock().unwrap();
    if order == LARGEST { seen.whole = true } else { seen.part = true }
}

/// Removes what there is, and demands that all is as it was.
fn end(main: &Runner, device: DeviceId) {
    main.yard.validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    main.yard.devices().unmap(device, Removal::Refuse).expect("nobody uses the device");
    main.finish();
}

fn third(runner: &Runner) -> Pfn {
    runner.device_space().start + PageCount(2)
}

/// A word that both threads exchange, one before its work and the other after it, so that loom tries both orders early.
/// It orders nothing. (Of several reads loom remembers only the last: a thread that reads a tag before writing it would
/// hide that the other one read it.)
#[derive(Clone, Default)]
struct Either(Arc<AtomicU32>);

impl Either {
    fn meet(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A frame is looked up and used while its page is split.
fn use_while_splitting(seen: &Arc<Mutex<Seen>>) {
    let main = boot(Locks::SOUND);
    let either = Either::default();
    let device = map(&main, LARGEST, MapLayout::Deduplicated).unwrap();
    let head = main.device_space().start;
    let splitter = main.start(1, {
        let either = either.clone();
        move |runner| {
            match runner.yard.devices().split(head) {
                Ok(()) | Err(DeviceError::InUse { .. }) => {}
                Err(problem) => panic!("{problem}"),
            }
            either.meet();
        }
    });
    either.meet();
    use_page(&main, third(&main), &Held::default(), seen);
    splitter.join().unwrap();
    end(&main, device);
}

/// A frame is looked up and used while the parts of its page are joined.
fn use_while_joining(seen: &Arc<Mutex<Seen>>) {
    let main = boot(Locks::SOUND);
    let device = map(&main, LARGEST, MapLayout::Deduplicated).unwrap();
    let head = main.device_space().start;
    main.yard.devices().split(head).unwrap();
    let either = Either::default();
    let joiner = main.start(1, {
        let either = either.clone();
        move |runner| {
            match runner.yard.devices().join(head) {
                Ok(()) | Err(DeviceError::InUse { .. }) => {}
                Err(problem) => panic!("{problem}"),
            }
            either.meet();
        }
    });
    either.meet();
    use_page(&main, third(&main), &Held::default(), seen);
    joiner.join().unwrap();
    end(&main, device);
}

/// A frame is looked up and used while its device is removed, and another one with base pages mapped there.
fn use_while_removing(layout: MapLayout, seen: &Arc<Mutex<Seen>>) {
    let main = boot(Locks::SOUND);
    let device = map(&main, LARGEST, layout).unwrap();
    let held = Held::default();
    let remover = main.start(1, {
        let held = Arc::clone(&held);
        move |runner| match runner.yard.devices().unmap(device, Removal::Refuse) {
            Ok(()) => {
                assert!(!*held.lock().unwrap(), "the device was {GONE}");
                map(runner, Order::ZERO, MapLayout::Full).expect("the range is free");
            }
            Err(DeviceError::InUse { .. }) => {}
            Err(problem) => panic!("{problem}"),
        }
    });
    use_page(&main, third(&main), &held, seen);
    remover.join().unwrap();
    end(&main, DeviceId(0));
}

/// A frame is looked up and used while its device, of base pages, is removed, and another one with shared tails mapped there
/// by a platform that makes them such that they cannot be written.
fn use_while_tails_come(seen: &Arc<Mutex<Seen>>) {
    let main = boot_with(Locks::SOUND, SpeculativeGets::Marked);
    let device = map(&main, Order::ZERO, MapLayout::Full).unwrap();
    let held = Held::default();
    let remover = main.start(1, {
        let held = Arc::clone(&held);
        move |runner| match runner.yard.devices().unmap(device, Removal::Refuse) {
            Ok(()) => {
                assert!(!*held.lock().unwrap(), "the device was {GONE}");
                map(runner, LARGEST, MapLayout::Deduplicated).expect("the range is free");
            }
            Err(DeviceError::InUse { .. }) => {}
            Err(problem) => panic!("{problem}"),
        }
    });
    use_page(&main, third(&main), &held, seen);
    remover.join().unwrap();
    end(&main, DeviceId(0));
}

/// Two remove a device at once.
fn remove_twice() {
    let main = boot(Locks::SOUND);
    let device = map(&main, LARGEST, MapLayout::Folded).unwrap();
    let removed = Arc::new(Mutex::new(0));
    let remove = move |runner: &Runner, removed: &Mutex<u32>| match runner.yard.devices().unmap(device, Removal::Refuse)
    {
        Ok(()) => *removed.lock().unwrap() += 1,
        Err(DeviceError::NoSuchDevice(_) | DeviceError::Busy(_)) => {}
        Err(problem) => panic!("{problem}"),
    };
    let other = main.start(1, {
        let removed = Arc::clone(&removed);
        move |runner| remove(runner, &removed)
    });
    remove(&main, &removed);
    other.join().unwrap();
    assert_eq!(*removed.lock().unwrap(), 1, "removals: {BOTH}, or none");
    main.finish();
}

/// Two map a range at once.
fn map_twice(locks: Locks) {
    let main = boot(locks);
    let mapped = Arc::new(Mutex::new(0));
    let map = |runner: &Runner, mapped: &Mutex<u32>| match map(runner, LARGEST, MapLayout::Folded) {
        Ok(_) => *mapped.lock().unwrap() += 1,
        Err(DeviceError::Overlaps { .. }) => {}
        Err(problem) => panic!("{problem}"),
    };
    let other = main.start(1, {
        let mapped = Arc::clone(&mapped);
        move |runner| map(runner, &mapped)
    });
    map(&main, &mapped);
    other.join().unwrap();
    assert_eq!(*mapped.lock().unwrap(), 1, "mappings: {BOTH}, or none");
    end(&main, DeviceId(0));
}

/// Explores a model of a user, which must reach all of these outcomes.
fn explore_use(model: impl Fn(&Arc<Mutex<Seen>>) + Send + Sync + 'static, expected: Seen) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let model = {
        let seen = Arc::clone(&seen);
        move || model(&seen)
    };
    explore_within(PREEMPTIONS, model);
    assert_eq!(*seen.lock().unwrap(), expected, "every way to meet was explored");
}

#[test]
fn get_races_split() {
    explore_use(use_while_splitting, Seen { whole: true, part: true, nothing: true });
}

#[test]
fn get_races_join() {
    explore_use(use_while_joining, Seen { whole: true, part: true, nothing: true });
}

#[test]
fn get_races_removal_and_remapping() {
    for layout in [MapLayout::Deduplicated, MapLayout::Folded] {
        explore_use(move |seen| use_while_removing(layout, seen), Seen { whole: true, part: true, nothing: true });
    }
}

#[test]
fn join_waits_for_speculative_gets() {
    explore_use(use_while_tails_come, Seen { whole: true, part: true, nothing: true });
}

#[test]
fn tails_shared_without_a_grace_period_are_detected() {
    weakened(Weakness::NoGracePeriod, || {
        assert_fails_within(PREEMPTIONS, || use_while_tails_come(&Arc::default()), &[TAIL_WRITTEN]);
    });
}

#[test]
fn marks_that_nothing_orders_are_found() {
    weakened(Weakness::MarksUnordered, || {
        assert_fails_within(PREEMPTIONS, || use_while_tails_come(&Arc::default()), &[TAIL_WRITTEN]);
    });
}

#[test]
fn one_of_two_removals_succeeds() {
    explore_within(PREEMPTIONS, remove_twice);
}

#[test]
fn one_of_two_mappings_of_a_range_succeeds() {
    explore_within(PREEMPTIONS, || map_twice(Locks::SOUND));
}

#[test]
fn a_get_without_the_second_check_is_detected() {
    weakened(Weakness::PageNotRechecked, || {
        assert_fails_within(PREEMPTIONS, || use_while_splitting(&Arc::default()), &[OTHER_PAGE]);
        let removing = || use_while_removing(MapLayout::Folded, &Arc::default());
        assert_fails_within(PREEMPTIONS, removing, &[OTHER_PAGE]);
    });
}

#[test]
fn get_without_head_reference_fails() {
    weakened(Weakness::PartsGotWithoutHead, || {
        assert_fails_within(PREEMPTIONS, || use_while_joining(&Arc::default()), &[TAIL_WRITTEN]);
    });
}

#[test]
fn non_atomic_counts_fail() {
    weakened(Weakness::SplitCompareExchange, || {
        let removing = || use_while_removing(MapLayout::Deduplicated, &Arc::default());
        let expected = [GONE, OTHER_PAGE, "references of ours", "the validator objects", "nobody uses the device"];
        assert_fails_within(PREEMPTIONS, removing, &expected);
        assert_fails_within(PREEMPTIONS, remove_twice, &[BOTH]);
    });
}

#[test]
fn unlocked_device_table_fails() {
    let locks = Locks { devices: Some(Flaw::NeverRefused), ..Locks::SOUND };
    assert_fails_within(PREEMPTIONS, move || map_twice(locks), &[BOTH, "the validator objects"]);
}
