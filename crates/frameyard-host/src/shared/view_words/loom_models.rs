//! Loom models of the protocol of views: a view that follows a change, a view that joins during one, a process that
//! ends, and a holder of the right to change views that died in the middle of a change.
//!
//! The words are loom's, few, and time is simulated. Everything else is the production code. What a view shows is a
//! witness that loom does not see. A word is written before a change is published, as page structures are zeroed: a
//! process that shows the change must see it.

use std::sync::{Arc, Mutex};

use loom::model::Builder;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::*;

const WHOLE: Piece = Piece { offset: 0, len: 8 };
const TAILS: Change = Change::ZeroTails(WHOLE, 4);
/// The bound on preemptions.
const PREEMPTIONS: usize = 3;

/// The message if a change is used too early.
const USED_EARLY: &str = "used before every view shows it";
/// The message if a view shows a change whose cause it does not see.
const NOT_ZEROED: &str = "shown before it was zeroed";
/// The message if a view shows the previous state.
const MISSED: &str = "a view has missed a change";

/// What a model breaks on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// No store releases.
    RelaxedStores,
    /// A change is used before all views have answered.
    NotWaitedFor,
    /// A view is set up and joins afterwards, without the right to change views.
    JoinedLate,
    /// Living processes count as ended.
    CountedAsEnded,
}

/// The state that all processes share.
#[derive(Debug)]
struct Common {
    words: Vec<AtomicU64>,
    zeroed: AtomicU64,
    done: AtomicU64,
    flaw: Flaw,
    /// Processes that have ended. A witness.
    dead: Mutex<Vec<Process>>,
}

impl Common {
    fn new(flaw: Flaw) -> Arc<Self> {
        let words = (0..words::<ModelStore>()).map(|_| AtomicU64::new(0)).collect();
        let [zeroed, done] = [0, 0].map(AtomicU64::new);
        Arc::new(Self { words, zeroed, done, flaw, dead: Mutex::default() })
    }
}

/// The words in one process.
#[derive(Debug)]
struct ModelStore {
    common: Arc<Common>,
    this: Process,
}

impl WordStore for ModelStore {
    const VIEWS: usize = 2;
    const RECORDS: usize = 1;

    fn load(&self, word: usize, ordering: Ordering) -> u64 {
        self.common.words[word].load(ordering)
    }

    fn store(&self, word: usize, value: u64, ordering: Ordering) {
        let is_broken = self.common.flaw == Flaw::RelaxedStores;
        self.common.words[word].store(value, if is_broken { Ordering::Relaxed } else { ordering });
    }

    fn compare_exchange(&self, word: usize, current: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        self.common.words[word].compare_exchange(current, new, success, Ordering::Relaxed)
    }

    fn fetch_add(&self, word: usize, value: u64, ordering: Ordering) {
        self.common.words[word].fetch_add(value, ordering);
    }

    fn fence(&self, ordering: Ordering) {
        if self.common.flaw != Flaw::RelaxedStores {
            loom::sync::atomic::fence(ordering);
        }
    }

    fn sleep_on(&self, _word: usize, _seen: u64, _longest: Duration) {
        thread::yield_now();
    }

    fn wake(&self, _word: usize) {}

    fn pause(&self, _nap: Duration) {
        thread::yield_now();
    }

    /// Long enough to check that processes are alive, never too long.
    fn since(&self, _begin: Instant) -> Duration {
        ALIVE_CHECK + Duration::from_millis(1)
    }

    fn lock_limit(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn this(&self) -> Process {
        self.this
    }

    fn has_ended(&self, process: Process) -> bool {
        self.common.flaw == Flaw::CountedAsEnded || self.common.dead.lock().unwrap().contains(&process)
    }
}

/// A process with a view.
struct Viewer {
    words: ViewWords<ModelStore>,
    /// Whether the view shows tails; `None` until it is set up. A witness.
    tails: Mutex<Option<bool>>,
}

impl Viewer {
    fn new(common: &Arc<Common>, number: u64) -> Arc<Self> {
        let store = ModelStore { common: Arc::clone(common), this: Process(number) };
        Arc::new(Self { words: ViewWords { store }, tails: Mutex::new(None) })
    }

    fn common(&self) -> &Common {
        &self.words.store.common
    }

    fn shows_tails(&self) -> Option<bool> {
        *self.tails.lock().unwrap()
    }

    /// Joins the other views, as a process does that attaches a yard.
    fn attach(&self) -> Slot {
        let changing = self.words.lock().unwrap();
        let slot = changing.join().unwrap();
        self.set_up().unwrap();
        slot
    }

    /// Zeroes the structures, makes all views show tails, then uses them.
    fn change(&self, slot: Slot, others: &[&Self]) {
        self.common().zeroed.store(1, Ordering::Relaxed);
        let changing = self.words.lock().unwrap();
        changing.add_record(WHOLE, 4).unwrap();
        self.apply(TAILS).unwrap();
        let number = changing.publish(slot, TAILS);
        if self.common().flaw != Flaw::NotWaitedFor {
            changing.wait_for_answers(slot, number).unwrap();
        }
        for other in others {
            let is_dead = self.common().dead.lock().unwrap().contains(&other.words.store.this);
            assert!(is_dead || other.shows_tails() != Some(false), "{USED_EARLY}");
        }
    }
}

impl Show for Viewer {
    fn apply(&self, change: Change) -> io::Result<()> {
        assert_eq!(change, TAILS);
        assert_eq!(self.common().zeroed.load(Ordering::Relaxed), 1, "{NOT_ZEROED}");
        *self.tails.lock().unwrap() = Some(true);
        Ok(())
    }

    fn set_up(&self) -> io::Result<()> {
        match self.words.records().next() {
            Some(_) => self.apply(TAILS),
            None => {
                *self.tails.lock().unwrap() = Some(false);
                Ok(())
            }
        }
    }
}

/// A keeper follows a change.
fn follow(flaw: Flaw) {
    let common = Common::new(flaw);
    let [changer, follower] = [1, 2].map(|number| Viewer::new(&common, number));
    let [own, slot] = [&changer, &follower].map(|viewer| viewer.attach());
    let keeper = thread::spawn({
        let follower = Arc::clone(&follower);
        move || {
            while !follower.words.follow(slot, &*follower) {
                thread::yield_now();
            }
        }
    });
    changer.change(own, &[&follower]);
    keeper.join().unwrap();
}

/// A view joins during a change.
fn join(flaw: Flaw) {
    let common = Common::new(flaw);
    let [changer, joiner] = [1, 2].map(|number| Viewer::new(&common, number));
    let own = changer.attach();
    let keeper = thread::spawn({
        let joiner = Arc::clone(&joiner);
        move || {
            let slot = if flaw == Flaw::JoinedLate {
                joiner.set_up().unwrap();
                let unlocked = std::mem::ManuallyDrop::new(Changing { words: &joiner.words });
                unlocked.join().unwrap()
            } else {
                joiner.attach()
            };
            // Acquire: pairs with the Release in `join`.
            while joiner.common().done.load(Ordering::Acquire) == 0 {
                joiner.words.follow(slot, &*joiner);
                thread::yield_now();
            }
        }
    });
    changer.change(own, &[&joiner]);
    // Release: pairs with the Acquire in `join`.
    common.done.store(1, Ordering::Release);
    keeper.join().unwrap();
    assert_eq!(joiner.shows_tails(), Some(true), "{MISSED}");
}

/// A process ends and answers no more.
fn end() {
    let common = Common::new(Flaw::None);
    let [changer, ender] = [1, 2].map(|number| Viewer::new(&common, number));
    let [own, slot] = [&changer, &ender].map(|viewer| viewer.attach());
    let process = thread::spawn({
        let ender = Arc::clone(&ender);
        move || {
            ender.words.follow(slot, &*ender);
            ender.common().dead.lock().unwrap().push(ender.words.store.this);
        }
    });
    changer.change(own, &[&ender]);
    process.join().unwrap();
}

/// A process has ended in the middle of a change: another takes the right over, and all views are set up anew.
fn take_over() {
    let common = Common::new(Flaw::None);
    let [changer, follower, ended] = [1, 2, 3].map(|number| Viewer::new(&common, number));
    let [_, slot] = [&changer, &follower].map(|viewer| viewer.attach());
    common.zeroed.store(1, Ordering::Relaxed);
    let changing = ended.words.lock().unwrap();
    changing.add_record(WHOLE, 4).unwrap();
    ended.words.word(CHANGE).store(1, Ordering::Relaxed);
    ended.words.word(MESSAGE).store(1, Ordering::Relaxed);
    std::mem::forget(changing);
    common.dead.lock().unwrap().push(Process(3));
    let keeper = thread::spawn({
        let follower = Arc::clone(&follower);
        move || {
            while !follower.words.follow(slot, &*follower) {
                thread::yield_now();
            }
        }
    });
    drop(changer.words.lock().unwrap());
    keeper.join().unwrap();
    assert_eq!(follower.shows_tails(), Some(true), "{MISSED}");
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

#[track_caller]
fn assert_fails(model: impl Fn() + Send + Sync + 'static, expected: &[&str]) {
    let explored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore(model)));
    let panic = explored.expect_err("the broken protocol passes its model");
    let message = panic.downcast::<String>().map_or_else(|other| format!("{other:?}"), |message| *message);
    assert!(expected.iter().any(|part| message.contains(part)), "failed for another reason: {message}");
}

#[test]
fn a_change_reaches_a_view_before_it_is_used() {
    explore(|| follow(Flaw::None));
}

#[test]
fn a_view_that_joins_meanwhile_misses_no_change() {
    explore(|| join(Flaw::None));
}

#[test]
fn a_process_that_has_ended_needs_no_answer() {
    explore(end);
}

#[test]
fn views_are_set_up_anew_after_a_holder_that_has_ended() {
    explore(take_over);
}

#[test]
fn a_change_without_a_wait_is_detected() {
    assert_fails(|| follow(Flaw::NotWaitedFor), &[USED_EARLY]);
}

#[test]
fn stores_without_release_are_detected() {
    assert_fails(|| follow(Flaw::RelaxedStores), &[NOT_ZEROED, USED_EARLY]);
}

#[test]
fn a_view_that_joins_after_its_setup_is_detected() {
    assert_fails(|| join(Flaw::JoinedLate), &[MISSED]);
}

#[test]
fn a_living_process_that_counts_as_ended_is_detected() {
    assert_fails(|| follow(Flaw::CountedAsEnded), &[USED_EARLY]);
}
