//! The four layouts of page maps, action by action: what random users do gives the same answers in all of them, and those of
//! a model that knows ranges and counts alone. Folded maps refuse splits, and sections shared by two devices.

use crate::fixture::{Fixture, Frames, run_on};
use frameyard::boot::ZoneLimits;
use frameyard::devices::{DeviceError, DeviceId, DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::page::FrameState;
use frameyard::{ByteSize, Geometry, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
use proptest::collection::vec;
use proptest::prelude::*;

/// Frames of a section; a sub-section has 16.
const SECTION: u64 = 1024;
const SPACE: PfnRange = PfnRange { start: Pfn(512), end: Pfn(16 * SECTION) };
/// Base pages, pages whose structures share a map page, pages with map pages of tails, and pages larger than a section.
const ORDERS: [Order; 4] = [Order(0), Order(4), Order(8), Order(11)];
const NODES: [NodeId; 2] = [NodeId(0), NodeId(1)];
/// Memory of both nodes; the second part lies in the device space.
const MEMORY: [(PfnRange, NodeId); 2] = [
    (PfnRange { start: Pfn(0), end: Pfn(512) }, NODES[0]),
    (PfnRange { start: Pfn(5 * SECTION + 256), end: Pfn(5 * SECTION + 768) }, NODES[1]),
];

#[derive(Clone, Debug)]
enum Action {
    /// Maps this number of units of the order, from a sub-section on.
    Map {
        part: u64,
        units: u64,
        order: usize,
        node: usize,
    },
    Unmap {
        device: u16,
    },
    Get {
        pfn: u64,
        count: u32,
    },
    Put {
        held: usize,
    },
    Split {
        pfn: u64,
    },
    Join {
        pfn: u64,
    },
    Look {
        pfn: u64,
    },
    AddMapping {
        pfn: u64,
    },
    RemoveMapping {
        pfn: u64,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let pfn = || 0..17 * SECTION;
    prop_oneof![
        3 => (0..SPACE.end.0 / 16, 1..40u64, 0..ORDERS.len(), 0..2usize)
            .prop_map(|(part, units, order, node)| Action::Map { part, units, order, node }),
        1 => (0..6u16).prop_map(|device| Action::Unmap { device }),
        6 => (pfn(), 1..1000u32).prop_map(|(pfn, count)| Action::Get { pfn, count }),
        6 => any::<usize>().prop_map(|held| Action::Put { held }),
        5 => pfn().prop_map(|pfn| Action::Split { pfn }),
        5 => pfn().prop_map(|pfn| Action::Join { pfn }),
        4 => pfn().prop_map(|pfn| Action::Look { pfn }),
        2 => pfn().prop_map(|pfn| Action::AddMapping { pfn }),
        2 => pfn().prop_map(|pfn| Action::RemoveMapping { pfn }),
    ]
}

/// The number of a device. The yards count generations differently: only some refuse to share a section.
fn numbered(id: DeviceId) -> DeviceId {
    DeviceId::from_bits(u64::from(id.number()))
}

/// An answer that names devices by number alone.
fn by_number<T>(answer: Result<T, DeviceError>) -> Result<T, DeviceError> {
    use DeviceError::{Busy, Mapped, MixedSection, NoSuchDevice, NotMapped, Overlaps};
    answer.map_err(|problem| match problem {
        NoSuchDevice(id) => NoSuchDevice(numbered(id)),
        Busy(id) => Busy(numbered(id)),
        NotMapped(id) => NotMapped(numbered(id)),
        Mapped { device, mappings } => Mapped { device: numbered(device), mappings },
        Overlaps { range, device, with } => Overlaps { range, device: numbered(device), with },
        MixedSection { range, device, order, layout } => {
            MixedSection { range, device: numbered(device), order, layout }
        }
        other => other,
    })
}

/// What a device is to be, as the model has it.
#[derive(Clone, Debug)]
struct Device {
    /// Without its generation.
    id: DeviceId,
    range: PfnRange,
    order: Order,
    mappings: u64,
    split: Vec<Pfn>,
}

impl Device {
    /// The first frame and the order of the page for a frame.
    fn page(&self, pfn: Pfn, layout: MapLayout) -> (Pfn, Order) {
        let head = pfn.align_down(self.order);
        if layout != MapLayout::Folded && self.split.contains(&head) { (pfn, Order::ZERO) } else { (head, self.order) }
    }
}

/// The place of the folded layout among all; those before it can split.
const FOLDED: usize = 3;

fn create_yard(layout: MapLayout) -> (MapLayout, Fixture) {
    let geometry = Geometry::new(ByteSize::kib(4), ByteSize::kib(4 * SECTION), Order(4), Order(5)).unwrap();
    let config =
        YardConfig { geometry, zone_limits: ZoneLimits::NONE, device_space: Some(SPACE), ..YardConfig::new(&NODES) };
    (layout, Fixture::new(&MemoryTable { memory: &MEMORY, ..MemoryTable::default() }, &config, Frames::Phantom))
}

struct Run {
    yards: [(MapLayout, Fixture); 4],
    devices: Vec<Device>,
    /// Frames and how many references were got on their pages.
    held: Vec<(Pfn, u32)>,
}

impl Run {
    fn new() -> Self {
        run_on(0);
        Self { yards: MapLayout::ALL.map(create_yard), devices: Vec::new(), held: Vec::new() }
    }

    fn device_at(&mut self, pfn: Pfn) -> Option<&mut Device> {
        self.devices.iter_mut().find(|device| device.range.contains(pfn))
    }

    fn is_held(&self, frames: PfnRange) -> bool {
        self.held.iter().any(|(pfn, _)| frames.contains(*pfn))
    }

    /// The answer of all layouts, which is the same.
    fn all<T: PartialEq + std::fmt::Debug>(&self, ask: impl Fn(MapLayout, &Fixture) -> T) -> T {
        let answers = self.yards.each_ref().map(|(layout, yard)| ask(*layout, yard));
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        let [answer, ..] = answers;
        answer
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Map { part, units, order, node } => self.map(part, units, ORDERS[order], NODES[node]),
            Action::Unmap { device } => self.unmap(DeviceId::from_bits(u64::from(device))),
            Action::Get { pfn, count } => self.get(Pfn(pfn), count),
            Action::Put { held } if !self.held.is_empty() => self.put(held % self.held.len()),
            Action::Put { .. } => {}
            Action::Split { pfn } => self.split(Pfn(pfn)),
            Action::Join { pfn } => self.join(Pfn(pfn)),
            Action::Look { pfn } => self.look(Pfn(pfn)),
            Action::AddMapping { pfn } => {
                let pfn = Pfn(pfn);
                let answer = self.all(|_, yard| by_number(yard.devices().add_mapping(pfn)));
                match self.device_at(pfn) {
                    Some(device) => device.mappings += 1,
                    None => assert_eq!(answer, Err(DeviceError::NotDevice(pfn))),
                }
            }
            Action::RemoveMapping { pfn } => {
                let pfn = Pfn(pfn);
                let answer = self.all(|_, yard| by_number(yard.devices().remove_mapping(pfn)));
                match self.device_at(pfn) {
                    Some(device) if device.mappings > 0 => device.mappings -= 1,
                    Some(device) => assert_eq!(answer, Err(DeviceError::NotMapped(device.id))),
                    None => assert_eq!(answer, Err(DeviceError::NotDevice(pfn))),
                }
            }
        }
    }

    fn map(&mut self, part: u64, units: u64, order: Order, node: NodeId) {
        let unit = order.max(Order(4));
        // Mostly aligned.
        let start = if part.is_multiple_of(8) { Pfn(part * 16) } else { Pfn(part * 16).align_down(unit) };
        let range = PfnRange::new(start, PageCount(units << unit.0));
        let request = |layout| DeviceRequest { range, node, order, layout, placement: MapPlacement::Memory };
        let answers = [0, 1, 2, FOLDED].map(|at| {
            let (layout, yard) = &self.yards[at];
            by_number(yard.devices().map(request(*layout)).map(numbered))
        });
        if let (Ok(id), Err(DeviceError::MixedSection { .. })) = (answers[0], answers[FOLDED]) {
            let shares_a_section = |device: &Device| {
                range.start.0 / SECTION <= (device.range.end.0 - 1) / SECTION
                    && device.range.start.0 / SECTION <= (range.end.0 - 1) / SECTION
            };
            assert!(self.devices.iter().any(shares_a_section), "no other device is in a section of {range}");
            assert_eq!(answers[1..FOLDED], [Ok(id); 2]);
            for at in 0..FOLDED {
                self.unmap_in(at, id).unwrap();
            }
            return;
        }
        // What stands there of the other device differs.
        let mixed = |answer| matches!(answer, Err(DeviceError::MixedSection { .. }));
        assert!(
            answers[1..FOLDED].iter().all(|answer| *answer == answers[0] || mixed(answers[0]) && mixed(*answer)),
            "{answers:?}"
        );
        let is_memory =
            MEMORY.iter().any(|(memory, _)| !memory.intersection(range).is_empty() && memory.start < range.end);
        let overlaps = self.devices.iter().any(|device| {
            let both = device.range.intersection(range);
            both.start < both.end
        });
        match (answers[0], answers[FOLDED]) {
            (Ok(id), folded) => {
                assert_eq!(folded, Ok(id));
                assert!(!overlaps && !is_memory && range.start.is_aligned(unit) && range.intersection(SPACE) == range);
                self.devices.push(Device { id, range, order, mappings: 0, split: Vec::new() });
            }
            (Err(DeviceError::MixedSection { .. }), folded) => assert!(mixed(folded), "{folded:?}"),
            (problem, folded) => assert_eq!(problem, folded),
        }
    }

    /// Removes the device of a number from a yard.
    fn unmap_in(&self, at: usize, number: DeviceId) -> Result<(), DeviceError> {
        let devices = self.yards[at].1.devices();
        let device = devices.list().map(|device| device.id).find(|id| numbered(*id) == number);
        by_number(devices.unmap(device.unwrap_or(number), Removal::Refuse))
    }

    fn unmap(&mut self, id: DeviceId) {
        let answers = [0, 1, 2, FOLDED].map(|at| self.unmap_in(at, id));
        assert_eq!([answers[0]; 2], [answers[1], answers[2]]);
        let Some(at) = self.devices.iter().position(|device| device.id == id) else {
            assert_eq!(answers[0], Err(DeviceError::NoSuchDevice(id)));
            assert_eq!(answers[FOLDED], answers[0]);
            return;
        };
        let device = &self.devices[at];
        let held: Vec<_> = self.held.iter().filter(|(pfn, _)| device.range.contains(*pfn)).collect();
        let expected = |layout| {
            if device.mappings > 0 {
                return Err(DeviceError::Mapped { device: id, mappings: device.mappings });
            }
            let mut pages: Vec<Pfn> = held.iter().map(|(pfn, _)| device.page(*pfn, layout).0).collect();
            pages.sort_unstable();
            pages.dedup();
            let references = held.iter().map(|(_, count)| u64::from(*count)).sum();
            match pages.first() {
                Some(first) => Err(DeviceError::InUse { references, pages: pages.len() as u64, first: *first }),
                None => Ok(()),
            }
        };
        assert_eq!(answers[0], expected(MapLayout::Full));
        assert_eq!(answers[FOLDED], expected(MapLayout::Folded));
        if answers[0].is_ok() {
            self.devices.remove(at);
        }
    }

    fn get(&mut self, pfn: Pfn, count: u32) {
        let got = self.all(|_, yard| yard.devices().page(pfn).is_some_and(|page| page.try_get(count)));
        assert_eq!(got, self.device_at(pfn).is_some());
        if got {
            self.held.push((pfn, count));
        }
    }

    fn put(&mut self, held: usize) {
        let (pfn, count) = self.held.swap_remove(held);
        for (_, yard) in &self.yards {
            // SAFETY: got before, and not given back.
            unsafe { yard.devices().page(pfn).unwrap().put(count) }.unwrap();
        }
    }

    fn split(&mut self, pfn: Pfn) {
        let head = self.device_at(pfn).map_or(pfn, |device| pfn.align_down(device.order));
        let answers = [0, 1, 2, FOLDED].map(|at| self.yards[at].1.devices().split(head));
        assert_eq!([answers[0]; 2], [answers[1], answers[2]]);
        let Some(device) = self.device_at(pfn).cloned() else {
            assert_eq!(answers, [Err(DeviceError::NotDevice(head)); 4]);
            return;
        };
        if device.order == Order::ZERO {
            assert_eq!(answers, [Err(DeviceError::BasePages(head)); 4]);
            return;
        }
        assert_eq!(answers[FOLDED], Err(DeviceError::LayoutCannotSplit(head)));
        let is_split = device.split.contains(&head);
        let frames = PfnRange::new(head, device.order.pages());
        match answers[0] {
            Ok(()) => {
                assert!(!is_split && !self.is_held(frames));
                self.device_at(pfn).unwrap().split.push(head);
            }
            Err(DeviceError::IsSplit(_)) => assert!(is_split),
            Err(DeviceError::InUse { first, .. }) => assert!(first == head && self.is_held(frames)),
            other => panic!("{other:?}"),
        }
    }

    fn join(&mut self, pfn: Pfn) {
        let head = self.device_at(pfn).map_or(pfn, |device| pfn.align_down(device.order));
        let answers = [0, 1, 2].map(|at| self.yards[at].1.devices().join(head));
        assert_eq!([answers[0]; 2], [answers[1], answers[2]]);
        let Some(device) = self.device_at(pfn).cloned().filter(|device| device.order > Order::ZERO) else {
            assert!(answers[0].is_err());
            return;
        };
        let is_split = device.split.contains(&head);
        let frames = PfnRange::new(head, device.order.pages());
        match answers[0] {
            Ok(()) => {
                assert!(is_split && !self.is_held(frames));
                self.device_at(pfn).unwrap().split.retain(|split| *split != head);
            }
            Err(DeviceError::NotSplit(_)) => assert!(!is_split),
            Err(DeviceError::InUse { .. }) => assert!(self.is_held(frames)),
            other => panic!("{other:?}"),
        }
    }

    fn look(&mut self, pfn: Pfn) {
        let device = self.device_at(pfn).cloned();
        for (layout, yard) in &self.yards {
            let found = yard.devices().page(pfn);
            let Some(device) = &device else {
                assert!(found.is_none(), "{pfn} in {layout}");
                continue;
            };
            let page = found.unwrap_or_else(|| panic!("{pfn} has no page in {layout}"));
            let (head, order) = device.page(pfn, *layout);
            assert_eq!((page.head(), page.order()), (head, order), "{pfn} in {layout}");
            let frames = PfnRange::new(head, order.pages());
            let held: u32 = self.held.iter().filter(|(pfn, _)| frames.contains(*pfn)).map(|(_, count)| *count).sum();
            assert_eq!(page.counts().references, held + 1, "{pfn} in {layout}");
            let info = yard.stats().frame(pfn).unwrap();
            assert_eq!((info.head, info.state, info.order), (head, FrameState::Device, order));
            let known = yard.devices().at(pfn).unwrap();
            assert_eq!((numbered(known.id), known.range, known.mappings), (device.id, device.range, device.mappings));
        }
    }

    /// Gives everything back, and demands maps as they were.
    fn end(mut self) {
        while !self.held.is_empty() {
            self.put(0);
        }
        for device in std::mem::take(&mut self.devices) {
            for (at, (_, yard)) in self.yards.iter().enumerate() {
                (0..device.mappings).for_each(|_| yard.devices().remove_mapping(device.range.start).unwrap());
                self.unmap_in(at, device.id).unwrap();
            }
        }
        for (layout, yard) in &self.yards {
            yard.validate().unwrap();
            let mut device_frames = (SPACE.start.0..SPACE.end.0).map(Pfn).filter(|pfn| yard.zone_of(*pfn).is_none());
            assert!(device_frames.all(|pfn| yard.page_words(pfn) == [0; 8]), "{layout}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_layouts_answer_alike(actions in vec(action(), 1..60)) {
        let mut run = Run::new();
        for (at, action) in actions.iter().enumerate() {
            run.act(action);
            if at % 8 == 7 {
                run.yards.iter().for_each(|(_, yard)| yard.validate().unwrap());
            }
        }
        run.end();
    }
}

#[test]
fn a_range_that_overlaps_a_device_is_refused_for_that_under_every_layout() {
    let mut run = Run::new();
    run.map(6 * SECTION / 16, 1, ORDERS[1], NODES[0]);
    run.map(9 * SECTION / 16, 1, ORDERS[1], NODES[0]);
    assert_eq!(run.devices.len(), 2);
    // It begins in the section of the first one, which two devices with folded maps do not share, and covers the second one.
    run.map((6 * SECTION + 512) / 16, 4 * SECTION / 16, ORDERS[1], NODES[0]);
    assert_eq!(run.devices.len(), 2);
    run.end();
}

#[test]
fn random_actions_reach_every_kind_of_answer() {
    // The strategy is worth its name where pages are mapped, used and split with it: a fixed stretch of what it makes.
    let mut run = Run::new();
    run.map(64, 3, ORDERS[3], NODES[1]);
    run.map(64, 8, ORDERS[2], NODES[0]);
    assert_eq!(run.devices.len(), 1, "the second overlaps the first");
    run.map(5 * 64 + 1, 16, ORDERS[1], NODES[0]);
    assert_eq!(run.devices.len(), 1, "there is memory");
    run.map(8 * 64, 3, ORDERS[2], NODES[0]);
    let heads = [Pfn(2 * SECTION), Pfn(8 * SECTION + 256)];
    for head in heads {
        run.split(head);
        run.get(head + PageCount(77), 5);
        run.get(head, 1);
        run.look(head + PageCount(77));
        run.join(head);
        run.unmap(DeviceId::from_bits(0));
    }
    assert_eq!(run.devices.iter().map(|device| device.split.len()).sum::<usize>(), 2, "{:?}", run.devices);
    run.end();
}
