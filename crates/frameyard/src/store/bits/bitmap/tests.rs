//! The tables of bits in plain memory: by hand, against a model, and under several threads.

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use core::ptr::NonNull;

use crate::platform::plain::Plain;
use crate::store::bits::bitmap::line::{Claimed, Shape};
use crate::store::bits::bitmap::*;

mod lines;
mod listings;
mod random;
mod threads;

const MOVABLE: MigrateType = MigrateType::Movable;

/// Memory as zeroed pages are, aligned as tables are.
#[derive(Clone)]
#[repr(align(128))]
struct Chunk(#[expect(dead_code, reason = "room for tables")] [u8; 128]);

/// Bits of a yard that has nothing else. No frame is free at first.
struct Fixture {
    bits: Bits,
    lines: usize,
    _memory: Box<[Chunk]>,
}

impl Fixture {
    fn empty(pageblocks: usize, order: u8) -> Self {
        let order = Order(order);
        let mut planner = TablePlanner::new();
        let spans = Bits::plan(&mut planner, pageblocks, order).expect("the tables are small");
        let mut memory = vec![Chunk([0; 128]); planner.bytes() / 128].into_boxed_slice();
        let base = NonNull::new(memory.as_mut_ptr().cast()).expect("boxes are not null");
        // SAFETY: the memory is zero, aligned, and lives as long as the fixture, which alone uses the tables.
        let bits = unsafe {
            let region = ControlRegion::new(base, planner.bytes());
            Bits::carve(&region, &spans, order).expect("the spans lie in the region")
        };
        assert!(bits.fits(pageblocks, order) && !bits.fits(pageblocks + 1, order));
        Self { bits, lines: pageblocks << (order.0 - bits.order.0), _memory: memory }
    }

    /// With all frames free.
    fn free(pageblocks: usize, order: u8) -> Self {
        let fixture = Self::empty(pageblocks, order);
        (0..fixture.lines).for_each(|line| fixture.bits.free_whole(&Plain, (line, MOVABLE)).expect("it was not free"));
        fixture
    }

    fn frames(&self) -> usize {
        self.lines << self.bits.order.0
    }

    fn line(&self, number: usize) -> Line<'static> {
        self.bits.line(number).expect("a line of the fixture")
    }

    /// Frees the frames of a line that are given as offsets.
    fn free_at(&self, number: usize, offsets: impl IntoIterator<Item = usize>) {
        for offset in offsets {
            let place = (number << self.bits.order.0) + offset;
            self.bits.free(&Plain, place, Order(0)).expect("the frame was not free");
        }
    }

    /// Takes a block of a line, reserved or not.
    fn claim(&self, line: usize, order: Order) -> Option<usize> {
        self.bits.open(&Plain, line);
        self.bits.claim(&Plain, line, order)
    }

    /// Takes a word of a line, reserved or not.
    fn take_word(&self, line: usize, at: usize) -> u64 {
        self.bits.open(&Plain, line);
        self.bits.take_word(&Plain, line, at)
    }

    fn reserve(&self, order: u8) -> Option<usize> {
        self.bits.reserve_line(&Plain, (MOVABLE, Order(order)), 0..self.lines, 0)
    }

    fn leave(&self, line: usize) {
        self.bits.leave(&Plain, line, MOVABLE);
    }

    #[track_caller]
    fn assert_sound(&self) {
        for line in 0..self.lines {
            assert_eq!(self.bits.problem(&Plain, line), None, "line {line}");
        }
    }

    /// Demands that every frame is free and every line on the list of whole ones.
    #[track_caller]
    fn assert_all_free(&self) {
        self.assert_sound();
        assert!((0..self.frames()).all(|place| self.bits.is_free_racy(place)), "a frame is lost");
        let whole = (0..self.lines)
            .filter(|_| self.bits.take_whole(&Plain, MOVABLE, (0..self.lines, 0), |_| MOVABLE).is_some());
        assert_eq!(whole.count(), self.lines, "a line that is whole is not listed so");
    }
}

/// Random numbers, as xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

#[test]
fn a_total_stays_exact_near_where_it_became_so() {
    let (total, part) = (Total::default(), AtomicU64::new(0));
    total.add(1000, 10);
    assert!(!total.is_exact() && !total.count(&part, 1, |_| false));
    total.make_exact();
    for change in [10, 20_u64.wrapping_neg(), 10] {
        total.add(change, 10);
        assert!(total.is_exact() && total.count(&part, 1, |_| false), "{change}");
    }
    total.add(11, 10);
    assert!(!total.is_exact() && !total.count(&part, 1, |_| false));
}
