//! JobGranularity a compound page of a device into base pages, and joining them again.

use super::build::OWN;
use super::plan::memory_of;
use super::remove::Used;
use super::{DeviceError, DeviceId, DeviceRow, DeviceState, MapLayout, PageMap, Plan};
use crate::page::{CountedPage, Counts};
use crate::platform::Platform;
use crate::units::{Order, Pfn};

/// A user of a device that splits or joins its pages; the device is not removed meanwhile.
struct Entered<'a>(&'a DeviceRow);

impl<'a> Entered<'a> {
    fn at(id: DeviceId, row: &'a DeviceRow) -> Result<Self, DeviceError> {
        match row.enter() {
            Ok(()) => Ok(Self(row)),
            Err(users) if users.state() == DeviceState::Free => Err(DeviceError::NoSuchDevice(id)),
            Err(_) => Err(DeviceError::Busy(id)),
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl<'a, P: Platform> PageMap<'a, P> {
    /// The compound page that begins at a frame of a device that can split pages.
    fn enter(&self, head: Pfn) -> Result<(DeviceId, Plan, Entered<'static>), DeviceError> {
        let (id, row, _) = self.device_of(head)?;
        let entered = Entered::at(id, row)?;
        // Asked again: what was found first may have been removed before.
        let plan = match row.request() {
            Some(request) => Plan::of(request, self.geometry)?,
            None => return Err(DeviceError::NotDevice(head)),
        };
        let order = plan.request.order;
        if !plan.data.contains(head) {
            return Err(DeviceError::NotDevice(head));
        }
        if order == Order::ZERO {
            return Err(DeviceError::BasePages(head));
        }
        if !head.is_aligned(order) {
            return Err(DeviceError::NotHead { pfn: head, head: head.align_down(order) });
        }
        if plan.request.layout == MapLayout::Folded {
            return Err(DeviceError::LayoutCannotSplit(head));
        }
        Ok((id, plan, entered))
    }

    /// Freezes a page, or returns what prevents it: another CPU has frozen it, or it has references.
    fn freeze(&self, id: DeviceId, page: CountedPage<'_, P>) -> Result<(), DeviceError> {
        if page.freeze(OWN) {
            return Ok(());
        }
        let counts = page.counts();
        if counts.references == 0 {
            return Err(DeviceError::Busy(id));
        }
        let used = Used::default();
        used.add(page.pfn(), counts);
        used.result()
    }

    /// Cuts a compound page into base pages.
    pub(crate) fn split(&self, head: Pfn) -> Result<(), DeviceError> {
        let (id, plan, _entered) = self.enter(head)?;
        let page = self.counted(self.own_page(head));
        self.freeze(id, page)?;
        if self.is_split(&plan, self.own_page(head)) {
            page.thaw(OWN);
            return Err(DeviceError::IsSplit(head));
        }
        let tails = plan.tail_pages_of(head);
        if !tails.is_empty() {
            let (address, bytes) = memory_of(self.map, tails);
            if self.platform.back_map(tails, address, bytes).is_err() {
                page.thaw(OWN);
                return Err(DeviceError::NoMapMemory(tails));
            }
        }
        let single = plan.tag(Order::ZERO);
        for part in self.parts_of(&plan, head) {
            let part = self.own_page(part);
            part.set_tag(single);
            self.counted(part).set_counts(OWN);
        }
        // A CPU that reads this tag takes a reference on the head before it reads a part. It gets none before the thaw,
        // whose Release makes all of this visible.
        self.own_page(head).set_tag(single);
        page.thaw(OWN);
        Ok(())
    }

    /// Joins the base pages of a compound page that was split.
    pub(crate) fn join(&self, head: Pfn) -> Result<(), DeviceError> {
        let (id, plan, _entered) = self.enter(head)?;
        let page = self.counted(self.own_page(head));
        self.freeze(id, page)?;
        if !self.is_split(&plan, self.own_page(head)) {
            page.thaw(OWN);
            return Err(DeviceError::NotSplit(head));
        }
        if let Err(problem) = self.freeze_parts(&plan, head) {
            page.thaw(OWN);
            return Err(problem);
        }
        let zone = Some(super::zone_of(plan.request.node));
        self.parts_of(&plan, head).for_each(|part| self.own_page(part).become_interior(self.map.template(part, zone)));
        let tails = plan.tail_pages_of(head);
        if !tails.is_empty() {
            let (address, bytes) = memory_of(self.map, tails);
            self.platform.return_map(tails, address, bytes);
        }
        self.own_page(head).set_tag(plan.tag(plan.request.order));
        page.thaw(OWN);
        Ok(())
    }

    /// Freezes all parts of a split page whose head is frozen, or none.
    fn freeze_parts(&self, plan: &Plan, head: Pfn) -> Result<(), DeviceError> {
        let used = Used::default();
        for part in self.parts_of(plan, head) {
            let page = self.counted(self.own_page(part));
            if !page.freeze(OWN) {
                used.add(part, page.counts());
            }
        }
        let result = used.result();
        if result.is_err() {
            for part in self.parts_of(plan, head) {
                let page = self.counted(self.own_page(part));
                if page.counts() == Counts::default() {
                    page.thaw(OWN);
                }
            }
        }
        result
    }
}
