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

    /// The ends of a device with compound pages of that order are multiples of this: the order itself, or the yard's
    /// sub-section where that is larger: a pageblock (the kernel's 2 MiB), or a 64th of a section.
    pub fn unit(self, order: Order) -> Order {
        order.max(self.yard.device_part)
    }

    /// Gives a range of device memory page structures, in the Device zone of a node (the role of the kernel's
    /// `memremap_pages`).
    ///
    /// Writes the structures that exist in the layout alone, with streaming stores where they lie together, by as many
    /// workers as the node has CPUs at most ([`Platform::run_workers`]), each after [`MapBacking::back_map`](crate::platform::MapBacking::back_map) for the parts
    /// that it writes. Then the range's sections lead there, and look-ups find the pages. Each page has one reference,
    /// the device's own.
    ///
    /// A yard of kernel-like content can have the full layout alone: tails would not be zero. There all structures carry
    /// their identity, as pages of memory do.
    ///
    /// Holds the lock of the table of devices while it claims a row and while it publishes sections, two words for each;
    /// never while structures are written.
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
    /// 2. Every page is frozen, by one exchange on each head. If a page has users, all pages are unfrozen, and the error
    ///    reports the references, the pages that have them, and the first such page.
    /// 3. No section leads to the device any more. The structures are zeroed, and the platform may take their memory
    ///    back ([`MapBacking::return_map`](crate::platform::MapBacking::return_map)).
    ///
    /// Uses as many workers as [`map`](Self::map).
    ///
    /// # Errors
    ///
    /// [`DeviceError::InUse`], [`DeviceError::Mapped`] or [`DeviceError::Busy`] where the device is in use, at once or
    /// after a bounded wait as `removal` says; [`DeviceError::NoSuchDevice`]. Nothing has changed then.
    pub fn unmap(self, device: DeviceId, removal: Removal) -> Result<(), DeviceError> {
        let yard = self.yard;
        let map = yard.page_map();
        let node = map.devices().find(|info| info.id == device).map_or(NodeId(0), |info| info.node);
        map.unmap_device(device, removal, yard.threads_of(node))
    }

    /// All devices, by number. Those that are just being mapped are left out.
    pub fn list(self) -> impl Iterator<Item = DeviceInfo> {
        self.yard.page_map().devices()
    }

    /// The device that has a frame. Any frame number may be asked for. Reads the rows of the table of devices.
    pub fn at(self, pfn: Pfn) -> Option<DeviceInfo> {
        self.yard.page_map().device_at(pfn)
    }

    /// The page that counts the users of a frame of a device; `None` where no device has the frame (or its map has it). Any
    /// frame number may be asked for, at any time, without a lock.
    ///
    /// It is the head of the compound page, or the frame's own page where the device has base pages or the compound page
    /// is split. What is found may change at once: [`DevicePage::try_get`] makes it stay.
    ///
    /// Cost: one line of the table of sections and the head's. In all layouts the same instructions.
    #[inline]
    pub fn page(self, pfn: Pfn) -> Option<DevicePage<'y, P>> {
        self.yard.page_map().page(pfn)
    }

    /// Counts an entry of page tables that maps a frame of a device, which cannot be removed as long as there are any. An
    /// entry for a compound page is one.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotDevice`]; [`DeviceError::Busy`] where the device is being removed.
    pub fn add_mapping(self, pfn: Pfn) -> Result<(), DeviceError> {
        self.yard.page_map().add_mapping(pfn)
    }

    /// Takes an entry of page tables back that was counted.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotDevice`]; [`DeviceError::NotMapped`] where none is counted.
    pub fn remove_mapping(self, pfn: Pfn) -> Result<(), DeviceError> {
        self.yard.page_map().remove_mapping(pfn)
    }

    /// Splits the compound page of a device that begins at a frame into base pages. Each has one reference of the
    /// device.
    ///
    /// In the deduplicated layout the call first asks for memory for the parts' structures ([`MapBacking::back_map`](crate::platform::MapBacking::back_map)).
    /// It is ordinary memory, wherever the other structures of the device lie.
    ///
    /// # Errors
    ///
    /// [`DeviceError`]: there is no such page, it is split, it has users, or its layout has no structures for parts.
    /// Nothing has changed then.
    pub fn split(self, head: Pfn) -> Result<(), DeviceError> {
        self.yard.page_map().split(head)
    }

    /// Joins the base pages of a compound page that was split. Their structures are zeroed. In the deduplicated layout
    /// their memory goes back to the platform ([`MapBacking::return_map`](crate::platform::MapBacking::return_map)).
    ///
    /// # Errors
    ///
    /// [`DeviceError`]: there is no such page, it is not split, or one of its parts has users. Nothing has changed
    /// then.
    pub fn join(self, head: Pfn) -> Result<(), DeviceError> {
        self.yard.page_map().join(head)
    }
}
