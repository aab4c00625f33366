//! Several threads at once, with a map of the owners of frames that finds a frame with two.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::store::bits::bitmap::tests::*;

const THREADS: usize = 4;

struct Shared {
    fixture: Fixture,
    owners: Box<[AtomicU8]>,
    /// Requests that took from a line that another thread had reserved.
    thefts: AtomicU64,
    failures: AtomicU64,
}

struct Thread<'a> {
    shared: &'a Shared,
    random: Random,
    held: Vec<(usize, Order)>,
    /// The lines it has reserved: for single frames, and for blocks.
    reserved: [Option<usize>; 2],
}

impl Thread<'_> {
    fn bits(&self) -> Bits {
        self.shared.fixture.bits
    }

    fn all(&self) -> Range<usize> {
        0..self.shared.fixture.lines
    }

    fn own(&mut self, place: usize, order: Order) {
        for owner in &self.shared.owners[place..place + (1 << order.0)] {
            assert_eq!(owner.swap(1, Ordering::Relaxed), 0, "a frame of {place} {order:?} has two owners");
        }
        self.held.push((place, order));
    }

    fn free(&mut self, which: usize) {
        let (place, order) = self.held.swap_remove(which);
        for owner in &self.shared.owners[place..place + (1 << order.0)] {
            assert_eq!(owner.swap(0, Ordering::Relaxed), 1);
        }
        let bits = self.bits();
        let freed = if order < bits.order {
            bits.free(&Plain, place, order)
        } else {
            bits.free_whole(&Plain, (place >> order.0, MOVABLE))
        };
        freed.expect("the block was not free");
    }

    /// Takes from a line; whether it got something.
    fn take_from(&mut self, line: usize, order: Order) -> bool {
        let bits = self.bits();
        if order.0 > 0 {
            let claimed = bits.claim(&Plain, line, order);
            claimed.into_iter().for_each(|place| self.own(place, order));
            return claimed.is_some();
        }
        let start = self.random.below(bits.words_of_line());
        for at in (start..bits.words_of_line()).chain(0..start) {
            let taken = bits.take_word(&Plain, line, at);
            let first = (line << bits.order.0) + (at << bits.word_order().0);
            (0..64).filter(|bit| taken >> bit & 1 == 1).for_each(|bit| self.own(first + bit, order));
            if taken != 0 {
                return true;
            }
        }
        false
    }

    fn alloc(&mut self, order: Order) -> bool {
        let bits = self.bits();
        if order == bits.order {
            let start = self.random.below(self.all().end);
            let line = bits.take_whole(&Plain, MOVABLE, (self.all(), start), |_| MOVABLE);
            line.into_iter().for_each(|line| self.own(line << order.0, order));
            return line.is_some();
        }
        let kind = usize::from(order.0 > 0);
        // A line may have a smaller run than its list says.
        for _ in 0..100 {
            if let Some(line) = self.reserved[kind] {
                if self.take_from(line, order) {
                    return true;
                }
                bits.leave(&Plain, line, MOVABLE);
            }
            let start = self.random.below(self.all().end);
            self.reserved[kind] = bits.reserve_line(&Plain, (MOVABLE, order), self.all(), start);
            if self.reserved[kind].is_none() {
                break;
            }
        }
        let mut from = 0;
        while let Some(line) = bits.next_reserved(&Plain, MOVABLE, from..self.all().end) {
            if self.take_from(line, order) {
                self.shared.thefts.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            from = line + 1;
        }
        false
    }

    fn run(&mut self, calls: usize, most_held: usize) {
        for _ in 0..calls {
            let is_alloc = self.held.len() < most_held && self.random.below(5) < 3;
            if is_alloc || self.held.is_empty() {
                // Half of the requests are for single frames.
                let order = self.random.below(2 * usize::from(self.bits().order.0) + 1);
                let order = Order(order.saturating_sub(usize::from(self.bits().order.0)) as u8);
                if !self.alloc(order) {
                    self.shared.failures.fetch_add(1, Ordering::Relaxed);
                }
            } else {
                let which = self.random.below(self.held.len());
                self.free(which);
            }
            // Seldom a thread gives up a line in the middle.
            if self.random.below(64) == 0 {
                self.leave();
            }
        }
    }

    fn leave(&mut self) {
        for line in self.reserved.iter_mut().filter_map(Option::take) {
            self.shared.fixture.bits.leave(&Plain, line, MOVABLE);
        }
    }
}

/// Runs threads that hold up to a share of all frames, and demands that all frames are whole lines afterwards.
fn stress((pageblocks, order): (usize, u8), calls: usize, rounds: usize) {
    let fixture = Fixture::free(pageblocks, order);
    let owners = (0..fixture.frames()).map(|_| AtomicU8::new(0)).collect();
    let shared = Shared { fixture, owners, thefts: AtomicU64::new(0), failures: AtomicU64::new(0) };
    for round in 0..rounds {
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let shared = &shared;
                scope.spawn(move || {
                    let random = Random(((round * THREADS + number + 1) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    let mut thread = Thread { shared, random, held: Vec::new(), reserved: [None; 2] };
                    // From tight memory, where requests fail, to plenty.
                    let most_held = (shared.fixture.frames() / THREADS) >> (round % 4);
                    thread.run(calls / rounds / THREADS, most_held.max(1));
                    thread.leave();
                    while !thread.held.is_empty() {
                        let which = thread.random.below(thread.held.len());
                        thread.free(which);
                    }
                });
            }
        });
        shared.fixture.assert_all_free();
        (0..shared.fixture.lines).for_each(|line| shared.fixture.bits.free_whole(&Plain, (line, MOVABLE)).unwrap());
    }
    let [thefts, failures] = [&shared.thefts, &shared.failures].map(|count| count.load(Ordering::Relaxed));
    std::println!("order {order}, {pageblocks} pageblocks: {calls} calls, {thefts} thefts, {failures} requests failed");
}

/// Calls of all threads together, in each of the shapes below.
fn calls() -> usize {
    if std::env::var_os("FRAMEYARD_LONG_RUNS").is_some() { 50_000_000 } else { 200_000 }
}

#[test]
fn threads_share_few_lines() {
    stress((3, 9), calls(), 40);
}

#[test]
fn threads_share_many_lines() {
    stress((200, 9), calls(), 8);
}

#[test]
fn threads_share_small_lines() {
    stress((70, 4), calls(), 40);
}
