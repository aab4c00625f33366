//! Removing a device: freezes all its pages, which fails if one has users, then withdraws its sections.

use core::ops::Range;

use crate::devices::build::OWN;
use crate::devices::{DeviceError, DeviceId, DeviceRow, DeviceState, FrameState, MapLayout, PageMap, Plan, Removal};
use crate::memmap::{Initialiser, MapWriter};
use crate::page::content::PageTemplate;
use crate::page::{CountedPage, Counts, MapContent, PageRef};
use crate::platform::{MemoryBacking, Platform};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Order, PageCount, Pfn, PfnRange};

/// The most rounds that a removal waits.
const ROUNDS: u32 = 4096;

/// The wait of a removal.
struct Patience {
    round: u32,
    rounds: u32,
}

impl Patience {
    fn of(removal: Removal) -> Self {
        Self { round: 0, rounds: if removal == Removal::Wait { ROUNDS } else { 0 } }
    }

    /// Waits a round; `false` if the bound is reached.
    fn wait<P: Platform>(&mut self, platform: &P) -> bool {
        if self.round >= self.rounds {
            return false;
        }
        platform.wait(self.round);
        self.round += 1;
        true
    }
}

/// The pages in use that prevent a removal or a join, counted by all workers.
pub(super) struct Used {
    references: AtomicU64,
    pages: AtomicU64,
    /// The first page in use; `u64::MAX` while there is none.
    first: AtomicU64,
}

impl Default for Used {
    fn default() -> Self {
        Self { references: AtomicU64::new(0), pages: AtomicU64::new(0), first: AtomicU64::new(u64::MAX) }
    }
}

impl Used {
    /// One page in use.
    pub(super) fn by(pfn: Pfn, counts: Counts) -> Self {
        let used = Self::default();
        used.add(pfn, counts);
        used
    }

    /// Adds a page that has users beside the device. A page whose last user has left meanwhile counts as one reference.
    fn add(&self, pfn: Pfn, counts: Counts) {
        let references = counts.references.saturating_sub(OWN.references).max(1);
        self.references.fetch_add(u64::from(references), Ordering::Relaxed);
        self.pages.fetch_add(1, Ordering::Relaxed);
        let earlier = |first: u64| (pfn.0 < first).then_some(pfn.0);
        let _ = self.first.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
    }

    /// Freezes a page, or adds it.
    pub(super) fn freeze<P: Platform>(&self, page: CountedPage<'_, P>) {
        if !page.freeze(OWN) {
            self.add(page.pfn(), page.counts());
        }
    }

    fn is_any(&self) -> bool {
        self.pages.load(Ordering::Relaxed) > 0
    }

    pub(super) fn result(&self) -> Result<(), DeviceError> {
        let [references, pages, first] =
            [&self.references, &self.pages, &self.first].map(|it| it.load(Ordering::Relaxed));
        if pages == 0 { Ok(()) } else { Err(DeviceError::InUse { references, pages, first: Pfn(first) }) }
    }
}

/// Unfreezes a page if it is frozen. No other CPU may have frozen it.
pub(super) fn unfreeze_if_frozen<P: Platform>(page: CountedPage<'_, P>) {
    if page.counts() == Counts::default() {
        page.unfreeze(OWN);
    }
}

impl<P: Platform> PageMap<'_, P> {
    /// Removes a device. At most `threads` work on it.
    pub(crate) fn unmap_device(&self, id: DeviceId, removal: Removal, threads: usize) -> Result<(), DeviceError> {
        let missing = DeviceError::NoSuchDevice(id);
        let directory = self.directory().ok_or(missing)?;
        let (row, request) = directory.row(id).ok_or(missing)?;
        let plan = self.plan_of(request)?;
        let mut patience = Patience::of(removal);
        self.close(id, row, removal, &mut patience)?;
        let freed = self.freeze_all(id, row, &plan, (threads, &mut patience));
        if freed.is_err() {
            row.reopen();
            return freed;
        }
        directory.locked(self.platform, |_| {
            self.sections_of(plan.data).for_each(|(section, parts)| section.withdraw(parts));
        })?;
        self.clear_structures(&plan, threads);
        self.release(id, &plan);
        Ok(())
    }

    /// Closes a device to new mappings, splits and joins.
    fn close(
        &self,
        id: DeviceId,
        row: &DeviceRow,
        removal: Removal,
        patience: &mut Patience,
    ) -> Result<(), DeviceError> {
        loop {
            let Err(users) = row.close(id, removal) else { return Ok(()) };
            let problem = match users.state() {
                _ if !users.are_of(id) => return Err(DeviceError::NoSuchDevice(id)),
                DeviceState::Live if users.changers() == 0 => {
                    DeviceError::Mapped { device: id, mappings: users.mappings() }
                }
                _ => DeviceError::Busy(id),
            };
            if !patience.wait(self.platform) {
                return Err(problem);
            }
        }
    }

    /// Freezes every page of a closed device, or none.
    fn freeze_all(
        &self,
        id: DeviceId,
        row: &DeviceRow,
        plan: &Plan,
        (threads, patience): (usize, &mut Patience),
    ) -> Result<(), DeviceError> {
        loop {
            let mappings = row.users().mappings();
            if mappings > 0 {
                if !patience.wait(self.platform) {
                    return Err(DeviceError::Mapped { device: id, mappings });
                }
                continue;
            }
            let used = Used::default();
            self.for_each_page(plan, threads, &|page| {
                let page = self.counted(page);
                // After the first page with users, freezing is pointless: only count.
                if used.is_any() {
                    let counts = page.counts();
                    if counts.references > OWN.references || counts.mappings > 0 {
                        used.add(page.pfn(), counts);
                    }
                } else {
                    used.freeze(page);
                }
            })?;
            let Err(problem) = used.result() else { return Ok(()) };
            // A closed device has no splits, joins or second removal that could freeze its pages.
            self.for_each_page(plan, threads, &|page| unfreeze_if_frozen(self.counted(page)))?;
            if !patience.wait(self.platform) {
                return Err(problem);
            }
            let first = used.first.load(Ordering::Relaxed);
            self.await_page(plan, Pfn(first), patience);
        }
    }

    /// Waits until the device is the only user of the page that counts the users of a frame.
    fn await_page(&self, plan: &Plan, pfn: Pfn, patience: &mut Patience) {
        let number = (pfn.0 - plan.data.start.0) >> plan.request.order.0;
        let own = pfn != plan.head(number);
        let page = if own { self.own_page(pfn) } else { self.head_page(plan, number) };
        while self.counted(page).counts() != OWN && patience.wait(self.platform) {}
    }

    pub(super) fn counted<'p>(&self, page: PageRef<'p, P>) -> CountedPage<'p, P> {
        CountedPage::new(page, self.map.content().no_users())
    }

    /// Calls `visit` with each page of a closed device that counts users: each head, and then its parts if it is split. Reads
    /// whether a head is split after its visit.
    fn for_each_page(
        &self,
        plan: &Plan,
        threads: usize,
        visit: &(impl Fn(PageRef<'_, P>) + Sync),
    ) -> Result<(), DeviceError> {
        let work = |numbers: Range<u64>| {
            for number in numbers {
                let head = self.head_page(plan, number);
                visit(head);
                if self.is_split(plan, head) {
                    self.parts_of(plan, head.pfn()).for_each(|part| visit(self.own_page(part)));
                }
            }
        };
        self.run_job(plan, threads, &work).map_err(|_| DeviceError::WorkerPanicked)
    }

    pub(super) fn is_split(&self, plan: &Plan, head: PageRef<'_, P>) -> bool {
        plan.request.order > Order::ZERO && head.tag().is_block(FrameState::Device, Order::ZERO)
    }

    /// The frames of a compound page except its head.
    pub(super) fn parts_of(&self, plan: &Plan, head: Pfn) -> impl Iterator<Item = Pfn> + use<P> {
        (1..plan.request.order.pages().0).map(move |at| head + PageCount(at))
    }

    /// Zeroes the device's part of the map. Its pages are frozen, or were never published.
    pub(super) fn clear_structures(&self, plan: &Plan, threads: usize) {
        let writer = MapWriter::new(Initialiser::Stream);
        let every = plan.request.layout == MapLayout::Full && self.map.content() != MapContent::Zero;
        let work = |numbers: Range<u64>| {
            for number in numbers {
                let head = self.head_page(plan, number);
                if !head.tag().is(FrameState::Device) {
                    // Never written: the place may have no memory.
                    continue;
                }
                if self.is_split(plan, head) {
                    self.parts_of(plan, head.pfn())
                        .for_each(|part| self.own_page(part).become_interior(PageTemplate::ZERO));
                }
                head.become_interior(PageTemplate::ZERO);
                if every {
                    let (first, count) = self.map.structures(PfnRange::new(head.pfn(), plan.request.order.pages()));
                    // SAFETY: the pages belong to the device, which the caller owns; other CPUs only read them.
                    unsafe { writer.write(first, count, PageTemplate::ZERO) };
                }
            }
            writer.finish();
        };
        // None of these calls panics. If a worker did, a head might stay written; no look-up finds it.
        let _ = self.run_job(plan, threads, &work);
        let (address, bytes) = self.map.memory_of(plan.request.range);
        self.platform.backing().return_map(plan.request.range, address, bytes);
    }
}
