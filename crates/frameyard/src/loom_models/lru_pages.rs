//! A page on an LRU list, or in transit to it, while threads isolate, scan and free it.
//!
//! Counts and owner's words are those of a real yard. The list is a small copy of the list in `frameyard-vm`, with the
//! same steps. (The real list keeps its words in the bytes of frames, which these models do not have.)
//!
//! - A flag marks a listed page. The thread that links the page sets it under the list's lock.
//! - The thread that clears the flag, by an exchange while it holds a reference, takes the page off the list.
//! - The thread that puts the last reference takes a listed page off the list and frees it.

use std::sync::{Arc, Mutex};
use std::vec::Vec;

use loom::cell::UnsafeCell;

use crate::loom_models::machine::{Locks, Machine, ModelPlatform, Runner};
use crate::loom_models::{assert_fails_within, explore_within};
use crate::owners::Ownership;
use crate::page::{CountedPage, Counts};
use crate::platform::{LockId, Platform};
use crate::sync::AtomicU32;
use crate::units::{NodeId, Order, Pfn};
use crate::watermarks::PcpSizing;

const LOCK: LockId = LockId::LruShard(NodeId(0), 0);
/// The flag of a listed page.
const LISTED: u64 = 1 << 8;
/// The bound of involuntary switches. One or two find every broken variant.
const PREEMPTIONS: usize = 3;

/// A defect of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// A thread takes the page off the list though another thread has cleared the flag.
    FlagIgnored,
    /// The scanner gets a reference though the count is zero.
    ZeroCountIgnored,
    /// A batch puts its reference before the page is listed.
    PutBeforeListed,
    /// The free does not check whether the page is listed.
    FreedWhileListed,
}

/// The outcomes that executions have reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    isolated: bool,
    scanned: bool,
    /// The scanner met a page that was being freed.
    dying: bool,
    /// The scanner met a page that another thread was isolating.
    lost: bool,
    freed_listed: bool,
    freed_unlisted: bool,
    /// A batch had the only reference.
    freed_by_batch: bool,
}

/// The listed pages, under a lock.
#[derive(Default)]
struct List {
    lock: AtomicU32,
    frames: UnsafeCell<Vec<Pfn>>,
}

/// What all threads of a model share.
struct Shared {
    list: List,
    flaw: Flaw,
    seen: Arc<Mutex<Seen>>,
}

// SAFETY: loom runs all threads of a model on one thread, and fails on accesses to the list that no lock orders.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// One thread's view.
struct User<'a> {
    runner: &'a Runner,
    shared: &'a Shared,
}

impl User<'_> {
    fn page(&self, pfn: Pfn) -> CountedPage<'_, ModelPlatform> {
        // SAFETY: a thread changes counts and flags only while it holds a reference, and gets one by `try_get`.
        unsafe { self.runner.yard.counted().page(pfn) }.expect("a page")
    }

    fn saw(&self, what: impl FnOnce(&mut Seen)) {
        what(&mut self.shared.seen.lock().unwrap());
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Vec<Pfn>) -> T) -> T {
        let platform = self.runner.yard.platform();
        platform.lock(LOCK, &self.shared.list.lock).unwrap();
        // SAFETY: under the lock.
        let result = self.shared.list.frames.with_mut(|frames| work(unsafe { &mut *frames }));
        platform.unlock(LOCK, &self.shared.list.lock);
        result
    }

    fn link(&self, pfn: Pfn) {
        self.locked(|frames| {
            frames.push(pfn);
            assert_eq!(self.page(pfn).set_owner_bits(LISTED) & LISTED, 0, "the page was listed twice");
        });
    }

    fn unlink(frames: &mut Vec<Pfn>, pfn: Pfn) {
        let at = frames.iter().position(|listed| *listed == pfn).expect("the page is on the list");
        frames.remove(at);
    }

    /// Takes a page off the list; the caller has a reference.
    fn isolate(&self, pfn: Pfn) -> bool {
        let was = self.page(pfn).clear_owner_bits(LISTED) & LISTED != 0;
        if was || self.shared.flaw == Flaw::FlagIgnored {
            self.locked(|frames| Self::unlink(frames, pfn));
            self.saw(|seen| seen.isolated = true);
            return true;
        }
        false
    }

    /// Takes the first page with references off the list, and gets a reference to it.
    fn scan(&self) -> Option<Pfn> {
        self.locked(|frames| {
            for pfn in frames.clone() {
                let page = self.page(pfn);
                if self.shared.flaw == Flaw::ZeroCountIgnored {
                    page.get();
                } else if !page.try_get() {
                    self.saw(|seen| seen.dying = true);
                    continue;
                }
                if page.clear_owner_bits(LISTED) & LISTED == 0 && self.shared.flaw != Flaw::FlagIgnored {
                    assert!(page.put().expect("the thread has a reference") > 0, "the isolating thread has one, too");
                    self.saw(|seen| seen.lost = true);
                    continue;
                }
                Self::unlink(frames, pfn);
                self.saw(|seen| seen.scanned = true);
                return Some(pfn);
            }
            None
        })
    }

    /// Puts a reference, and frees the page with the last one.
    fn put(&self, pfn: Pfn) {
        if self.page(pfn).put().expect("the thread has a reference") == 0 {
            self.free(pfn);
        }
    }

    /// Frees a page. The caller is its only user.
    fn free(&self, pfn: Pfn) {
        let listed = self.page(pfn).owner() & LISTED != 0;
        if listed && self.shared.flaw != Flaw::FreedWhileListed {
            self.locked(|frames| Self::unlink(frames, pfn));
        }
        self.saw(|seen| if listed { seen.freed_listed = true } else { seen.freed_unlisted = true });
        self.runner.release(pfn, Order::ZERO);
        // SAFETY: this thread put the last reference.
        unsafe { self.runner.yard.counted().free(pfn, Order::ZERO) }.expect("the block is ours");
    }

    /// Lists or frees a page of a batch. The batch has a reference to it.
    fn drain(&self, pfn: Pfn) {
        const ONLY: Counts = Counts { references: 1, mappings: 0 };
        let page = self.page(pfn);
        if page.counts() == ONLY && page.freeze(ONLY) {
            self.saw(|seen| seen.freed_by_batch = true);
            return self.free(pfn);
        }
        if self.shared.flaw == Flaw::PutBeforeListed {
            self.put(pfn);
            return self.link(pfn);
        }
        self.link(pfn);
        self.put(pfn);
    }

    /// Scans, then lists the page again, like reclaim with a page that it cannot drop.
    fn scan_and_put_back(&self) {
        if let Some(pfn) = self.scan() {
            self.link(pfn);
            self.put(pfn);
        }
    }

    /// Asserts that the list is empty and every frame is free.
    fn finish(&self) {
        assert_eq!(self.locked(|frames| frames.len()), 0, "pages without users are listed");
        self.runner.finish();
    }
}

/// Runs a model: CPU 0 and CPU 1 use a page that has this number of references.
fn run(
    flaw: Flaw,
    seen: &Arc<Mutex<Seen>>,
    references: u32,
    first: impl FnOnce(&User<'_>, Pfn),
    second: impl FnOnce(&User<'_>, Pfn) + 'static,
) {
    let main = Machine::boot(1, PcpSizing::Fixed(0), Locks::SOUND);
    let shared = Arc::new(Shared { list: List::default(), flaw, seen: Arc::clone(seen) });
    let pfn = main.take(Order::ZERO).expect("a frame");
    let ownership = Ownership { counts: Counts { references, mappings: 0 }, owner: 1, index: 0 };
    main.yard.counted().init_refs(pfn, Order::ZERO, ownership).expect("the block is ours");
    let user = User { runner: &main, shared: &shared };
    if references == 1 {
        user.link(pfn);
    }
    let other = main.start(1, {
        let shared = Arc::clone(&shared);
        move |runner| second(&User { runner, shared: &shared }, pfn)
    });
    first(&user, pfn);
    other.join().unwrap();
    user.finish();
}

/// CPU 0 isolates a page, puts it back and frees it, while CPU 1 scans the list.
fn isolate_and_free_while_scanned(flaw: Flaw, seen: &Arc<Mutex<Seen>>) {
    let isolate_and_free = |user: &User<'_>, pfn| {
        if user.isolate(pfn) {
            user.link(pfn);
        }
        user.put(pfn);
    };
    run(flaw, seen, 1, isolate_and_free, |user, _| user.scan_and_put_back());
}

/// CPU 0 scans the list and then frees a page, while CPU 1 drains its batch.
fn drain_while_scanned_and_freed(flaw: Flaw, seen: &Arc<Mutex<Seen>>) {
    let scan_and_free = |user: &User<'_>, pfn| {
        user.scan_and_put_back();
        user.put(pfn);
    };
    run(flaw, seen, 2, scan_and_free, |user, pfn| user.drain(pfn));
}

/// Explores a model without flaws. Returns the outcomes.
fn outcomes_of(model: fn(Flaw, &Arc<Mutex<Seen>>)) -> Seen {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let inside = Arc::clone(&seen);
    explore_within(PREEMPTIONS, move || model(Flaw::None, &inside));
    *seen.lock().unwrap()
}

#[track_caller]
fn assert_broken(model: fn(Flaw, &Arc<Mutex<Seen>>), flaw: Flaw, expected: &[&str]) {
    assert_fails_within(PREEMPTIONS, move || model(flaw, &Arc::default()), expected);
}

#[test]
fn one_thread_isolates_a_page_and_it_is_freed_once() {
    let seen = outcomes_of(isolate_and_free_while_scanned);
    let all = Seen { isolated: true, scanned: true, dying: true, lost: true, freed_listed: true, ..Seen::default() };
    assert_eq!(Seen { freed_unlisted: false, ..seen }, all, "an outcome was not explored");
}

#[test]
fn batch_lists_or_frees_a_page() {
    let seen = outcomes_of(drain_while_scanned_and_freed);
    assert!(seen.scanned && seen.freed_listed && seen.freed_by_batch, "an outcome was not explored: {seen:?}");
}

#[test]
fn ignoring_the_cleared_flag_fails() {
    let expected = ["the page is on the list", "the page was listed twice", "the thread has a reference"];
    assert_broken(isolate_and_free_while_scanned, Flaw::FlagIgnored, &expected);
}

#[test]
fn getting_a_reference_at_zero_fails() {
    let expected = ["the block is ours", "the page is on the list", "allocated twice", "the thread has a reference"];
    assert_broken(isolate_and_free_while_scanned, Flaw::ZeroCountIgnored, &expected);
}

#[test]
fn freeing_a_listed_page_fails() {
    let expected = ["pages without users are listed", "the block is ours", "Causality violation"];
    assert_broken(isolate_and_free_while_scanned, Flaw::FreedWhileListed, &expected);
}

#[test]
fn early_batch_put_fails() {
    let expected = ["pages without users are listed", "the validator objects", "the block is ours"];
    assert_broken(drain_while_scanned_and_freed, Flaw::PutBeforeListed, &expected);
}
