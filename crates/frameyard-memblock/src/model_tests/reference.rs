//! What each action means in the model.

use super::super::region::Span;
use super::super::{EarlyRequest, RegionFlags, RegionList};
use super::model::{Kind, Model};
use super::{Action, Demand};
use frameyard_units::{ByteSize, PhysAddr};

const EVERYTHING: Span = Span { start: 0, end: u64::MAX };

/// The address that an allocation must return.
pub(super) fn expected_address(model: &Model, action: Action) -> Option<PhysAddr> {
    match action {
        Action::PhysAlloc(request) => model.find(request),
        Action::Alloc(request) => {
            let max = request.max.map_or(model.limit, |max| max.0.min(model.limit));
            let request = EarlyRequest { max: Some(PhysAddr(max)), ..request };
            model.find(request).or_else(|| model.find(EarlyRequest { min: PhysAddr(0), ..request }))
        }
        _ => None,
    }
}

/// Where the lowest `limit` bytes of memory end.
fn end_of_lowest(model: &Model, limit: ByteSize) -> Option<u64> {
    let mut below = 0;
    for region in model.regions(RegionList::Memory) {
        if limit.0 > below && limit.0 <= below + region.size.0 {
            return Some(region.base.0 + limit.0 - below);
        }
        below += region.size.0;
    }
    None
}

/// The range that an action leaves as it is; all else is cut off.
fn kept(model: &Model, action: Action) -> Option<Span> {
    match action {
        Action::Cap(span) => (!span.is_empty() && model.total(RegionList::Memory).0 > 0).then_some(span),
        Action::EnforceLimit(limit) | Action::LimitRemoveMap(limit) => {
            end_of_lowest(model, limit).map(|end| Span { start: 0, end })
        }
        _ => None,
    }
}

/// What an action drops reservations of.
pub(super) fn dropped_reservations(model: &Model, action: Action) -> Vec<Span> {
    if let Action::PhysFree(span) = action {
        return vec![span];
    }
    let cut_off = |kept: Span| vec![Span { start: 0, end: kept.start }, Span { start: kept.end, end: u64::MAX }];
    kept(model, action).map(cut_off).unwrap_or_default()
}

fn outside(span: Span) -> Vec<Span> {
    vec![Span { start: 0, end: span.start }, Span { start: span.end, end: u64::MAX }]
}

/// How many slots the action takes of which list, before anything merges.
pub(super) fn demands(model: &Model, action: Action) -> Vec<Demand> {
    use RegionList::{Memory, Reserved};
    let gaps = |list, span, windows| vec![Demand { list, slots: model.gaps(list, span), windows }];
    let cuts = |list, span, windows| vec![Demand { list, slots: model.cuts(list, span), windows }];
    match action {
        Action::Add(span) | Action::AddNode(span, ..) => gaps(Memory, span, vec![EVERYTHING]),
        Action::Reserve(span) => gaps(Reserved, span, outside(span)),
        Action::Remove(span)
        | Action::MarkNomap(span)
        | Action::ClearNomap(span)
        | Action::MarkHotplug(span)
        | Action::ClearHotplug(span)
        | Action::MarkMirror(span) => cuts(Memory, span, outside(span)),
        Action::PhysFree(span) | Action::MarkNoinit(span) => cuts(Reserved, span, outside(span)),
        Action::Isolate(list, span) | Action::SetNode(list, span, _) => cuts(list, span, outside(span)),
        Action::Cap(_) | Action::EnforceLimit(_) | Action::LimitRemoveMap(_) => match kept(model, action) {
            Some(span) => {
                [cuts(Memory, span, vec![span]), cuts(Reserved, span, vec![span])].into_iter().flatten().collect()
            }
            None => Vec::new(),
        },
        Action::PhysAlloc(request) | Action::Alloc(request) => match expected_address(model, action) {
            Some(address) => {
                let span = Span::capped(address, request.size);
                gaps(Reserved, span, outside(span))
            }
            None => Vec::new(),
        },
        Action::Trim(_)
        | Action::SetDirection(_)
        | Action::SetMovableNodes(_)
        | Action::SetLimit(_)
        | Action::AllowResize => Vec::new(),
    }
}

fn with_flag(flag: RegionFlags) -> impl Fn(Kind) -> Kind {
    move |kind| kind.map(|(node, flags)| (node, flags | flag))
}

fn without_flag(flag: RegionFlags) -> impl Fn(Kind) -> Kind {
    move |kind| kind.map(|(node, flags)| (node, flags.without(flag)))
}

/// Does the action to the model.
pub(super) fn apply(model: &mut Model, action: Action, address: Option<PhysAddr>) {
    use RegionList::{Memory, Reserved};
    match action {
        Action::Add(span) => model.fill(Memory, span, (None, RegionFlags::NONE)),
        Action::AddNode(span, node, flags) => model.fill(Memory, span, (Some(node), flags)),
        Action::Reserve(span) => model.fill(Reserved, span, (None, RegionFlags::NONE)),
        Action::Remove(span) => model.clear(Memory, span),
        Action::PhysFree(span) => model.clear(Reserved, span),
        Action::SetNode(list, span, node) => model.change(list, span, |kind| kind.map(|(_, flags)| (node, flags))),
        Action::MarkNomap(span) => model.change(Memory, span, with_flag(RegionFlags::NOMAP)),
        Action::ClearNomap(span) => model.change(Memory, span, without_flag(RegionFlags::NOMAP)),
        Action::MarkHotplug(span) => model.change(Memory, span, with_flag(RegionFlags::HOTPLUG)),
        Action::ClearHotplug(span) => model.change(Memory, span, without_flag(RegionFlags::HOTPLUG)),
        Action::MarkMirror(span) => {
            model.has_mirror |= !span.is_empty();
            model.change(Memory, span, with_flag(RegionFlags::MIRROR));
        }
        Action::MarkNoinit(span) => model.change(Reserved, span, with_flag(RegionFlags::RSRV_NOINIT)),
        Action::Trim(align) => {
            for region in model.regions(Memory) {
                let start = region.base.0.next_multiple_of(align.0);
                let end = region.end().0 / align.0 * align.0;
                model.clear(Memory, Span { start: region.base.0, end: start.min(region.end().0) });
                model.clear(Memory, Span { start: end.max(region.base.0), end: region.end().0 });
            }
        }
        Action::Cap(_) | Action::EnforceLimit(_) | Action::LimitRemoveMap(_) => cut_down(model, action),
        Action::PhysAlloc(request) | Action::Alloc(request) => {
            let span = Span::capped(address.unwrap(), request.size);
            model.fill(Reserved, span, (None, RegionFlags::NONE));
        }
        Action::SetDirection(direction) => model.direction = direction,
        Action::SetMovableNodes(movable_nodes) => model.movable_nodes = movable_nodes,
        Action::SetLimit(limit) => model.limit = limit.0,
        Action::AllowResize => model.can_resize = true,
        Action::Isolate(..) => {}
    }
}

fn cut_down(model: &mut Model, action: Action) {
    let drops_nomap = matches!(action, Action::EnforceLimit(_));
    for span in dropped_reservations(model, action) {
        model.clear(RegionList::Reserved, span);
        model.change(RegionList::Memory, span, |kind| {
            kind.filter(|(_, flags)| !drops_nomap && flags.contains(RegionFlags::NOMAP))
        });
    }
}
