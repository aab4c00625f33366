//! The reference model: which frames exist, which are held, and the error of a bad request.

use std::collections::{BTreeMap, BTreeSet};

use frameyard::alloc::FreeProblem;
use frameyard::page::FrameState;
use frameyard::{Geometry, MigrateType, Order, PageCount, Pfn, PfnRange, ZoneId};

use super::Machine;

/// A block in a caller's hands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub(crate) order: Order,
    pub(crate) migrate_type: MigrateType,
}

/// What a frame is, as far as callers can know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    OutOfRange,
    Hole,
    Free,
    /// Part of a block that is reserved, held or poisoned.
    Taken {
        head: Pfn,
        order: Order,
        state: FrameState,
    },
}

/// The books that a yard is compared with.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    geometry: Geometry,
    map: PfnRange,
    /// Memory of one zone each, as large as can be.
    memory: Vec<(PfnRange, ZoneId)>,
    reserved: BTreeMap<Pfn, Order>,
    reserved_pages: u64,
    cma: Vec<PfnRange>,
    held: BTreeMap<Pfn, Held>,
    poisoned: BTreeMap<Pfn, Order>,
    /// Frames that were written to while they were free.
    damaged: BTreeSet<Pfn>,
}

fn pages_of(blocks: impl Iterator<Item = Order>) -> u64 {
    blocks.map(|order| order.pages().0).sum()
}

/// The block of a table that covers a frame.
fn covering(blocks: &BTreeMap<Pfn, Order>, pfn: Pfn) -> Option<(Pfn, Order)> {
    let (head, order) = blocks.range(..=pfn).next_back()?;
    PfnRange::new(*head, order.pages()).contains(pfn).then_some((*head, *order))
}

impl Reference {
    /// The books of a fresh yard. Zone borders are the yard's word; which frames there are is the machine's.
    pub(crate) fn new(machine: &Machine, zoned: impl Iterator<Item = (PfnRange, ZoneId)>) -> Self {
        let geometry = machine.geometry;
        let section = geometry.section_pages().0;
        let memory: Vec<_> = zoned.collect();
        let present: u64 = memory.iter().map(|(range, _)| range.count().0).sum();
        let given: u64 = machine.memory.iter().map(|(range, _)| range.count().0).sum();
        assert_eq!(present, given, "zones cover all memory");
        for (range, zone) in &memory {
            let inside = |(given, node): &(PfnRange, _)| *node == zone.node() && !given.intersection(*range).is_empty();
            assert!(machine.memory.iter().any(inside), "{range} is not memory of {zone}");
        }
        assert!(
            memory.windows(2).all(|pair| pair[0].0.end < pair[1].0.start || pair[0].1 != pair[1].1),
            "neighbouring ranges of one zone are one range"
        );
        let mut reserved = BTreeMap::new();
        for (range, _) in &memory {
            for kept in &machine.reserved {
                let mut rest = kept.intersection(*range);
                while let Some(order) = rest.first_block(geometry.max_order()) {
                    reserved.insert(rest.start, order);
                    rest.start = rest.start + order.pages();
                }
            }
        }
        let last = memory.last().map_or(Pfn(0), |(range, _)| range.end);
        let map = PfnRange {
            start: Pfn(memory[0].0.start.0 / section * section),
            end: Pfn(last.0.next_multiple_of(section)),
        };
        Self {
            geometry,
            map,
            memory,
            reserved_pages: pages_of(reserved.values().copied()),
            reserved,
            cma: machine.cma.clone(),
            held: BTreeMap::new(),
            poisoned: BTreeMap::new(),
            damaged: BTreeSet::new(),
        }
    }

    pub(crate) fn held(&self) -> &BTreeMap<Pfn, Held> {
        &self.held
    }

    pub(crate) fn present(&self) -> PageCount {
        PageCount(self.memory.iter().map(|(range, _)| range.count().0).sum())
    }

    pub(crate) fn managed(&self) -> PageCount {
        self.present() - PageCount(self.reserved_pages)
    }

    pub(crate) fn poisoned_pages(&self) -> PageCount {
        PageCount(pages_of(self.poisoned.values().copied()))
    }

    /// Free frames that can be allocated.
    pub(crate) fn free_pages(&self) -> PageCount {
        self.managed() - PageCount(pages_of(self.held.values().map(|held| held.order))) - self.poisoned_pages()
    }

    /// Frames of a zone that are held or poisoned.
    pub(crate) fn unavailable_in(&self, zone: ZoneId) -> PageCount {
        let of_zone = |pfn: &Pfn| self.zone_of(*pfn).is_some_and(|(_, owner)| owner == zone);
        let held = self.held.iter().map(|(pfn, held)| (pfn, held.order));
        let taken = held.chain(self.poisoned.iter().map(|(pfn, order)| (pfn, *order)));
        PageCount(pages_of(taken.filter(|(pfn, _)| of_zone(pfn)).map(|(_, order)| order)))
    }

    /// The memory of one zone that a frame is in.
    pub(crate) fn zone_of(&self, pfn: Pfn) -> Option<(PfnRange, ZoneId)> {
        self.memory.iter().copied().find(|(range, _)| range.contains(pfn))
    }

    pub(crate) fn is_cma(&self, pfn: Pfn) -> bool {
        self.cma.iter().any(|area| area.contains(pfn))
    }

    pub(crate) fn is_damaged(&self, pfn: Pfn) -> bool {
        self.damaged.contains(&pfn)
    }

    /// The damaged frames of a range.
    pub(crate) fn damaged_in(&self, range: PfnRange) -> impl Iterator<Item = Pfn> {
        self.damaged.range(range.start..range.end).copied()
    }

    pub(crate) fn all_damaged(&self) -> impl Iterator<Item = Pfn> {
        self.damaged.iter().copied()
    }

    /// Whether the frame's block was never allocated: it is free or reserved.
    pub(crate) fn is_untaken(&self, pfn: Pfn) -> bool {
        matches!(self.standing(pfn), Standing::Free | Standing::Taken { state: FrameState::Reserved, .. })
    }

    pub(crate) fn standing(&self, pfn: Pfn) -> Standing {
        if !self.map.contains(pfn) {
            return Standing::OutOfRange;
        }
        if self.zone_of(pfn).is_none() {
            return Standing::Hole;
        }
        let taken = |(head, order), state| Standing::Taken { head, order, state };
        if let Some(block) = covering(&self.reserved, pfn) {
            return taken(block, FrameState::Reserved);
        }
        if let Some(block) = covering(&self.poisoned, pfn) {
            return taken(block, FrameState::Poisoned);
        }
        match self.held.range(..=pfn).next_back() {
            Some((head, held)) if PfnRange::new(*head, held.order.pages()).contains(pfn) => {
                taken((*head, held.order), FrameState::Allocated)
            }
            _ => Standing::Free,
        }
    }

    /// What a free (or a split) of a block must be told; `None` where it is the holder's good right.
    ///
    /// Of a free frame it cannot know where the yard keeps it: [`FreeProblem::AlreadyFree`] names buddy-free.
    pub(crate) fn problem(&self, pfn: Pfn, order: Order) -> Option<FreeProblem> {
        match self.standing(pfn) {
            Standing::OutOfRange => Some(FreeProblem::OutOfRange),
            Standing::Hole => Some(FreeProblem::Hole),
            Standing::Free => Some(FreeProblem::AlreadyFree(FrameState::BuddyFree)),
            Standing::Taken { head, order, state } if head != pfn => {
                Some(FreeProblem::InsideBlock { head, order, state })
            }
            Standing::Taken { state: FrameState::Allocated, order: allocated, .. } if allocated == order => None,
            Standing::Taken { state: FrameState::Allocated, .. }
                if order <= self.geometry.largest_order() && !pfn.is_aligned(order) =>
            {
                Some(FreeProblem::Misaligned)
            }
            Standing::Taken { state: FrameState::Allocated, order: allocated, .. } => {
                Some(FreeProblem::OtherOrder { allocated })
            }
            Standing::Taken { state, .. } => Some(FreeProblem::NotAllocated(state)),
        }
    }

    /// What freeing a range must be told; `None` where all of it is held.
    pub(crate) fn range_problem(&self, range: PfnRange) -> Option<(Pfn, FreeProblem)> {
        let mut at = range.start;
        while at < range.end {
            match self.standing(at) {
                Standing::Taken { head, order, state: FrameState::Allocated } => at = head + order.pages(),
                _ => return self.problem(at, Order::ZERO).map(|problem| (at, problem)),
            }
        }
        None
    }

    /// The first frame of a range that is not free.
    pub(crate) fn first_taken(&self, range: PfnRange) -> Option<(Pfn, Standing)> {
        let frames = (range.start.0..range.end.0).map(|pfn| (Pfn(pfn), self.standing(Pfn(pfn))));
        frames.into_iter().find(|(_, standing)| *standing != Standing::Free)
    }

    /// Hands a block out; all of it must have been free and undamaged.
    pub(crate) fn take(&mut self, pfn: Pfn, held: Held) {
        assert!(pfn.is_aligned(held.order), "{pfn} is not aligned to {}", held.order);
        let block = PfnRange::new(pfn, held.order.pages());
        if let Some((taken, standing)) = self.first_taken(block) {
            panic!("the block at {pfn}, {}, was allocated, but {taken} is {standing:?}", held.order);
        }
        assert_eq!(self.damaged_in(block).next(), None, "the block at {pfn} was allocated damaged");
        self.held.insert(pfn, held);
    }

    /// Takes back a block.
    pub(crate) fn give_back(&mut self, pfn: Pfn) -> Held {
        self.held.remove(&pfn).expect("a held block")
    }

    /// Splits a held block into single frames.
    pub(crate) fn split(&mut self, pfn: Pfn) {
        let held = self.give_back(pfn);
        for offset in 0..held.order.pages().0 {
            self.held.insert(pfn + PageCount(offset), Held { order: Order::ZERO, ..held });
        }
    }

    /// Takes the frames of a range back. Returns the new blocks that remain of those at its ends.
    pub(crate) fn give_back_range(&mut self, range: PfnRange) -> Vec<Pfn> {
        let covers =
            |(pfn, held): &(&Pfn, &Held)| !PfnRange::new(**pfn, held.order.pages()).intersection(range).is_empty();
        let blocks: Vec<_> = self.held.iter().filter(covers).map(|(pfn, held)| (*pfn, *held)).collect();
        let mut rest = Vec::new();
        for (pfn, held) in blocks {
            self.give_back(pfn);
            let end = pfn + held.order.pages();
            let before = PfnRange { start: pfn, end: range.start.clamp(pfn, end) };
            let behind = PfnRange { start: range.end.clamp(pfn, end), end };
            for part in [before, behind].into_iter().flat_map(|part| part.blocks(self.geometry.largest_order())) {
                self.held.insert(part.pfn, Held { order: part.order, ..held });
                rest.push(part.pfn);
            }
        }
        rest
    }

    /// Notes that a free frame was written to.
    pub(crate) fn damage(&mut self, pfn: Pfn) {
        assert_eq!(self.standing(pfn), Standing::Free);
        self.damaged.insert(pfn);
    }

    /// Records that the yard poisoned a free block. It must do so if, and only if, a frame of the block is damaged.
    pub(crate) fn put_aside(&mut self, pfn: Pfn, order: Order) {
        let block = PfnRange::new(pfn, order.pages());
        assert_eq!(self.first_taken(block), None, "only free blocks are poisoned");
        assert!(self.damaged_in(block).next().is_some(), "the block at {pfn}, {order}, was poisoned without damage");
        self.damaged.retain(|damaged| !block.contains(*damaged));
        self.poisoned.insert(pfn, order);
    }

    /// A held block, any.
    pub(crate) fn pick_held(&self, pick: u16) -> Option<(Pfn, Held)> {
        let count = self.held.len();
        (count > 0).then(|| self.held.iter().nth(usize::from(pick) % count).map(|(pfn, held)| (*pfn, *held))).flatten()
    }

    /// A reserved frame, any.
    pub(crate) fn pick_reserved(&self, pick: u16) -> Option<Pfn> {
        let mut left = u64::from(pick) % self.reserved_pages.max(1);
        for (pfn, order) in &self.reserved {
            if left < order.pages().0 {
                return Some(*pfn + PageCount(left));
            }
            left -= order.pages().0;
        }
        None
    }

    /// A frame of memory, any.
    pub(crate) fn pick_memory(&self, pick: u16) -> Pfn {
        let mut left = u64::from(pick) * 7 % self.present().0;
        for (range, _) in &self.memory {
            if left < range.count().0 {
                return range.start + PageCount(left);
            }
            left -= range.count().0;
        }
        unreachable!("less than all memory was left")
    }

    /// A free frame at or behind a picked one; `None` where there is none nearby.
    pub(crate) fn pick_free(&self, pick: u16) -> Option<Pfn> {
        let start = self.pick_memory(pick);
        (start.0..start.0 + 2048).map(Pfn).find(|pfn| self.standing(*pfn) == Standing::Free)
    }

    /// A frame of the map, or up to 64 frames outside it.
    pub(crate) fn pick_anywhere(&self, pick: u16) -> Pfn {
        let start = self.map.start.0.saturating_sub(64);
        Pfn(start + u64::from(pick) * 13 % (self.map.end.0 + 64 - start))
    }
}
