//! The devices of a platform, by frames.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use frameyard::{ByteSize, PageCount, Pfn, PfnRange};

use super::{AddDeviceError, DeviceMemory};

/// A range of frames and the device with their bytes.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFrames {
    pub(crate) range: PfnRange,
    pub(crate) memory: Arc<DeviceMemory>,
}

/// The devices of a platform, ascending and without overlap.
#[derive(Debug)]
pub(crate) struct DeviceTable {
    page_shift: u8,
    /// Whether a device was ever added. While none was, look-ups take no lock.
    any: AtomicBool,
    devices: RwLock<Vec<DeviceFrames>>,
}

impl DeviceTable {
    pub(crate) fn new(page_shift: u8) -> Self {
        Self { page_shift, any: AtomicBool::new(false), devices: RwLock::default() }
    }

    /// Adds a device. Its frames have no bytes elsewhere.
    pub(crate) fn add(&self, range: PfnRange, memory: Arc<DeviceMemory>) -> Result<(), AddDeviceError> {
        let frames = PageCount(memory.size().0 >> self.page_shift);
        if frames != range.count() || frames.0 << self.page_shift != memory.size().0 {
            return Err(AddDeviceError::OtherSize { range, frames });
        }
        let mut devices = self.write();
        let overlaps = |other: &&DeviceFrames| !other.range.intersection(range).is_empty();
        if let Some(other) = devices.iter().find(overlaps) {
            return Err(AddDeviceError::Taken { range, by: other.range });
        }
        let place = devices.partition_point(|other| other.range.start < range.start);
        devices.insert(place, DeviceFrames { range, memory });
        // Relaxed: the flag only saves the lock. A thread that knows of the device has synchronised with this one.
        self.any.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes the device of exactly these frames.
    pub(crate) fn remove(&self, range: PfnRange) -> Result<Arc<DeviceMemory>, AddDeviceError> {
        let mut devices = self.write();
        let place = devices.iter().position(|other| other.range == range).ok_or(AddDeviceError::NotThere(range))?;
        Ok(devices.remove(place).memory)
    }

    /// The address of the bytes of a device's frame. Out of line, since most frames belong to no device.
    #[cold]
    #[inline(never)]
    pub(crate) fn frame(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let devices = self.read();
        let device = find(&devices, pfn)?;
        device.memory.address(self.offset(device, pfn))
    }

    /// The device with a frame.
    pub(crate) fn of(&self, pfn: Pfn) -> Option<DeviceFrames> {
        find(&self.read(), pfn).cloned()
    }

    /// All devices, ascending.
    pub(crate) fn all(&self) -> Vec<DeviceFrames> {
        self.read().clone()
    }

    /// The offset of a frame in its device.
    pub(crate) fn offset(&self, device: &DeviceFrames, pfn: Pfn) -> ByteSize {
        ByteSize((pfn - device.range.start).0 << self.page_shift)
    }

    /// A panic of an earlier holder leaves a complete table behind.
    fn read(&self) -> RwLockReadGuard<'_, Vec<DeviceFrames>> {
        self.devices.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<DeviceFrames>> {
        self.devices.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(devices: &[DeviceFrames], pfn: Pfn) -> Option<&DeviceFrames> {
    let index = devices.partition_point(|device| device.range.end <= pfn);
    devices.get(index).filter(|device| device.range.start <= pfn)
}
