//! Page maps of device memory: page structures for ranges of frames outside memory, as compound pages or base pages.
//!
//! A device is a range of frames in the device space of a yard. Mapping it writes the page structures of its layout, in
//! parallel. Then two words for each section lead from any frame to the page that counts its users. There are four
//! layouts ([`MapLayout`]):
//!
//! | layout | page structures per compound page | map pages that remain for 2 MiB / 1 GiB | can split |
//! |---|---|---|---|
//! | full | one per frame | 8 / 4096 | yes |
//! | deduplicated (HVO) | one per frame; map pages that hold only tails are one shared page of zeroes | 1 / 1 | yes |
//! | deduplicated-two | as deduplicated; the first map page of tails is written too | 2 / 2 | yes |
//! | folded | one, packed | 1/64 / 1/64 | no |
//!
//! | file | contents |
//! |---|---|
//! | `section` | the two words that lead from a frame to its page |
//! | `directory` | the table of devices |
//! | `plan` | which part of the map a device takes |
//! | `build`, `remove` | mapping and unmapping |
//! | `split` | splitting and joining compound pages |
//! | `device_page` | [`DevicePage`], the result of a look-up |
//! | `check`, `soundness` | checks of a yard at rest, and of tables that another process wrote |
//!
//! # The map of the device space
//!
//! The page structures of the device space are readable at all times, and zero until a device writes them. So a look-up
//! may read the page that it has found at any later time. Only these CPUs write to them:
//!
//! - the CPU that maps or removes a device: the structures of its layout;
//! - the CPU that splits or joins a compound page: the page that it has frozen;
//! - a CPU that found the reference count above zero: counts and owner words. For a part of a split page it also holds
//!   a reference on the head. The count of a tail of an unsplit page is zero, so no CPU writes to tails.
//!
//! # Protocol
//!
//! The device itself holds one reference on each of its pages (as in the kernel's `ZONE_DEVICE` pages). So a count of zero means
//! *frozen, or no page*. A CPU that splits, joins or removes a page freezes it first: it changes the count from one to zero,
//! which fails if the page has other references. Until the CPU stores a count again (unfreezes the page) it owns the page.
//!
//! - **Look-up** (`PageMap::page`): section entry (Acquire), head by natural alignment, the head's tag. No write, no
//!   lock.
//! - **Get** ([`DevicePage::try_get`]): add references on the head if its count is above zero, then read tag and
//!   section entry again; release the references if either has changed. In a split compound page: get one reference on
//!   the head, get those on the frame's own page, release the head's. A join freezes the head first, so no get reaches
//!   a part that is about to become a tail. If the page changes between the read of the count and the exchange, the
//!   exchange fails. But to the processor even a failed exchange is a write. So a platform that makes map pages
//!   read-only asks for marks around gets, and waits for gets in progress
//!   ([`MemoryBacking::begin_get`](crate::platform::MemoryBacking::begin_get)).
//! - **Split**: freeze the head; back the parts' map pages; write tag and count of the parts; change the head's tag to
//!   one frame; unfreeze.
//! - **Join**: freeze the head, then every part; zero the parts and return their map pages; change the head's tag to
//!   the whole; unfreeze.
//! - **Enter** (count a mapping, split, join, remove): find the device's row and generation; one exchange on the row's users checks
//!   that the device is live and still of that generation. From then on the row keeps its device.
//! - **Remove**: close the device to mappings, splits and joins; freeze every head and part, or unfreeze all again;
//!   withdraw the sections; zero the structures.
//!
//! The result of a look-up may be out of date at once. Only a reference keeps a page in place.
//!
//! # Cost
//!
//! A look-up reads one line of the section table and the line of the page. It has no branch that depends on the layout. On x86-64
//! it takes about 45 instructions: three loads and two comparisons from the frame to its section and sub-section, 14
//! instructions to the address of the page (3 of them for folding), and the checks of the tag. A get costs one exchange on the
//! page's line and three loads more.

use crate::memmap::MemMap;
use crate::page::{FrameState, PageRef};
use crate::platform::{Platform, copied_views};
use crate::units::{Geometry, NodeId, Order, Pfn, PfnRange, ZoneId, ZoneKind};
use crate::zone::Zone;

mod build;
mod check;
mod device_page;
mod directory;
mod error;
mod kinds;
mod plan;
mod remove;
mod section;
mod soundness;
mod split;

pub(crate) use check::DeviceProblem;
pub use device_page::DevicePage;
pub(crate) use directory::DeviceDirectory;
use directory::{DeviceRow, DeviceState};
pub use error::DeviceError;
pub use kinds::{DeviceId, DeviceInfo, DeviceRequest, MapLayout, MapPlacement, Removal};
pub(crate) use plan::part_order;
use plan::{MAX_ORDER, Plan};
pub(crate) use section::DeviceSection;
pub(crate) use soundness::devices_are_sound;

/// The tables of devices.
#[derive(Clone, Copy)]
pub(crate) struct DeviceTables {
    /// One for each section of the map; none in a yard without device space.
    pub(crate) sections: &'static [DeviceSection],
    /// One, or none in a yard without device space.
    pub(crate) directories: &'static [DeviceDirectory],
}

/// The device memory of a yard: the tables of devices, and the map and zones that they change.
pub(crate) struct PageMap<'a, P> {
    pub(crate) map: MemMap,
    pub(crate) tables: DeviceTables,
    pub(crate) geometry: Geometry,
    /// The frames reserved for devices.
    pub(crate) space: PfnRange,
    /// The order of a sub-section.
    pub(crate) part_order: Order,
    pub(crate) zones: &'static [Zone],
    pub(crate) platform: &'a P,
}

copied_views!(PageMap);

/// The Device zone of a node.
fn zone_of(node: NodeId) -> ZoneId {
    ZoneId::new(node, ZoneKind::Device)
}

impl<'a, P: Platform> PageMap<'a, P> {
    /// The bit of a frame's sub-section in its section's word.
    #[inline(always)]
    fn part_of(&self, place: usize) -> u64 {
        1 << (place >> self.part_order.0 & 63)
    }

    /// The page that counts the users of a frame, if a device has the frame. Accepts any frame number.
    #[inline(always)]
    pub(crate) fn page(&self, pfn: Pfn) -> Option<DevicePage<'a, P>> {
        let place = self.map.place(pfn);
        let section = self.tables.sections.get(self.map.section_number(place))?;
        let part = self.part_of(place);
        let entry = section.look_up(part)?;
        let head = entry.head(pfn);
        let at = entry.place(head);
        self.map.entry(at)?;
        // SAFETY: the place lies in the map. The device space has memory there, or a page of zeroes.
        let page = unsafe { self.map.page_at(at, head, self.platform) };
        DevicePage::found(page, pfn, (section, entry, part), self.map)
    }

    /// The page structure of a frame that has one of its own.
    fn own_page(&self, pfn: Pfn) -> PageRef<'a, P> {
        self.map.page(pfn, self.platform)
    }

    /// The page structure of a compound page of a device.
    fn head_page(&self, plan: &Plan, number: u64) -> PageRef<'a, P> {
        // As in `MemMap::outside`: a place that another process damaged is the first one.
        let place = self.map.index(plan.place_of(number));
        let place = if self.map.entry(place).is_some() { place } else { 0 };
        // SAFETY: a plan places its heads in the map, and the caller has backed the place.
        unsafe { self.map.page_at(place, plan.head(number), self.platform) }
    }

    fn directory(&self) -> Option<&'static DeviceDirectory> {
        self.tables.directories.first()
    }

    /// All devices, by number.
    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceInfo> + use<'a, P> {
        let map = *self;
        let devices = self.directory().into_iter().flat_map(DeviceDirectory::devices);
        devices.filter_map(move |(id, row, request)| info(id, row, &map.plan_of(request).ok()?))
    }

    /// The device that has a frame.
    pub(crate) fn device_at(&self, pfn: Pfn) -> Option<DeviceInfo> {
        let (id, row, request) = self.directory()?.row_of(pfn)?;
        info(id, row, &self.plan_of(request).ok()?)
    }

    /// The plan of a device that may be mapped so. The request may come from a row of the table: another process may have written
    /// anything there.
    fn plan_of(&self, request: DeviceRequest) -> Result<Plan, DeviceError> {
        self.admit(&request)?;
        Plan::of(request, self.geometry)
    }

    /// The device that has a frame, with its plan.
    fn device_of(&self, pfn: Pfn) -> Result<(DeviceId, &'static DeviceRow, Plan), DeviceError> {
        let found = self.directory().and_then(|directory| directory.row_of(pfn));
        let (id, row, request) = found.ok_or(DeviceError::NotDevice(pfn))?;
        let plan = self.plan_of(request)?;
        if plan.data.contains(pfn) { Ok((id, row, plan)) } else { Err(DeviceError::NotDevice(pfn)) }
    }

    /// Counts an entry of page tables that maps a frame.
    pub(crate) fn add_mapping(&self, pfn: Pfn) -> Result<(), DeviceError> {
        let (id, row, _) = self.device_of(pfn)?;
        row.map(id).map_err(|_| DeviceError::Busy(id))
    }

    /// Uncounts an entry of page tables.
    pub(crate) fn remove_mapping(&self, pfn: Pfn) -> Result<(), DeviceError> {
        let (id, row, _) = self.device_of(pfn)?;
        row.unmap(id).map_err(|_| DeviceError::NotMapped(id))
    }

    /// Recomputes the present pages and the span of a node's Device zone from its devices. The caller holds the directory's lock.
    fn count_zone(&self, devices: impl Iterator<Item = DeviceRequest>, node: NodeId) {
        use crate::sync::Ordering::Relaxed;
        let (mut present, mut span) = (0, PfnRange { start: Pfn(u64::MAX), end: Pfn(0) });
        for device in devices.filter(|device| device.node == node) {
            present += device.range.count().0;
            span = PfnRange { start: span.start.min(device.range.start), end: span.end.max(device.range.end) };
        }
        let span = if present == 0 { PfnRange::default() } else { span };
        let facts = &self.zones[zone_of(node).index()].facts;
        facts.start.store(span.start.0, Relaxed);
        facts.end.store(span.end.0, Relaxed);
        facts.present.store(present, Relaxed);
    }

    /// The sections of a range and the parts of each that lie in it.
    fn sections_of(&self, range: PfnRange) -> impl Iterator<Item = (&'static DeviceSection, u64)> + use<P> {
        let (map, geometry) = (self.map, self.geometry);
        let sections = self.tables.sections;
        let shift = self.part_order.0;
        let pages = geometry.section_pages().0;
        let first = map.index(range.start) as u64 / pages * pages;
        (first..map.index(range.start) as u64 + range.count().0).step_by(pages as usize).filter_map(move |at| {
            let begin = at.max(u64::from(map.index(range.start)));
            let end = (at + pages).min(u64::from(map.index(range.start)) + range.count().0);
            let bits = (begin >> shift..end >> shift).fold(0, |bits, part| bits | 1 << (part & 63));
            Some((sections.get(map.section_number(at as usize))?, bits))
        })
    }
}

fn info(id: DeviceId, row: &DeviceRow, plan: &Plan) -> Option<DeviceInfo> {
    let users = row.users();
    if matches!(users.state(), DeviceState::Free | DeviceState::Building) {
        return None;
    }
    let DeviceRequest { range, node, order, layout, placement } = plan.request;
    let (structures, map_bytes) = (plan.structures(), plan.map_bytes());
    let mappings = users.mappings();
    Some(DeviceInfo { id, range, data: plan.data, node, order, layout, placement, structures, map_bytes, mappings })
}
