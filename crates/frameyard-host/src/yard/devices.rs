//! Devices of a [`HostYard`].

use std::sync::Arc;

use frameyard::devices::{DeviceError, DeviceId, DeviceRequest};
use frameyard::{Pfn, PfnRange, Yard};

use super::{HostYard, HostYardError};
use crate::device::{AddDeviceError, DeviceMemory};
use crate::device_map::DeviceMap;
use crate::device_problem::HostDeviceError;
use crate::platform::HostPlatform;
use crate::shared::SharedMemoryFile;
use crate::sys::window::MapWindow;

impl HostYard {
    /// Maps a device as [`Yard::map_device`] does, and says why the host had no memory for its page structures where it had none.
    ///
    /// Whether the range has bytes is another matter: see [`HostPlatform::add_device`].
    ///
    /// # Errors
    ///
    /// [`HostDeviceError`]; nothing has changed then.
    pub fn map_device(&self, request: DeviceRequest) -> Result<DeviceId, HostDeviceError> {
        self.explained(|yard| yard.map_device(request))
    }

    /// Splits a compound page of a device as [`Yard::split_device_page`] does, and says why the host had no memory for the
    /// page structures of its parts where it had none.
    ///
    /// # Errors
    ///
    /// [`HostDeviceError`]; nothing has changed then.
    pub fn split_device_page(&self, head: Pfn) -> Result<(), HostDeviceError> {
        self.explained(|yard| yard.split_device_page(head))
    }

    /// Does something with devices; where memory for the map is missing, adds what the platform knows of it.
    fn explained<T>(
        &self,
        act: impl FnOnce(&Yard<HostPlatform>) -> Result<T, DeviceError>,
    ) -> Result<T, HostDeviceError> {
        // What is left of somebody else's failure.
        self.platform().take_map_problem();
        act(&self.yard).map_err(|error| match error {
            DeviceError::NoMapMemory(_) | DeviceError::NoMapInDevice(_) => match self.platform().take_map_problem() {
                Some(problem) => HostDeviceError::Map { error, problem },
                None => HostDeviceError::Yard(error),
            },
            _ => HostDeviceError::Yard(error),
        })
    }

    /// Takes a device back that the platform was [given](HostPlatform::add_device) for these frames, when it is mapped in the
    /// yard no more: who uses a page of it keeps it mapped. In a shared yard other processes have their own.
    ///
    /// # Errors
    ///
    /// [`AddDeviceError::Mapped`] where a device of the yard has some of the frames, [`AddDeviceError::NotThere`] where
    /// no device was given for exactly these.
    pub fn remove_device(&self, range: PfnRange) -> Result<Arc<DeviceMemory>, AddDeviceError> {
        // First taken away, then looked whether somebody can use it: who maps it now finds no bytes.
        let memory = self.platform().remove_device(range)?;
        let mapped = self.devices().find(|device| !device.range.intersection(range).is_empty());
        match mapped {
            Some(device) => {
                self.platform().add_device(range, memory)?;
                Err(AddDeviceError::Mapped { range: device.range })
            }
            None => Ok(memory),
        }
    }
}

/// The platform of a yard in a memory file, with a view of what the file's memory map shows of devices.
pub(super) fn with_view(
    platform: HostPlatform,
    window: Option<MapWindow>,
    file: &SharedMemoryFile,
) -> Result<HostPlatform, HostYardError> {
    let Some((window, part)) = window.zip(file.device_part()) else { return Ok(platform) };
    let window = Arc::new(window);
    let view = file.view(Arc::clone(&window), part)?;
    Ok(platform.with_device_map(Some(DeviceMap::shared(window, part, view))))
}
