//! What can go wrong with device memory.

use crate::devices::{DeviceId, MapLayout};
use crate::page::MapContent;
use crate::platform::LockError;
use crate::units::{ByteSize, NodeId, Order, PageCount, Pfn, PfnRange, messages};

/// The error of an operation on a device. The operation has changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeviceError {
    /// Another process holds a lock and does not release it, or has damaged the yard.
    Lock(LockError),
    /// The range has no frame.
    Empty,
    /// The ends of the range are not aligned.
    Unaligned {
        /// The range asked for.
        range: PfnRange,
        /// Both ends must be multiples of this number of frames.
        unit: PageCount,
        /// The nearest aligned range: the largest inside, or the smallest around if none fits inside.
        nearest: PfnRange,
    },
    /// The range is not inside the frames reserved for devices.
    OutsideDeviceSpace {
        /// The range asked for.
        range: PfnRange,
        /// The reserved frames; empty if there are none.
        space: PfnRange,
    },
    /// There is memory in the range.
    IsMemory {
        /// The range asked for.
        range: PfnRange,
        /// The first part of it that is memory.
        memory: PfnRange,
    },
    /// Another device has frames of the range.
    Overlaps {
        /// The range asked for.
        range: PfnRange,
        /// The device.
        device: DeviceId,
        /// Its range.
        with: PfnRange,
    },
    /// A section has one description, and another device in the same section needs a different one.
    MixedSection {
        /// The range asked for.
        range: PfnRange,
        /// The device in the same section.
        device: DeviceId,
        /// The order of its compound pages.
        order: Order,
        /// Its layout.
        layout: MapLayout,
    },
    /// The order is too large for compound pages of devices.
    OrderTooLarge {
        /// The order asked for.
        order: Order,
        /// The largest order.
        max: Order,
    },
    /// No such node.
    NoSuchNode(NodeId),
    /// The yard has as many devices as it can have.
    TooManyDevices(usize),
    /// There is no memory for the page structures of these frames.
    NoMapMemory(PfnRange),
    /// The platform does not place page structures in the device.
    NoMapInDevice(PfnRange),
    /// The page structures would fill the whole device.
    NoRoom {
        /// The range asked for.
        range: PfnRange,
        /// The size of its page structures.
        map: ByteSize,
    },
    /// The yard's fresh page structures are not zero, and this layout needs zero.
    ContentNotZero {
        /// The layout asked for.
        layout: MapLayout,
        /// The content of the yard's fresh page structures.
        content: MapContent,
    },
    /// A worker panicked while it wrote page structures.
    WorkerPanicked,
    /// There is no device with that number.
    NoSuchDevice(DeviceId),
    /// Pages of the device have users other than the device itself.
    InUse {
        /// The number of references.
        references: u64,
        /// The number of pages that have such references.
        pages: u64,
        /// The first of those.
        first: Pfn,
    },
    /// Page-table entries map the device.
    Mapped {
        /// The device.
        device: DeviceId,
        /// The number of entries.
        mappings: u64,
    },
    /// Another CPU is splitting or joining pages of the device, or removing it.
    Busy(DeviceId),
    /// No device has the frame.
    NotDevice(Pfn),
    /// No compound page begins at the frame.
    NotHead {
        /// The frame.
        pfn: Pfn,
        /// The first frame of its compound page.
        head: Pfn,
    },
    /// The device has base pages, which cannot be split or joined.
    BasePages(Pfn),
    /// The device has no page structures for parts of its compound pages.
    LayoutCannotSplit(Pfn),
    /// The compound page is split already.
    IsSplit(Pfn),
    /// The compound page is not split.
    NotSplit(Pfn),
    /// No page-table entry maps the device.
    NotMapped(DeviceId),
}

messages!(DeviceError {
    Self::Lock(error) => "{error}",
    Self::Empty => "the range is empty: a device has at least one page",
    Self::Unaligned { range, unit: PageCount(unit), nearest } =>
        "{range} must begin and end at multiples of {unit} frames: {nearest} is the nearest",
    Self::OutsideDeviceSpace { range, space } if space.is_empty() =>
        "{range}: the yard has no frames for devices; its device space must be set when it is created",
    Self::OutsideDeviceSpace { range, space } => "{range} is outside the frames for devices: they are {space}",
    Self::IsMemory { range, memory } => "{range} contains memory, {memory}: devices lie outside memory",
    Self::Overlaps { range, device, with } => "{range} overlaps {device} ({with}): remove that first, or choose another range",
    Self::MixedSection { range, device, order, layout } =>
        "{range} shares a section with {device}, which has {layout} pages of {order}: take the same (not folded), or another section",
    Self::OrderTooLarge { order, max } => "compound pages of {order}: at most {max}",
    Self::NoSuchNode(node) => "{node} does not exist",
    Self::TooManyDevices(max) => "the yard has {max} devices, as many as it can: remove one first",
    Self::NoMapMemory(range) => "no memory for the page structures of {range}",
    Self::NoMapInDevice(range) =>
        "the platform cannot keep the page structures of {range} in the device: place them in memory",
    Self::NoRoom { range, map } => "{range} has no room for data beside its page structures ({map}): place them in memory",
    Self::ContentNotZero { layout, content } =>
        "layout {layout} needs pages whose content is zero, and this yard's is {content}: take full",
    Self::WorkerPanicked => "a worker panicked while it wrote page structures of a device",
    Self::NoSuchDevice(device) => "{device} does not exist",
    Self::InUse { references, pages, first } =>
        "{references} references to {pages} pages are in use, the first at {first}: release them first",
    Self::Mapped { device, mappings } => "{mappings} entries of page tables map {device}: clear them first",
    Self::Busy(device) => "another CPU splits or joins pages of {device}, or removes it: try again",
    Self::NotDevice(pfn) => "no device has {pfn}",
    Self::NotHead { pfn, head } => "no compound page begins at {pfn}: its own begins at {head}",
    Self::BasePages(pfn) => "{pfn} is a base page: its device has no compound pages",
    Self::LayoutCannotSplit(pfn) =>
        "the compound page at {pfn} has one page structure (folded): only full and deduplicated can split",
    Self::IsSplit(pfn) => "the compound page at {pfn} is split already",
    Self::NotSplit(pfn) => "the compound page at {pfn} is not split",
    Self::NotMapped(device) => "no entry of page tables maps {device}: more were removed than added",
});
