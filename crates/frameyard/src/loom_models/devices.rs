//! Look-ups of device pages during splits, joins and removals, and racing removals and mappings (`devices`).
//!
//! The device has one compound page of four frames. The platform checks that no thread writes to a tail while its map
//! page is shared. A thread that holds references checks that its page keeps its frames and order, and that the device
//! stays mapped.

use std::sync::{Arc, Mutex};

use crate::boot::{InitMode, MapInit};
use crate::devices::{DeviceError, DeviceId, DeviceRequest, MapLayout, MapPlacement, Removal};
use crate::loom_models::machine::{Flaw, LARGEST, Locks, Machine, Runner, Setup, TAIL_WRITTEN};
use crate::loom_models::{assert_fails_within, explore_within};
use crate::memmap::Initialiser;
use crate::platform::SpeculativeGets;
use crate::sync::{AtomicU32, Ordering, Weakness, weakened};
use crate::units::{NodeId, Order, PageCount, Pfn, PfnRange};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. Two find every broken variant.
const PREEMPTIONS: usize = 2;

/// The failure message for references to a page that does not count the frame's users.
const OTHER_PAGE: &str = "references to another page";
/// The failure message for the removal of a device while a page of it is in use.
const GONE: &str = "removed under its user";
/// The failure message for a mapping that is counted on another device than its frame's.
const WRONG_DEVICE: &str = "a mapping is counted on another device";
/// The failure message for two mappings of one range, or two removals of one device, that both succeed.
const BOTH: &str = "both succeeded";

fn boot(locks: Locks) -> Runner {
    boot_with(locks, SpeculativeGets::Unmarked)
}

fn boot_with(locks: Locks, gets: SpeculativeGets) -> Runner {
    boot_sections(1, locks, gets)
}

fn boot_sections(devices: u64, locks: Locks, gets: SpeculativeGets) -> Runner {
    let map_init = MapInit { mode: InitMode::Eager, initialiser: Initialiser::None, ..MapInit::default() };
    Machine::boot_with(1, Setup { map_init, devices, gets, ..Setup::new(PcpSizing::Fixed(0), locks) })
}

fn map(runner: &Runner, order: Order, layout: MapLayout) -> Result<DeviceId, DeviceError> {
    map_at(runner, runner.device_space(), order, layout)
}

fn map_at(runner: &Runner, range: PfnRange, order: Order, layout: MapLayout) -> Result<DeviceId, DeviceError> {
    runner.yard.devices().map(DeviceRequest { range, node: NodeId(0), order, layout, placement: MapPlacement::Memory })
}

/// Whether, over all executions, a thread got references to the whole compound page, to a part of it, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    whole: bool,
    part: bool,
    nothing: bool,
}

/// Whether a thread has references, so that no thread may remove the device. Not modelled: records the order that loom has
/// chosen.
type Held = Arc<Mutex<bool>>;

/// Looks a frame up, takes references, and checks that they are on the page that counts the frame's users.
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
    // SAFETY: `try_get` got them above.
    let left = unsafe { page.put(2) }.expect("the thread has references");
    assert!(left > 0);
    let mut seen = seen.lock().unwrap();
    if order == LARGEST { seen.whole = true } else { seen.part = true }
}

/// Removes the device, and asserts that the yard is as it was.
fn end(main: &Runner, device: DeviceId) {
    main.yard.validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    main.yard.devices().unmap(device, Removal::Refuse).expect("the device is not in use");
    main.finish();
}

/// The two sections of a device space.
fn halves(space: PfnRange) -> [PfnRange; 2] {
    let half = PageCount(space.count().0 / 2);
    [PfnRange::new(space.start, half), PfnRange::new(space.start + half, half)]
}

fn only_device(runner: &Runner) -> DeviceId {
    runner.yard.devices().list().next().expect("one device is mapped").id
}

fn third(runner: &Runner) -> Pfn {
    runner.device_space().start + PageCount(2)
}

/// A word that both threads modify, one before its work and the other after it, so that loom tries both orders of the
/// work. The accesses are relaxed, so they order nothing.
///
/// Without it loom misses one order: it remembers only the last read of a word. A thread that reads a tag before it
/// writes the tag hides the other thread's read.
#[derive(Clone, Default)]
struct BothOrders(Arc<AtomicU32>);

impl BothOrders {
    fn meet(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One thread looks up and uses a frame while another splits its page.
fn use_while_splitting(seen: &Arc<Mutex<Seen>>) {
    let main = boot(Locks::SOUND);
    let both_orders = BothOrders::default();
    let device = map(&main, LARGEST, MapLayout::Deduplicated).unwrap();
    let head = main.device_space().start;
    let splitter = main.start(1, {
        let both_orders = both_orders.clone();
        move |runner| {
            match runner.yard.devices().split(head) {
                Ok(()) | Err(DeviceError::InUse { .. }) => {}
                Err(problem) => panic!("{problem}"),
            }
            both_orders.meet();
        }
    });
    both_orders.meet();
    use_page(&main, third(&main), &Held::default(), seen);
    splitter.join().unwrap();
    end(&main, device);
}

/// One thread looks up and uses a frame while another joins the parts of its page.
fn use_while_joining(seen: &Arc<Mutex<Seen>>) {
    let main = boot(Locks::SOUND);
    let device = map(&main, LARGEST, MapLayout::Deduplicated).unwrap();
    let head = main.device_space().start;
    main.yard.devices().split(head).unwrap();
    let both_orders = BothOrders::default();
    let joiner = main.start(1, {
        let both_orders = both_orders.clone();
        move |runner| {
            match runner.yard.devices().join(head) {
                Ok(()) | Err(DeviceError::InUse { .. }) => {}
                Err(problem) => panic!("{problem}"),
            }
            both_orders.meet();
        }
    });
    both_orders.meet();
    use_page(&main, third(&main), &Held::default(), seen);
    joiner.join().unwrap();
    end(&main, device);
}

/// One thread looks up and uses a frame while another removes its device and maps one with base pages in its place.
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
    end(&main, only_device(&main));
}

/// One thread looks up and uses a frame of a device with base pages, while another removes the device and maps one with
/// shared tails in its place. The platform makes shared tails read-only.
fn use_while_tails_become_shared(seen: &Arc<Mutex<Seen>>) {
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
    end(&main, only_device(&main));
}

/// One thread counts a mapping of a frame, and takes it back, while another removes the frame's device and maps one elsewhere,
/// which gets the same number.
fn map_entry_while_removing(seen: &Arc<Mutex<Seen>>) {
    let main = boot_sections(2, Locks::SOUND, SpeculativeGets::Unmarked);
    let [first, second] = halves(main.device_space());
    let device = map_at(&main, first, LARGEST, MapLayout::Folded).unwrap();
    let remover = main.start(1, move |runner| match runner.yard.devices().unmap(device, Removal::Refuse) {
        Ok(()) => drop(map_at(runner, second, LARGEST, MapLayout::Folded).expect("the range is free")),
        Err(DeviceError::Mapped { .. }) => {}
        Err(problem) => panic!("{problem}"),
    });
    let counted = main.yard.devices().add_mapping(first.start).is_ok();
    if counted {
        main.yard.devices().remove_mapping(first.start).expect("a counted entry keeps its device");
    }
    remover.join().unwrap();
    let left = main.yard.devices().list().next().expect("one device is mapped");
    assert_eq!(left.mappings, 0, "{WRONG_DEVICE}");
    let removed = left.range == second;
    let mut seen = seen.lock().unwrap();
    seen.whole |= counted && removed;
    seen.part |= counted && !removed;
    seen.nothing |= !counted;
    drop(seen);
    end(&main, left.id);
}

/// Two threads remove a device at once.
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

/// Two threads map a range at once.
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
    end(&main, only_device(&main));
}

/// Explores a model, which must reach all of these outcomes.
fn explore_use(model: impl Fn(&Arc<Mutex<Seen>>) + Send + Sync + 'static, expected: Seen) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let model = {
        let seen = Arc::clone(&seen);
        move || model(&seen)
    };
    explore_within(PREEMPTIONS, model);
    assert_eq!(*seen.lock().unwrap(), expected, "an outcome was not explored");
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
    explore_use(use_while_tails_become_shared, Seen { whole: true, part: true, nothing: true });
}

#[test]
fn sharing_tails_without_a_grace_period_fails() {
    weakened(Weakness::NoGracePeriod, || {
        assert_fails_within(PREEMPTIONS, || use_while_tails_become_shared(&Arc::default()), &[TAIL_WRITTEN]);
    });
}

#[test]
fn unordered_marks_fail() {
    weakened(Weakness::MarksEnteredUnlocked, || {
        assert_fails_within(PREEMPTIONS, || use_while_tails_become_shared(&Arc::default()), &[TAIL_WRITTEN]);
    });
    weakened(Weakness::MarksUnordered, || {
        assert_fails_within(PREEMPTIONS, || use_while_tails_become_shared(&Arc::default()), &[TAIL_WRITTEN]);
    });
}

#[test]
fn mapping_races_removal_and_remapping() {
    explore_use(map_entry_while_removing, Seen { whole: true, part: true, nothing: true });
}

#[test]
fn entries_are_repeated_if_an_exchange_fails_without_cause() {
    weakened(Weakness::SpuriousFailures, || {
        explore_use(map_entry_while_removing, Seen { whole: true, part: true, nothing: true });
        explore_within(PREEMPTIONS, remove_twice);
    });
}

#[test]
fn mapping_without_comparing_generations_fails() {
    weakened(Weakness::GenerationNotCompared, || {
        let expected = [WRONG_DEVICE, "a counted entry keeps its device"];
        assert_fails_within(PREEMPTIONS, || map_entry_while_removing(&Arc::default()), &expected);
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
fn get_without_the_second_check_fails() {
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
        let expected =
            [GONE, OTHER_PAGE, "the thread has references", "the validator objects", "the device is not in use"];
        assert_fails_within(PREEMPTIONS, removing, &expected);
        assert_fails_within(PREEMPTIONS, remove_twice, &[BOTH]);
    });
}

#[test]
fn unlocked_device_table_fails() {
    let locks = Locks { devices: Some(Flaw::NeverRefused), ..Locks::SOUND };
    assert_fails_within(PREEMPTIONS, move || map_twice(locks), &[BOTH, "the validator objects"]);
}
