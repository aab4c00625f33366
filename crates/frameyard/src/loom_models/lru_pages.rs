//! A page on an LRU list, or on its way there, while it is isolated, scanned and freed.
//!
//! Counts and owner's word are those of real pages of a real yard. The list is minimal, with the steps of
//! `frameyard-vm`, whose words lie in frames that these models do not have. A flag marks a listed page and is set under
//! the list's lock. The thread that clears it, by exchange and with a reference, takes the page off the list. The
//! thread that puts the last reference takes a listed page off and frees it.

use std::sync::{Arc, Mutex};
use std::vec::Vec;

use loom::cell::UnsafeCell;

use super::machine::{Locks, Machine, ModelPlatform, Runner};
use super::{assert_fails_within, explore_within};
use crate::owners::Adoption;
use crate::page::{CountedPage, Counts};
use crate::platform::{LockId, Platform};
use crate::sync::AtomicU32;
use crate::units::{NodeId, Order, Pfn};
use crate::watermarks::PcpSizing;

const LOCK: LockId = LockId::LruShard(NodeId(0), 0);
/// The flag of a listed page.
const LISTED: u64 = 1 << 8;
/// Involuntary switches: what is broken here is found with one or two.
const PREEMPTIONS: usize = 3;

/// What is wrong with the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// Isolation takes the page off though another thread has cleared the flag.
    FlagUnheard,
    /// The scanner takes a reference though there is none.
    ReferenceUnasked,
    /// A batch puts its reference before the page is listed.
    PutBeforeListed,
    /// The free does not check whether the page is listed.
    FreedWhileListed,
}

/// What happened, over all executions.
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

/// The pages that are listed, under a lock.
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

// SAFETY: loom runs all threads of a model on one, and objects to accesses of the list that no lock orders.
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
        platform.lock(LOCK, &self.shared.list.lock);
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
        if was || self.shared.flaw == Flaw::FlagUnheard {
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
                if self.shared.flaw == Flaw::ReferenceUnasked {
                    page.get();
                } else if !page.try_get() {
                    self.saw(|seen| seen.dying = true);
                    continue;
                }
                if page.clear_owner_bits(LISTED) & LISTED == 0 && self.shared.flaw != Flaw::FlagUnheard {
                    assert!(page.put().expect("a reference of ours") > 0, "who isolates it has one");
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
        if self.page(pfn).put().expect("a reference of ours") == 0 {
            self.free(pfn);
        }
    }

    /// Frees a page that the caller has alone.
    fn free(&self, pfn: Pfn) {
        let listed = self.page(pfn).owner() & LISTED != 0;
        if listed && self.shared.flaw != Flaw::FreedWhileListed {
            self.locked(|frames| Self::unlink(frames, pfn));
        }
        self.saw(|seen| if listed { seen.freed_listed = true } else { seen.freed_unlisted = true });
        self.runner.disown(pfn, Order::ZERO);
        self.runner.yard.counted().free(pfn, Order::ZERO).expect("the block is ours");
    }

    /// What becomes of a page in a batch, which has a reference of it.
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

    /// What reclaim does with a page that it cannot drop after all.
    fn scan_and_put_back(&self) {
        if let Some(pfn) = self.scan() {
            self.link(pfn);
            self.put(pfn);
        }
    }

    /// The list is empty, and every frame is free.
    fn finish(&self) {
        assert_eq!(self.locked(|frames| frames.len()), 0, "pages are listed that nobody has");
        self.runner.finish();
    }
}

/// Runs a model: a page with this number of references, used by CPU 0 and CPU 1.
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
    let adoption = Adoption { counts: Counts { references, mappings: 0 }, owner: 1, index: 0 };
    main.yard.counted().adopt(pfn, Order::ZERO, adoption).expect("the block is ours");
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

/// Explores a model without flaws; what it has met.
fn met(model: fn(Flaw, &Arc<Mutex<Seen>>)) -> Seen {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let inside = Arc::clone(&seen);
    explore_within(PREEMPTIONS, move || model(Flaw::None, &inside));
    *seen.lock().unwrap()
}

#[track_caller]
fn assert_broken(model: fn(Flaw, &Arc<Mutex<Seen>>), flaw: Flaw, said: &[&str]) {
    assert_fails_within(PREEMPTIONS, move || model(flaw, &Arc::default()), said);
}

#[test]
fn a_page_is_isolated_by_one_and_freed_once() {
    let met = met(isolate_and_free_while_scanned);
    let all = Seen { isolated: true, scanned: true, dying: true, lost: true, freed_listed: true, ..Seen::default() };
    assert_eq!(Seen { freed_unlisted: false, ..met }, all, "every way to meet was explored");
}

#[test]
fn batch_lists_or_frees_a_page() {
    let met = met(drain_while_scanned_and_freed);
    assert!(met.scanned && met.freed_listed && met.freed_by_batch, "every way to meet was explored: {met:?}");
}

#[test]
fn a_flag_whose_answer_is_ignored_is_detected() {
    let said = ["the page is on the list", "the page was listed twice", "a reference of ours"];
    assert_broken(isolate_and_free_while_scanned, Flaw::FlagUnheard, &said);
}

#[test]
fn a_reference_got_from_zero_is_detected() {
    let said = ["the block is ours", "the page is on the list", "handed out twice", "a reference of ours"];
    assert_broken(isolate_and_free_while_scanned, Flaw::ReferenceUnasked, &said);
}

#[test]
fn freeing_a_listed_page_fails() {
    let said = ["pages are listed that nobody has", "the block is ours", "Causality violation"];
    assert_broken(isolate_and_free_while_scanned, Flaw::FreedWhileListed, &said);
}

#[test]
fn early_batch_put_fails() {
    let said = ["pages are listed that nobody has", "the validator objects", "the block is ours"];
    assert_broken(drain_while_scanned_and_freed, Flaw::PutBeforeListed, &said);
}
