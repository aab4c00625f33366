//! Kinds of locks.

use super::LockId;
use crate::units::named;

/// What a lock guards, whichever of its kind it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockKind {
    /// [`LockId::Zone`].
    Zone,
    /// [`LockId::PerCpu`].
    PerCpu,
    /// [`LockId::CpuOwned`].
    CpuOwned,
    /// [`LockId::Lru`].
    Lru,
    /// [`LockId::LruBatch`].
    LruBatch,
    /// [`LockId::Space`].
    Space,
    /// [`LockId::PageTable`].
    PageTable,
    /// [`LockId::Objects`].
    Objects,
    /// [`LockId::File`].
    File,
    /// [`LockId::Devices`].
    Devices,
}

named!(LockKind: Zone => "zone", PerCpu => "per-cpu", CpuOwned => "cpu-owned", Lru => "lru", LruBatch => "lru-batch", Space => "space",
    PageTable => "page-table", Objects => "objects", File => "file", Devices => "devices");

impl LockId {
    /// What the lock guards.
    #[must_use]
    pub const fn kind(self) -> LockKind {
        match self {
            Self::Zone(_) => LockKind::Zone,
            Self::PerCpu(..) => LockKind::PerCpu,
            Self::CpuOwned(..) => LockKind::CpuOwned,
            Self::Lru(..) => LockKind::Lru,
            Self::LruBatch(_) => LockKind::LruBatch,
            Self::Space(_) => LockKind::Space,
            Self::PageTable(_) => LockKind::PageTable,
            Self::Objects(_) => LockKind::Objects,
            Self::File(_) => LockKind::File,
            Self::Devices => LockKind::Devices,
        }
    }
}
