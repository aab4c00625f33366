//! Why a machine cannot be booted here.

use std::fmt;

use frameyard::ByteSize;
use frameyard::boot::{BootError, InitError};
use frameyard::memblock::MemblockError;
use frameyard_host::{HostYardError, MemoryError, SharedFileError};

use crate::Failure;
use crate::machine::Machine;
use crate::output::RoundedSize;

/// Why a machine cannot be booted here.
#[derive(Debug)]
pub(crate) enum BootFailure {
    /// The early memory map refuses the machine's memory.
    EarlyMap(MemblockError),
    /// Memory, CPUs or options make no yard.
    Boot(BootError),
    /// The frames are larger than the memory that the host, or one of its nodes, grants.
    LargerThanHost {
        /// What the frames need.
        frames: ByteSize,
        /// What is granted.
        usable: ByteSize,
        /// The addresses of the memory map.
        map: ByteSize,
    },
    /// The host lacks memory even for the part of the memory map that boot writes.
    MapLargerThanHost {
        /// The addresses of memory map and control region.
        tables: ByteSize,
        /// The part that boot would write to.
        touched: ByteSize,
        /// What the host has available.
        available: ByteSize,
    },
    /// The memory map is larger than the limit without `--full`.
    NeedsFull {
        /// The part of the map that would be written.
        map: ByteSize,
        /// The limit.
        limit: ByteSize,
    },
    /// Initialising the rest of the memory map failed.
    Init(InitError),
    /// The process has too few addresses left.
    AddressSpace {
        /// The addresses needed in one piece.
        span: ByteSize,
        /// Those of the memory map.
        map: ByteSize,
    },
    /// The host refuses for another reason.
    Host(HostYardError),
}

impl BootFailure {
    /// The error of making a yard whose map has that size.
    pub(super) fn of_yard(error: HostYardError, map: ByteSize) -> Self {
        match error {
            HostYardError::Boot(error) => Self::Boot(error),
            HostYardError::File(SharedFileError::Memory(error)) => Self::of_yard(HostYardError::Memory(error), map),
            HostYardError::Memory(MemoryError::LargerThanHost { needed, usable }) => {
                Self::LargerThanHost { frames: needed, usable, map }
            }
            HostYardError::Memory(MemoryError::LargerThanHostNode { needed, memory, .. }) => {
                Self::LargerThanHost { frames: needed, usable: memory, map }
            }
            HostYardError::Memory(MemoryError::AddressSpace { span }) => Self::AddressSpace { span, map },
            other => Self::Host(other),
        }
    }

    /// Whether phantom frames might help.
    pub(super) fn is_about_frames(&self) -> bool {
        matches!(self, Self::LargerThanHost { .. } | Self::AddressSpace { .. })
    }

    /// The failure, in a line that begins with the machine. A machine that is too large is bad input.
    pub(super) fn of(self, machine: &Machine) -> Failure {
        let line = format!("{}: {self}", machine.name);
        match self {
            Self::Host(_) | Self::Init(_) => Failure::run_time(line),
            Self::Boot(error) if error.is_at_run_time() => Failure::run_time(line),
            _ => Failure::input(line),
        }
    }
}

impl fmt::Display for BootFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EarlyMap(error) => error.fmt(f),
            Self::Boot(error) => error.fmt(f),
            Self::LargerThanHost { frames, usable, map } => write!(
                f,
                "has {} of memory and this host grants {}; its memory map would need {}: scale it with --memory, or boot the map alone with --phantom",
                RoundedSize(*frames),
                RoundedSize(*usable),
                RoundedSize(*map)
            ),
            Self::MapLargerThanHost { tables, touched, available } => write!(
                f,
                "its memory map and tables need {}, of which boot writes {}, and this host has {} available: scale the machine with --memory",
                RoundedSize(*tables),
                RoundedSize(*touched),
                RoundedSize(*available)
            ),
            Self::NeedsFull { map, limit } => write!(
                f,
                "its memory map would be written in full, {}: for more than {} ask with --full, scale the machine with --memory, or choose --init lazy",
                RoundedSize(*map),
                RoundedSize(*limit)
            ),
            Self::Init(error) => error.fmt(f),
            Self::AddressSpace { span, map } => write!(
                f,
                "needs {} of addresses in one piece, more than this process has left; its memory map needs {}: scale it with --memory, or boot the map alone with --phantom",
                RoundedSize(*span),
                RoundedSize(*map)
            ),
            Self::Host(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BootFailure {}
