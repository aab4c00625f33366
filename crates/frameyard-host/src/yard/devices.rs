//! Devices of a [`HostYard`].

use std::sync::Arc;

use frameyard::devices::{DeviceError, DeviceId, DeviceRequest, Removal};
use frameyard::views::YardDevices;
use frameyard::{Pfn, PfnRange, Yard};

use super::HostYard;
use crate::device::{AddDeviceError, DeviceMemory};
use crate::device_problem::HostDeviceError;
use crate::platform::HostPlatform;

/// Devices.
impl HostYard {
    /// The devices of the yard. To map one or split its pages, call the methods here, whose errors also say why the
    /// host has refused.
    #[inline(always)]
    pub fn devices(&self) -> YardDevices<'_, HostPlatform> {
        self.core().devices()
    }

    /// Gives the frames of a range in the room for devices the bytes of a device ([`HostPlatform::add_device`]).
    ///
    /// # Errors
    ///
    /// [`AddDeviceError`]; nothing has changed then.
    pub fn add_device(&self, range: PfnRange, memory: Arc<DeviceMemory>) -> Result<(), AddDeviceError> {
        self.platform().add_device(range, memory)
    }

    /// Maps a device as [`YardDevices::map`](frameyard::views::YardDevices::map) does. If the host has no memory for
    /// the page structures, the error also says why.
    ///
    /// The frames need no bytes to be mapped. [`add_device`](Self::add_device) provides some.
    ///
    /// # Errors
    ///
    /// [`HostDeviceError`]; nothing has changed then.
    pub fn map_device(&self, request: DeviceRequest) -> Result<DeviceId, HostDeviceError> {
        self.explained(|yard| yard.devices().map(request))
    }

    /// Unmaps a device as [`YardDevices::unmap`](frameyard::views::YardDevices::unmap) does, but compiled in this
    /// crate, so that it is fast even if your program is built without optimisation.
    ///
    /// # Errors
    ///
    /// [`DeviceError`]; the device stays mapped then.
    pub fn unmap_device(&self, device: DeviceId, removal: Removal) -> Result<(), DeviceError> {
        self.core().devices().unmap(device, removal)
    }

    /// Splits a compound page of a device as [`YardDevices::split`](frameyard::views::YardDevices::split) does. If the
    /// host has no memory for the page structures of the parts, the error also says why.
    ///
    /// # Errors
    ///
    /// [`HostDeviceError`]; nothing has changed then.
    pub fn split_device_page(&self, head: Pfn) -> Result<(), HostDeviceError> {
        self.explained(|yard| yard.devices().split(head))
    }

    /// Calls `act` and adds the platform's reason to an error about missing memory for page structures.
    fn explained<T>(
        &self,
        act: impl FnOnce(&Yard<HostPlatform>) -> Result<T, DeviceError>,
    ) -> Result<T, HostDeviceError> {
        // Discards the reason of an earlier failure.
        self.platform().take_map_problem();
        act(self.core()).map_err(|error| match error {
            DeviceError::NoMapMemory(_) | DeviceError::NoMapInDevice(_) => match self.platform().take_map_problem() {
                Some(problem) => HostDeviceError::Map { error, problem },
                None => HostDeviceError::Yard(error),
            },
            _ => HostDeviceError::Yard(error),
        })
    }

    /// Removes a device that was [added](Self::add_device) for these frames.
    ///
    /// The device must not be mapped in the yard; while pages of it are in use, it stays mapped. In a shared yard,
    /// every process has its own devices.
    ///
    /// # Errors
    ///
    /// [`AddDeviceError::Mapped`] if a device of the yard has some of the frames, [`AddDeviceError::NotThere`] if no
    /// device was added for exactly these.
    pub fn remove_device(&self, range: PfnRange) -> Result<Arc<DeviceMemory>, AddDeviceError> {
        // Removes first and checks afterwards: a thread that maps the device meanwhile finds no bytes.
        let memory = self.platform().remove_device(range)?;
        let mapped = self.devices().list().find(|device| !device.range.intersection(range).is_empty());
        match mapped {
            Some(device) => {
                self.platform().add_device(range, memory)?;
                Err(AddDeviceError::Mapped { range: device.range })
            }
            None => Ok(memory),
        }
    }
}
