//! Page maps of device memory: ranges of frames beside memory that get page structures, as compound pages or base
//! pages.
//!
//! A device is a range of frames in the device space of a yard. Mapping it writes the page structures of its layout, in
//! parallel; then two words of each section lead from any frame to the page that counts its users. [`MapLayout`] has
//! three layouts:
//!
//! | layout | page structures per compound page | map pages that remain, of 2 MiB / 1 GiB | can split |
//! |---|---|---|---|
//! | full | one per frame | 8 / 4096 | yes |
//! | deduplicated (HVO) | one per frame, all tails in one shared page of zeroes | 1 / 1 | yes |
//! | folded | one | none of its own | no |
//!
//! `PageMap` is the internal view. `section` leads from a frame to its page, `directory` is the table of devices,
//! `plan` computes the part of the map that a device takes, `build` and `remove` map and unmap devices, `split` splits
//! and joins compound pages, and [`DevicePage`] is a page that a look-up found.
//!
//! # The map of the device space
//!
//! The page structures of the device space are mapped, readable and zero until a device writes them. So a look-up may
//! read the page that it found however late. The only writes are
//!
//! - by the CPU that maps or removes a device, to the structures that exist in its layout;
//! - by the CPU that splits or joins a compound page, which holds it exclusively;
//! - to counts and owner's words, by a CPU that found the count of references above zero. For a part of a split page it
//!   also holds a reference to the head. The count of a tail of an unsplit page is zero, so tails are never written.
//!
//! # Protocol
//!
//! A page of a device has one reference of the device's own from the start (as the kernel's `ZONE_DEVICE` pages), so a
//! count of zero means *frozen, or no page*. A CPU that changes what a page is freezes it: it takes the count from one
//! to zero, which fails where the page has other references. It holds the page exclusively until it stores a count
//! again.
//!
//! - **Look-up** (`PageMap::page`): section entry (Acquire), head by natural alignment, the head's tag. No write, no
//!   lock.
//! - **Get** ([`DevicePage::try_get`]): add references on the head if its count is above zero, then read tag and
//!   section entry again; if they have changed, give the references back. In a split compound page: first one reference
//!   on the head, then those on the frame's own page, then give the head's back. A join freezes the head first, so no
//!   get reaches a part that is about to become a tail. Between reading a count and the exchange everything may change,
//!   and the exchange fails. It is a write all the same: where the page of the map can have become read-only, the
//!   platform is told of gets and waits for those in flight ([`MapBacking::begin_get`](crate::platform::MapBacking::begin_get)).
//! - **Split**: freeze the head; back the parts' map pages; write tag and count of the parts; change the head's tag to
//!   one frame; thaw.
//! - **Join**: freeze the head, then every part; zero the parts and return their map pages; change the head's tag to
//!   the whole; thaw.
//! - **Remove**: close the device to mappings, splits and joins; freeze every head and part, or thaw all again;
//!   withdraw the sections; zero the structures.
//!
//! A page that a look-up found may be gone at once, as any page found by number. A reference keeps it.
//!
//! # Cost
//!
//! A look-up reads one line of the section table, and the line of the page that it finds. The code is the same in all
//! layouts, without a branch that depends on the layout: three loads and two comparisons from the frame to its section
//! and the bit of its sub-section, then 14 instructions to the address of the page (three shifts, their counts, an
//! addition, and the shift by the size of a page), of which folding costs three; about 45 with the checks of the tag,
//! on x86-64. Getting references costs one exchange on the page's line, and three loads more.

use crate::memmap::MemMap;
use crate::page::{FrameState, PageRef};
use crate::platform::Platform;
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

/// The device memory of a yard, and what is needed to work on it.
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

impl<P> Clone for PageMap<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for PageMap<'_, P> {}

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

    /// The page that counts the users of a frame, if a device has the frame. Any frame number may be asked for.
    #[inline(always)]
    pub(crate) fn page(&self, pfn: Pfn) -> Option<DevicePage<'a, P>> {
        let place = self.map.place(pfn);
        let section = self.tables.sections.get(self.map.section_number(place))?;
        let part = self.part_of(place);
        let entry = section.look_up(part)?;
        let head = entry.head(pfn);
        // SAFETY: the code that mapped the device computed the entry, or `attach` checked it, such that all places of its
        // heads lie in the map; the bit of the part says that they are in memory.
        let page = unsafe { self.map.page_at(entry.place(head), head, self.platform) };
        DevicePage::found(page, pfn, (section, entry, part), self.map)
    }

    /// The page structure of a frame that has one of its own.
    fn own_page(&self, pfn: Pfn) -> PageRef<'a, P> {
        self.map.page(pfn, self.platform)
    }

    /// The page structure of a compound page of a device.
    fn head_page(&self, plan: &Plan, number: u64) -> PageRef<'a, P> {
        let place = self.map.index(plan.place_of(number));
        // SAFETY: a plan places its heads in the map, and the caller has backed the place.
        unsafe { self.map.page_at(place, plan.head(number), self.platform) }
    }

    fn directory(&self) -> Option<&'static DeviceDirectory> {
        self.tables.directories.first()
    }

    /// All devices, by number.
    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceInfo> + use<P> {
        let geometry = self.geometry;
        let rows = self.directory().into_iter().flat_map(DeviceDirectory::rows);
        rows.filter_map(move |(id, row)| info(id, row, &row.request()?, geometry))
    }

    /// The device that has a frame.
    pub(crate) fn device_at(&self, pfn: Pfn) -> Option<DeviceInfo> {
        let (id, row, request) = self.directory()?.row_of(pfn)?;
        info(id, row, &request, self.geometry)
    }

    /// The device that has a frame, to be used.
    fn device_of(&self, pfn: Pfn) -> Result<(DeviceId, &'static DeviceRow, Plan), DeviceError> {
        let found = self.directory().and_then(|directory| directory.row_of(pfn));
        let (id, row, request) = found.ok_or(DeviceError::NotDevice(pfn))?;
        let plan = Plan::of(request, self.geometry)?;
        if plan.data.contains(pfn) { Ok((id, row, plan)) } else { Err(DeviceError::NotDevice(pfn)) }
    }

    /// Counts an entry of page tables that maps a frame.
    pub(crate) fn add_mapping(&self, pfn: Pfn) -> Result<(), DeviceError> {
        let (id, row, _) = self.device_of(pfn)?;
        row.map().map_err(|_| DeviceError::Busy(id))
    }

    /// Takes an entry of page tables back.
    pub(crate) fn remove_mapping(&self, pfn: Pfn) -> Result<(), DeviceError> {
        let (id, row, _) = self.device_of(pfn)?;
        row.unmap().map_err(|_| DeviceError::NotMapped(id))
    }

    /// Makes present pages and span of a node's Device zone what its devices make them. The directory is locked.
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
        (first..map.index(range.start) as u64 + range.count().0).step_by(pages as usize).map(move |at| {
            let begin = at.max(u64::from(map.index(range.start)));
            let end = (at + pages).min(u64::from(map.index(range.start)) + range.count().0);
            let bits = (begin >> shift..end >> shift).fold(0, |bits, part| bits | 1 << (part & 63));
            (&sections[map.section_number(at as usize)], bits)
        })
    }
}

fn info(id: DeviceId, row: &DeviceRow, request: &DeviceRequest, geometry: Geometry) -> Option<DeviceInfo> {
    let plan = Plan::of(*request, geometry).ok()?;
    let users = row.users();
    if matches!(users.state(), DeviceState::Free | DeviceState::Building) {
        return None;
    }
    let DeviceRequest { range, node, order, layout, placement } = *request;
    let (structures, map_bytes) = (plan.structures(), plan.map_bytes());
    let mappings = users.mappings();
    Some(DeviceInfo { id, range, data: plan.data, node, order, layout, placement, structures, map_bytes, mappings })
}
