//! Device memory: page maps for ranges of frames beside memory.

use crate::devices::{DeviceError, DeviceId, DeviceInfo, DevicePage, DeviceRequest, PageMap, Removal};
use crate::platform::Platform;
use crate::units::{NodeId, Order, Pfn, PfnRange};
use crate::yard::{Yard, YardDevices};

impl<P: Platform> Yard<P> {
    #[inline(always)]
    pub(crate) fn page_map(&self) -> PageMap<'_, P> {
        PageMap {
            map: self.map,
            tables: self.tables.devices(),
            geometry: self.geometry,
            space: self.device_space,
            part_order: self.device_part,
            zones: self.tables.zones,
            platform: &self.platform,
        }
    }

    /// How many threads work for a node at most.
    fn threads_of(&self, node: NodeId) -> usize {
        (self.tables.cpus_of(node) as usize).max(1)
    }
}

impl<'y, P: Platform> YardDevices<'y, P> {
    /// The frames reserved for devices ([`YardConfig::device_space`](crate::YardConfig::device_space)); empty where
    /// there are none.
    pub fn space(self) -> PfnRange {
        self.yard.device_space
    }

    /// The alignment of both ends of a device with compound pages of that order: the order itself, or a sub-section if
    /// that is larger. A sub-section is a pageblock (2 MiB, as in the kernel) or a 64th of a section, whichever is
    /// larger.
    pub fn unit(self, order: Order) -> Order {
        order.max(self.yard.device_part)
    }

    /// Gives page structures to a range of device memory, in the Device zone of a node (as the kernel's
    /// `memremap_pages` does).
    ///
    /// Writes only the page structures that exist in the layout, with streaming stores where they are contiguous. The
    /// work is shared by at most as many workers as the node has CPUs ([`Platform::run_workers`]), and each calls
    /// [`MemoryBacking::back_map`](crate::platform::MemoryBacking::back_map) for the parts that it writes. Then the sections
    /// of the range are published, and look-ups find the pages. Each page has one reference, the device's own.
    ///
    /// A yard whose map has kernel-like content supports only the full layout, because in such a map tails are not
    /// zero: all page structures carry their identity, as those of ordinary memory do.
    ///
    /// Holds the lock of the table of devices while it claims a row and while it publishes sections (two words for
    /// each), but never while it writes page structures.
    ///
    /// # Errors
    ///
    /// [`DeviceError`]; nothing has changed then.
    pub fn map(self, request: DeviceRequest) -> Result<DeviceId, DeviceError> {
        let yard = self.yard;
        let memory = yard.tables.ranges_in(request.range).next().map(|(range, _)| range);
        let memory = memory.filter(|_| request.range.start < request.range.end);
        yard.page_map().map_device(request, memory, yard.threads_of(request.node))
    }

    /// Unmaps a device: removes its page structures.
    ///
    /// 1. The device is closed: its pages can no longer be split or joined, and page tables can no longer map them.
    /// 2. Every page is frozen, by one exchange on each head. If any page has users, all pages are unfrozen again, and
    ///    the error reports the number of references, the number of pages that have them, and the first such page.
    /// 3. The sections no longer lead to the device. The page structures are zeroed, and the platform may take their
    ///    memory back ([`MemoryBacking::return_map`](crate::platform::MemoryBacking::return_map)).
    ///
    /// Uses as many workers as [`map`](Self::map).
    ///
    /// # Errors
    ///
    /// [`DeviceError::InUse`], [`DeviceError::Mapped`] or [`DeviceError::Busy`] if the device is in use; `removal` says
    /// whether the call fails at once or waits first, with a bound. [`DeviceError::NoSuchDevice`] if there is no such
    /// device. Nothing has changed then.
    pub fn unmap(self, device: DeviceId, removal: Removal) -> Result<(), DeviceError> {
        let yard = self.yard;
        let map = yard.page_map();
        let node = map.devices().find(|info| info.id == device).map_or(NodeId(0), |info| info.node);
        map.unmap_device(device, removal, yard.threads_of(node))
    }

    /// All devices, ordered by number, without those that are still being mapped.
    pub fn list(self) -> impl Iterator<Item = DeviceInfo> {
        self.yard.page_map().devices()
    }

    /// The device that a frame belongs to. Any frame number is allowed. Reads the rows of the table of devices.
    pub fn at(self, pfn: Pfn) -> Option<DeviceInfo> {
        self.yard.page_map().device_at(pfn)
    }

    /// The page that counts the users of a device's frame; `None` if the frame belongs to no device, or contains a
    /// device's own page structures. Any frame number is allowed at any time, without a lock.
    ///
    /// This is the head of the compound page, or the frame's own page if the device has base pages or the compound page
    /// is split. The result may be out of date at once; [`DevicePage::try_get`] keeps the page in place.
    ///
    /// Cost: one cache line of the table of sections and that of the head. All layouts execute the same instructions.
    #[inline]
    pub fn page(self, pfn: Pfn) -> Option<DevicePage<'y, P>> {
        self.yard.page_map().page(pfn)
    }

    /// Counts a page-table entry that maps a frame of a device. While any are counted, the device cannot be removed.
    /// One entry that maps a whole compound page counts once.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotDevice`] if the frame belongs to no device; [`DeviceError::Busy`] if the device is being
    /// removed.
    pub fn add_mapping(self, pfn: Pfn) -> Result<(), DeviceError> {
        self.yard.page_map().add_mapping(pfn)
    }

    /// Takes back a page-table entry that was counted.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotDevice`] if the frame belongs to no device; [`DeviceError::NotMapped`] if no entry is counted.
    pub fn remove_mapping(self, pfn: Pfn) -> Result<(), DeviceError> {
        self.yard.page_map().remove_mapping(pfn)
    }

    /// Splits the compound page of a device that begins at `head` into base pages. Each of them has one reference, the
    /// device's own.
    ///
    /// In the deduplicated layout, the call first asks for memory for the page structures of the parts
    /// ([`MemoryBacking::back_map`](crate::platform::MemoryBacking::back_map)). This is ordinary memory, wherever the
    /// device's other page structures are.
    ///
    /// # Errors
    ///
    /// [`DeviceError`]: there is no such page, it is split already, it has users, or its layout has no page structures
    /// for parts. Nothing has changed then.
    pub fn split(self, head: Pfn) -> Result<(), DeviceError> {
        self.yard.page_map().split(head)
    }

    /// Joins the base pages of a compound page that was split. Their page structures are zeroed. In the deduplicated
    /// layout, the memory of these structures goes back to the platform
    /// ([`MemoryBacking::return_map`](crate::platform::MemoryBacking::return_map)).
    ///
    /// # Errors
    ///
    /// [`DeviceError`]: there is no such page, it is not split, or one of its parts has users. Nothing has changed
    /// then.
    pub fn join(self, head: Pfn) -> Result<(), DeviceError> {
        self.yard.page_map().join(head)
    }
}
