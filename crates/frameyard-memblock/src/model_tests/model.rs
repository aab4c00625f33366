//! The reference: what each cell of a small physical memory is, with every answer found by looking at all cells.

use super::super::region::Span;
use super::super::{
    AllocDirection, EarlyRequest, MovableNodes, NodeChoice, NodeFilter, Region, RegionFlags, RegionList,
};
use frameyard_units::{ByteSize, NodeId, PageCount, Pfn, PfnRange, PhysAddr};

/// All ranges of the test are multiples of a cell: a quarter of a page, so that pages are also covered in part.
pub(super) const CELL: u64 = 1024;
pub(super) const CELLS: usize = 1024;
pub(super) const PAGE: u64 = 4096;

pub(super) type Kind = Option<(Option<NodeId>, RegionFlags)>;

#[derive(Clone, Debug)]
pub(super) struct Model {
    memory: Vec<Kind>,
    reserved: Vec<Kind>,
    pub(super) has_mirror: bool,
    pub(super) direction: AllocDirection,
    pub(super) movable_nodes: MovableNodes,
    pub(super) limit: u64,
    pub(super) can_resize: bool,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            memory: vec![None; CELLS],
            reserved: vec![None; CELLS],
            has_mirror: false,
            direction: AllocDirection::TopDown,
            movable_nodes: MovableNodes::Disabled,
            limit: u64::MAX,
            can_resize: false,
        }
    }

    pub(super) fn cells(&self, list: RegionList) -> &[Kind] {
        match list {
            RegionList::Memory => &self.memory,
            RegionList::Reserved => &self.reserved,
        }
    }

    pub(super) fn change(&mut self, list: RegionList, span: Span, change: impl Fn(Kind) -> Kind) {
        let cells = match list {
            RegionList::Memory => &mut self.memory,
            RegionList::Reserved => &mut self.reserved,
        };
        for cell in &mut cells[cells_of(span)] {
            *cell = change(*cell);
        }
    }

    pub(super) fn fill(&mut self, list: RegionList, span: Span, kind: (Option<NodeId>, RegionFlags)) {
        self.change(list, span, |cell| cell.or(Some(kind)));
    }

    pub(super) fn clear(&mut self, list: RegionList, span: Span) {
        self.change(list, span, |_| None);
    }

    pub(super) fn regions(&self, list: RegionList) -> Vec<Region> {
        runs(self.cells(list))
    }

    pub(super) fn total(&self, list: RegionList) -> ByteSize {
        ByteSize(self.cells(list).iter().flatten().count() as u64 * CELL)
    }

    /// How many regions an edit of the span cuts in two.
    pub(super) fn cuts(&self, list: RegionList, span: Span) -> usize {
        let cells = self.cells(list);
        let cut_at = |at: u64| {
            let cell = (at / CELL) as usize;
            cell > 0 && cell < CELLS && cells[cell].is_some() && cells[cell] == cells[cell - 1]
        };
        if span.is_empty() { 0 } else { usize::from(cut_at(span.start)) + usize::from(cut_at(span.end)) }
    }

    /// How many gaps the list has in the span.
    pub(super) fn gaps(&self, list: RegionList, span: Span) -> usize {
        let cells = &self.cells(list)[cells_of(span)];
        (0..cells.len()).filter(|&cell| cells[cell].is_none() && (cell == 0 || cells[cell - 1].is_some())).count()
    }

    /// Cells that may be allocated for that node and those flags; equal neighbours are one free range.
    fn free_cells(&self, node: NodeFilter, flags: RegionFlags) -> Vec<Kind> {
        let admitted = |(of_node, of_flags): (Option<NodeId>, RegionFlags)| {
            let unless_asked = |flag| of_flags.contains(flag) && !flags.contains(flag);
            (node == NodeFilter::Any || of_node.is_some_and(|of_node| node == NodeFilter::Only(of_node)))
                && !unless_asked(RegionFlags::NOMAP)
                && !unless_asked(RegionFlags::DRIVER_MANAGED)
                && !(self.movable_nodes == MovableNodes::Enabled && unless_asked(RegionFlags::HOTPLUG))
                && (of_flags.contains(RegionFlags::MIRROR) || !flags.contains(RegionFlags::MIRROR))
        };
        let cells = self.memory.iter().zip(&self.reserved);
        cells.map(|(memory, reserved)| memory.filter(|kind| reserved.is_none() && admitted(*kind))).collect()
    }

    pub(super) fn free_ranges(&self, node: NodeFilter, flags: RegionFlags) -> Vec<Region> {
        runs(&self.free_cells(node, flags))
    }

    pub(super) fn find(&self, request: EarlyRequest) -> Option<PhysAddr> {
        let nodes = match request.node {
            NodeChoice::Any => vec![NodeFilter::Any],
            NodeChoice::Exact(node) => vec![NodeFilter::Only(node)],
            NodeChoice::Prefer(node) => vec![NodeFilter::Only(node), NodeFilter::Any],
        };
        let flags =
            if self.has_mirror { vec![RegionFlags::MIRROR, RegionFlags::NONE] } else { vec![RegionFlags::NONE] };
        let tries = flags.iter().flat_map(|flags| nodes.iter().map(|node| (*node, *flags)));
        tries.map(|(node, flags)| self.free_cells(node, flags)).find_map(|free| self.find_among(&free, request))
    }

    /// Tries every address.
    fn find_among(&self, free: &[Kind], request: EarlyRequest) -> Option<PhysAddr> {
        let size = (request.size.0 / CELL) as usize;
        let max = request.max.map_or(self.limit, |max| max.0);
        let fits = |cell: &usize| {
            let start = *cell as u64 * CELL;
            let end = start + request.size.0;
            start.is_multiple_of(request.align.0)
                && start >= request.min.0.max(PAGE)
                && end <= max
                && free[*cell].is_some()
                && free[*cell..*cell + size].iter().all(|other| *other == free[*cell])
        };
        let mut starts = 0..(CELLS + 1).saturating_sub(size.max(1));
        let found = match self.direction {
            AllocDirection::BottomUp => starts.find(fits),
            AllocDirection::TopDown => starts.rev().find(fits),
        };
        found.map(|cell| PhysAddr(cell as u64 * CELL))
    }

    pub(super) fn pfn_ranges(&self) -> Vec<(PfnRange, NodeId)> {
        let pages = |region: &Region| {
            let whole = (0..CELLS as u64 * CELL / PAGE)
                .filter(|page| page * PAGE >= region.base.0 && (page + 1) * PAGE <= region.end().0);
            let first = whole.clone().next()?;
            Some((PfnRange::new(Pfn(first), PageCount(whole.count() as u64)), region.node.id().unwrap_or(NodeId(0))))
        };
        self.regions(RegionList::Memory).iter().filter_map(pages).collect()
    }
}

fn cells_of(span: Span) -> core::ops::Range<usize> {
    let end = (span.end / CELL).min(CELLS as u64) as usize;
    ((span.start / CELL) as usize).min(end)..end
}

/// Equal neighbours as one region each.
fn runs(cells: &[Kind]) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    let mut last = None;
    for (index, cell) in cells.iter().enumerate() {
        if let Some((node, flags)) = *cell {
            match regions.last_mut() {
                Some(region) if last == Some((node, flags)) => region.size.0 += CELL,
                _ => regions.push(Region {
                    base: PhysAddr(index as u64 * CELL),
                    size: ByteSize(CELL),
                    flags,
                    node: node.into(),
                }),
            }
        }
        last = *cell;
    }
    regions
}
