//! The table of devices.
//!
//! A CPU claims a row under the directory's lock and owns it until it releases the row. It writes the shape of the device last and
//! clears it first, so a reader without the lock sees all of one device or none.
//!
//! The users word of a device decides which operations are allowed: one exchange checks the state and enters.

use super::{DeviceError, DeviceId, DeviceRequest, MapLayout, MapPlacement, Removal};
use crate::locks::LockLine;
use crate::platform::{LockId, Platform};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{NodeId, Order, Pfn, PfnRange};

/// The most devices of a yard. (Fewer in models, where every word costs time.)
pub(crate) const MAX_DEVICES: usize = if cfg!(loom) { 2 } else { 64 };

/// The state of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum DeviceState {
    /// No device.
    Free = 0,
    /// Its page structures are being written.
    Building = 1,
    /// In use.
    Live = 2,
    /// It is being removed.
    Closing = 3,
}

/// The users of a device, apart from references to its pages.
///
/// | bits | meaning |
/// |---|---|
/// | 0–7 | [`DeviceState`] |
/// | 8–23 | the number of CPUs that split or join its pages |
/// | 24–63 | entries of page tables that map it |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Users(u64);

impl Users {
    const CHANGER: u64 = 1 << 8;
    const MAPPING: u64 = 1 << 24;

    pub(super) fn state(self) -> DeviceState {
        match self.0 as u8 {
            1 => DeviceState::Building,
            2 => DeviceState::Live,
            3 => DeviceState::Closing,
            _ => DeviceState::Free,
        }
    }

    pub(super) fn changers(self) -> u64 {
        self.0 >> 8 & 0xffff
    }

    pub(super) fn mappings(self) -> u64 {
        self.0 >> 24
    }

    const fn of(state: DeviceState) -> Self {
        Self(state as u64)
    }
}

/// A device, or room for one.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct DeviceRow {
    /// [`Users`].
    users: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    /// 0: no device. Order plus 1 in bits 0–7, layout in 8–15, placement in 16–23, node in 24–39, generation in 40–63.
    shape: AtomicU64,
}

all_atomic!(DeviceRow { users, start, end, shape });

impl DeviceRow {
    pub(super) fn users(&self) -> Users {
        // Acquire: pairs with the Release in `DeviceRow::open` and `DeviceRow::change`.
        Users(self.users.load(Ordering::Acquire))
    }

    /// The request that the device was mapped by; `None` if the row is free.
    pub(super) fn request(&self) -> Option<DeviceRequest> {
        loop {
            // Acquire: pairs with the Release in `DeviceRow::write`.
            let shape = self.shape.load(Ordering::Acquire);
            if shape == 0 {
                return None;
            }
            // Acquire, twice: pairs with the Release in `DeviceRow::write`. A reader of a new bound reads a new shape below.
            let start = Pfn(self.start.load(Ordering::Acquire));
            let end = Pfn(self.end.load(Ordering::Acquire));
            if self.shape.load(Ordering::Relaxed) == shape {
                let byte = |at: u32| (shape >> at) as u8;
                return Some(DeviceRequest {
                    range: PfnRange { start, end },
                    node: NodeId((shape >> 24) as u16),
                    order: Order(byte(0).checked_sub(1)?),
                    layout: *MapLayout::ALL.get(usize::from(byte(8)))?,
                    placement: *MapPlacement::ALL.get(usize::from(byte(16)))?,
                });
            }
        }
    }

    /// Writes the request of a device that is being mapped. The caller holds the directory's lock.
    fn write(&self, request: &DeviceRequest, generation: u64) {
        // Release, twice: pairs with the Acquire in `DeviceRow::request`, which then sees that the old shape is gone.
        self.start.store(request.range.start.0, Ordering::Release);
        self.end.store(request.range.end.0, Ordering::Release);
        let shape = (u64::from(request.order.0) + 1)
            | (request.layout as u64) << 8
            | (request.placement as u64) << 16
            | u64::from(request.node.0) << 24
            | generation << 40;
        self.users.store(Users::of(DeviceState::Building).0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `DeviceRow::request`, which then sees the bounds.
        self.shape.store(shape, Ordering::Release);
    }

    /// Frees the row. The caller holds the directory's lock.
    fn erase(&self) {
        // Release, twice: pairs with the Acquire in `DeviceRow::request` and `DeviceRow::users`.
        self.shape.store(0, Ordering::Release);
        self.users.store(Users::of(DeviceState::Free).0, Ordering::Release);
    }

    /// Opens the device for use.
    pub(super) fn open(&self) {
        // Release: pairs with the Acquire in `DeviceRow::users` and `DeviceRow::change`.
        self.users.store(Users::of(DeviceState::Live).0, Ordering::Release);
    }

    /// Replaces the word by `change` of it, unless that is `None`; the word found.
    fn change(&self, change: impl Fn(Users) -> Option<u64>) -> Result<Users, Users> {
        let mut found = Users(self.users.load(Ordering::Relaxed));
        loop {
            let Some(changed) = change(found) else { return Err(found) };
            // AcqRel: pairs with itself in `DeviceRow::change`, and with the Release in `DeviceRow::open`. A user sees the opened
            // device; the remover, which closes it, sees what the users did.
            match self.users.compare_exchange_weak(found.0, changed, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(found),
                Err(other) => found = Users(other),
            }
        }
    }

    /// Registers a CPU that splits or joins a page.
    pub(super) fn enter(&self) -> Result<(), Users> {
        let enter = |users: Users| {
            let room = users.state() == DeviceState::Live && users.changers() < 0xffff;
            room.then_some(users.0 + Users::CHANGER)
        };
        self.change(enter).map(|_| ())
    }

    /// Ends what [`enter`](Self::enter) began.
    pub(super) fn leave(&self) {
        // Release: pairs with the Acquire in `DeviceRow::change`.
        self.users.fetch_sub(Users::CHANGER, Ordering::Release);
    }

    /// Counts an entry of page tables.
    pub(super) fn map(&self) -> Result<(), Users> {
        let map = |users: Users| {
            let room = users.state() == DeviceState::Live && users.mappings() < u64::MAX >> 24;
            room.then(|| users.0 + Users::MAPPING)
        };
        self.change(map).map(|_| ())
    }

    /// Uncounts an entry of page tables.
    pub(super) fn unmap(&self) -> Result<(), Users> {
        self.change(|users| users.0.checked_sub(Users::MAPPING)).map(|_| ())
    }

    /// Begins to remove the device. Fails if page tables map it, unless the removal may wait for them.
    pub(super) fn close(&self, removal: Removal) -> Result<(), Users> {
        let close = |users: Users| {
            let unmapped = removal == Removal::Wait || users.mappings() == 0;
            let unused = users.state() == DeviceState::Live && users.changers() == 0;
            (unused && unmapped).then(|| users.0 - DeviceState::Live as u64 + DeviceState::Closing as u64)
        };
        self.change(close).map(|_| ())
    }

    /// Ends a removal that failed: the device stays.
    pub(super) fn reopen(&self) {
        // Release: pairs with the Acquire in `DeviceRow::change`.
        self.users.fetch_sub(DeviceState::Closing as u64 - DeviceState::Live as u64, Ordering::Release);
    }
}

/// The table of devices and its lock.
#[repr(C, align(128))]
pub(crate) struct DeviceDirectory {
    lock: LockLine,
    /// The number of devices ever mapped.
    generation: AtomicU64,
    /// All rows from here on are free.
    used: AtomicU32,
    rows: [DeviceRow; MAX_DEVICES],
}

all_atomic!(DeviceDirectory { lock, generation, used, rows });

impl Default for DeviceDirectory {
    fn default() -> Self {
        Self {
            lock: LockLine::default(),
            generation: AtomicU64::new(0),
            used: AtomicU32::new(0),
            rows: core::array::from_fn(|_| DeviceRow::default()),
        }
    }
}

impl DeviceDirectory {
    /// The rows that may be in use, and their numbers.
    pub(super) fn rows(&self) -> impl Iterator<Item = (DeviceId, &DeviceRow)> {
        // Acquire: pairs with the Release in `LockedDirectory::claim`.
        let used = (self.used.load(Ordering::Acquire) as usize).min(MAX_DEVICES);
        self.rows[..used].iter().enumerate().map(|(at, row)| (DeviceId(at as u16), row))
    }

    pub(super) fn row(&self, id: DeviceId) -> Option<&DeviceRow> {
        self.rows.get(usize::from(id.0))
    }

    /// The device that has a frame.
    pub(super) fn row_of(&self, pfn: Pfn) -> Option<(DeviceId, &DeviceRow, DeviceRequest)> {
        self.rows().find_map(|(id, row)| {
            let request = row.request().filter(|request| request.range.contains(pfn))?;
            Some((id, row, request))
        })
    }

    /// Runs `work` under the directory's lock: no other CPU changes the table, or the sections that lead to devices. `work` must
    /// not wait.
    pub(super) fn locked<P: Platform, T>(&self, platform: &P, work: impl FnOnce(&LockedDirectory<'_>) -> T) -> T {
        let guard = platform.guard();
        platform.lock(LockId::Devices, &self.lock.0);
        let result = work(&LockedDirectory(self));
        platform.unlock(LockId::Devices, &self.lock.0);
        drop(guard);
        result
    }
}

/// The table, locked.
pub(super) struct LockedDirectory<'a>(&'a DeviceDirectory);

impl LockedDirectory<'_> {
    /// All devices.
    pub(super) fn requests(&self) -> impl Iterator<Item = (DeviceId, DeviceRequest)> {
        self.0.rows().filter_map(|(id, row)| Some((id, row.request()?)))
    }

    /// Claims a free row for a device; its number and its generation.
    pub(super) fn claim(&self, request: &DeviceRequest) -> Result<(DeviceId, u64), DeviceError> {
        let free = self.0.rows.iter().position(|row| row.request().is_none());
        let at = free.ok_or(DeviceError::TooManyDevices(MAX_DEVICES))?;
        let generation = self.0.generation.load(Ordering::Relaxed).wrapping_add(1);
        self.0.generation.store(generation, Ordering::Relaxed);
        self.0.rows[at].write(request, generation);
        let used = (self.0.used.load(Ordering::Relaxed)).max(at as u32 + 1);
        // Release: pairs with the Acquire in `DeviceDirectory::rows`.
        self.0.used.store(used, Ordering::Release);
        Ok((DeviceId(at as u16), generation))
    }

    /// Releases a row.
    pub(super) fn release(&self, id: DeviceId) {
        self.0.rows[usize::from(id.0)].erase();
    }
}
