//! Refills from lines of bits, and where types mix. A refill tries, in this order: lines of its own type, blocks of its
//! type on the free lists, lines of its type that other CPUs have reserved, whole pageblocks of other types, and lines
//! of other types. The [`Rule`] in force decides which lines it searches.

use core::iter;

use crate::placement::Rule;
use crate::placement::clean_lines::{Among, convert, spares_clean, taint};
use crate::placement::fallback::fallbacks;
use crate::platform::Platform;
use crate::store::RefillRequest;
use crate::store::batch::Batch;
use crate::store::bits::taking::{
    Choice, Search, Taking, has_plenty_racy, leave, prefers_cma_racy, push_line, reserve, supply, take_lines,
};
use crate::store::bits::{collect_line, give_up_whole, take_whole};
use crate::store::buddy::pagewise;
use crate::units::{CpuId, MigrateType, Order};
use crate::zone::request::{BlockRequest, Fallback};
use crate::zone::view::ZoneView;

/// How many lines a refill looks at before it compares watermarks.
const MOST_TRIES: u32 = 4;

/// Takes blocks of the line that a CPU has reserved while the zone is not near its watermarks, and, while it has plenty, of a few that it
/// reserves next.
#[inline]
pub(super) fn take_ready<P: Platform, R: Rule>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    (order, list_type): (Order, MigrateType),
    (wanted, room): (usize, usize),
    batch: &mut Batch,
) {
    if !view.may_take_own_racy() {
        return;
    }
    let mut taking = Taking::new(view, cpu, order, (wanted, room), (R::first(view, list_type), batch));
    if !taking.take_own(list_type) && has_plenty_racy(view) {
        R::step(view, cpu, wanted);
        taking.take_further(list_type, MOST_TRIES);
    }
}

/// Fetches blocks for a list, or one block of an order without lists.
#[inline(never)]
pub(super) fn fetch<P: Platform, R: Rule>(
    view: ZoneView<'_, P>,
    refill: RefillRequest,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let BlockRequest { order, migrate_type, fallback, .. } = refill.blocks;
    // Near the watermarks the zone can spare one block, but perhaps not a batch.
    let one_alone = order > Order::ZERO && !view.may_take_own_racy();
    let refill = RefillRequest { wanted: if one_alone { 1 } else { refill.wanted }, ..refill };
    if refill.blocks.uses_cma() && prefers_cma_racy(view) {
        let got = pagewise::fetch(view, refill, &mut deliver);
        if got > 0 {
            return got;
        }
    }
    if order >= view.free_bits().line_order() {
        return fetch_whole::<P, R>(view, refill, deliver);
    }
    R::step(view, refill.cpu, refill.wanted);
    let mut batch = Batch::new();
    let mut taking =
        Taking::new(view, refill.cpu, order, (refill.wanted, refill.room), (R::first(view, migrate_type), &mut batch));
    taking.take_listed(migrate_type);
    if taking.batch.is_empty() && supply(view, refill.blocks, refill.cpu) {
        taking.take_listed(migrate_type);
    }
    if taking.batch.is_empty()
        && let Some(rest) = taking.among.rest()
    {
        taking.among = rest;
        taking.take_listed(migrate_type);
    }
    if taking.batch.is_empty() {
        taking.take_reserved(migrate_type);
    }
    let spares_clean = spares_clean(view, migrate_type);
    if taking.batch.is_empty() && spares_clean {
        taking.take_of_others(migrate_type, Among::Tainted);
        if taking.batch.is_empty() {
            taking.take_of_movable(migrate_type, Among::Tainted);
        }
    } else if taking.batch.is_empty() {
        taking.take_of_others(migrate_type, taking.among);
    }
    if taking.batch.is_empty() {
        let is_listed = MigrateType::ALL.into_iter().any(|of| view.zone.has_block_of_type_racy(order, of));
        let one = RefillRequest { wanted: 1, ..refill };
        let got = if is_listed { pagewise::fetch(view, one, &mut deliver) } else { 0 };
        if got > 0 || fallback == Fallback::AfterGrowth {
            return got;
        }
        taking.wanted = 1;
        // A word, whatever the list's limit: each refill that mixes types lifts the watermarks.
        taking.by_word = order == Order::ZERO && view.may_take_own_racy();
        if spares_clean {
            taking.take_of_others(migrate_type, Among::Emptiest);
        }
    }
    if taking.batch.is_empty() && fallback == Fallback::Allowed {
        if spares_clean {
            taking.take_of_movable(migrate_type, Among::Emptiest);
        }
        for other in fallbacks(migrate_type) {
            if taking.batch.is_empty() {
                taking.take_any(other);
                if !taking.batch.is_empty()
                    && let Ok(mut locked) = view.lock()
                {
                    locked.note_mixed(migrate_type, other);
                }
            }
        }
        if spares_clean {
            let line_of = |block: &u32| *block as usize >> view.free_bits().line_order().0;
            batch.iter().map(line_of).for_each(|line| _ = taint(view, line, migrate_type));
        }
    }
    if !batch.is_empty() {
        deliver(&batch);
    }
    batch.len()
}

/// Fetches blocks of the order of a line: whole lines, then blocks of the free lists.
#[inline(never)]
fn fetch_whole<P: Platform, R: Rule>(
    view: ZoneView<'_, P>,
    refill: RefillRequest,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let BlockRequest { order, migrate_type, .. } = refill.blocks;
    let (of, mut batch) = ((refill.cpu, order, migrate_type), Batch::new());
    let spares_clean = spares_clean(view, migrate_type);
    if order == view.free_bits().line_order() {
        let first = R::first(view, migrate_type);
        take_lines(view, of, refill.wanted, (first, &mut batch));
        if batch.is_empty() && supply(view, refill.blocks, refill.cpu) {
            take_lines(view, of, refill.wanted, (first, &mut batch));
        }
        let rest = first.rest();
        if batch.is_empty()
            && let Some(rest) = rest
        {
            take_lines(view, of, refill.wanted, (rest, &mut batch));
        }
        if batch.is_empty() && !view.zone.has_block_of_type_racy(order, migrate_type) {
            if spares_clean {
                take_line_of_others(view, &refill, (Among::Tainted, &mut batch));
            } else {
                take_line_of_others(view, &refill, (rest.unwrap_or(first), &mut batch));
            }
        }
    }
    if batch.is_empty() {
        let got = pagewise::fetch(view, refill, &mut deliver);
        if got > 0 || order > view.free_bits().line_order() {
            return got;
        }
        if spares_clean {
            take_line_of_others(view, &refill, (Among::Emptiest, &mut batch));
        }
        if batch.is_empty() {
            take_reserved_line(view, &refill, &mut batch);
        }
    }
    if !batch.is_empty() {
        deliver(&batch);
    }
    batch.len()
}

/// Returns the frames of a line to the free lists, for a thread that can use the lists of no CPU: one with a block of that order, of another
/// type if need be.
#[cold]
#[inline(never)]
pub(crate) fn give_to_free_lists<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    (order, wanted): (Order, MigrateType),
) {
    let bits = view.free_bits();
    if order >= bits.line_order() {
        give_up_whole(view, || view.has_block_for_racy(order, wanted));
        return;
    }
    for of in iter::once(wanted).chain(fallbacks(wanted)) {
        let search = Search { cpu, order, list_type: of, left: None };
        let reserved = reserve(view, search, (Among::All, false));
        if let Some(line) = reserved {
            leave(view, line, of);
        }
        let of_others = || view.lines().find_map(|lines| bits.next_reserved(view.platform, of, lines));
        if let Some(line) = reserved.or_else(of_others) {
            collect_line(view, line);
        }
        if view.has_block_for_racy(order, wanted) {
            return;
        }
    }
}

/// What a refill does once its type has nothing left.
impl<P: Platform, R: Rule> Taking<'_, P, R> {
    /// Gives a whole line of another type this type, and takes of it. Looks for one `among` some lines.
    fn take_of_others(&mut self, list_type: MigrateType, among: impl Choice) {
        if let Some(line) = take_whole_of_others(self.view, self.cpu, list_type, among) {
            _ = self.view.free_bits().free_whole(self.view.platform, (line, list_type));
            self.take_listed(list_type);
        }
    }

    /// Gives a movable line this type, whole or not, and takes of it. Looks for one `among` some lines.
    #[cold]
    fn take_of_movable(&mut self, list_type: MigrateType, among: Among) {
        let view = self.view;
        let search = Search { cpu: self.cpu, order: self.order, list_type: MigrateType::Movable, left: None };
        let Some(line) = reserve(view, search, (among, false)) else { return };
        let now = taint(view, line, list_type);
        leave(view, line, now);
        self.take_listed(list_type);
    }

    /// Takes what other CPUs have reserved for another type, or is listed for it.
    fn take_any(&mut self, other: MigrateType) {
        self.take_listed(other);
        if self.batch.is_empty() {
            self.take_reserved(other);
        }
    }
}

/// Takes a whole line of another type among some and makes it one of this type.
fn take_whole_of_others<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    list_type: MigrateType,
    among: impl Choice,
) -> Option<usize> {
    let (line, other) = fallbacks(list_type).into_iter().find_map(|other| {
        let search = Search { cpu, order: view.free_bits().line_order(), list_type: other, left: None };
        let line = among.lines(view, search).find_map(|lines| {
            let start = lines.end;
            take_whole(view, other, (lines, start))
        })?;
        Some((line, other))
    })?;
    convert(view, line, list_type, |locked| locked.note_converted(list_type, other));
    Some(line)
}

/// Takes a whole line of another type among some.
fn take_line_of_others<P: Platform>(
    view: ZoneView<'_, P>,
    refill: &RefillRequest,
    (among, batch): (impl Choice, &mut Batch),
) {
    if let Some(line) = take_whole_of_others(view, refill.cpu, refill.blocks.migrate_type, among) {
        push_line(view, refill.cpu, line, batch);
    }
}

/// Takes a line that a CPU has reserved, and all of whose frames are free.
#[cold]
fn take_reserved_line<P: Platform>(view: ZoneView<'_, P>, refill: &RefillRequest, batch: &mut Batch) {
    let wanted = refill.blocks.migrate_type;
    let found = iter::once(wanted).chain(fallbacks(wanted)).find_map(|of| {
        let line = view.lines().find_map(|lines| view.free_bits().take_reserved_whole(view.platform, of, lines))?;
        Some((line, of))
    });
    if let Some((line, of)) = found {
        if of != wanted {
            convert(view, line, wanted, |locked| locked.note_converted(wanted, of));
        }
        push_line(view, refill.cpu, line, batch);
    }
}
