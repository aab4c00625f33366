//! Models of the bits and their listing, by themselves.
//!
//! Words have two frames, and words of hints two lines, so a few small lines have blocks of several words and summaries of several words.
//! Each frame has a cell that its owner writes to: loom fails a model in which a frame has two owners, or its next owner does not see what
//! the last one wrote. A model ends with the invariants of a yard at rest, and with every frame free or held once.
//!
//! | model | protection |
//! |---|---|
//! | [`taken_singly_and_whole`], [`taken_by_words`] | the CPU that clears a bit has the frame |
//! | [`freed_last_and_taken_whole`], [`freed_last_and_packed`] | a line that is listed as whole need not be |
//! | [`found_late`] | one reserves a line, whatever its hints say |
//! | [`hint_removed_late`], [`two_hints`] | a hint that was cleared is set again, and a stale one ends no search |
//! | [`freed_and_listed`], [`two_words_at_once`] | of two changes at once one sees the line as it is then |
//! | [`listed_and_searched`] | a line that has grown is noted or listed |
//! | [`run_and_line`], [`freed_together`] | a run is taken whole or not at all, and lines that share a change of hints are found |
//! | [`packed_and_taken`], [`packed_again`], [`packed_and_left`] | the CPU that takes a packed line off its list has its frames |
//! | [`left_and_freed_into`], [`left_and_stolen_from`] | a free into a line that is left is seen |
//! | [`summary_cleared`], [`summaries_cleared`] | a summary bit that was cleared is set again, on all levels |
//! | [`put_back`] | what a failed claim puts back is listed |
//! | [`slot_of_two_threads`] | a reserved line is in a slot, or in the hands of a thread |
//! | [`counted_exactly`] | what is counted while the total becomes exact is added |
//!
//! [`claimed_beside_a_put_back`] shows a limit: a request fails although no other succeeds.

use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

use core::ptr::NonNull;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::control::ModelledRegion;
use crate::loom_models::{assert_fails, explore};
use crate::platform::plain::Plain;
use crate::store::bits::bitmap::*;
use crate::sync::{Weakness, weakened};

const MOVABLE: MigrateType = MigrateType::Movable;

/// Blocks that a thread has.
type Held = Vec<(usize, Order)>;

struct Fixture {
    bits: Bits,
    lines: usize,
    /// What the owner of each frame writes to.
    contents: Vec<UnsafeCell<u32>>,
    /// What the CPU that has reserved a line writes to.
    reservations: Vec<UnsafeCell<u32>>,
    _region: Box<ModelledRegion>,
}

// SAFETY: loom checks every access to the cells, and all else is atomics.
unsafe impl Send for Fixture {}
// SAFETY: as above.
unsafe impl Sync for Fixture {}

impl Fixture {
    /// Lines of an order without free frames. The yard has one line more, which stays in use: a search of a single line reads no hints.
    fn new(lines: usize, order: u8) -> Arc<Self> {
        let (mut planner, region) = (TablePlanner::new(), Box::<ModelledRegion>::default());
        let spans = Bits::plan(&mut planner, lines + 1, Order(order)).expect("the tables are small");
        // SAFETY: the fixture keeps the region, and alone uses its tables.
        let bits = unsafe {
            let region = ControlRegion::new(NonNull::from(&*region).cast(), planner.bytes());
            Bits::carve(&region, &spans, Order(order)).expect("the spans lie in the region")
        };
        let cells = |count: usize| (0..count).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { bits, lines, contents: cells(lines << order), reservations: cells(lines), _region: region })
    }

    /// Lines of an order that are free without bits.
    fn packed(lines: usize, order: u8) -> Arc<Self> {
        let fixture = Self::new(lines, order);
        (0..lines).for_each(|line| fixture.free(line << order, Order(order)));
        fixture
    }

    /// Lines of an order all of whose bits are set.
    fn whole(lines: usize, order: u8) -> Arc<Self> {
        let fixture = Self::packed(lines, order);
        (0..lines).for_each(|line| fixture.bits.open(&Plain, line));
        fixture
    }

    /// Writes to a block that the caller owns.
    fn write(&self, place: usize, order: Order) {
        for cell in &self.contents[place..place + (1 << order.0)] {
            // SAFETY: loom reports a concurrent access.
            cell.with_mut(|value| unsafe { *value += 1 });
        }
    }

    fn free(&self, place: usize, order: Order) {
        self.write(place, order);
        let freed = if order == self.bits.order {
            self.bits.free_whole(&Plain, (place >> order.0, MOVABLE))
        } else {
            self.bits.free(&Plain, place, order)
        };
        assert_eq!(freed, Ok(()), "two owners");
    }

    fn claim(&self, line: usize, order: u8) -> Held {
        let claimed = self.bits.claim(&Plain, line, Order(order));
        claimed
            .into_iter()
            .inspect(|place| self.write(*place, Order(order)))
            .map(|place| (place, Order(order)))
            .collect()
    }

    fn take_word(&self, line: usize, at: usize) -> Held {
        let word_order = self.bits.word_order().0;
        let first = (line << self.bits.order.0) + (at << word_order);
        let taken = self.bits.take_word(&Plain, line, at);
        let held: Held =
            (0..1 << word_order).filter(|bit| taken >> bit & 1 == 1).map(|bit| (first + bit, Order(0))).collect();
        held.iter().for_each(|(place, order)| self.write(*place, *order));
        held
    }

    fn take_whole(&self) -> Held {
        let order = self.bits.order;
        let line = self.bits.take_whole(&Plain, MOVABLE, (0..self.lines + 1, 0), |_| MOVABLE);
        line.into_iter()
            .map(|line| line << order.0)
            .inspect(|place| self.write(*place, order))
            .map(|place| (place, order))
            .collect()
    }

    /// Takes up to that many whole lines.
    fn take_several(&self, most: usize) -> Held {
        let (mut held, order) = (Held::new(), self.bits.order);
        let take = |line: usize| held.push((line << order.0, order));
        self.bits.take_several_whole(&Plain, MOVABLE, (0..self.lines + 1, 0), |_| MOVABLE, (most, take));
        held.iter().for_each(|(place, order)| self.write(*place, *order));
        held
    }

    /// Takes two lines side by side, as their blocks.
    fn take_run(&self) -> Held {
        let (order, first) = (self.bits.order, self.bits.take_whole_run(&Plain, MOVABLE, 0..self.lines, 1));
        let held: Held = first
            .into_iter()
            .flat_map(|line| [line << order.0, (line + 1) << order.0])
            .map(|place| (place, order))
            .collect();
        held.iter().for_each(|(place, order)| self.write(*place, *order));
        held
    }

    fn reserve(&self, order: u8) -> Option<usize> {
        let line = self.bits.reserve_line(&Plain, (MOVABLE, Order(order)), 0..self.lines + 1, 0)?;
        // SAFETY: loom reports a concurrent access.
        self.reservations[line].with_mut(|value| unsafe { *value += 1 });
        Some(line)
    }

    fn leave(&self, line: usize) {
        // SAFETY: as above.
        self.reservations[line].with_mut(|value| unsafe { *value += 1 });
        self.bits.leave(&Plain, line, MOVABLE);
    }

    /// Demands the invariants of a yard at rest, that each frame is free or held once, and that a search finds each free run.
    fn finish(&self, held: Held) {
        let check =
            || (0..self.lines).for_each(|line| assert_eq!(self.bits.problem(&Plain, line), None, "line {line}"));
        check();
        let mut owners: Vec<u32> = (0..self.contents.len()).map(|place| self.bits.is_free_racy(place).into()).collect();
        for (place, order) in &held {
            owners[*place..place + (1 << order.0)].iter_mut().for_each(|count| *count += 1);
        }
        assert!(owners.iter().all(|count| *count == 1), "a frame is lost or has two owners: {owners:?}");
        held.into_iter().for_each(|(place, order)| self.free(place, order));
        check();
        for _ in 0..self.lines {
            assert_eq!(self.take_whole().len(), 1, "a line that is whole is not found");
        }
    }
}

/// The failures of a frame with two owners, or without one.
const DAMAGES: [&str; 3] = ["Causality violation", "two owners", "is not found"];
/// The failures of a line that a search misses.
const MISSED: [&str; 3] = [
    "line with free frames that is on no list",
    "hint of a listed line",
    "line with a larger run than those of its list",
];

fn joined<const N: usize>(threads: [thread::JoinHandle<Held>; N]) -> Held {
    threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
}

fn start(fixture: &Arc<Fixture>, run: impl FnOnce(&Fixture) -> Held + Send + 'static) -> thread::JoinHandle<Held> {
    let fixture = fixture.clone();
    thread::spawn(move || run(&fixture))
}

/// One takes a block of a line while another takes all of it.
fn taken_singly_and_whole() {
    let fixture = Fixture::whole(1, 2);
    let thread = start(&fixture, |fixture| fixture.claim(0, 0));
    let mut held = fixture.take_whole();
    held.extend(joined([thread]));
    assert!(!held.is_empty(), "one of them gets what it wants");
    fixture.finish(held);
}

/// One takes the frames of a word while another takes the line, and a third frees into the word.
fn taken_by_words() {
    let fixture = Fixture::whole(1, 2);
    let held = fixture.claim(0, 0);
    let freeing = start(&fixture, move |fixture| {
        held.into_iter().for_each(|(place, order)| fixture.free(place, order));
        Held::new()
    });
    let taking = start(&fixture, |fixture| fixture.take_word(0, 0));
    let mut held = fixture.claim(0, 1);
    held.extend(joined([freeing, taking]));
    fixture.finish(held);
}

/// A free makes a line whole; another CPU lists the line and takes it whole before the free does so.
fn freed_last_and_taken_whole() {
    let fixture = Fixture::whole(1, 2);
    let last = fixture.claim(0, 0);
    let thread = start(&fixture, move |fixture| {
        last.into_iter().for_each(|(place, order)| fixture.free(place, order));
        Held::new()
    });
    if let Some(line) = fixture.reserve(0) {
        fixture.leave(line);
    }
    let mut held = fixture.take_whole();
    held.extend(joined([thread]));
    held.extend(fixture.take_whole());
    fixture.finish(held);
}

/// As before, and the other CPU frees the line again, which needs no bits.
fn freed_last_and_packed() {
    let fixture = Fixture::whole(1, 2);
    let last = fixture.claim(0, 0);
    let thread = start(&fixture, move |fixture| {
        last.into_iter().for_each(|(place, order)| fixture.free(place, order));
        Held::new()
    });
    for (place, order) in fixture.take_whole() {
        fixture.free(place, order);
    }
    joined([thread]);
    fixture.finish(Held::new());
}

/// A finder has read a hint; another CPU reserves the line, takes from it, and leaves it to another list.
fn found_late() {
    let fixture = Fixture::whole(1, 2);
    let use_line = |fixture: &Fixture, order| {
        let line = fixture.reserve(order);
        line.map_or(Held::new(), |line| {
            let held = fixture.claim(line, order);
            fixture.leave(line);
            held
        })
    };
    let thread = start(&fixture, move |fixture| use_line(fixture, 1));
    let mut held = use_line(&fixture, 0);
    held.extend(joined([thread]));
    fixture.finish(held);
}

/// Lists a line that has one free frame.
fn listed(fixture: &Fixture, place: usize) {
    fixture.free(place, Order(0));
    fixture.leave(fixture.reserve(0).expect("it has a free frame"));
}

/// A search moves a line to another list; before it removes the old hint, another CPU uses the line and leaves it to the old list.
fn hint_removed_late() {
    let fixture = Fixture::new(1, 2);
    listed(&fixture, 0);
    fixture.free(1, Order(0));
    let thread = start(&fixture, |fixture| {
        let Some(line) = fixture.reserve(1) else { return Held::new() };
        let held = fixture.claim(line, 0);
        fixture.leave(line);
        held
    });
    fixture.bits.sort(&Plain, (&(0..1), 0), |_| MOVABLE);
    let mut held = joined([thread]);
    held.extend([(2, Order(1))]);
    fixture.finish(held);
}

/// A free makes a run larger in a line that another CPU lists.
fn freed_and_listed() {
    let fixture = Fixture::new(1, 2);
    fixture.free(0, Order(0));
    let thread = start(&fixture, |fixture| {
        fixture.free(1, Order(0));
        Held::new()
    });
    fixture.bits.sort(&Plain, (&(0..1), 0), |_| MOVABLE);
    joined([thread]);
    fixture.finish(Held::from([(2, Order(1))]));
}

/// A CPU lists a line with a free block while another one searches for such a line.
fn listed_and_searched<const ORDER: u8>() {
    let fixture = Fixture::new(1, 2);
    fixture.free(0, Order(ORDER));
    fixture.bits.open(&Plain, 0);
    let thread = start(&fixture, |fixture| {
        fixture.bits.sort(&Plain, (&(0..1), 0), |_| MOVABLE);
        Held::new()
    });
    let line = fixture.reserve(0).expect("a search gave up");
    fixture.leave(line);
    joined([thread]);
    fixture.finish((1 << ORDER..4).map(|place| (place, Order(0))).collect());
}

/// Two search a list of two lines, so one finds the hint of a line that the other has reserved.
fn two_hints() {
    let fixture = Fixture::whole(2, 1);
    let thread = start(&fixture, |fixture| {
        fixture.leave(fixture.reserve(0).expect("a search gave up"));
        Held::new()
    });
    let line = fixture.reserve(0).expect("a search gave up");
    let held = fixture.claim(line, 0);
    joined([thread]);
    fixture.leave(line);
    fixture.finish(held);
}

/// Two neighbouring words become whole at once, in a line whose list allows the run of each but not that of both.
fn two_words_at_once() {
    let fixture = Fixture::new(1, 3);
    fixture.free(4, Order(1));
    fixture.leave(fixture.reserve(1).expect("it has a run"));
    let thread = start(&fixture, |fixture| {
        fixture.free(0, Order(1));
        Held::new()
    });
    fixture.free(2, Order(1));
    joined([thread]);
    fixture.finish(Held::from([(6, Order(1))]));
}

/// A line without free frames is left while another CPU frees into it.
fn left_and_freed_into() {
    let fixture = Fixture::whole(1, 1);
    let line = fixture.reserve(0).expect("it is whole");
    let mut held = fixture.take_word(line, 0);
    let freed = held.pop();
    let thread = start(&fixture, move |fixture| {
        freed.into_iter().for_each(|(place, order)| fixture.free(place, order));
        Held::new()
    });
    fixture.leave(line);
    joined([thread]);
    fixture.finish(held);
}

/// A thief takes from a reserved line, and gives one block back, while its owner takes from it and leaves it.
fn left_and_stolen_from() {
    let fixture = Fixture::whole(1, 2);
    let line = fixture.reserve(0).expect("it is whole");
    let thread = start(&fixture, |fixture| {
        let Some(line) = fixture.bits.next_reserved(&Plain, MOVABLE, 0..1) else { return Held::new() };
        let mut held = fixture.take_word(line, 1);
        held.pop().into_iter().for_each(|(place, order)| fixture.free(place, order));
        held
    });
    let mut held = fixture.take_word(line, 0);
    held.extend(fixture.claim(line, 1));
    fixture.leave(line);
    held.extend(joined([thread]));
    fixture.finish(held);
}

/// A thief takes all of a reserved line while its owner takes from it and leaves it.
fn left_and_taken_whole() {
    let fixture = Fixture::whole(1, 2);
    let line = fixture.reserve(0).expect("it is whole");
    let thread = start(&fixture, |fixture| {
        let line = fixture.bits.take_reserved_whole(&Plain, MOVABLE, 0..1);
        line.inspect(|_| fixture.write(0, Order(2))).map(|_| (0, Order(2))).into_iter().collect()
    });
    let mut held = fixture.take_word(line, 1);
    fixture.leave(line);
    held.extend(joined([thread]));
    fixture.finish(held);
}

/// One takes a packed line whole while another reserves it.
fn packed_and_taken() {
    let fixture = Fixture::packed(1, 2);
    let thread = start(&fixture, |fixture| {
        let Some(line) = fixture.reserve(1) else { return Held::new() };
        let held = fixture.claim(line, 1);
        fixture.leave(line);
        held
    });
    let mut held = fixture.take_several(1);
    held.extend(joined([thread]));
    assert!(!held.is_empty(), "one of them gets what it wants");
    fixture.finish(held);
}

/// One takes two packed lines at once and frees them again, while another searches.
fn packed_again() {
    let fixture = Fixture::packed(2, 1);
    let thread = start(&fixture, |fixture| {
        if let Some(line) = fixture.reserve(0) {
            fixture.leave(line);
        }
        Held::new()
    });
    for (place, order) in fixture.take_several(2) {
        fixture.free(place, order);
    }
    joined([thread]);
    fixture.finish(Held::new());
}

/// One takes two lines as a run while another takes one of them.
fn run_and_line() {
    let fixture = Fixture::packed(2, 1);
    let thread = start(&fixture, |fixture| fixture.take_several(1));
    let mut held = fixture.take_run();
    held.extend(joined([thread]));
    assert!(!held.is_empty(), "one of them gets what it wants");
    fixture.finish(held);
}

/// Two lines are freed together, with one change of their hints, while another thread takes a run and then any line.
fn freed_together() {
    let fixture = Fixture::packed(2, 1);
    let held = fixture.take_run();
    let thread = start(&fixture, |fixture| {
        let held = fixture.take_run();
        if held.is_empty() { fixture.take_several(1) } else { held }
    });
    held.iter().for_each(|(place, order)| fixture.write(*place, *order));
    let freed = fixture.bits.free_several_whole(&Plain, (0..2).map(|line| (line, MOVABLE)));
    assert_eq!(freed, (2, Ok(())), "two owners");
    fixture.finish(joined([thread]));
}

/// A line is freed whole while a search that has found it on a list reserves it and leaves it.
fn packed_and_left() {
    let fixture = Fixture::new(1, 2);
    listed(&fixture, 0);
    let mut held = fixture.claim(0, 0);
    let thread = start(&fixture, |fixture| {
        fixture.free(0, Order(2));
        Held::new()
    });
    if let Some(line) = fixture.reserve(0) {
        held = fixture.claim(line, 0);
        fixture.leave(line);
    } else {
        held.clear();
    }
    joined([thread]);
    fixture.finish(held);
}

/// Lists and unlists the last line, so that its summary bits are set above words that are zero.
fn with_stale_summaries(lines: usize) -> (Arc<Fixture>, Held) {
    let fixture = Fixture::new(lines, 1);
    let last = (lines - 1) << 1;
    fixture.free(last, Order(0));
    let line = fixture.reserve(0).expect("it is listed");
    let held = fixture.claim(line, 0);
    fixture.leave(line);
    // Its other frame, and all other lines, are in use throughout.
    (fixture, held)
}

/// Frees a frame of the last line while other CPUs search for it.
fn searched_while_freed<const SEARCHERS: usize>(lines: usize) {
    let (fixture, freed) = with_stale_summaries(lines);
    let threads = [(); SEARCHERS].map(|()| {
        start(&fixture, |fixture| {
            if let Some(line) = fixture.reserve(0) {
                fixture.leave(line);
            }
            Held::new()
        })
    });
    freed.into_iter().for_each(|(place, order)| fixture.free(place, order));
    joined(threads);
    let used = (0..2 * lines - 1).filter(|place| *place != 2 * lines - 2).chain([2 * lines - 1]);
    fixture.finish(used.map(|place| (place, Order(0))).collect());
}

/// A searcher clears a summary bit while a free sets a hint below it.
fn summary_cleared() {
    searched_while_freed::<1>(3);
}

/// The same with two searchers and two levels of summaries.
fn summaries_cleared() {
    searched_while_freed::<2>(5);
}

/// A claim of two words finds the second one gone and puts the first one back, into a line that is on no list by then.
fn put_back() {
    let fixture = Fixture::new(1, 3);
    fixture.free(0, Order(2));
    let thread = start(&fixture, |fixture| fixture.claim(0, 2));
    let line = fixture.reserve(1);
    let mut held = fixture.take_word(0, 1);
    line.into_iter().for_each(|line| fixture.leave(line));
    held.extend(joined([thread]));
    held.extend([(4, Order(2))]);
    fixture.finish(held);
}

/// One claims two words; another takes both in two requests, of which the second may find a word that the first thread puts back.
fn claimed_beside_a_put_back() {
    let fixture = Fixture::new(1, 3);
    fixture.free(0, Order(2));
    let thread = start(&fixture, |fixture| fixture.claim(0, 2));
    let mut held = fixture.claim(0, 1);
    held.extend(fixture.claim(0, 1));
    let claimed = held.len();
    let other = joined([thread]);
    assert!(claimed == 2 || !other.is_empty(), "a request failed beside a put-back");
    held.extend(other);
    held.extend([(4, Order(2))]);
    fixture.finish(held);
}

#[test]
fn a_frame_and_its_line_have_one_owner() {
    explore(taken_singly_and_whole);
    for broken in [Weakness::SplitCompareExchange, Weakness::WholeNotChecked] {
        weakened(broken, || assert_fails(taken_singly_and_whole, &DAMAGES));
    }
}

#[test]
fn frames_of_a_word_have_one_owner() {
    explore(taken_by_words);
    for broken in [
        Weakness::SplitIntersection,
        Weakness::SplitUnion,
        Weakness::RelaxedIntersections,
        Weakness::RelaxedUnions,
        Weakness::RelaxedExchanges,
    ] {
        weakened(broken, || assert_fails(taken_by_words, &DAMAGES));
    }
}

#[test]
fn a_late_free_may_list_a_line_that_was_taken_meanwhile() {
    explore(freed_last_and_taken_whole);
    weakened(Weakness::WholeNotChecked, || assert_fails(freed_last_and_taken_whole, &DAMAGES));
    explore(freed_last_and_packed);
    weakened(Weakness::WholeNotChecked, || assert_fails(freed_last_and_packed, &DAMAGES));
}

#[test]
fn a_stale_hint_reserves_nothing() {
    explore(found_late);
    weakened(Weakness::SplitCompareExchange, || assert_fails(found_late, &DAMAGES));
}

#[test]
fn a_hint_that_is_removed_late_is_set_again() {
    explore(hint_removed_late);
    weakened(Weakness::HintsNotRestored, || assert_fails(hint_removed_late, &MISSED));
}

#[test]
fn a_search_goes_on_behind_a_stale_hint() {
    explore(two_hints);
    weakened(Weakness::FirstHintAlone, || assert_fails(two_hints, &["a search gave up"]));
}

#[test]
fn a_free_into_a_line_that_is_listed_is_seen() {
    explore(freed_and_listed);
    weakened(Weakness::NotedOnce, || assert_fails(freed_and_listed, &MISSED));
}

#[test]
fn a_line_is_found_while_it_is_listed() {
    // Of a line that is free in part, and of a whole one.
    explore(listed_and_searched::<0>);
    explore(listed_and_searched::<2>);
    let broken = Weakness::HintsNotRestored;
    weakened(broken, || assert_fails(listed_and_searched::<0>, &["a search gave up"]));
    weakened(broken, || assert_fails(listed_and_searched::<2>, &["a search gave up"]));
}

#[test]
fn words_that_become_whole_at_once_make_one_run() {
    explore(two_words_at_once);
    weakened(Weakness::FreedUnfenced, || assert_fails(two_words_at_once, &MISSED));
}

#[test]
fn a_free_into_a_line_that_is_left_is_seen() {
    explore(left_and_freed_into);
    for broken in [Weakness::ListedUnfenced, Weakness::FreedUnfenced, Weakness::ListedOnce] {
        weakened(broken, || assert_fails(left_and_freed_into, &MISSED));
    }
}

#[test]
fn a_thief_and_an_owner_that_leaves_share_a_line() {
    explore(left_and_stolen_from);
    weakened(Weakness::SplitIntersection, || assert_fails(left_and_stolen_from, &DAMAGES));
    weakened(Weakness::FreedUnfenced, || assert_fails(left_and_stolen_from, &MISSED));
}

#[test]
fn a_reserved_line_that_is_taken_whole_has_one_owner() {
    explore(left_and_taken_whole);
    weakened(Weakness::WholeNotChecked, || assert_fails(left_and_taken_whole, &DAMAGES));
    weakened(Weakness::PutBackUnlisted, || assert_fails(left_and_taken_whole, &MISSED));
}

#[test]
fn a_packed_line_has_one_owner() {
    explore(packed_and_taken);
    weakened(Weakness::SplitCompareExchange, || assert_fails(packed_and_taken, &DAMAGES));
}

#[test]
fn a_line_that_is_packed_again_is_found() {
    explore(packed_again);
    weakened(Weakness::HintsNotRestored, || assert_fails(packed_again, &MISSED));
}

#[test]
fn a_run_that_misses_a_line_gives_up_the_others() {
    explore(run_and_line);
    weakened(Weakness::RunKept, || assert_fails(run_and_line, &["a frame is lost"]));
    weakened(Weakness::SplitCompareExchange, || assert_fails(run_and_line, &DAMAGES));
}

#[test]
fn lines_that_are_freed_together_are_found() {
    explore(freed_together);
    weakened(Weakness::SplitCompareExchange, || assert_fails(freed_together, &DAMAGES));
    weakened(Weakness::HintsNotRestored, || assert_fails(freed_together, &MISSED));
}

#[test]
fn a_line_that_is_packed_is_found() {
    explore(packed_and_left);
    weakened(Weakness::SplitCompareExchange, || assert_fails(packed_and_left, &DAMAGES));
    for broken in [Weakness::ListedUnfenced, Weakness::FreedUnfenced] {
        weakened(broken, || assert_fails(packed_and_left, &MISSED));
    }
}

#[test]
fn a_summary_bit_is_set_above_a_new_hint() {
    explore(summary_cleared);
    for broken in [Weakness::SummariesNotRestored, Weakness::RelaxedLoadsOf(8)] {
        weakened(broken, || assert_fails(summary_cleared, &MISSED));
    }
}

#[test]
fn summary_bits_of_two_levels_are_set_above_a_new_hint() {
    explore(summaries_cleared);
    weakened(Weakness::RestoredOnOneLevel, || assert_fails(summaries_cleared, &MISSED));
}

#[test]
fn what_was_put_back_is_listed() {
    explore(put_back);
    weakened(Weakness::PutBackUnlisted, || assert_fails(put_back, &MISSED));
}

/// A limit, not a promise: a request that must not fail so looks once more.
#[test]
fn a_claim_may_fail_beside_one_that_puts_back() {
    assert_fails(claimed_beside_a_put_back, &["a request failed beside a put-back"]);
}

/// Two threads on a CPU change its line at the same time.
fn slot_of_two_threads() {
    fn change(fixture: &Fixture, slot: &Slot) -> Held {
        if let Some(line) = slot.take() {
            fixture.bits.leave(&Plain, line, MOVABLE);
        }
        let Some(line) = fixture.bits.reserve_line(&Plain, (MOVABLE, Order(0)), 0..fixture.lines + 1, 0) else {
            return Held::new();
        };
        if !slot.put(line) {
            fixture.bits.leave(&Plain, line, MOVABLE);
        }
        slot.line().map_or(Held::new(), |line| fixture.claim(line, 0))
    }
    let (fixture, slot) = (Fixture::whole(2, 1), Arc::new(Slot::default()));
    let other = slot.clone();
    let thread = start(&fixture, move |fixture| change(fixture, &other));
    let mut held = change(&fixture, &slot);
    held.extend(joined([thread]));
    if let Some(line) = slot.take() {
        fixture.bits.leave(&Plain, line, MOVABLE);
    }
    let reserved = (0..fixture.lines).filter(|line| fixture.bits.standing_racy(&Plain, *line) == Standing::Reserved);
    assert_eq!(reserved.count(), 0, "a reserved line that no slot has");
    fixture.finish(held);
}

#[test]
fn a_reserved_line_is_in_a_slot() {
    explore(slot_of_two_threads);
    weakened(Weakness::SlotOverwritten, || assert_fails(slot_of_two_threads, &["a reserved line that no slot has"]));
}

/// A CPU counts a frame while another one makes the total exact.
fn counted_exactly() {
    let counts = Arc::new((Total::default(), AtomicU64::new(0)));
    let add =
        |(total, part): &(Total, AtomicU64)| total.add(part.fetch_and(0, crate::sync::Ordering::Relaxed), u64::MAX);
    let counting = counts.clone();
    let thread = thread::spawn(move || {
        let (total, part) = &*counting;
        if total.count(part, 1, |_| false) {
            add(&counting);
        }
    });
    counts.0.make_exact();
    add(&counts);
    thread.join().unwrap();
    assert_eq!(counts.0.frames_racy(), 1, "an exact total lacks a frame");
}

#[test]
fn what_is_counted_is_in_an_exact_total() {
    explore(counted_exactly);
    for broken in [Weakness::ExactnessReadFirst, Weakness::CountedUnfenced] {
        weakened(broken, || assert_fails(counted_exactly, &["an exact total lacks a frame"]));
    }
}
