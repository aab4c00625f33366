//! Requests to a session and its answers: a line of JSON each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Failure;

/// A request.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) enum Request {
    /// Create a device.
    Create(CreateOrder),
    /// List the devices.
    List,
    /// Destroy these devices, or all.
    Destroy(Option<Vec<u16>>),
}

/// A device to create, in the words of the command line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct CreateOrder {
    pub(super) size: Option<u64>,
    pub(super) align: String,
    pub(super) map: String,
    pub(super) layout: String,
    pub(super) file: Option<PathBuf>,
    pub(super) phantom: bool,
}

/// An answer.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(super) enum Answer {
    /// The devices that were created, listed or destroyed.
    Devices(Vec<DeviceRow>),
    /// Nothing was done.
    Refused {
        /// Whether the request was bad input.
        is_input: bool,
        /// Why.
        reason: String,
    },
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        Self::Refused { is_input: matches!(failure, Failure::Input(_)), reason: failure.to_string() }
    }
}

/// A device and what its page structures cost.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct DeviceRow {
    pub(super) device: u16,
    pub(super) size_bytes: u64,
    pub(super) align_bytes: u64,
    pub(super) first_pfn: u64,
    /// Without the part of the device that its map takes.
    pub(super) data_bytes: u64,
    pub(super) map: String,
    pub(super) layout: String,
    pub(super) structures: u64,
    pub(super) map_bytes_equation: u64,
    /// Proportional size of the map's addresses; `None` for destroyed devices.
    pub(super) map_bytes_resident: Option<u64>,
    /// Map bytes of the layout `full`.
    pub(super) map_bytes_full: u64,
    /// Of the map's addresses, in the session.
    pub(super) mappings: Option<u64>,
    /// Entries of page tables that map the device.
    pub(super) page_table_entries: u64,
    pub(super) bring_up_ns: u64,
    pub(super) remove_ns: Option<u64>,
    pub(super) backing: String,
    pub(super) path: Option<String>,
}
