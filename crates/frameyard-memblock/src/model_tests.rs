//! Random sequences of operations, compared after each step with a model that looks at every cell.

use proptest::prelude::*;

use super::region::Span;
use super::test_memory::TestMemory;
use super::{AllocDirection, EarlyRequest, Memblock, MemblockError, MovableNodes, NodeChoice, NodeFilter};
use super::{RangeCursor, RangeWalk, RegionFlags, RegionList};
use frameyard_units::{ByteSize, Geometry, NodeId, PhysAddr};

mod model;

use model::{CELL, CELLS, Model, PAGE};

/// Four regions to begin with, so that lists grow all the time.
type Map = Memblock<TestMemory, 4>;

#[derive(Clone, Copy, Debug)]
enum Action {
    Add(Span),
    AddNode(Span, NodeId, RegionFlags),
    Reserve(Span),
    Remove(Span),
    PhysFree(Span),
    Isolate(RegionList, Span),
    SetNode(RegionList, Span, Option<NodeId>),
    MarkNomap(Span),
    ClearNomap(Span),
    MarkHotplug(Span),
    ClearHotplug(Span),
    MarkMirror(Span),
    MarkNoinit(Span),
    Trim(ByteSize),
    Cap(Span),
    EnforceLimit(ByteSize),
    LimitRemoveMap(ByteSize),
    PhysAlloc(EarlyRequest),
    Alloc(EarlyRequest),
    SetDirection(AllocDirection),
    SetMovableNodes(MovableNodes),
    SetLimit(PhysAddr),
    AllowResize,
}

/// What an action does to the slots of a list, and where a new array may then lie.
struct Demand {
    list: RegionList,
    slots: usize,
    windows: Vec<Span>,
}

fn spans(longest: usize) -> impl Strategy<Value = Span> {
    (0..CELLS, 0..=longest).prop_map(|(start, len)| {
        let end = (start + len).min(CELLS);
        Span { start: start as u64 * CELL, end: end as u64 * CELL }
    })
}

fn nodes() -> impl Strategy<Value = NodeId> {
    (0..3u16).prop_map(NodeId)
}

fn lists() -> impl Strategy<Value = RegionList> {
    prop_oneof![Just(RegionList::Memory), Just(RegionList::Reserved)]
}

fn requests() -> impl Strategy<Value = EarlyRequest> {
    let choices = prop_oneof![
        3 => Just(NodeChoice::Any),
        1 => nodes().prop_map(NodeChoice::Prefer),
        1 => nodes().prop_map(NodeChoice::Exact),
    ];
    let cells = 0..CELLS as u64;
    let maximum = prop::option::of(cells.clone().prop_map(|cell| PhysAddr(cell * CELL)));
    let minimum = prop_oneof![3 => Just(0), 1 => cells].prop_map(|cell| PhysAddr(cell * CELL));
    (1..40u64, 0..6u32, minimum, maximum, choices).prop_map(|(size, align, min, max, node)| EarlyRequest {
        size: ByteSize(size * CELL),
        align: ByteSize(CELL << align),
        min,
        max,
        node,
    })
}

fn actions() -> impl Strategy<Value = Action> {
    let flags = prop_oneof![
        8 => Just(RegionFlags::NONE),
        1 => Just(RegionFlags::DRIVER_MANAGED),
        1 => Just(RegionFlags::HOTPLUG),
        1 => Just(RegionFlags::NOMAP | RegionFlags::HOTPLUG),
    ];
    let sizes = (0..CELLS as u64 * 2).prop_map(|cells| ByteSize(cells * CELL));
    prop_oneof![
        4 => spans(400).prop_map(Action::Add),
        8 => (spans(300), nodes(), flags).prop_map(|(span, node, flags)| Action::AddNode(span, node, flags)),
        10 => spans(20).prop_map(Action::Reserve),
        1 => spans(200).prop_map(Action::Reserve),
        4 => spans(30).prop_map(Action::Remove),
        6 => spans(60).prop_map(Action::PhysFree),
        2 => (lists(), spans(200)).prop_map(|(list, span)| Action::Isolate(list, span)),
        3 => (lists(), spans(200), prop::option::of(nodes()))
            .prop_map(|(list, span, node)| Action::SetNode(list, span, node)),
        2 => spans(20).prop_map(Action::MarkNomap),
        2 => spans(100).prop_map(Action::ClearNomap),
        2 => spans(20).prop_map(Action::MarkHotplug),
        2 => spans(100).prop_map(Action::ClearHotplug),
        1 => spans(60).prop_map(Action::MarkMirror),
        2 => spans(60).prop_map(Action::MarkNoinit),
        1 => (10..14u32).prop_map(|shift| Action::Trim(ByteSize(1 << shift))),
        1 => spans(CELLS).prop_map(Action::Cap),
        1 => sizes.clone().prop_map(Action::EnforceLimit),
        1 => sizes.prop_map(Action::LimitRemoveMap),
        8 => requests().prop_map(Action::PhysAlloc),
        4 => requests().prop_map(Action::Alloc),
        2 => prop_oneof![Just(AllocDirection::TopDown), Just(AllocDirection::BottomUp)].prop_map(Action::SetDirection),
        1 => prop_oneof![Just(MovableNodes::Enabled), Just(MovableNodes::Disabled)].prop_map(Action::SetMovableNodes),
        1 => (0..CELLS as u64 * 2).prop_map(|cell| Action::SetLimit(PhysAddr(cell * CELL))),
        4 => Just(Action::AllowResize),
    ]
}

/// Does the action on the real map; an allocation returns its address.
fn perform(map: &mut Map, action: Action) -> Result<Option<PhysAddr>, MemblockError> {
    let done = match action {
        Action::Add(span) => map.add(span.base(), span.size()),
        Action::AddNode(span, node, flags) => map.add_node(span.base(), span.size(), node, flags),
        Action::Reserve(span) => map.reserve(span.base(), span.size()),
        Action::Remove(span) => map.remove(span.base(), span.size()),
        Action::PhysFree(span) => map.phys_free(span.base(), span.size()),
        Action::Isolate(list, span) => map.isolate(list, span.base(), span.size()).map(|inside| {
            let covers_span_exactly = |regions: &[super::Region]| {
                let touching = regions.iter().enumerate().filter(|(_, region)| region.span().intersects(span));
                touching.map(|(index, _)| index).eq(inside.clone())
                    && regions[inside.clone()].iter().all(|r| r.base >= span.base() && r.end().0 <= span.end)
            };
            assert!(covers_span_exactly(map.list(list).regions()), "isolated {inside:?} of {map}");
            map.merge(list);
        }),
        Action::SetNode(list, span, node) => map.set_node(list, span.base(), span.size(), node),
        Action::MarkNomap(span) => map.mark_nomap(span.base(), span.size()),
        Action::ClearNomap(span) => map.clear_nomap(span.base(), span.size()),
        Action::MarkHotplug(span) => map.mark_hotplug(span.base(), span.size()),
        Action::ClearHotplug(span) => map.clear_hotplug(span.base(), span.size()),
        Action::MarkMirror(span) => map.mark_mirror(span.base(), span.size()),
        Action::MarkNoinit(span) => map.reserved_mark_noinit(span.base(), span.size()),
        Action::Trim(align) => map.trim(align),
        Action::Cap(span) => map.cap(span.base(), span.size()),
        Action::EnforceLimit(limit) => map.enforce_memory_limit(limit),
        Action::LimitRemoveMap(limit) => map.mem_limit_remove_map(limit),
        Action::PhysAlloc(request) => return map.phys_alloc(request).map(Some),
        Action::Alloc(request) => return map.alloc(request).map(|block| Some(block.address)),
        Action::SetDirection(direction) => {
            map.set_direction(direction);
            Ok(())
        }
        Action::SetMovableNodes(movable_nodes) => {
            map.set_movable_nodes(movable_nodes);
            Ok(())
        }
        Action::SetLimit(limit) => {
            map.set_current_limit(limit);
            Ok(())
        }
        Action::AllowResize => {
            map.allow_resize();
            Ok(())
        }
    };
    done.map(|()| None)
}

mod reference;

use reference::{apply, demands, dropped_reservations, expected_address};

fn arrays(map: &Map) -> [Option<Span>; 2] {
    [RegionList::Memory, RegionList::Reserved]
        .map(|list| map.array_of(list).map(|(base, size)| Span::capped(base, size)))
}

/// Carries over to the model where the lists of the map have moved; each place must have been free.
fn follow_arrays(model: &mut Model, before: [Option<Span>; 2], after: [Option<Span>; 2], demands: &[Demand]) {
    let moves = || before.iter().zip(&after).filter(|(old, new)| old != new);
    let had_been = model.clone();
    for old in moves().filter_map(|(old, _)| *old) {
        model.clear(RegionList::Reserved, old);
    }
    for new in moves().filter_map(|(_, new)| *new) {
        assert!(had_been.can_resize, "a list grew before that was allowed");
        assert!(new.start.is_multiple_of(PAGE) && new.start > 0 && new.end <= had_been.limit);
        assert_eq!(model.gaps(RegionList::Reserved, new), 1, "array at {new:?} over something reserved");
        assert_eq!(model.total(RegionList::Reserved).0 + new.size().0, {
            model.fill(RegionList::Reserved, new, (None, RegionFlags::NONE));
            model.total(RegionList::Reserved).0
        });
        let in_memory = |region: &super::Region| region.base.0 <= new.start && new.end <= region.end().0;
        let home = had_been.regions(RegionList::Memory).into_iter().find(in_memory);
        let home = home.expect("an array lies in one memory region");
        assert!(!home.flags.contains(RegionFlags::NOMAP) && !home.flags.contains(RegionFlags::DRIVER_MANAGED));
        let allowed = demands
            .iter()
            .any(|demand| demand.windows.iter().any(|window| window.start <= new.start && new.end <= window.end));
        assert!(allowed, "array at {new:?} in a range that was about to change");
    }
}

/// An error must have its reason in the model.
fn assert_justified(
    error: MemblockError,
    map: &Map,
    model: &Model,
    before: [Option<Span>; 2],
    demands: &[Demand],
    action: Action,
) {
    match error {
        MemblockError::ListFull { list, capacity } => {
            assert!(!model.can_resize);
            let demand = demands.iter().find(|demand| demand.list == list).unwrap();
            assert_eq!(capacity, map.list(list).capacity());
            assert!(model.regions(list).len() + demand.slots > capacity, "{action:?}: {error}");
        }
        MemblockError::NoRoomToGrow { list: _, size } => {
            assert!(model.can_resize);
            for window in demands.iter().flat_map(|demand| &demand.windows) {
                let max = Some(PhysAddr(window.end.min(model.limit)));
                let request =
                    EarlyRequest { size, align: ByteSize(PAGE), min: window.base(), max, node: NodeChoice::Any };
                assert_eq!(model.find(request), None, "{action:?}: {error}");
            }
        }
        MemblockError::HoldsRegionArray { .. } => {
            let dropped = dropped_reservations(model, action);
            assert!(before.iter().flatten().any(|array| dropped.iter().any(|span| span.intersects(*array))));
        }
        MemblockError::OutOfMemory { .. } => assert_eq!(expected_address(model, action), None),
        MemblockError::Unmapped { .. }
        | MemblockError::Disordered { .. }
        | MemblockError::Alignment(_)
        | MemblockError::EmptyRequest => {
            panic!("{action:?}: {error}")
        }
    }
}

fn assert_equal(map: &Map, model: &Model) {
    for list in [RegionList::Memory, RegionList::Reserved] {
        assert_eq!(map.list(list).regions(), model.regions(list));
    }
    assert_eq!(map.phys_mem_size(), model.total(RegionList::Memory));
    assert_eq!(map.reserved_size(), model.total(RegionList::Reserved));
    assert_eq!(map.start_of_dram(), model.regions(RegionList::Memory).first().map(|region| region.base));
    assert_eq!(map.end_of_dram(), model.regions(RegionList::Memory).last().map(super::Region::end));
    assert!(map.pfn_ranges(NodeFilter::Any).eq(model.pfn_ranges()));
    let of_node = |node| model.pfn_ranges().into_iter().filter(move |(_, of)| *of == node);
    assert!(map.pfn_ranges(NodeFilter::Only(NodeId(0))).eq(of_node(NodeId(0))));

    for node in [NodeFilter::Any, NodeFilter::Only(NodeId(1))] {
        let mapped = |region: &super::Region| {
            !region.flags.contains(RegionFlags::NOMAP)
                && (node == NodeFilter::Any || region.node.id().is_some_and(|of| node == NodeFilter::Only(of)))
        };
        assert!(map.memory_ranges(node).eq(model.regions(RegionList::Memory).into_iter().filter(mapped)));
        for flags in [RegionFlags::NONE, RegionFlags::MIRROR, RegionFlags::NOMAP | RegionFlags::HOTPLUG] {
            let free = model.free_ranges(node, flags);
            assert!(map.free_ranges(node, flags).eq(free.iter().copied()));
            assert!(map.free_ranges(node, flags).rev().eq(free.iter().rev().copied()));
            assert_eq!(walked(map, node, flags, |walk, at| walk.next(at), RangeCursor::FRONT), free);
            let mut back = walked(map, node, flags, |walk, at| walk.next_back(at), RangeCursor::BACK);
            back.reverse();
            assert_eq!(back, free);
            let mut both_ends = map.free_ranges(node, flags);
            let mut met = Vec::new();
            while let Some(first) = both_ends.next() {
                met.push(first);
                met.extend(both_ends.next_back());
            }
            met.sort_by_key(|region| region.base);
            assert_eq!(met, free);
        }
    }
}

/// The free ranges that a cursor visits, less the empty ones between adjacent reservations.
fn walked(
    map: &Map,
    node: NodeFilter,
    flags: RegionFlags,
    step: impl Fn(&RangeWalk<'_>, &mut RangeCursor) -> Option<super::Region>,
    mut cursor: RangeCursor,
) -> Vec<super::Region> {
    let walk = RangeWalk::new(map.memory(), Some(map.reserved())).only(node, flags, map.movable_nodes());
    let mut ranges = Vec::new();
    while let Some(range) = step(&walk, &mut cursor) {
        assert_ne!(cursor, RangeCursor::END);
        ranges.extend((range.size.0 > 0).then_some(range));
    }
    assert_eq!(cursor, RangeCursor::END);
    ranges
}

/// Asks about one cell.
fn assert_answers(map: &Map, model: &Model, cell: usize) {
    let address = PhysAddr(cell as u64 * CELL + CELL / 3);
    let kind = model.cells(RegionList::Memory)[cell];
    assert_eq!(map.is_memory(address), kind.is_some());
    assert_eq!(map.is_map_memory(address), kind.is_some_and(|(_, flags)| !flags.contains(RegionFlags::NOMAP)));
    assert_eq!(map.node_of(address), kind.and_then(|(node, _)| node));
    assert_eq!(map.is_reserved(address), model.cells(RegionList::Reserved)[cell].is_some());
    for list in [RegionList::Memory, RegionList::Reserved] {
        let any = model.cells(list)[cell..(cell + 9).min(CELLS)].iter().any(Option::is_some);
        assert_eq!(map.overlaps(list, address, ByteSize(8 * CELL)), any);
    }
}

fn run(actions: &[Action], asked: &[usize]) {
    let end = ByteSize(CELLS as u64 * CELL);
    let mut map = Map::with_geometry(TestMemory::new(PhysAddr(0), end), Geometry::X86_64);
    let mut model = Model::new();
    for action in actions {
        let before = arrays(&map);
        let expected = expected_address(&model, *action);
        let dropped = dropped_reservations(&model, *action);
        let demands = demands(&model, *action);
        let result = perform(&mut map, *action);
        follow_arrays(&mut model, before, arrays(&map), &demands);
        match result {
            Ok(address) => {
                assert_eq!(address, expected, "{action:?}");
                let held = before.iter().flatten().find(|array| dropped.iter().any(|span| span.intersects(**array)));
                assert_eq!(held, None, "{action:?} dropped a list");
                apply(&mut model, *action, address);
            }
            Err(error) => assert_justified(error, &map, &model, before, &demands, *action),
        }
        assert_equal(&map, &model);
        for cell in asked {
            assert_answers(&map, &model, *cell);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_step_agrees_with_the_model(
        actions in prop::collection::vec(actions(), 1..160),
        asked in prop::collection::vec(0..CELLS, 8),
    ) {
        run(&actions, &asked);
    }
}
