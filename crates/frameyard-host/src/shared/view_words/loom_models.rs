//! Loom models of how a change reaches every view before it is used: a view that follows, one that joins meanwhile, one whose
//! process ends, and one after a holder of the right to change who has ended in the middle.
//!
//! The words are loom's and few, and time is what the model says; else it is the code that processes run. What a view
//! shows is a witness that loom does not see. Before a change is published a word is written, as page structures are
//! zeroed: who shows the change must see it.

use std::sync::{Arc, Mutex};

use loom::model::Builder;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::*;

const WHOLE: Piece = Piece { offset: 0, len: 8 };
const TAILS: Change = Change::SharedTails(WHOLE, 4);
/// Involuntary switches.
const PREEMPTIONS: usize = 3;

/// What is said where a change is used too early.
const USED_EARLY: &str = "used before every view shows it";
/// What is said where a view shows a change whose cause it does not see.
const NOT_ZEROED: &str = "shown before it was zeroed";
/// What is said where a view shows what was before.
const MISSED: &str = "a view has missed a change";

/// What is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// Nothing that is stored is released.
    RelaxedStores,
    /// A change is used before there are answers.
    NotWaitedFor,
    /// A view is set up, and joins afterwards, without the right to change views.
    JoinedLate,
    /// Who is alive is taken for dead.
    TakenForDead,
}

/// What all processes have in common.
#[derive(Debug)]
struct Common {
    words: Vec<AtomicU64>,
    zeroed: AtomicU64,
    done: AtomicU64,
    flaw: Flaw,
    /// Those that have ended. A witness.
    dead: Mutex<Vec<Process>>,
}

impl Common {
    fn new(flaw: Flaw) -> Arc<Self> {
        let words = (0..words::<ModelBoard>()).map(|_| AtomicU64::new(0)).collect();
        let [zeroed, done] = [0, 0].map(AtomicU64::new);
        Arc::new(Self { words, zeroed, done, flaw, dead: Mutex::default() })
    }
}

/// The words as a process has them.
#[derive(Debug)]
struct ModelBoard {
    common: Arc<Common>,
    this: Process,
}

impl Board for ModelBoard {
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

    /// Long enough to ask whether others are alive, and never too long.
    fn since(&self, _begin: Instant) -> Duration {
        LOOK + Duration::from_millis(1)
    }

    fn this(&self) -> Process {
        self.this
    }

    fn is_alive(&self, process: Process) -> bool {
        self.common.flaw != Flaw::TakenForDead && !self.common.dead.lock().unwrap().contains(&process)
    }
}

/// A process with a view.
struct Viewer {
    words: ViewWords<ModelBoard>,
    /// Whether the view shows tails; `None` as long as it is not set up. A witness.
    tails: Mutex<Option<bool>>,
}

impl Viewer {
    fn new(common: &Arc<Common>, number: u64) -> Arc<Self> {
        let board = ModelBoard { common: Arc::clone(common), this: Process(number) };
        Arc::new(Self { words: ViewWords { board }, tails: Mutex::new(None) })
    }

    fn common(&self) -> &Common {
        &self.words.board.common
    }

    fn shows_tails(&self) -> Option<bool> {
        *self.tails.lock().unwrap()
    }

    /// Joins all others, as whoever attaches a yard.
    fn attach(&self) -> Slot {
        let changing = self.words.lock().unwrap();
        let slot = changing.join().unwrap();
        self.set_up().unwrap();
        slot
    }

    /// Zeroes what was there, lets all show tails, and uses that.
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
            let is_dead = self.common().dead.lock().unwrap().contains(&other.words.board.this);
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

/// A view joins while a change is made.
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
            while joiner.common().done.load(Ordering::Acquire) == 0 {
                joiner.words.follow(slot, &*joiner);
                thread::yield_now();
            }
        }
    });
    changer.change(own, &[&joiner]);
    common.done.store(1, Ordering::Release);
    keeper.join().unwrap();
    assert_eq!(joiner.shows_tails(), Some(true), "{MISSED}");
}

/// A process ends, and answers no more.
fn end() {
    let common = Common::new(Flaw::None);
    let [changer, ender] = [1, 2].map(|number| Viewer::new(&common, number));
    let [own, slot] = [&changer, &ender].map(|viewer| viewer.attach());
    let process = thread::spawn({
        let ender = Arc::clone(&ender);
        move || {
            ender.words.follow(slot, &*ender);
            ender.common().dead.lock().unwrap().push(ender.words.board.this);
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
fn a_process_that_has_ended_is_not_waited_for() {
    explore(end);
}

#[test]
fn views_are_set_up_anew_after_a_changer_that_has_ended() {
    explore(take_over);
}

#[test]
fn a_change_that_nobody_waits_for_is_found() {
    assert_fails(|| follow(Flaw::NotWaitedFor), &[USED_EARLY]);
}

#[test]
fn words_that_release_nothing_are_found() {
    assert_fails(|| follow(Flaw::RelaxedStores), &[NOT_ZEROED, USED_EARLY]);
}

#[test]
fn a_view_that_joins_after_it_was_set_up_is_found() {
    assert_fails(|| join(Flaw::JoinedLate), &[MISSED]);
}

#[test]
fn a_process_that_is_taken_for_dead_is_found() {
    assert_fails(|| follow(Flaw::TakenForDead), &[USED_EARLY]);
}
