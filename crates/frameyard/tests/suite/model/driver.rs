//! Doing actions on a yard and comparing every answer with the reference.

use frameyard::alloc::FreeProblem;
use frameyard::boot::{BootError, InitError, InitMode, Poisoning};
use frameyard::compaction::CompactRequest;
use frameyard::contig::BlockedBy;
use frameyard::owners::Owners;
use frameyard::page::FrameState;
use frameyard::policy::{PolicyError, ZonePolicy};
use frameyard::stats::{CounterKind, ZoneStatistics};
use frameyard::units::ZoneKind;
use frameyard::{AllocError, CpuId, Gfp, NodeId, Order, PageCount, Pfn, PfnRange, Yard, ZoneId};

use super::reference::Reference;
use super::{Action, Machine, Misuse, Place, Target, View};
use crate::fixture::{self, Fixture, Frames, TestPlatform};

/// How many actions are done between two runs of the validator.
const VALIDATE_EVERY: usize = 8;
pub(super) const POISON: u8 = 0xaa;

/// Does the actions on a fresh yard of that machine, and gives everything back at the end.
///
/// # Panics
///
/// Where the yard's answer is not what the reference expects, or the validator finds fault.
pub(crate) fn run(machine: &Machine, actions: &[Action]) {
    fixture::run_on(0);
    let fixture = Fixture::new(&machine.table(), &machine.config(), machine.frames);
    let attached = fixture.attach();
    let reference = Reference::new(machine, fixture.memory_ranges());
    let mut driver = Driver { machine, attached, fixture, reference, view: View::Creator, cpu: 0 };
    driver.check_totals();
    for (step, action) in actions.iter().enumerate() {
        driver.step(*action);
        driver.note_poisoned();
        let free = driver.yard().stats().free_pages() + driver.uncounted();
        assert_eq!(free, driver.reference.free_pages(), "free pages after {action:?}");
        if step % VALIDATE_EVERY == VALIDATE_EVERY - 1 {
            driver.check_totals();
        }
    }
    driver.finish();
}

pub(super) struct Driver<'m> {
    pub(super) machine: &'m Machine,
    attached: Yard<TestPlatform>,
    fixture: Fixture,
    pub(super) reference: Reference,
    view: View,
    cpu: u32,
}

impl Driver<'_> {
    pub(super) fn yard(&self) -> &Yard<TestPlatform> {
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
            Action::Fill { left } => self.fill(PageCount(left.into())),
            Action::DrainList { zone, cpu } => self.yard().zone(self.zone(zone)).drain_cpu(CpuId(cpu.into())),
            Action::DrainCpu { cpu } => self.drain_cpu(cpu),
            Action::DrainZone { zone } => self.drain_zone(self.zone(zone)),
            Action::DrainAll => self.drain_all(),
            Action::Resize { sizing } => self.yard().lists().resize(sizing),
            Action::Retune { options, sizing } => match (options.check(), self.yard().lists().retune(&options, sizing))
            {
                (Err(expected), refused) => assert_eq!(refused, Err(BootError::Watermarks(expected))),
                (Ok(()), done) => assert_eq!(done, Ok(())),
            },
            Action::RunOn { cpu, view } => {
                self.cpu = cpu.into();
                self.view = view;
                fixture::run_on(self.cpu);
            }
            Action::Damage { pick, offset } => self.damage(pick, offset),
            Action::InitialiseNext { node } => self.initialise_next(NodeId(node.into())),
            Action::FinishInit => self.finish_init(),
            Action::SetPolicy { policy: to }
                if to != self.yard().policy()
                    && [to, self.yard().policy()].iter().any(|policy| policy.keeps_bits()) =>
            {
                let from = self.yard().policy();
                assert_eq!(self.yard().set_policy(to), Err(PolicyError::OtherStore { from, to }));
                assert_eq!(self.yard().policy(), from);
            }
            Action::SetPolicy { policy } => {
                assert_eq!(self.yard().set_policy(policy), Ok(()));
                assert_eq!(self.yard().policy(), policy);
                assert!(self.zones().iter().all(|zone| zone.per_cpu.0 == 0), "{policy}: everything is merged");
                self.check_totals();
                self.check_leftovers(policy);
            }
            Action::Compact { zone } => {
                self.yard().compaction().zone(self.zone(zone), CompactRequest::WHOLE_ZONE, &Owners::NONE);
            }
            Action::Contiguous { start, count, gfp } => self.take_contiguous(start, count, gfp),
            Action::Validate => self.check_totals(),
        }
    }

    /// Free memory that is not initialised and does not count as free before it is.
    pub(super) fn uncounted(&self) -> PageCount {
        match self.machine.map_init.mode {
            InitMode::Deferred => self.yard().init().deferred_pages(),
            _ => PageCount(0),
        }
    }

    /// Whether a frame of memory has no page structure yet.
    pub(super) fn is_uninitialised(&self, pfn: Pfn) -> bool {
        self.yard().stats().frame(pfn).is_some_and(|info| info.state == FrameState::Uninitialised)
    }

    fn initialise_next(&self, node: NodeId) {
        let before = self.yard().init().deferred_pages();
        match self.yard().init().next_section(node).expect("memory for the map") {
            Some(left) => assert!(self.yard().init().deferred_pages() < before && left < before),
            None => assert_eq!(self.yard().init().deferred_pages(), before),
        }
    }

    fn finish_init(&self) {
        match self.view {
            View::Creator => {
                assert_eq!(self.yard().init().finish(), Ok(()));
                assert_eq!(self.yard().init().deferred_pages(), PageCount(0));
                self.check_totals();
            }
            View::Attached => assert_eq!(self.yard().init().finish(), Err(InitError::NotTheCreator)),
        }
    }

    /// Any zone, populated or not, and a few beyond the last.
    fn zone(&self, pick: u8) -> ZoneId {
        ZoneId(u16::from(pick) % (self.yard().nodes() * ZoneKind::COUNT as u16 + 3))
    }

    pub(super) fn zones(&self) -> Vec<ZoneStatistics> {
        self.yard().stats().zones().collect()
    }

    fn drain_cpu(&self, cpu: u8) {
        let cpu = CpuId(u32::from(cpu) % (self.yard().cpus() + 2));
        self.yard().lists().drain_cpu(cpu);
        for zone in self.zones() {
            let held = self.yard().zone(zone.id).pcp(cpu).map_or(PageCount(0), |pcp| pcp.count);
            assert_eq!(held, PageCount(0), "{cpu} still holds frames of {}", zone.id);
        }
    }

    fn drain_zone(&self, zone: ZoneId) {
        self.yard().zone(zone).drain();
        let held = self.zones().into_iter().find(|found| found.id == zone).map(|found| found.per_cpu.0);
        assert_eq!(held.unwrap_or(0), 0, "CPUs still hold frames of {zone}");
    }

    fn drain_all(&self) {
        self.yard().drain_all();
        assert!(self.zones().iter().all(|zone| zone.per_cpu.0 == 0));
    }

    /// The node that a request prefers.
    fn node(&self, place: Place) -> NodeId {
        match place {
            Place::Here => self.machine.cpus[self.cpu as usize % self.machine.cpus.len()],
            Place::Node(node) => NodeId(node),
        }
    }

    pub(super) fn has_bytes(&self) -> bool {
        self.machine.frames == Frames::Real
    }

    /// Why a request is refused whatever memory there is.
    fn bad_request(&self, order: Order, gfp: Gfp) -> Option<AllocError> {
        let max = self.machine.geometry.largest_order();
        if order > max {
            Some(AllocError::OrderTooLarge { order, max })
        } else if gfp.migrate_type().is_none() {
            Some(AllocError::BadFlags(gfp))
        } else {
            None
        }
    }

    fn fill(&mut self, left: PageCount) {
        for order in (0..=self.machine.geometry.max_order().0).rev().map(Order) {
            while self.yard().stats().free_pages() > left + order.pages() {
                let before = self.reference.free_pages();
                self.allocate(order, Gfp::HIGHUSER_MOVABLE | Gfp::HIGH | Gfp::NOWARN, Place::Here);
                if self.reference.free_pages() == before {
                    break;
                }
            }
        }
    }

    fn allocate(&mut self, order: Order, gfp: Gfp, place: Place) {
        let node = self.node(place);
        let before = self.zones();
        let answer = match place {
            Place::Here => self.yard().alloc(order, gfp),
            Place::Node(node) => self.yard().request(order, gfp).node(NodeId(node)).frame(),
        };
        if node.0 >= self.yard().nodes() {
            return assert_eq!(answer, Err(AllocError::NoSuchNode(node)));
        }
        if let Some(expected) = self.bad_request(order, gfp) {
            return assert_eq!(answer, Err(expected));
        }
        match answer {
            Ok(pfn) => {
                self.receive(pfn, order, gfp, node);
                self.check_reserves(&before, pfn, order, gfp);
            }
            Err(problem) => self.failed(problem, order, gfp, node),
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
        let order = if order.0 < 240 { Order(order.0 % (self.machine.geometry.largest_order().0 + 2)) } else { order };
        let Some(mut expected) = self.reference.problem(pfn, order) else { return };
        if self.is_uninitialised(pfn) {
            assert!(self.reference.is_untaken(pfn), "{pfn} is held and not initialised");
            expected = FreeProblem::NotAllocated(FrameState::Uninitialised);
        }
        let before = self.zones();
        let refused = match how {
            Misuse::Free => self.yard().free(pfn, order),
            Misuse::Split => self.yard().split(pfn, order),
        };
        self.check_refusal(refused.unwrap_err(), pfn, order, expected);
        assert_eq!(self.zones(), before, "a refused request changes nothing");
    }

    fn bulk(&mut self, count: usize, gfp: Gfp) {
        let node = self.node(Place::Here);
        let mut frames = vec![Pfn(u64::MAX); count];
        let hits = self.yard().stats().poison_hits();
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
        assert!(frames[got..].iter().all(|pfn| *pfn == Pfn(u64::MAX)), "the call wrote behind the allocated frames");
        if got < count && self.yard().stats().poison_hits() == hits {
            self.check_out_of_memory(Order::ZERO, gfp, node);
        }
    }

    fn exact(&mut self, count: PageCount, gfp: Gfp) {
        let node = self.node(Place::Here);
        let max = self.machine.geometry.max_order().pages();
        let answer = self.yard().request(count, gfp).range();
        if count.0 == 0 {
            return assert_eq!(answer, Err(AllocError::Empty));
        }
        if count > max {
            return assert_eq!(answer, Err(AllocError::CountTooLarge { count, max }));
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

    fn take_range(&mut self, start: u16, count: u16, gfp: Gfp) {
        // Mostly from a free frame on.
        let free = self.reference.pick_free(start).filter(|_| !start.is_multiple_of(4));
        let start = free.unwrap_or_else(|| self.reference.pick_memory(start));
        let range = PfnRange::new(start, PageCount(count.into()));
        let kept_back = self.kept_back(range, gfp);
        let answer = self.yard().request(range, gfp).range();
        let (memory, zone) = self.reference.zone_of(start).expect("memory");
        if range.is_empty() {
            return assert_eq!(answer, Err(AllocError::Empty));
        }
        if gfp.migrate_type().is_none() {
            return assert_eq!(answer, Err(AllocError::BadFlags(gfp)));
        }
        if range.end > memory.end {
            return assert_eq!(answer, Err(AllocError::NotOneZone(range)));
        }
        if gfp.contains(Gfp::ZERO) && !self.has_bytes() {
            return assert_eq!(answer, Err(AllocError::NoFrameBytes(start)));
        }
        match answer {
            Ok(taken) => {
                assert_eq!(taken, range);
                assert!(!kept_back, "{range} holds frames kept from {gfp}");
                self.receive_range(range, gfp, None);
            }
            Err(AllocError::InUse { head, order, state }) => self.check_in_use((range, gfp), head, order, state, zone),
            Err(AllocError::Poisoned { pfn, block, order }) => {
                assert_eq!(self.reference.damaged_in(range).next(), Some(pfn), "the first damaged frame");
                self.reference.put_aside(block, order);
            }
            Err(other) => panic!("{other:?} for {range}, {gfp}"),
        }
    }

    /// Nothing of what another policy keeps is left.
    fn check_leftovers(&self, policy: ZonePolicy) {
        let own: &[&str] = match policy {
            ZonePolicy::SkipMerge => &["unmerged_"],
            ZonePolicy::Vanilla | ZonePolicy::Vanilla416 | ZonePolicy::Vanilla417 | ZonePolicy::BigPcp => &[],
            _ => return,
        };
        for zone in self.zones() {
            for (info, value) in self.yard().zone(zone.id).mechanism_counts().iter() {
                let is_held = info.kind == CounterKind::Gauge && !info.name.ends_with("_max");
                let is_own = !is_held || own.iter().any(|own| info.name.starts_with(own));
                assert!(is_own || value.unwrap_or(0) == 0, "{}: {value:?}, {policy}, {}", info.name, zone.id);
            }
        }
    }

    fn take_contiguous(&mut self, start: u16, count: u16, gfp: Gfp) {
        if self.machine.poisoning == Poisoning::On {
            return;
        }
        let free = self.reference.pick_free(start).filter(|_| !start.is_multiple_of(4));
        let start = free.unwrap_or_else(|| self.reference.pick_memory(start));
        let range = PfnRange::new(start, PageCount(count.into()));
        match self.yard().request(range, gfp).owners(&Owners::NONE).range() {
            Ok(taken) => {
                assert_eq!(taken, range);
                self.receive_range(range, gfp, None);
            }
            Err(AllocError::Blocked(blocker)) if blocker.why == BlockedBy::Busy => {
                assert!(self.reference.first_taken(range).is_some(), "{range} is free, but {blocker}");
            }
            Err(_) => {}
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
            let pages = held.order.pages().0;
            PfnRange::new(start + PageCount(u64::from(count / 3) % pages), PageCount(u64::from(count) % (3 * pages)))
        };
        let before = self.zones();
        let answer = self.yard().free_range(range);
        match self.reference.range_problem(range) {
            None => {
                assert_eq!(answer, Ok(()));
                self.reference.give_back_range(range).into_iter().for_each(|pfn| self.stamp(pfn));
            }
            Some((pfn, expected)) => {
                let uninitialised = FreeProblem::NotAllocated(FrameState::Uninitialised);
                let expected = if self.is_uninitialised(pfn) { uninitialised } else { expected };
                let refused = answer.unwrap_err();
                self.check_refusal(refused, pfn, Order::ZERO, expected);
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
        let Some(pfn) = self.reference.pick_free(pick).filter(|pfn| !self.is_uninitialised(*pfn)) else { return };
        self.with_bytes(PfnRange::new(pfn, PageCount(1)), |bytes| {
            let at = usize::from(offset) % bytes.len();
            bytes[at] = !POISON;
        });
        self.reference.damage(pfn);
    }

    /// A bulk allocation does not name the damaged block that it stopped at.
    fn note_poisoned(&mut self) {
        let damaged: Vec<Pfn> = self.reference.all_damaged().collect();
        for pfn in damaged.into_iter().filter(|_| self.machine.poisoning == Poisoning::On) {
            let info = self.yard().stats().frame(pfn).expect("memory");
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
