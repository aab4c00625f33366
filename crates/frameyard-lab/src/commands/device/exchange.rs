//! What a session is asked, and what it answers: a line of JSON each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Failure;

/// What a session is to do.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) enum Request {
    /// Make a device.
    Create(CreateOrder),
    /// Say which devices there are.
    List,
    /// Take devices away, or all.
    Destroy(Option<Vec<u16>>),
}

/// A device to be made, in the words of the command line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct CreateOrder {
    pub(super) size: Option<u64>,
    pub(super) align: String,
    pub(super) map: String,
    pub(super) layout: String,
    pub(super) file: Option<PathBuf>,
    pub(super) phantom: bool,
}

/// What a session answers.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(super) enum Answer {
    /// The devices made, listed or taken away.
    Devices(Vec<DeviceRow>),
    /// Nothing was done.
    Refused {
        /// Whether the request can be put right by who made it.
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
    /// Without what the map takes of the device.
    pub(super) data_bytes: u64,
    pub(super) map: String,
    pub(super) layout: String,
    pub(super) structures: u64,
    pub(super) map_bytes_equation: u64,
    /// Proportional size of the map's addresses; not known of devices that are gone.
    pub(super) map_bytes_resident: Option<u64>,
    /// What the layout `full` would take.
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
