//! The lists of lines, by migration type, largest run and fullness, and the notes about lines that have grown.

use core::ops::Range;

use crate::store::bits::bitmap::line::Shape;
use crate::units::{MigrateType, Order};

/// The steps of fullness.
pub(super) const STEPS: u32 = if cfg!(loom) { 1 } else { 8 };

/// A list; as a word, the state of a line on it.
///
/// Bits 0 to 15 are one more than its number, 16 to 23 one more than the largest run that its lines may have, 24 to 31 their type. A packed
/// line is on the list of whole ones, with a run that no line has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct List(pub(super) u32);

impl List {
    /// No list: the state of a line without free frames. Its lines may have no run.
    pub(super) const NONE: Self = Self(0);
    /// What stands for the run of lists of reserved lines, which frees leave where they are.
    pub(super) const RESERVED: u32 = 0xff;

    pub(super) fn new(number: u32, runs: u32, list_type: MigrateType) -> Self {
        Self((number + 1) | runs << 16 | (list_type as u32) << 24)
    }

    /// Its number; that of no list if it is none.
    #[inline(always)]
    pub(super) fn number(self) -> usize {
        (self.0 as usize & 0xffff).wrapping_sub(1)
    }

    /// Whether its lines may have a run of that order.
    #[inline(always)]
    pub(super) fn allows(self, run: Order) -> bool {
        self.0 >> 16 & 0xff > u32::from(run.0)
    }

    #[inline(always)]
    pub(super) fn is_reserved(self) -> bool {
        self.0 >> 16 & 0xff == Self::RESERVED
    }

    pub(super) fn list_type(self) -> Option<MigrateType> {
        MigrateType::from_bits((self.0 >> 24) as u8)
            .filter(|found| self != Self::NONE && found.index() < MigrateType::PER_CPU)
    }
}

/// The number of lists and their meaning, which depends on the order of lines alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lists {
    pub(super) line_order: Order,
}

impl Lists {
    pub(super) const fn new(line_order: Order) -> Self {
        Self { line_order }
    }

    /// The lists of one type whose lines are neither whole nor reserved.
    pub(super) const fn partial(self) -> u32 {
        STEPS * self.line_order.0 as u32
    }

    /// The lists of one type.
    pub(super) const fn of_type(self) -> u32 {
        self.partial() + 2
    }

    /// The lists of all types, and the notes of lines that have grown.
    pub(super) const fn count(self) -> usize {
        self.of_type() as usize * MigrateType::PER_CPU + 1
    }

    /// The notes of lines that have grown. No line is on it.
    #[inline(always)]
    pub(super) fn grown(self) -> List {
        List(self.count() as u32)
    }

    pub(super) fn first(self, list_type: MigrateType) -> u32 {
        list_type as u32 * self.of_type()
    }

    /// The lines of a type of which all frames are free.
    pub(super) fn whole(self, list_type: MigrateType) -> List {
        List::new(self.first(list_type) + self.partial(), u32::from(self.line_order.0) + 1, list_type)
    }

    /// The same list, as the state of a packed line: its frames are free without bits.
    pub(super) fn packed(self, list_type: MigrateType) -> List {
        List::new(self.first(list_type) + self.partial(), u32::from(self.line_order.0) + 2, list_type)
    }

    /// Whether a state is that of a packed line.
    #[inline(always)]
    pub(super) fn is_packed(self, state: List) -> bool {
        state.0 >> 16 & 0xff == u32::from(self.line_order.0) + 2
    }

    /// The lines of a type that CPUs have reserved.
    pub(super) fn reserved(self, list_type: MigrateType) -> List {
        List::new(self.first(list_type) + self.partial() + 1, List::RESERVED, list_type)
    }

    /// The lines of a type that are not whole, by fullness and largest run.
    #[inline(always)]
    pub(super) fn partly_free(self, list_type: MigrateType, step: u32, run: u32) -> List {
        List::new(self.first(list_type) + run * STEPS + step, run + 1, list_type)
    }

    /// The numbers of the lists of lines of a type that are not whole and may have a run of that order. Those of one run lie side by side,
    /// fullest first.
    #[inline(always)]
    pub(super) fn with_run(self, list_type: MigrateType, order: Order) -> Range<usize> {
        let first = self.first(list_type);
        (first + u32::from(order.0) * STEPS) as usize..(first + self.partial()) as usize
    }

    /// The list for a line of a type and shape.
    pub(super) fn of(self, list_type: MigrateType, shape: Shape) -> List {
        if shape.run >= self.line_order {
            return self.whole(list_type);
        }
        self.partly_free(list_type, self.step(shape.free), u32::from(shape.run.0))
    }

    /// The step of fullness of a line with that many free frames.
    #[inline(always)]
    pub(super) fn step(self, free: u32) -> u32 {
        ((free * STEPS) >> self.line_order.0).min(STEPS - 1)
    }

    /// Whether a list is one of lines of a type with about that many free frames.
    #[inline(always)]
    pub(super) fn is_as_full(self, list: List, list_type: MigrateType, free: u32) -> bool {
        if free == 1 << self.line_order.0 {
            return list.number() == self.whole(list_type).number();
        }
        let lists = self.with_run(list_type, Order::ZERO);
        lists.contains(&list.number()) && (list.number() - lists.start) as u32 % STEPS == self.step(free)
    }

    /// Whether there is such a list.
    pub(super) fn has(self, list: List) -> bool {
        list.list_type().is_some_and(|list_type| {
            let mut partly_free = (0..STEPS).flat_map(|step| {
                (0..u32::from(self.line_order.0)).map(move |run| self.partly_free(list_type, step, run))
            });
            [self.whole(list_type), self.packed(list_type), self.reserved(list_type)].contains(&list)
                || partly_free.any(|other| other == list)
        })
    }
}
