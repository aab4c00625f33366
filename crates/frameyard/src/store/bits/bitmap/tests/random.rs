//! Random calls against a model: one `bool` for each frame, and the set of reserved lines.

use proptest::prelude::*;

use crate::store::bits::bitmap::tests::lines::{largest_run_of, shape_of};
use crate::store::bits::bitmap::tests::*;

#[derive(Clone, Copy, Debug)]
enum Action {
    /// Takes a block of an order from a line, reserved or not.
    Claim(usize, u8),
    TakeWord(usize, usize),
    /// Frees a held block.
    Free(usize),
    /// Frees held frames of a word together.
    FreeSome(usize, u64),
    /// Reserves a line for an order, from a start on.
    Reserve(u8, usize),
    Leave(usize),
    TakeWhole(usize),
    /// Demands that a search for an order ends as the model says.
    Search(u8),
}

fn actions() -> impl Strategy<Value = Action> {
    let any = || any::<usize>();
    prop_oneof![
        5 => (any(), 0u8..9).prop_map(|(line, order)| Action::Claim(line, order)),
        2 => (any(), any()).prop_map(|(line, at)| Action::TakeWord(line, at)),
        8 => any().prop_map(Action::Free),
        2 => (any(), 0..=u64::MAX).prop_map(|(line, bits)| Action::FreeSome(line, bits)),
        3 => (0u8..10, any()).prop_map(|(order, start)| Action::Reserve(order, start)),
        3 => any().prop_map(Action::Leave),
        2 => any().prop_map(Action::TakeWhole),
        2 => (0u8..10).prop_map(Action::Search),
    ]
}

struct Model {
    fixture: Fixture,
    free: Vec<bool>,
    held: Vec<(usize, Order)>,
    reserved: Vec<usize>,
}

impl Model {
    fn new(pageblocks: usize, order: u8) -> Self {
        let fixture = Fixture::free(pageblocks, order);
        let free = vec![true; fixture.frames()];
        Self { fixture, free, held: Vec::new(), reserved: Vec::new() }
    }

    fn order(&self) -> Order {
        self.fixture.bits.order
    }

    fn frames_of(&self, line: usize) -> &[bool] {
        &self.free[line << self.order().0..][..1 << self.order().0]
    }

    fn set(&mut self, place: usize, order: Order, is_free: bool) {
        for frame in &mut self.free[place..place + (1 << order.0)] {
            assert_ne!(*frame, is_free, "frame of block {place} {order:?}");
            *frame = is_free;
        }
    }

    fn take(&mut self, place: usize, order: Order) {
        assert!(place.is_multiple_of(1 << order.0));
        self.set(place, order, false);
        self.held.push((place, order));
    }

    fn act(&mut self, action: Action) {
        let (bits, lines, line_order) = (self.fixture.bits, self.fixture.lines, self.order());
        match action {
            Action::Claim(line, order) => {
                let (line, order) = (line % lines, Order(order % line_order.0));
                let has_run = largest_run_of(self.frames_of(line)).is_some_and(|run| run >= order);
                let claimed = self.fixture.claim(line, order);
                assert_eq!(claimed.is_some(), has_run);
                claimed.into_iter().for_each(|place| self.take(place, order));
            }
            Action::TakeWord(line, at) => {
                let (line, at) = (line % lines, at % bits.words_of_line());
                let first = (line << line_order.0) + (at << bits.word_order().0);
                let taken = self.fixture.take_word(line, at);
                (0..64).filter(|bit| taken >> bit & 1 == 1).for_each(|bit| self.take(first + bit, Order(0)));
                assert!(self.free[first..first + (1 << bits.word_order().0)].iter().all(|frame| !frame));
            }
            Action::Free(which) if !self.held.is_empty() => {
                let (place, order) = self.held.swap_remove(which % self.held.len());
                self.set(place, order, true);
                if order < line_order {
                    bits.free(&Plain, place, order).unwrap();
                } else {
                    bits.free_whole(&Plain, (place >> order.0, MOVABLE)).unwrap();
                }
            }
            Action::FreeSome(which, wanted) if !self.held.is_empty() => {
                let (chosen, order) = self.held[which % self.held.len()];
                let (freed, held) = self.held.drain(..).partition::<Vec<_>, _>(|(place, of)| {
                    let is_wanted = *place == chosen || wanted >> (place >> order.0 & 63) & 1 == 1;
                    *of == order && order < line_order && place >> line_order.0 == chosen >> line_order.0 && is_wanted
                });
                self.held = held;
                freed.iter().for_each(|(place, order)| self.set(*place, *order, true));
                let places: Vec<u32> = freed.iter().map(|(place, _)| *place as u32).collect();
                if !places.is_empty() {
                    assert_eq!(bits.free_some(&Plain, &places, order), (places.len(), Ok(())));
                }
            }
            Action::Reserve(order, start) => {
                let order = Order(order % (line_order.0 + 1));
                if let Some(line) = bits.reserve_line(&Plain, (MOVABLE, order), 0..lines, start % lines) {
                    assert!(!self.reserved.contains(&line));
                    self.reserved.push(line);
                }
            }
            Action::Leave(which) if !self.reserved.is_empty() => {
                let line = self.reserved.swap_remove(which % self.reserved.len());
                self.fixture.leave(line);
            }
            Action::TakeWhole(start) => {
                let has_whole = (0..lines)
                    .any(|line| !self.reserved.contains(&line) && self.frames_of(line).iter().all(|frame| *frame));
                let line = bits.take_whole(&Plain, MOVABLE, (0..lines, start % lines), |_| MOVABLE);
                assert_eq!(line.is_some(), has_whole);
                line.into_iter().for_each(|line| self.take(line << line_order.0, line_order));
            }
            Action::Search(order) => self.search(Order(order % (line_order.0 + 1))),
            Action::Free(_) | Action::FreeSome(..) | Action::Leave(_) => {}
        }
    }

    /// A line that was found by a larger run than it has now is listed anew when it is left, so a search ends.
    fn search(&self, order: Order) {
        let has_run = |line: usize| largest_run_of(self.frames_of(line)).is_some_and(|run| run >= order);
        let exists = (0..self.fixture.lines).any(|line| !self.reserved.contains(&line) && has_run(line));
        for _ in 0..=self.fixture.lines {
            let Some(line) = self.fixture.reserve(order.0) else {
                assert!(!exists, "a line with a run of {order:?} is not found");
                return;
            };
            self.fixture.leave(line);
            if has_run(line) {
                return;
            }
        }
        panic!("a search does not end");
    }

    fn check(&self) {
        self.fixture.assert_sound();
        for line in 0..self.fixture.lines {
            let (frames, bits) = (self.frames_of(line), self.fixture.bits);
            assert_eq!(bits.free_frames_racy(line) as usize, frames.iter().filter(|frame| **frame).count());
            if !bits.listing.is_packed_racy(line) {
                assert_eq!(self.fixture.line(line).shape(&Plain), shape_of(frames));
            }
        }
        let mut reserved = Vec::new();
        let bits = self.fixture.bits;
        while let Some(line) =
            bits.next_reserved(&Plain, MOVABLE, reserved.last().map_or(0, |last| last + 1)..self.fixture.lines)
        {
            reserved.push(line);
        }
        let mut expected = self.reserved.clone();
        expected.sort_unstable();
        assert_eq!(reserved, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("FRAMEYARD_LONG_RUNS").is_some() { 20_000 } else { 300 }))]

    #[test]
    fn random_calls_agree_with_a_model(
        (pageblocks, order) in (1usize..6, 1u8..11),
        actions in prop::collection::vec(actions(), 1..120),
    ) {
        let mut model = Model::new(pageblocks, order);
        model.check();
        for action in actions {
            model.act(action);
            model.check();
        }
        while !model.reserved.is_empty() {
            model.act(Action::Leave(0));
        }
        while !model.held.is_empty() {
            model.act(Action::Free(0));
        }
        model.fixture.assert_all_free();
    }
}
