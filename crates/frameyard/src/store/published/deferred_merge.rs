//! Deferred merge (skip-merge): a drain frees single pages without looking at their buddies. They are merged when a
//! caller needs large blocks.
//!
//! A single page that a drain frees goes to the head of its list with a mark in its tag; the page of its buddy is not read.
//! Merging is deferred while the zone's count of considered compactions is 0 (compaction has not failed lately) and the zone is
//! not quiesced. Emptied lists are merged: their caller wants large blocks.
//!
//! # Merging
//!
//! [`merge_range`] walks pageblocks page by page without a lock and looks for marked pages whose buddies look free. It
//! checks each hit again under the zone lock and merges it. Compaction calls it for every pageblock that it passes,
//! [`collect`] calls it for the whole zone: before a request fails and after a change of the policy. For a request that
//! must not wait, only a few pageblocks are merged before it fails ([`merge_some`]). Under a policy that does not defer
//! merging, `collect` also removes the marks of all other pages.
//!
//! # Counting equation
//!
//! - `skipped` = marked pages on free lists.

use crate::page::{Residence, Tag};
use crate::platform::{Access, LineKind, Platform, Probe, SharedLine};
use crate::store::batch::Batch;
use crate::store::published::COMPILED_IN;
use crate::store::statistics::{counters, read};
use crate::sync::{AtomicU64, Ordering, all_atomic};
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::block_list::Place;
use crate::zone::exclusive::{add_exclusive, sub_exclusive};
use crate::zone::fixed_vec::FixedVec;
use crate::zone::view::{LockedZone, ZoneView};

/// The most pages treated under one hold of the lock.
const AT_ONCE: usize = if cfg!(loom) { 2 } else { 32 };

/// Deferred merges of one zone.
#[derive(Default)]
pub(crate) struct State {
    /// Marked pages on free lists. Changes under the zone lock.
    skipped: AtomicU64,
    /// The pageblock at which [`merge_some`] continues, counted from the zone's first.
    next: AtomicU64,
}

all_atomic!(State { skipped, next });

impl State {
    pub(crate) fn skipped_racy(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Counts marked pages that left a list. The caller holds the zone lock.
    #[inline(always)]
    pub(crate) fn sub_skipped(&self, count: u64) {
        sub_exclusive(&self.skipped, count);
    }
}

/// What deferred merging counts for one CPU.
#[derive(Default)]
pub(crate) struct Counts {
    /// Single frames freed without a look at their buddies.
    pub(crate) skipped_merges: AtomicU64,
    /// Merges of such frames made later.
    pub(crate) later_merges: AtomicU64,
}

all_atomic!(Counts { skipped_merges, later_merges });

counters! { |view, counts, cpu|
    let of = Some(&counts.deferred_merge);
    "skipped_merges" Counter of Cpu "Page frames freed without a merge attempt." = read(&of.skipped_merges);
    "later_merges" Counter of Cpu "Deferred merges, made later on demand." = read(&of.later_merges);
    let of = cpu.is_none().then(|| view.skip_state());
    "unmerged_pages" Gauge of Zone "Page frames on free lists whose merge is deferred." = of.skipped_racy();
}

/// How a mechanism treats single pages that a drain frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Merging {
    /// It merges them.
    AtOnce,
    /// It defers their merges.
    Deferred,
    /// It defers their merges and groups them (see [`SkipHooks`]).
    Grouped,
}

/// What happens to marked pages whose buddies are not free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// They stay marked.
    Stays,
    /// They lose their marks.
    Unmarked,
    /// They lose their marks and their groups.
    Alone,
}

/// What a mechanism that groups marked pages does when a mark changes.
pub(crate) trait SkipHooks {
    /// A page on a list got the mark.
    fn marked(&mut self, pfn: Pfn, tag: Tag);
    /// A page on a list lost the mark.
    fn unmarked(&mut self, pfn: Pfn, tag: Tag);
    /// The group of a page on a list ends.
    fn dissolve(&mut self, pfn: Pfn);
}

impl<'a, P: Platform> ZoneView<'a, P> {
    fn skip_state(&self) -> &'a State {
        &self.zone.mechanisms.published.deferred_merge
    }

    /// Whether a free may skip merging. Exact under the zone lock, except for the count of considered compactions, which may
    /// change at any time; what is skipped meanwhile is merged when it is needed.
    pub(crate) fn may_skip_merging_racy(&self) -> bool {
        !self.is_quiesced() && self.zone.compaction.deferral().0 == 0
    }

    /// Whether marked pages are on free lists, possibly stale.
    pub(crate) fn has_unmerged_racy(&self) -> bool {
        COMPILED_IN && self.skip_state().skipped_racy() > 0
    }
}

/// Frees single pages without merging them; merges them if skipping is not allowed.
pub(crate) fn give_back<P: Platform>(locked: &mut LockedZone<'_, P>, batch: &Batch) {
    locked.count_moved(PageCount(batch.len() as u64));
    let skip = locked.may_skip_merging_racy();
    let mut skipped = 0;
    for entry in batch.iter() {
        let pfn = locked.map.pfn(*entry);
        let migrate_type = locked.blocks.get(pfn);
        if skip && migrate_type != MigrateType::Isolate {
            locked.add_block(pfn, Order::ZERO, migrate_type, Place::Head, Residence::Resident);
            mark_skipped(locked, pfn);
            skipped += 1;
        } else {
            locked.free_block(pfn, Order::ZERO, migrate_type);
        }
    }
    add_exclusive(&locked.counters().mechanisms.deferred_merge.skipped_merges, skipped);
}

/// Merges the marked pages of a range whose buddies are free. Returns the number of merges.
pub(crate) fn merge_range<P: Platform>(view: ZoneView<'_, P>, frames: PfnRange) -> u64 {
    settle(view, frames, Rest::Stays)
}

/// Merges the marked pages of the whole zone, and treats the rest as `rest` says. Continues while pages are marked or `left`.
pub(crate) fn collect<P: Platform>(view: ZoneView<'_, P>, rest: Rest, left: impl Fn() -> bool) {
    for at in view.blocks.present_starts_in(view.span()) {
        if !view.has_unmerged_racy() && !left() {
            break;
        }
        settle(view, PfnRange::new(at, view.blocks.pages()).intersection(view.span()), rest);
    }
}

/// Merges marked pages of up to `most` pageblocks, until there is `enough`. Each call continues where the last one stopped, so that
/// a few of them see the whole zone.
pub(crate) fn merge_some<P: Platform>(view: ZoneView<'_, P>, most: u64, enough: impl Fn() -> bool) {
    let parts = || view.blocks.numbers_in(view.span());
    let all = parts().map(|part| part.end - part.start).sum();
    for _ in 0..most.min(all) {
        if enough() || !view.has_unmerged_racy() {
            return;
        }
        let mut at = view.skip_state().next.fetch_add(1, Ordering::Relaxed) % all;
        for part in parts() {
            let pageblocks = part.end - part.start;
            if at < pageblocks {
                let pageblock = PfnRange::new(view.blocks.start_at(part.start + at), view.blocks.pages());
                merge_range(view, pageblock.intersection(view.span()));
                break;
            }
            at -= pageblocks;
        }
    }
}

/// Walks the pages of one pageblock. Returns the number of merges.
fn settle<P: Platform>(view: ZoneView<'_, P>, frames: PfnRange, rest: Rest) -> u64 {
    let mut merged = 0;
    let mut at = frames.start;
    if !view.blocks.has_memory(at) {
        return 0;
    }
    while at < frames.end {
        let mut found = FixedVec::<Pfn, AT_ONCE>::new();
        while at < frames.end && !found.is_full() {
            let tag = view.page(at).tag();
            if tag.seems_free_buddy(Order::ZERO, view.id) && tag.has_marks() && wants(view, at, tag, rest) {
                found.push(at);
            }
            at = at
                + if tag.order() <= view.geometry.max_order() && at.is_aligned(tag.order()) {
                    tag.order().pages()
                } else {
                    PageCount(1)
                };
        }
        if !found.is_empty() {
            let Ok(mut locked) = view.lock() else { break };
            merged += found.iter().map(|pfn| u64::from(settle_page(&mut locked, *pfn, rest))).sum::<u64>();
        }
    }
    merged
}

/// Whether a marked or tentative page needs treatment, as far as the walk sees without the lock.
fn wants<P: Platform>(view: ZoneView<'_, P>, pfn: Pfn, tag: Tag, rest: Rest) -> bool {
    match rest {
        Rest::Stays => {
            tag.is_merge_skipped() && view.page(pfn.buddy(Order::ZERO)).tag().seems_free_buddy(Order::ZERO, view.id)
        }
        Rest::Unmarked => tag.is_merge_skipped(),
        Rest::Alone => true,
    }
}

/// Merges a marked page if its buddy is free; whether it did.
fn settle_page<P: Platform>(locked: &mut LockedZone<'_, P>, pfn: Pfn, rest: Rest) -> bool {
    let tag = locked.page(pfn).tag();
    if !tag.seems_free_buddy(Order::ZERO, locked.id) || !locked.is_listed(pfn, tag) {
        return false;
    }
    let buddy = pfn.buddy(Order::ZERO);
    let buddy_tag = locked.page(buddy).tag();
    let free = buddy_tag.seems_free_buddy(Order::ZERO, locked.id) && locked.is_listed(buddy, buddy_tag);
    if tag.is_merge_skipped() && free {
        locked.remove_block(pfn, tag);
        locked.page(pfn).set_tag(Tag::INTERIOR);
        locked.free_block_as(pfn, Order::ZERO, tag.migrate_type(), tag.residence());
        add_exclusive(&locked.counters().mechanisms.deferred_merge.later_merges, 1);
        return true;
    }
    if rest == Rest::Alone && tag.is_tentative() {
        locked.dissolve(pfn);
    }
    // A buddy in a detachment is not free; it merges when it comes back.
    if rest != Rest::Stays {
        unmark_skipped(locked, pfn);
    }
    false
}

/// Marks a single page on a list as one that skipped merging.
pub(crate) fn mark_skipped<P: Platform>(locked: &mut LockedZone<'_, P>, pfn: Pfn) {
    let page = locked.page(pfn);
    let tag = page.tag();
    if !tag.is_merge_skipped() {
        add_exclusive(&locked.skip_state().skipped, 1);
        locked.marked(pfn, tag);
        page.set_tag(tag.with_merge_skipped());
    }
}

/// Removes the mark from a single page on a list.
fn unmark_skipped<P: Platform>(locked: &mut LockedZone<'_, P>, pfn: Pfn) {
    let page = locked.page(pfn);
    let tag = page.tag();
    if tag.is_merge_skipped() {
        sub_exclusive(&locked.skip_state().skipped, 1);
        locked.unmarked(pfn, tag);
        page.set_tag(tag.without_merge_skipped());
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Announces a use of the count of marked pages.
    #[inline(always)]
    fn touch_skipped(&self, access: Access) {
        self.platform.probe().touch_line(SharedLine::of(LineKind::Mechanism, self.skip_state()), access);
    }

    /// Counts marked pages that joined a list.
    pub(crate) fn add_skipped(&mut self, count: u64) {
        self.touch_skipped(Access::Write);
        add_exclusive(&self.skip_state().skipped, count);
    }

    /// Counts marked pages that left a list.
    pub(crate) fn sub_skipped(&mut self, count: u64) {
        self.touch_skipped(Access::Write);
        self.skip_state().sub_skipped(count);
    }
}
