//! The equations of devices, for a yard at rest.
//!
//! - Every row is free or live; no split, join or removal is in flight.
//! - The parts of sections that lead to devices are those of the devices' data, and each section's entry is the one
//!   that its devices make.
//! - Every head is a Device page of the device's zone and order, with at least one reference. A head of order 0 in a
//!   device of larger pages is split, and so are its parts, each with at least one reference.
//! - Parts of unsplit pages, and all places of the device's part of the map without a structure, are fresh.

use crate::devices::{DeviceId, DeviceRow, DeviceState, MapLayout, PageMap, Plan};
use crate::page::{IDENTITY, PageRef, PageTemplate, Tag};
use crate::platform::Platform;
use crate::units::{Order, PageCount, Pfn, PfnRange};

/// An equation of devices that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeviceProblem {
    Device { device: DeviceId, what: &'static str, at: Pfn },
    NoDevice(Pfn),
}

impl<P: Platform> PageMap<'_, P> {
    /// Checks every device, and that nothing else is found in the device space.
    pub(crate) fn check(&self) -> Result<(), DeviceProblem> {
        let Some(directory) = self.directory() else { return Ok(()) };
        for (id, row, request) in directory.devices() {
            let broken = |what| DeviceProblem::Device { device: id, what, at: request.range.start };
            let plan = self.plan_of(request).map_err(|_| broken("the row names no device"))?;
            self.check_device(id, row, &plan)?;
        }
        for (number, row) in directory.rows() {
            if row.request().is_none() && row.users().state() != DeviceState::Free {
                let device = DeviceId::new(number, 0);
                return Err(DeviceProblem::Device { device, what: "a row without device is not free", at: Pfn(0) });
            }
        }
        self.check_sections()
    }

    fn check_device(&self, id: DeviceId, row: &DeviceRow, plan: &Plan) -> Result<(), DeviceProblem> {
        let users = row.users();
        let broken = |what, at| Err(DeviceProblem::Device { device: id, what, at });
        if users.state() != DeviceState::Live || users.changers() > 0 {
            return broken("a CPU maps, splits, joins or removes it", plan.data.start);
        }
        if !users.are_of(id) {
            return broken("its users are those of another device", plan.data.start);
        }
        let entry = plan.entry(self.map.numbering());
        for (at, (section, parts)) in self.sections_of(plan.data).enumerate() {
            let (found, led) = section.read();
            if !found.leads_as(entry) || led & parts != parts {
                let at = plan.data.start + PageCount(at as u64 * self.geometry.section_pages().0);
                return broken("a section does not lead to its pages", at);
            }
        }
        for number in 0..plan.pages() {
            self.check_page(plan, number).or_else(|(what, at)| broken(what, at))?;
        }
        let unused = PfnRange { start: plan.place_of(plan.pages()), end: plan.request.range.end };
        let before = PfnRange { start: plan.request.range.start, end: plan.place_of(0) };
        // The data between the ends consists of whole pages. With folded structures these are all the structures.
        for at in [before, unused].into_iter().flat_map(|places| places.start.0..places.end.0).map(Pfn) {
            if !is_fresh(self.own_page(at), PageTemplate::ZERO) {
                return broken("a place of the map where no structure lies is not zero", at);
            }
        }
        Ok(())
    }

    /// Checks a compound page (or base page) and its parts. An error says what is wrong, and where.
    fn check_page(&self, plan: &Plan, number: u64) -> Result<(), (&'static str, Pfn)> {
        let order = plan.request.order;
        let head = self.head_page(plan, number);
        let split = self.is_split(plan, head);
        self.check_head(plan, head, if split { Order::ZERO } else { order })?;
        if plan.request.layout == MapLayout::Folded {
            return Ok(());
        }
        for at in self.parts_of(plan, head.pfn()) {
            let part = self.own_page(at);
            if split {
                self.check_head(plan, part, Order::ZERO)?;
            } else if !is_fresh(part, self.tail_template(plan, at)) {
                return Err(("a tail is not fresh", at));
            }
        }
        Ok(())
    }

    fn check_head(&self, plan: &Plan, page: PageRef<'_, P>, order: Order) -> Result<(), (&'static str, Pfn)> {
        if page.tag() != plan.tag(order) {
            return Err(("the tag of a page is not its device's", page.pfn()));
        }
        if self.counted(page).counts().references == 0 {
            return Err(("a page has no reference, not even its device's", page.pfn()));
        }
        if page.payload(IDENTITY) != self.tail_template(plan, page.pfn()).payload()[IDENTITY] {
            return Err(("the identity of a page is not its own", page.pfn()));
        }
        Ok(())
    }

    /// Checks that sections lead only to devices.
    fn check_sections(&self) -> Result<(), DeviceProblem> {
        let pages = self.geometry.section_pages().0;
        for (at, section) in self.tables.sections.iter().enumerate() {
            let frames = PfnRange::new(self.map.pfn(at as u32 * pages as u32), PageCount(pages));
            let (_, mut left) = section.read();
            for device in self.devices() {
                let inside = device.data.intersection(frames);
                if inside.start < inside.end {
                    left &= !self.sections_of(inside).fold(0, |all, (_, parts)| all | parts);
                }
            }
            if left != 0 {
                return Err(DeviceProblem::NoDevice(frames.start));
            }
        }
        Ok(())
    }
}

fn is_fresh<P: Platform>(page: PageRef<'_, P>, fresh: PageTemplate) -> bool {
    page.tag() == Tag::INTERIOR && page.rest_is(fresh)
}
