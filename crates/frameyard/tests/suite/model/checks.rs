//! What is compared after each action: blocks received, failures, refusals, and the yard as a whole.

use frameyard::alloc::FreeProblem;
use frameyard::boot::{InitMode, Poisoning};
use frameyard::page::FrameState;
use frameyard::stats::ZoneStatistics;
use frameyard::{AllocError, FreeError, Gfp, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, Platform, ZoneId};

use super::driver::{Driver, POISON};
use super::reference::{Held, Standing};

impl Driver<'_> {
    /// The validator, and each zone's sums.
    pub(super) fn check_totals(&self) {
        self.yard().validate().unwrap_or_else(|problem| panic!("{}: {problem}", self.machine.name));
        let zones = self.zones();
        assert_eq!(zones.iter().map(|zone| zone.present).sum::<PageCount>(), self.reference.present());
        let managed: PageCount = zones.iter().map(|zone| zone.managed).sum();
        assert_eq!(managed + self.uncounted(), self.reference.managed());
        for zone in zones {
            let unavailable = self.reference.unavailable_in(zone.id);
            assert_eq!(zone.free + zone.per_cpu + unavailable, zone.managed, "{}", zone.id);
        }
    }

    /// A block that no per-CPU list, and no pageblock that a CPU has reserved, can have held left the zone its minimum, and what is kept from the request.
    pub(super) fn check_reserves(&self, before: &[ZoneStatistics], pfn: Pfn, order: Order, gfp: Gfp) {
        if self.machine.map_init.mode == InitMode::Deferred {
            // The allocation may have initialised more memory.
            return;
        }
        let of_reserved = self.machine.policy.keeps_bits() && order < Order(9);
        if order.0 <= 3 || order == self.machine.geometry.pageblock_order() || of_reserved {
            return;
        }
        let (_, id) = self.reference.zone_of(pfn).expect("memory");
        let zone = before.iter().find(|zone| zone.id == id).expect("a zone with memory");
        // What CPUs held may have been collected.
        let free = zone.free.0 + zone.per_cpu.0;
        let limit = minimum(zone, gfp) + zone.protection[gfp.highest_zone() as usize].0;
        assert!(free.saturating_sub(order.pages().0 - 1) > limit, "{order}, {gfp} took {pfn} from {zone:?}");
    }

    /// Checks an allocated block, and enters it in the reference model.
    pub(super) fn receive(&mut self, pfn: Pfn, order: Order, gfp: Gfp, node: NodeId) {
        let migrate_type = gfp.migrate_type().expect("good flags");
        self.reference.take(pfn, Held { order, migrate_type });
        let (_, zone) = self.reference.zone_of(pfn).expect("memory");
        assert!(zone.kind() <= gfp.highest_zone(), "{gfp} was served from {zone}");
        assert!(!gfp.contains(Gfp::THISNODE) || zone.node() == node, "{gfp} for {node} was served from {zone}");
        assert!(migrate_type == MigrateType::Movable || !self.reference.is_cma(pfn), "{gfp} was served from CMA");
        assert!(!gfp.contains(Gfp::ZERO) || self.has_bytes());
        self.check_frame(pfn, order, migrate_type);
        self.check_bytes(PfnRange::new(pfn, order.pages()), gfp);
        self.stamp(pfn);
    }

    pub(super) fn check_frame(&self, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        let last = pfn + PageCount(order.pages().0 - 1);
        for pfn_of_block in [pfn, last] {
            let info = self.yard().stats().frame(pfn_of_block).expect("memory");
            assert_eq!((info.head, info.state), (pfn, FrameState::Allocated));
            assert_eq!((info.order, info.migrate_type), (order, migrate_type));
        }
    }

    /// Works on the bytes of frames, where they have any.
    pub(super) fn with_bytes<R>(&self, range: PfnRange, work: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let first = self.yard().platform().frame_bytes(range.start)?;
        let size = self.machine.geometry.size_of(range.count()).0 as usize;
        // SAFETY: the fixture maps all frames behind one another; this thread alone uses the yard, and works on
        // one range at a time.
        Some(work(unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), size) }))
    }

    /// Fresh frames are zero if that was asked for, and hold the poison otherwise.
    pub(super) fn check_bytes(&self, range: PfnRange, gfp: Gfp) {
        let expected = if gfp.contains(Gfp::ZERO) { 0 } else { POISON };
        if expected == 0 || self.machine.poisoning == Poisoning::On {
            let intact = self.with_bytes(range, |bytes| bytes.iter().all(|byte| *byte == expected));
            assert_ne!(intact, Some(false), "{range} does not hold {expected:#x} throughout");
        }
    }

    /// The holder's mark.
    pub(super) fn stamp(&self, pfn: Pfn) {
        let mark = (!pfn.0).to_le_bytes();
        self.with_bytes(PfnRange::new(pfn, PageCount(1)), |bytes| bytes[..8].copy_from_slice(&mark));
    }

    pub(super) fn check_stamp(&self, pfn: Pfn) {
        let mark = (!pfn.0).to_le_bytes();
        let intact = self.with_bytes(PfnRange::new(pfn, PageCount(1)), |bytes| bytes[..8] == mark);
        assert_ne!(intact, Some(false), "{pfn} was written while it was held");
    }

    /// A request that was good in itself failed: was that right?
    pub(super) fn failed(&mut self, problem: AllocError, order: Order, gfp: Gfp, node: NodeId) {
        match problem {
            AllocError::OutOfMemory { order: failed, gfp: flags, node: preferred, .. } => {
                assert_eq!((failed, flags, preferred), (order, gfp, node));
                self.check_out_of_memory(order, gfp, node);
            }
            AllocError::NoFrameBytes(_) => assert!(gfp.contains(Gfp::ZERO) && !self.has_bytes()),
            AllocError::Poisoned { pfn, block, order: found } => {
                // A block above the maximum order is checked in parts.
                assert_eq!(found, order.min(self.machine.geometry.max_order()));
                let block_range = PfnRange::new(block, found.pages());
                assert_eq!(self.reference.damaged_in(block_range).next(), Some(pfn), "the first damaged frame");
                self.reference.put_aside(block, found);
            }
            other => panic!("{other:?} for {order}, {gfp}, {node}"),
        }
    }

    /// No zone that may serve the request has a block for it above its minimum (`__zone_watermark_ok`).
    pub(super) fn check_out_of_memory(&self, order: Order, gfp: Gfp, node: NodeId) {
        let highest = gfp.highest_zone();
        let movable = gfp.migrate_type() == Some(MigrateType::Movable);
        for zone in self.zones() {
            let this_node = !gfp.contains(Gfp::THISNODE) || zone.id.node() == node;
            if zone.id.kind() > highest || !this_node {
                continue;
            }
            let kept_back = if gfp.contains(Gfp::HIGH) { 0 } else { zone.reserved_highatomic.0 };
            let cma = if movable { 0 } else { zone.free_cma.0 };
            let usable = zone.free.0.saturating_sub(order.pages().0 - 1 + kept_back + cma);
            let below = usable <= minimum(&zone, gfp) + zone.protection[highest as usize].0;
            let blocks = |migrate_type| {
                (order.0..=self.machine.geometry.max_order().0)
                    .map(|order| self.yard().zone(zone.id).free_blocks(Order(order), migrate_type))
                    .sum::<u64>()
            };
            let ordinary: u64 = MigrateType::ALL[..MigrateType::PER_CPU].iter().map(|kind| blocks(*kind)).sum();
            let special = if movable { blocks(MigrateType::Cma) } else { 0 };
            assert!(below || ordinary + special == 0, "{order}, {gfp} for {node} failed, but {zone:?} could serve it");
        }
    }

    pub(super) fn check_refusal(&self, refused: FreeError, pfn: Pfn, order: Order, expected: FreeProblem) {
        assert_eq!((refused.pfn, refused.order), (pfn, order));
        match (refused.problem, expected) {
            (FreeProblem::AlreadyFree(FrameState::BuddyFree | FrameState::PerCpu), FreeProblem::AlreadyFree(_)) => {}
            (problem, expected) => assert_eq!(problem, expected, "of {pfn}, {order}"),
        }
    }

    /// A range consists of the largest aligned blocks.
    pub(super) fn receive_range(&mut self, range: PfnRange, gfp: Gfp, node: Option<NodeId>) {
        let migrate_type = gfp.migrate_type().expect("good flags");
        let mut rest = range;
        while let Some(order) = rest.first_block(self.machine.geometry.max_order()) {
            match node {
                Some(node) => self.receive(rest.start, order, gfp, node),
                None => {
                    self.reference.take(rest.start, Held { order, migrate_type });
                    self.check_frame(rest.start, order, migrate_type);
                    self.check_bytes(PfnRange::new(rest.start, order.pages()), gfp);
                    self.stamp(rest.start);
                }
            }
            rest.start = rest.start + order.pages();
        }
    }

    /// Whether a range has a block on the free lists that such a request may not have: kept for atomic requests, or of a
    /// contiguous memory area.
    pub(super) fn kept_back(&self, range: PfnRange, gfp: Gfp) -> bool {
        let is_kept = |pfn| {
            let info = self.yard().stats().frame(Pfn(pfn));
            info.is_some_and(|info| info.state == FrameState::BuddyFree && is_kept_from(info.migrate_type, gfp))
        };
        (range.start.0..range.end.0).any(is_kept)
    }

    /// A range was refused: by its first block in use, or by a free one before it that is kept back.
    pub(super) fn check_in_use(
        &self,
        (range, gfp): (PfnRange, Gfp),
        head: Pfn,
        order: Order,
        state: FrameState,
        zone: ZoneId,
    ) {
        let first = self.reference.first_taken(range);
        if state == FrameState::BuddyFree {
            let info = self.yard().stats().frame(head).expect("memory");
            assert_eq!((info.head, info.order, info.state), (head, order, state));
            assert!(is_kept_from(info.migrate_type, gfp), "{head} is free and not kept back");
            let reserved = self.yard().zone(zone).statistics().reserved_highatomic.0;
            assert!(reserved > 0 || info.migrate_type == MigrateType::Cma);
            assert!(first.is_none_or(|(taken, _)| taken > head), "a block before {head} is in use");
        } else {
            let (_, standing) = first.unwrap_or_else(|| panic!("all of {range} is free, but {head} is {state}"));
            assert_eq!(standing, Standing::Taken { head, order, state });
        }
    }
}

/// Whether free blocks of a type are not for such a request.
fn is_kept_from(migrate_type: MigrateType, gfp: Gfp) -> bool {
    let movable = gfp.migrate_type() == Some(MigrateType::Movable);
    migrate_type == MigrateType::HighAtomic || (migrate_type == MigrateType::Cma && !movable)
}

/// How deep a request may dip into a zone: below `min` for those that must not wait.
fn minimum(zone: &ZoneStatistics, gfp: Gfp) -> u64 {
    let mut limit = zone.watermarks.min.0;
    if gfp.contains(Gfp::HIGH) {
        limit -= limit / 2;
        if !gfp.contains(Gfp::DIRECT_RECLAIM) {
            limit -= limit / 4;
        }
    }
    limit
}
