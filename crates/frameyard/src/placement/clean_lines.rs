//! The rule of the policy `bits`: a refill takes from the fullest lines, and the emptiest pageblocks are
//! [emptied](crate::placement::emptying).
//!
//! While the zone keeps [regions of 1 GiB](crate::placement::regions) clean, the rule also looks at regions. Movable
//! requests take lines of clean regions first. Requests for frames that cannot move take lines of their own type, then
//! movable lines of tainted memory (whole ones first), and as a last resort a line of the clean region with the most
//! free frames. That line gets the type of the request. Once it is whole again and a pass of
//! [`emptying`](crate::placement::emptying) looks at it, it becomes movable.

use crate::placement::{Rule, emptying};
use crate::platform::Platform;
use crate::store::bits::bitmap::Standing;
use crate::store::bits::take_whole;
use crate::store::bits::taking::{Choice, Search};
use crate::units::{CpuId, MigrateType, PageCount, PfnRange};
use crate::zone::view::{ListRules, LockedZone, ZoneView};
use core::ops::Range;

/// Among which lines a refill searches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Among {
    All,
    /// Those of clean regions.
    Clean,
    /// Those of all other memory.
    Tainted,
    /// Those of the clean region with the most free frames, of those with a whole line if there are any.
    Emptiest,
}

/// Whether a refill of that type takes lines of clean regions last.
pub(crate) fn spares_clean<P: Platform>(view: ZoneView<'_, P>, list_type: MigrateType) -> bool {
    list_type != MigrateType::Movable && view.zone.keeps_regions()
}

impl Rule for Among {
    #[inline(always)]
    fn first<P: Platform>(view: ZoneView<'_, P>, list_type: MigrateType) -> Self {
        if list_type == MigrateType::Movable && view.zone.keeps_regions() { Self::Clean } else { Self::All }
    }

    fn rest(self) -> Option<Self> {
        (self != Self::All).then_some(Self::All)
    }

    #[inline(always)]
    fn step<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, blocks: usize) {
        emptying::step(view, cpu, blocks);
    }
}

impl Choice for Among {
    #[inline(always)]
    fn lines<P: Platform>(self, view: ZoneView<'_, P>, _: Search) -> impl Iterator<Item = Range<usize>> {
        let emptiest = if self == Self::Emptiest { view.emptiest_clean() } else { None };
        let runs = view.lines().filter(move |_| self != Self::Emptiest).flat_map(move |mut left| {
            core::iter::from_fn(move || {
                let run = if self == Self::All { left.clone() } else { view.first_run_among(left.clone(), self) };
                left.start = run.end;
                (!run.is_empty()).then_some(run)
            })
        });
        emptiest.into_iter().chain(runs)
    }
}

impl<P: Platform> ZoneView<'_, P> {
    /// The first of some lines among which a refill searches, and those behind it up to the next one that does not belong to them.
    #[cold]
    fn first_run_among(self, lines: Range<usize>, among: Among) -> Range<usize> {
        let order = self.free_bits().line_order().0;
        let shift = self.geometry.largest_order().0 - order;
        let mut starts = (lines.start >> shift..lines.end.div_ceil(1 << shift)).map(|region| region << shift);
        let belongs = |start: &usize| {
            let place = (*start).max(lines.start) << order;
            self.is_clean(self.map.pfn(self.map.checked(place as u32))) == (among == Among::Clean)
        };
        let start = starts.find(belongs).map_or(lines.end, |start| start.max(lines.start));
        start..starts.find(|start| !belongs(start)).unwrap_or(lines.end)
    }

    /// The lines of whole pageblocks with neighbouring places.
    fn lines_of(self, frames: PfnRange) -> Range<usize> {
        let order = self.free_bits().line_order().0;
        let first = self.map.place(frames.start) >> order;
        first..first + ((frames.end - frames.start).0 >> order) as usize
    }

    /// The lines of [`Among::Emptiest`]. Reads all lines of clean regions.
    #[cold]
    fn emptiest_clean(self) -> Option<Range<usize>> {
        let clean = self.own_regions().filter(|(_, region)| region.tainting() == 0);
        let pages = self.geometry.largest_order().pages();
        let is_whole = |line| self.free_bits().standing_racy(self.platform, line) == Standing::Whole;
        let rank = |lines: &Range<usize>| (lines.clone().any(is_whole), self.frames_racy(lines.clone()));
        let ranked = clean
            .map(|(start, _)| self.lines_of(PfnRange::new(start, pages)))
            .map(|lines| (rank(&lines), lines.start, lines));
        Some(ranked.max_by_key(|(rank, start, _)| (*rank, *start))?.2)
    }

    fn frames_racy(self, lines: Range<usize>) -> u64 {
        lines.map(|line| u64::from(self.free_bits().free_frames_racy(line))).sum()
    }

    /// The free frames among some whole pageblocks of a region that are bits. Reads all of these bits. Possibly stale.
    pub(crate) fn bits_in(self, frames: PfnRange) -> PageCount {
        let lines = if self.keeps_bits() { self.lines_of(frames) } else { 0..0 };
        PageCount(self.frames_racy(lines))
    }

    /// Makes a whole line movable if its type taints its region and the zone keeps regions clean.
    pub(crate) fn release_whole_line(self, line: usize) {
        if self.zone.keeps_regions()
            && let Some(list_type @ (MigrateType::Unmovable | MigrateType::Reclaimable)) = self.type_of_line(line)
            && take_whole(self, list_type, (line..line + 1, line)).is_some()
        {
            convert(self, line, MigrateType::Movable, |_| {});
            _ = self.free_bits().free_whole(self.platform, (line, MigrateType::Movable));
        }
    }
}

/// Gives the pageblock of a movable line a type that cannot move. Returns the type that it has afterwards.
#[cold]
pub(crate) fn taint<P: Platform>(view: ZoneView<'_, P>, line: usize, list_type: MigrateType) -> MigrateType {
    if view.type_of_line(line) == Some(MigrateType::Movable)
        && let Ok(mut locked) = view.lock()
        && view.type_of_line(line) == Some(MigrateType::Movable)
    {
        let place = view.map.checked((line << view.free_bits().line_order().0) as u32);
        locked.convert_pageblock(view.map.pfn(place), list_type);
    }
    view.type_of_line(line).unwrap_or(list_type)
}

/// Gives the pageblock of a whole line, which the caller has, a type, and calls `note` then.
pub(crate) fn convert<P: Platform>(
    view: ZoneView<'_, P>,
    line: usize,
    list_type: MigrateType,
    note: impl FnOnce(&mut LockedZone<'_, P>),
) {
    let order = view.free_bits().line_order();
    let start = view.map.numbering().block_start(line as u64, order);
    if order == view.geometry.pageblock_order()
        && let Ok(mut locked) = view.lock()
        && view.type_of_line(line).is_some()
    {
        locked.set_types(start, order, list_type);
        note(&mut locked);
    }
}
