//! The tree of areas against a plain map of pages.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;

use frameyard::ByteSize;
use frameyard::units::PhysAddr;
use proptest::prelude::*;

use super::{AreaWord, HugeAdvice, MapKind, Protection, Sharing};
use crate::address::{PageLevel, VirtAddr, VirtRange};
use crate::file_id::FileId;
use crate::object_id::ObjectKind;
use crate::space::{SpaceRef, SpaceWord};
use crate::test_yard::{TestPlatform, TestYard};
use crate::{Vm, VmConfig};

const PAGE: u64 = 4096;
const BASE: u64 = VirtAddr::LOWEST.0;
const PAGES: u64 = 256;

#[derive(Clone, Copy, Debug)]
enum Action {
    Insert { page: u64, pages: u64, kind: MapKind, protection: Protection },
    Remove { page: u64, pages: u64 },
    Find { page: u64 },
    Gap { pages: u64, align: u64 },
}

fn kinds() -> impl Strategy<Value = MapKind> {
    prop_oneof![
        4 => Just(MapKind::Anonymous { huge: HugeAdvice::Default }),
        1 => Just(MapKind::Anonymous { huge: HugeAdvice::Never }),
        1 => (0..1000u64).prop_map(|frame| MapKind::Device { first: PhysAddr(frame * PAGE), page: PageLevel::Small }),
        2 => prop::sample::select(Sharing::ALL.to_vec())
            .prop_map(|sharing| MapKind::File { file: FileId::from_bits(0), first: 0, sharing }),
        1 => (0..1000u64).prop_map(|frame| MapKind::Pooled { first: PhysAddr(frame * PAGE), page: PageLevel::Small }),
    ]
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..PAGES, 1..12u64, kinds(), prop::sample::select(Protection::ALL.to_vec()))
            .prop_map(|(page, pages, kind, protection)| Action::Insert { page, pages, kind, protection }),
        3 => (0..PAGES, 1..20u64).prop_map(|(page, pages)| Action::Remove { page, pages }),
        1 => (0..PAGES).prop_map(|page| Action::Find { page }),
        1 => (1..16u64, 0..5u32).prop_map(|(pages, shift)| Action::Gap { pages, align: 1 << shift }),
    ]
}

fn range(page: u64, pages: u64) -> VirtRange {
    VirtRange::new(VirtAddr(BASE + page * PAGE), ByteSize(pages * PAGE)).unwrap()
}

/// The mapping of each page.
#[derive(Default)]
struct Model(BTreeMap<u64, (MapKind, Protection)>);

impl Model {
    fn areas(&self) -> Vec<(VirtRange, MapKind, Protection)> {
        let mut areas: Vec<(VirtRange, MapKind, Protection)> = Vec::new();
        for (page, (kind, protection)) in &self.0 {
            let this = range(*page, 1);
            match areas.last_mut() {
                Some((last, of, alike))
                    if last.end == this.start
                        && of.advanced(last.size()) == *kind
                        && alike == protection
                        && self.joins(*page) =>
                {
                    last.end = this.end;
                }
                _ => areas.push((this, *kind, *protection)),
            }
        }
        areas
    }

    /// Pages of devices and files belong to one area only if they were mapped by one call. Their places show this: each call
    /// starts elsewhere.
    fn joins(&self, page: u64) -> bool {
        page > 0 && self.0.contains_key(&(page - 1))
    }

    /// The highest gap, found by exhaustive search.
    fn gap(&self, pages: u64, align: u64, room: u64) -> Option<u64> {
        let fits = |first: u64| {
            (BASE / PAGE + first).is_multiple_of(align)
                && (first..first + pages).all(|page| !self.0.contains_key(&page))
        };
        (0..=room.checked_sub(pages)?).rev().find(|first| fits(*first))
    }
}

fn run(space: SpaceRef<'_, TestPlatform>, actions: &[Action]) {
    let mut model = Model::default();
    let mut device = 0;
    for action in actions.iter().copied() {
        match action {
            Action::Insert { page, pages, kind, protection } => {
                let requested = range(page, pages);
                if (page..page + pages).any(|page| model.0.contains_key(&page)) {
                    assert!(space.areas_in(requested).next().is_some());
                    continue;
                }
                assert_eq!(space.areas_in(requested).count(), 0);
                assert_eq!(space.first_hole(requested), Some(requested));
                device += 1;
                let kind = match kind {
                    MapKind::Device { page, .. } => MapKind::Device { first: PhysAddr(device << 32), page },
                    MapKind::File { sharing, .. } => {
                        // The area takes over the use that the handle began.
                        let file = ManuallyDrop::new(space.vm().create_shared_memory(ByteSize(PAGE)).unwrap());
                        MapKind::File { file: file.id(), first: device << 20, sharing }
                    }
                    MapKind::Pooled { page, .. } => MapKind::Pooled { first: PhysAddr(device << 32), page },
                    anonymous @ MapKind::Anonymous { .. } => anonymous,
                };
                let area = space.insert_area(requested, kind, protection).unwrap();
                assert!(area.range.covers(requested));
                model.0.extend((0..pages).map(|at| (page + at, (kind.advanced(ByteSize(at * PAGE)), protection))));
            }
            Action::Remove { page, pages } => {
                let requested = range(page, pages);
                let hole = (page..page + pages).find(|page| !model.0.contains_key(page));
                assert_eq!(space.first_hole(requested).map(|hole| hole.start), hole.map(|page| range(page, 1).start));
                if hole.is_none() {
                    let spare = space.spare_for_removal(requested).unwrap();
                    space.remove_areas(requested, spare).unwrap();
                    model.0.retain(|at, _| !(page..page + pages).contains(at));
                }
            }
            Action::Find { page } => {
                let addr = range(page, 1).start;
                let found = space.find_area(addr);
                let shown = |area: super::Area| area.kind.advanced(ByteSize(addr.0 - area.range.start.0));
                let shown = found.map(|area| (shown(area), area.protection));
                assert_eq!(shown, model.0.get(&page).copied());
            }
            Action::Gap { pages, align } => check_gap(space, &model, pages, align),
        }
        let areas: Vec<_> =
            space.areas_in(range(0, 2 * PAGES)).map(|area| (area.range, area.kind, area.protection)).collect();
        assert_eq!(areas, model.areas());
        assert_eq!(space.validate_areas(), Ok(areas.len() as u64));
    }
}

/// Searches a gap below a wall above the model's addresses, so that the result is inside.
fn check_gap(space: SpaceRef<'_, TestPlatform>, model: &Model, pages: u64, align: u64) {
    let room = PAGES + 12;
    let wall = VirtRange { start: range(room, 1).start, end: VirtAddr::END };
    space
        .insert_area(wall, MapKind::Device { first: PhysAddr(0), page: PageLevel::Small }, Protection::ReadWrite)
        .unwrap();
    let found = space.find_gap(ByteSize(pages * PAGE), ByteSize(align * PAGE));
    let found = found.map(|gap| (gap.start.0 - BASE) / PAGE);
    let best = model.gap(pages, align, room);
    match (found, best) {
        // A gap with room for any alignment takes precedence over one that happens to be aligned.
        (Some(found), Some(best)) => {
            assert!(found <= best && model.gap(pages, align, found + pages) == Some(found), "{found} for {best}");
            assert!(align > 1 || found == best);
        }
        (found, best) => assert_eq!(found, best),
    }
    space.remove_areas(wall, None).unwrap();
}

fn in_a_space(check: impl FnOnce(Vm<'_, TestPlatform>, SpaceRef<'_, TestPlatform>)) {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let id = vm.new_object(ObjectKind::Space).unwrap();
    let space = SpaceRef::new(vm, id).unwrap();
    check(vm, space);
    space.clear_areas();
    assert_eq!(vm.live_objects(ObjectKind::Area), 0);
    vm.delete_object(ObjectKind::Space, id);
    vm.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn areas_agree_with_a_map_of_pages(actions in prop::collection::vec(actions(), 1..120)) {
        in_a_space(|_, space| run(space, &actions));
    }
}

#[test]
fn tree_of_many_areas_is_shallow() {
    in_a_space(|_, space| {
        let kind = MapKind::Anonymous { huge: HugeAdvice::Default };
        for page in 0..4096 {
            space.insert_area(range(2 * page, 1), kind, Protection::ReadWrite).unwrap();
        }
        assert_eq!(space.validate_areas(), Ok(4096));
        let height = super::tree::height(space.areas().root());
        assert!((12..=17).contains(&height), "1.44 log2(4096) levels at most, not {height}");
        for page in (0..4096).step_by(2) {
            space.remove_areas(range(2 * page, 1), None).unwrap();
        }
        assert_eq!(space.validate_areas(), Ok(2048));
        let inner = space.find_gap(ByteSize(3 * PAGE), ByteSize(PAGE)).unwrap();
        assert_eq!(inner.end, VirtAddr::END, "the highest gap is behind the last area");
    });
}

#[test]
fn resizing_an_area_allocates_no_object() {
    in_a_space(|vm, space| {
        let kind = MapKind::Anonymous { huge: HugeAdvice::Default };
        space.insert_area(range(10, 10), kind, Protection::ReadWrite).unwrap();
        space.insert_area(range(30, 10), kind, Protection::ReadWrite).unwrap();
        space.insert_area(range(20, 10), kind, Protection::ReadWrite).unwrap();
        assert_eq!(vm.live_objects(ObjectKind::Area), 1, "three areas are one");
        assert_eq!(space.find_area(range(15, 1).start).unwrap().range, range(10, 30));
        assert!(space.spare_for_removal(range(10, 5)).unwrap().is_none());
        space.remove_areas(range(10, 5), None).unwrap();
        assert!(space.spare_for_removal(range(35, 5)).unwrap().is_none());
        space.remove_areas(range(35, 5), None).unwrap();
        assert_eq!(vm.live_objects(ObjectKind::Area), 1);
        assert_eq!(space.find_area(range(15, 1).start).unwrap().range, range(15, 20));
        assert_eq!(space.validate_areas(), Ok(1));
    });
}

#[test]
fn removal_of_an_area_clears_the_cache() {
    in_a_space(|_, space| {
        let kind = MapKind::Anonymous { huge: HugeAdvice::Default };
        space.insert_area(range(1, 4), kind, Protection::ReadWrite).unwrap();
        assert!(space.find_area(range(2, 1).start).is_some());
        space.remove_areas(range(1, 4), None).unwrap();
        assert_eq!(space.find_area(range(2, 1).start), None);
        space.validate_areas().unwrap();
    });
}

#[test]
fn validator_detects_damage_to_any_word_of_an_area() {
    in_a_space(|_, space| {
        for area in 0..7 {
            let kind = MapKind::Anonymous { huge: HugeAdvice::ALL[area as usize % 2] };
            space.insert_area(range(10 * area, 10), kind, Protection::ReadWrite).unwrap();
        }
        space.validate_areas().unwrap();
        let root = space.areas().root().unwrap();
        let child = space.areas().left(root).unwrap();
        for (node, word, value) in [
            (root, AreaWord::START, root.get(AreaWord::START) - PAGE),
            (root, AreaWord::END, root.get(AreaWord::END) + PAGE),
            (root, AreaWord::END, root.get(AreaWord::END) - 1),
            (root, AreaWord::KIND, child.get(AreaWord::KIND) ^ 1 << 8),
            (root, AreaWord::LEFT, 0),
            (root, AreaWord::HEIGHT, 1),
            (root, AreaWord::FIRST, child.get(AreaWord::START)),
            (root, AreaWord::LAST, root.get(AreaWord::END)),
            (root, AreaWord::GAP, PAGE),
            (child, AreaWord::START, VirtAddr::LOWEST.0 - PAGE),
            (child, AreaWord::GAP, PAGE),
        ] {
            let was = node.get(word);
            assert_ne!(was, value, "word {word}: no damage");
            node.set(word, value);
            assert!(space.validate_areas().is_err(), "word {word}");
            node.set(word, was);
        }
        space.validate_areas().unwrap();
        for word in [SpaceWord::AREA_COUNT, SpaceWord::MAPPED_BYTES, SpaceWord::LAST_FOUND] {
            space.add(word, 1 << 8);
            assert!(space.validate_areas().is_err(), "word {word}");
            space.subtract(word, 1 << 8);
        }
    });
}
