//! Doing actions on a yard and comparing every answer with the reference.

use frameyard::{
    AllocError, BootError, CpuId, FrameState, FreeError, FreeProblem, Gfp, MigrateType, NodeId, Order, PageCount, Pfn,
    PfnRange, Platform, Poisoning, RangeError, Yard, ZoneId, ZoneKind, ZoneStatistics,
};

use super::reference::{Held, Reference, Standing};
use super::{Action, Machine, Misuse, Place, Target, View};
use crate::fixture::{self, Fixture, Frames, TestPlatform};

/// How many actions are done between two runs of the validator.
const VALIDATE_EVERY: usize = 8;
const POISON: u8 = 0xaa;

/// Does the actions on a fresh yard of that machine, and gives everything back at the end.
///
/// # Panics
///
/// Where the yard's answer is not what the reference expects, or the validator finds fault.
pub fn run(machine: &Machine, actions: &[Action]) {
    fixture::run_on(0);
    let fixture = Fixture::new(&machine.table(), &machine.config(), machine.frames);
    let attached = fixture.attach();
    let reference = Reference::new(machine, fixture.memory_ranges());
    let mut driver = Driver { machine, attached, fixture, reference, view: View::Creator, cpu: 0 };
    driver.check_totals();
    for (step, action) in actions.iter().enumerate() {
        driver.step(*action);
        driver.note_poisoned();
        assert_eq!(driver.yard().free_pages(), driver.reference.free_pages(), "free pages after {action:?}");
        if step % VALIDATE_EVERY == VALIDATE_EVERY - 1 {
            driver.check_totals();
        }
    }
    driver.finish();
}

struct Driver<'m> {
    machine: &'m Machine,
    attached: Yard<TestPlatform>,
    fixture: Fixture,
    reference: Reference,
    view: View,
    cpu: u32,
}

impl Driver<'_> {
    fn yard(&self) -> &Yard<TestPlatform> {
        match self.view {
            View::Creator => self.fixture.yard(),
            View::Attached => &self.attached,
        }
    }

    fn step(&mut self, action: Action) {
        match action {
            Action::Allocate { order, gfp, place } => self.allocate(Order(order), gfp, place),
            Action::Free { pick } => {
                if let Some((pfn, _)) = self.reference.pick_held(pick) {
                    self.free(pfn);
                }
            }
            Action::Misuse { how, target, order } => self.misuse(how, target, Order(order)),
            Action::Bulk { count, gfp } => self.bulk(usize::from(count), gfp),
            Action::Exact { count, gfp } => self.exact(PageCount(count.into()), gfp),
            Action::Range { start, count, gfp } => self.take_range(start, count, gfp),
            Action::FreeRange { pick, count } => self.free_range(pick, count),
            Action::Split { pick } => self.split(pick),
            Action::DrainList { zone, cpu } => self.yard().drain(self.zone(zone), CpuId(cpu.into())),
            Action::DrainCpu { cpu } => self.drain_cpu(cpu),
            Action::DrainZone { zone } => self.drain_zone(self.zone(zone)),
            Action::DrainAll => self.drain_all(),
            Action::Resize { sizing } => self.yard().set_pcp_sizing(sizing),
            Action::Retune { options, sizing } => match (options.check(), self.yard().retune(&options, sizing)) {
                (Err(expected), refused) => assert_eq!(refused, Err(BootError::Watermarks(expected))),
                (Ok(()), done) => assert_eq!(done, Ok(())),
            },
            Action::RunOn { cpu, view } => {
                self.cpu = cpu.into();
                self.view = view;
                fixture::run_on(self.cpu);
            }
            Action::Damage { pick, offset } => self.damage(pick, offset),
            Action::Validate => self.check_totals(),
        }
    }

    /// Any zone, populated or not, and a few beyond the last.
    fn zone(&self, pick: u8) -> ZoneId {
        ZoneId(u16::from(pick) % (self.yard().nodes() * ZoneKind::COUNT as u16 + 3))
    }

    fn zones(&self) -> Vec<ZoneStatistics> {
        self.yard().zones().collect()
    }

    fn drain_cpu(&self, cpu: u8) {
        let cpu = CpuId(u32::from(cpu) % (self.yard().cpus() + 2));
        self.yard().drain_cpu(cpu);
        for zone in self.zones() {
            let held = self.yard().pcp_statistics(zone.id, cpu).map_or(PageCount(0), |pcp| pcp.count);
            assert_eq!(held, PageCount(0), "{cpu} still holds frames of {}", zone.id);
        }
    }

    fn drain_zone(&self, zone: ZoneId) {
        self.yard().drain_zone(zone);
        let held = self.zones().into_iter().find(|found| found.id == zone).map(|found| found.per_cpu.0);
        assert_eq!(held.unwrap_or(0), 0, "CPUs still hold frames of {zone}");
    }

    fn drain_all(&self) {
        self.yard().drain_all();
        assert!(self.zones().iter().all(|zone| zone.per_cpu.0 == 0));
    }

    /// The validator, and each zone's sums.
    fn check_totals(&self) {
        self.yard().validate().unwrap_or_else(|problem| panic!("{}: {problem}", self.machine.name));
        let zones = self.zones();
        assert_eq!(zones.iter().map(|zone| zone.present).sum::<PageCount>(), self.reference.present());
        assert_eq!(zones.iter().map(|zone| zone.managed).sum::<PageCount>(), self.reference.managed());
        for zone in zones {
            let unavailable = self.reference.unavailable_in(zone.id);
            assert_eq!(zone.free + zone.per_cpu + unavailable, zone.managed, "{}", zone.id);
        }
    }

    /// The node that a request prefers.
    fn node(&self, place: Place) -> NodeId {
        match place {
            Place::Here => self.machine.cpus[self.cpu as usize % self.machine.cpus.len()],
            Place::Node(node) => NodeId(node),
        }
    }

    fn has_bytes(&self) -> bool {
        self.machine.frames == Frames::Real
    }

    /// Why a request is refused whatever memory there is.
    fn bad_request(&self, order: Order, gfp: Gfp) -> Option<AllocError> {
        let max = self.machine.geometry.max_order();
        if order > max {
            Some(AllocError::OrderTooLarge { order, max })
        } else if gfp.migrate_type().is_none() {
            Some(AllocError::BadFlags(gfp))
        } else {
            None
        }
    }

    fn allocate(&mut self, order: Order, gfp: Gfp, place: Place) {
        let node = self.node(place);
        let answer = match place {
            Place::Here => self.yard().alloc(order, gfp),
            Place::Node(node) => self.yard().alloc_on(NodeId(node), order, gfp),
        };
        if node.0 >= self.yard().nodes() {
            return assert_eq!(answer, Err(AllocError::NoSuchNode(node)));
        }
        if let Some(expected) = self.bad_request(order, gfp) {
            return assert_eq!(answer, Err(expected));
        }
        match answer {
            Ok(pfn) => self.receive(pfn, order, gfp, node),
            Err(problem) => self.failed(problem, order, gfp, node),
        }
    }

    /// Checks a block that the yard handed out, and enters it in the books.
    fn receive(&mut self, pfn: Pfn, order: Order, gfp: Gfp, node: NodeId) {
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

    fn check_frame(&self, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        let last = pfn + PageCount(order.pages().0 - 1);
        for pfn_of_block in [pfn, last] {
            let info = self.yard().frame_info(pfn_of_block).expect("memory");
            assert_eq!((info.head, info.state), (pfn, FrameState::Allocated));
            assert_eq!((info.order, info.migrate_type), (order, migrate_type));
        }
    }

    /// Works on the bytes of frames, where they have any.
    fn with_bytes<R>(&self, range: PfnRange, work: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let first = self.yard().platform().frame_bytes(range.start)?;
        let size = self.machine.geometry.size_of(range.count()).0 as usize;
        // SAFETY: the fixture maps all frames behind one another; this thread alone uses the yard, and works on
        // one range at a time.
        Some(work(unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), size) }))
    }

    /// Fresh frames are zero if that was asked for, and hold the poison otherwise.
    fn check_bytes(&self, range: PfnRange, gfp: Gfp) {
        let expected = if gfp.contains(Gfp::ZERO) { 0 } else { POISON };
        if expected == 0 || self.machine.poisoning == Poisoning::On {
            let intact = self.with_bytes(range, |bytes| bytes.iter().all(|byte| *byte == expected));
            assert_ne!(intact, Some(false), "{range} does not hold {expected:#x} throughout");
        }
    }

    /// The holder's mark.
    fn stamp(&self, pfn: Pfn) {
        let mark = (!pfn.0).to_le_bytes();
        self.with_bytes(PfnRange::new(pfn, PageCount(1)), |bytes| bytes[..8].copy_from_slice(&mark));
    }

    fn check_stamp(&self, pfn: Pfn) {
        let mark = (!pfn.0).to_le_bytes();
        let intact = self.with_bytes(PfnRange::new(pfn, PageCount(1)), |bytes| bytes[..8] == mark);
        assert_ne!(intact, Some(false), "somebody wrote to {pfn} while it was held");
    }

    /// A request that was good in itself failed: was that right?
    fn failed(&mut self, problem: AllocError, order: Order, gfp: Gfp, node: NodeId) {
        match problem {
            AllocError::OutOfMemory { .. } => {
                assert_eq!(problem, AllocError::OutOfMemory { order, gfp, node });
                self.check_out_of_memory(order, gfp, node);
            }
            AllocError::NoFrameBytes(_) => assert!(gfp.contains(Gfp::ZERO) && !self.has_bytes()),
            AllocError::Poisoned { pfn, block, order: found } => {
                assert_eq!(found, order);
                let block_range = PfnRange::new(block, order.pages());
                assert_eq!(self.reference.damaged_in(block_range).next(), Some(pfn), "the first damaged frame");
                self.reference.put_aside(block, order);
            }
            other => panic!("{other:?} for {order}, {gfp}, {node}"),
        }
    }

    /// No zone that may serve the request has a block for it above its minimum (`__zone_watermark_ok`).
    fn check_out_of_memory(&self, order: Order, gfp: Gfp, node: NodeId) {
        let highest = gfp.highest_zone();
        let movable = gfp.migrate_type() == Some(MigrateType::Movable);
        let non_block = gfp.contains(Gfp::HIGH) && !gfp.contains(Gfp::DIRECT_RECLAIM);
        for zone in self.zones() {
            let this_node = !gfp.contains(Gfp::THISNODE) || zone.id.node() == node;
            if zone.id.kind() > highest || !this_node {
                continue;
            }
            let kept_back = if gfp.contains(Gfp::HIGH) { 0 } else { zone.reserved_highatomic.0 };
            let cma = if movable { 0 } else { zone.free_cma.0 };
            let usable = zone.free.0.saturating_sub(order.pages().0 - 1 + kept_back + cma);
            let mut limit = zone.watermarks.min.0;
            if gfp.contains(Gfp::HIGH) {
                limit -= limit / 2;
            }
            if non_block {
                limit -= limit / 4;
            }
            let below = usable <= limit + zone.protection[highest as usize].0;
            let blocks = |migrate_type| {
                (order.0..=self.machine.geometry.max_order().0)
                    .map(|order| self.yard().free_blocks(zone.id, Order(order), migrate_type))
                    .sum::<u64>()
            };
            let ordinary: u64 = MigrateType::ALL[..MigrateType::PER_CPU].iter().map(|kind| blocks(*kind)).sum();
            let special = if movable { blocks(MigrateType::Cma) } else { 0 };
            assert!(below || ordinary + special == 0, "{order}, {gfp} for {node} failed, but {zone:?} could serve it");
        }
    }

    fn free(&mut self, pfn: Pfn) {
        self.check_stamp(pfn);
        let held = self.reference.give_back(pfn);
        assert_eq!(self.yard().free(pfn, held.order), Ok(()));
        assert_eq!(self.reference.problem(pfn, held.order), Some(FreeProblem::AlreadyFree(FrameState::BuddyFree)));
    }

    fn misuse(&mut self, how: Misuse, target: Target, order: Order) {
        let pfn = match target {
            Target::Block { pick, offset } => {
                let Some((pfn, held)) = self.reference.pick_held(pick) else { return };
                pfn + PageCount(u64::from(offset) % held.order.pages().0)
            }
            Target::Free(pick) => match self.reference.pick_free(pick) {
                Some(pfn) => pfn,
                None => return,
            },
            Target::Reserved(pick) => match self.reference.pick_reserved(pick) {
                Some(pfn) => pfn,
                None => return,
            },
            Target::Anywhere(pick) => self.reference.pick_anywhere(pick),
            Target::Highest => Pfn(u64::MAX),
        };
        // Most orders that are tried exist.
        let order = if order.0 < 240 { Order(order.0 % (self.machine.geometry.max_order().0 + 2)) } else { order };
        let Some(expected) = self.reference.problem(pfn, order) else { return };
        let before = self.zones();
        let refused = match how {
            Misuse::Free => self.yard().free(pfn, order),
            Misuse::Split => self.yard().split(pfn, order),
        };
        self.check_refusal(refused.unwrap_err(), pfn, order, expected);
        assert_eq!(self.zones(), before, "a refused request changes nothing");
    }

    fn check_refusal(&self, refused: FreeError, pfn: Pfn, order: Order, expected: FreeProblem) {
        assert_eq!((refused.pfn, refused.order), (pfn, order));
        match (refused.problem, expected) {
            (FreeProblem::AlreadyFree(FrameState::BuddyFree | FrameState::PerCpu), FreeProblem::AlreadyFree(_)) => {}
            (problem, expected) => assert_eq!(problem, expected, "of {pfn}, {order}"),
        }
    }

    fn bulk(&mut self, count: usize, gfp: Gfp) {
        let node = self.node(Place::Here);
        let mut frames = vec![Pfn(u64::MAX); count];
        let hits = self.yard().poison_hits();
        let answer = self.yard().alloc_bulk(gfp, &mut frames);
        if count == 0 {
            return assert_eq!(answer, Ok(0));
        }
        if let Some(expected) = self.bad_request(Order::ZERO, gfp) {
            return assert_eq!(answer, Err(expected));
        }
        let got = match answer {
            Ok(got) => got,
            Err(problem) => return self.failed(problem, Order::ZERO, gfp, node),
        };
        assert!((1..=count).contains(&got));
        for pfn in &frames[..got] {
            self.receive(*pfn, Order::ZERO, gfp, node);
        }
        assert!(frames[got..].iter().all(|pfn| *pfn == Pfn(u64::MAX)), "what was not allocated is not written");
        if got < count && self.yard().poison_hits() == hits {
            self.check_out_of_memory(Order::ZERO, gfp, node);
        }
    }

    fn exact(&mut self, count: PageCount, gfp: Gfp) {
        let node = self.node(Place::Here);
        let max = self.machine.geometry.max_order().pages();
        let answer = self.yard().alloc_exact(count, gfp);
        if count.0 == 0 || count > max {
            return assert_eq!(answer, Err(AllocError::BadSize { count, max }));
        }
        let order = Order::covering(count).expect("a small size");
        if let Some(expected) = self.bad_request(order, gfp) {
            return assert_eq!(answer, Err(expected));
        }
        match answer {
            Ok(range) => {
                assert_eq!(range.count(), count);
                self.receive_range(range, gfp, Some(node));
            }
            Err(problem) => self.failed(problem, order, gfp, node),
        }
    }

    /// A range is handed out in the largest aligned blocks.
    fn receive_range(&mut self, range: PfnRange, gfp: Gfp, node: Option<NodeId>) {
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

    fn take_range(&mut self, start: u16, count: u16, gfp: Gfp) {
        let start = self.reference.pick_memory(start);
        let range = PfnRange::new(start, PageCount(count.into()));
        let kept_back = self.kept_back(range);
        let answer = self.yard().alloc_range(range, gfp);
        let (memory, zone) = self.reference.zone_of(start).expect("memory");
        if range.is_empty() {
            return assert_eq!(answer, Err(RangeError::Empty));
        }
        if gfp.migrate_type().is_none() {
            return assert_eq!(answer, Err(RangeError::BadFlags(gfp)));
        }
        if range.end > memory.end {
            return assert_eq!(answer, Err(RangeError::NotOneZone(range)));
        }
        if gfp.contains(Gfp::ZERO) && !self.has_bytes() {
            return assert_eq!(answer, Err(RangeError::NoFrameBytes(start)));
        }
        match answer {
            Ok(taken) => {
                assert_eq!(taken, range);
                assert!(!kept_back, "{range} holds frames kept for atomic requests");
                self.receive_range(range, gfp, None);
            }
            Err(RangeError::InUse { head, order, state }) => self.check_in_use(range, head, order, state, zone),
            Err(RangeError::Poisoned { pfn, block, order }) => {
                assert_eq!(self.reference.damaged_in(range).next(), Some(pfn), "the first damaged frame");
                self.reference.put_aside(block, order);
            }
            Err(other) => panic!("{other:?} for {range}, {gfp}"),
        }
    }

    /// Whether a range has a block on the free lists that is kept for atomic requests.
    fn kept_back(&self, range: PfnRange) -> bool {
        (range.start.0..range.end.0).any(|pfn| {
            let info = self.yard().frame_info(Pfn(pfn));
            let kept = (FrameState::BuddyFree, MigrateType::HighAtomic);
            info.is_some_and(|info| (info.state, info.migrate_type) == kept)
        })
    }

    /// A range was refused: by its first block in use, or by a free one before it that is kept back.
    fn check_in_use(&self, range: PfnRange, head: Pfn, order: Order, state: FrameState, zone: ZoneId) {
        let first = self.reference.first_taken(range);
        if state == FrameState::BuddyFree {
            let info = self.yard().frame_info(head).expect("memory");
            assert_eq!((info.head, info.order, info.state), (head, order, state));
            assert_eq!(info.migrate_type, MigrateType::HighAtomic, "{head} is free and not kept back");
            assert!(self.yard().zone_statistics(zone).reserved_highatomic.0 > 0);
            assert!(first.is_none_or(|(taken, _)| taken > head), "a block before {head} is in use");
        } else {
            let (_, standing) = first.unwrap_or_else(|| panic!("all of {range} is free, but {head} is {state}"));
            assert_eq!(standing, Standing::Taken { head, order, state });
        }
    }

    fn free_range(&mut self, pick: u16, count: u16) {
        let Some((start, held)) = self.reference.pick_held(pick) else { return };
        // Often one block after the other until the first gap; else any length.
        let range = if count.is_multiple_of(2) {
            let mut end = start;
            while let Some(held) = self.reference.held().get(&end).filter(|_| (end - start).0 < u64::from(count)) {
                end = end + held.order.pages();
            }
            PfnRange { start, end }
        } else {
            PfnRange::new(start, PageCount(u64::from(count) % (3 * held.order.pages().0)))
        };
        let before = self.zones();
        let answer = self.yard().free_range(range);
        match self.reference.range_problem(range) {
            None => {
                assert_eq!(answer, Ok(()));
                self.reference.give_back_range(range);
            }
            Some((pfn, expected)) => {
                let refused = answer.unwrap_err();
                let order = match expected {
                    FreeProblem::PartOfBlock { order } => order,
                    _ => Order::ZERO,
                };
                self.check_refusal(refused, pfn, order, expected);
                assert_eq!(self.zones(), before, "a refused range changes nothing");
            }
        }
    }

    fn split(&mut self, pick: u16) {
        let Some((pfn, held)) = self.reference.pick_held(pick) else { return };
        assert_eq!(self.yard().split(pfn, held.order), Ok(()));
        self.reference.split(pfn);
        for offset in 0..held.order.pages().0 {
            self.stamp(pfn + PageCount(offset));
        }
    }

    fn damage(&mut self, pick: u16, offset: u16) {
        if self.machine.poisoning == Poisoning::Off {
            return;
        }
        let Some(pfn) = self.reference.pick_free(pick) else { return };
        self.with_bytes(PfnRange::new(pfn, PageCount(1)), |bytes| {
            let at = usize::from(offset) % bytes.len();
            bytes[at] = !POISON;
        });
        self.reference.damage(pfn);
    }

    /// A bulk allocation does not name the block that it put aside and stopped at.
    fn note_poisoned(&mut self) {
        let damaged: Vec<Pfn> = self.reference.all_damaged().collect();
        for pfn in damaged.into_iter().filter(|_| self.machine.poisoning == Poisoning::On) {
            let info = self.yard().frame_info(pfn).expect("memory");
            if info.state == FrameState::Poisoned && self.reference.is_damaged(pfn) {
                self.reference.put_aside(info.head, info.order);
            }
        }
    }

    /// Frees what is held; the fixture then requires every frame back.
    fn finish(mut self) {
        self.check_totals();
        while let Some((pfn, _)) = self.reference.pick_held(0) {
            self.free(pfn);
        }
        let poisoned = self.reference.poisoned_pages();
        self.fixture.keep(poisoned);
    }
}
