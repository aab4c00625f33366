//! What can go wrong with device memory.

use super::{DeviceId, MapLayout};
use crate::page::MapContent;
use crate::units::{ByteSize, NodeId, Order, PageCount, Pfn, PfnRange, messages};

/// Why nothing was done with a device. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeviceError {
    /// The range has no frame.
    Empty,
    /// The range does not begin and end where it may.
    Unaligned {
        /// The range asked for.
        range: PfnRange,
        /// Both ends must be multiples of this number of frames.
        unit: PageCount,
        /// The nearest range that will do: the largest inside, or the smallest around where there is none inside.
        nearest: PfnRange,
    },
    /// The range reaches out of the frames reserved for devices.
    OutsideDeviceSpace {
        /// The range asked for.
        range: PfnRange,
        /// The reserved frames; empty where there are none.
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
    /// An order that compound pages of devices cannot have.
    OrderTooLarge {
        /// The order asked for.
        order: Order,
        /// The largest that can be.
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
    /// The page structures would take all of the device.
    NoRoom {
        /// The range asked for.
        range: PfnRange,
        /// What its page structures take.
        map: ByteSize,
    },
    /// The yard's pages are to hold something, and this layout counts on pages that hold nothing.
    ContentNotZero {
        /// The layout asked for.
        layout: MapLayout,
        /// What the yard's pages hold.
        content: MapContent,
    },
    /// A worker panicked while it wrote page structures.
    WorkerPanicked,
    /// There is no device with that number.
    NoSuchDevice(DeviceId),
    /// Pages of the device have users beside the device itself.
    InUse {
        /// How many references they hold.
        references: u64,
        /// Of how many pages.
        pages: u64,
        /// The first of those.
        first: Pfn,
    },
    /// Entries of page tables map the device.
    Mapped {
        /// The device.
        device: DeviceId,
        /// How many.
        mappings: u64,
    },
    /// Another CPU splits or joins pages of the device, or removes it.
    Busy(DeviceId),
    /// The frame is no device's.
    NotDevice(Pfn),
    /// No compound page begins at the frame.
    NotHead {
        /// The frame.
        pfn: Pfn,
        /// Where its compound page begins.
        head: Pfn,
    },
    /// The device has base pages: there is nothing to split or to join.
    BasePages(Pfn),
    /// The device has no page structures for parts of its compound pages.
    LayoutCannotSplit(Pfn),
    /// The compound page is split already.
    IsSplit(Pfn),
    /// The compound page is not split.
    NotSplit(Pfn),
    /// No entry of page tables is counted that could be taken back.
    NotMapped(DeviceId),
}

messages!(DeviceError {
    Self::Empty => "the range is empty: a device has at least one page",
    Self::Unaligned { range, unit: PageCount(unit), nearest } =>
        "{range} must begin and end at multiples of {unit} frames: {nearest} is the nearest",
    Self::OutsideDeviceSpace { range, space } if space.is_empty() =>
        "{range}: the yard has no frames for devices; its device space must be set when it is created",
    Self::OutsideDeviceSpace { range, space } => "{range} is outside the frames for devices: they are {space}",
    Self::IsMemory { range, memory } => "{range} has memory in it, {memory}: devices lie beside memory",
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
        "{references} references to {pages} pages are in use, the first at {first}: they must be given back first",
    Self::Mapped { device, mappings } => "{mappings} entries of page tables map {device}: they must be cleared first",
    Self::Busy(device) => "another CPU splits or joins pages of {device}, or removes it: try again",
    Self::NotDevice(pfn) => "{pfn} is no device's",
    Self::NotHead { pfn, head } => "no compound page begins at {pfn}: its own begins at {head}",
    Self::BasePages(pfn) => "{pfn} is a base page: its device has no compound pages",
    Self::LayoutCannotSplit(pfn) =>
        "the compound page at {pfn} has one page structure (folded): only full and deduplicated can split",
    Self::IsSplit(pfn) => "the compound page at {pfn} is split already",
    Self::NotSplit(pfn) => "the compound page at {pfn} is not split",
    Self::NotMapped(device) => "no entry of page tables maps {device}: more were taken back",
});
