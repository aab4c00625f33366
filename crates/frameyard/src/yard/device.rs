//! Device memory: page maps for ranges of frames beside memory.

use super::Yard;
use crate::devices::{DeviceError, DeviceId, DeviceInfo, DevicePage, DeviceRequest, PageMap, Removal};
use crate::platform::Platform;
use crate::units::{NodeId, Order, Pfn, PfnRange};

impl<P: Platform> Yard<P> {
    #[inline(always)]
    pub(super) fn page_map(&self) -> PageMap<'_, P> {
        PageMap {
            map: self.map,
            tables: self.tables.devices,
            geometry: self.geometry,
            space: self.device_space,
            part_order: self.device_part,
            zones: self.tables.zones,
            platform: &self.platform,
        }
    }

    /// The frames set aside for devices ([`YardConfig::device_space`](crate::YardConfig::device_space)); empty where there are
    /// none.
    pub fn device_space(&self) -> PfnRange {
        self.device_space
    }

    /// The ends of a device with compound pages of that order are multiples of this: the order itself, or the yard's
    /// sub-section where that is larger: a pageblock (the kernel's 2 MiB), or a 64th of a section.
    pub fn device_unit(&self, order: Order) -> Order {
        order.max(self.device_part)
    }

    /// How many threads work for a node at most.
    fn threads_of(&self, node: NodeId) -> usize {
        (self.tables.cpus_of(node) as usize).max(1)
    }

    /// Gives a range of device memory page structures, in the Device zone of a node (the role of the kernel's
    /// `memremap_pages`).
    ///
    /// Writes the structures that exist in the layout alone, with streaming stores where they lie together, by as many
    /// workers as the node has CPUs at most ([`Platform::run_workers`]), each after [`MapBacking::back_map`] for the parts
    /// that it writes. Then the range's sections lead there, and everybody finds the pages. Each page has one reference,
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
    pub fn map_device(&self, request: DeviceRequest) -> Result<DeviceId, DeviceError> {
        let memory = self.tables.ranges_in(request.range).next().map(|(range, _)| range);
        let memory = memory.filter(|_| request.range.start < request.range.end);
        self.page_map().map_device(request, memory, self.threads_of(request.node))
    }

    /// Takes a device's page structures away.
    ///
    /// From its begin on no page of the device is split or joined and no entry of page tables maps it anew. Every page is
    /// frozen, which costs an exchange on each head's line; where one has users beside the device, all are thawed, and
    /// the error says how many references there are, to how many pages, and to which first. Then no section leads there any
    /// more, the structures are zeroed, and the platform may have their memory back ([`MapBacking::return_map`]). All that by
    /// as many workers as [`map_device`](Self::map_device) has.
    ///
    /// # Errors
    ///
    /// [`DeviceError::InUse`], [`DeviceError::Mapped`] or [`DeviceError::Busy`] where somebody uses the device, at once or
    /// after a bounded wait as `removal` says; [`DeviceError::NoSuchDevice`]. The device is as it was then.
    pub fn unmap_device(&self, device: DeviceId, removal: Removal) -> Result<(), DeviceError> {
        let map = self.page_map();
        let node = map.devices().find(|info| info.id == device).map_or(NodeId(0), |info| info.node);
        map.unmap_device(device, removal, self.threads_of(node))
    }

    /// All devices, by number. Those that are just being mapped are left out.
    pub fn devices(&self) -> impl Iterator<Item = DeviceInfo> {
        self.page_map().devices()
    }

    /// The device that has a frame. Any frame number may be asked for. Reads the rows of the table of devices.
    pub fn device_at(&self, pfn: Pfn) -> Option<DeviceInfo> {
        self.page_map().device_at(pfn)
    }

    /// The page that counts the users of a frame of a device; `None` where no device has the frame (or its map has it). Any
    /// frame number may be asked for, at any time, without a lock.
    ///
    /// It is the head of the compound page, or the frame's own page where the device has base pages or the compound page
    /// is split. What is found may change at once: [`DevicePage::try_get`] makes it stay.
    ///
    /// Cost: one line of the table of sections and the head's. In all layouts the same instructions.
    #[inline]
    pub fn device_page(&self, pfn: Pfn) -> Option<DevicePage<'_, P>> {
        self.page_map().page(pfn)
    }

    /// Counts an entry of page tables that maps a frame of a device, which cannot be removed as long as there are any. An
    /// entry for a compound page is one.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotDevice`]; [`DeviceError::Busy`] where the device is being removed.
    pub fn add_device_mapping(&self, pfn: Pfn) -> Result<(), DeviceError> {
        self.page_map().add_mapping(pfn)
    }

    /// Takes an entry of page tables back that was counted.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotDevice`]; [`DeviceError::NotMapped`] where none is counted.
    pub fn remove_device_mapping(&self, pfn: Pfn) -> Result<(), DeviceError> {
        self.page_map().remove_mapping(pfn)
    }

    /// Cuts the compound page of a device that begins at a frame into base pages, each with a reference of the device's own.
    ///
    /// With shared tails, memory for the parts' structures is asked for first ([`MapBacking::back_map`]), from ordinary memory
    /// wherever the device's others lie.
    ///
    /// # Errors
    ///
    /// [`DeviceError`]: there is no such page, it is split, it has users, or its layout has no structures for parts. Nothing
    /// has changed then.
    pub fn split_device_page(&self, head: Pfn) -> Result<(), DeviceError> {
        self.page_map().split(head)
    }

    /// Joins the base pages of a compound page that was split. Their structures are zeroed, and with shared tails their memory
    /// goes back to the platform ([`MapBacking::return_map`]).
    ///
    /// # Errors
    ///
    /// [`DeviceError`]: there is no such page, it is not split, or one of its parts has users. Nothing has changed then.
    pub fn join_device_page(&self, head: Pfn) -> Result<(), DeviceError> {
        self.page_map().join(head)
    }
}
