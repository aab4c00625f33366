//! The table of devices.
//!
//! A CPU claims a row under the directory's lock and owns it until it releases the row. It writes the shape of the
//! device last and clears it first, so a reader without the lock sees either a complete device or none.
//!
//! The users word of a device decides which operations are allowed: one exchange checks the state and the generation,
//! and enters the device. A CPU that found a row from a frame of a device passes the generation of that device, so the
//! exchange fails if the row belongs to a later device by then.

use crate::devices::{DeviceError, DeviceId, DeviceRequest, MapLayout, MapPlacement, Removal};
use crate::locks::LockLine;
use crate::platform::{LockId, Platform};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic, is_broken};
use crate::units::{NodeId, Order, Pfn, PfnRange};

/// The most devices of a yard. (Fewer in models, where every word costs time.)
pub(crate) const MAX_DEVICES: usize = if cfg!(loom) { 2 } else { 64 };

/// A CPU gives up after this number of changes that other CPUs make one behind the other. Only a process that writes to the row all the time reaches it.
const MOST_TRIES: u32 = 1 << 20;

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
/// | 0–1 | [`DeviceState`] |
/// | 2–11 | the number of CPUs that split or join its pages |
/// | 12–31 | the generation; 0 in a free row |
/// | 32–63 | entries of page tables that map it |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Users(u64);

/// Generations are 1 to this.
const GENERATIONS: u64 = (1 << 20) - 1;

impl Users {
    const CHANGER: u64 = 1 << 2;
    const MOST_CHANGERS: u64 = (1 << 10) - 1;
    const MAPPING: u64 = 1 << 32;
    const MOST_MAPPINGS: u64 = u32::MAX as u64;

    pub(super) fn state(self) -> DeviceState {
        match self.0 & 3 {
            1 => DeviceState::Building,
            2 => DeviceState::Live,
            3 => DeviceState::Closing,
            _ => DeviceState::Free,
        }
    }

    pub(super) fn changers(self) -> u64 {
        self.0 >> 2 & Self::MOST_CHANGERS
    }

    fn generation(self) -> u32 {
        (self.0 >> 12 & GENERATIONS) as u32
    }

    pub(super) fn mappings(self) -> u64 {
        self.0 >> 32
    }

    /// Whether these are the users of that device, and not of another one in the same row.
    pub(super) fn are_of(self, device: DeviceId) -> bool {
        self.generation() == device.generation() || is_broken!(GenerationNotCompared)
    }

    /// Whether these are the users of that device, and it is live.
    fn is_live(self, device: DeviceId) -> bool {
        self.state() == DeviceState::Live && self.are_of(device)
    }

    const fn of(state: DeviceState, generation: u32) -> Self {
        Self(state as u64 | (generation as u64) << 12)
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
        self.read().map(|(request, _)| request)
    }

    /// The request that the device was mapped by, and its generation; `None` if the row is free.
    fn read(&self) -> Option<(DeviceRequest, u32)> {
        for _ in 0..MOST_TRIES {
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
                let request = DeviceRequest {
                    range: PfnRange { start, end },
                    node: NodeId((shape >> 24) as u16),
                    order: Order(byte(0).checked_sub(1)?),
                    layout: *MapLayout::ALL.get(usize::from(byte(8)))?,
                    placement: *MapPlacement::ALL.get(usize::from(byte(16)))?,
                };
                return Some((request, (shape >> 40) as u32));
            }
        }
        None
    }

    /// Writes the request of a device that is being mapped. The caller holds the directory's lock.
    fn write(&self, request: &DeviceRequest, generation: u32) {
        // Release, twice: pairs with the Acquire in `DeviceRow::request`, which then sees that the old shape is gone.
        self.start.store(request.range.start.0, Ordering::Release);
        self.end.store(request.range.end.0, Ordering::Release);
        let shape = (u64::from(request.order.0) + 1)
            | (request.layout as u64) << 8
            | (request.placement as u64) << 16
            | u64::from(request.node.0) << 24
            | u64::from(generation) << 40;
        self.users.store(Users::of(DeviceState::Building, generation).0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `DeviceRow::request`, which then sees the bounds.
        self.shape.store(shape, Ordering::Release);
    }

    /// Frees the row. The caller holds the directory's lock.
    fn erase(&self) {
        // Release, twice: pairs with the Acquire in `DeviceRow::request` and `DeviceRow::users`.
        self.shape.store(0, Ordering::Release);
        self.users.store(Users::of(DeviceState::Free, 0).0, Ordering::Release);
    }

    /// Opens a device that was being mapped for use.
    pub(super) fn open(&self) {
        // Release: pairs with the Acquire in `DeviceRow::users` and `DeviceRow::change`.
        self.users.fetch_add(DeviceState::Live as u64 - DeviceState::Building as u64, Ordering::Release);
    }

    /// Replaces the word by `change` of it, unless that is `None`; the word found.
    fn change(&self, change: impl Fn(Users) -> Option<u64>) -> Result<Users, Users> {
        let mut found = Users(self.users.load(Ordering::Relaxed));
        for _ in 0..MOST_TRIES {
            let Some(changed) = change(found) else { return Err(found) };
            // AcqRel: pairs with itself in `DeviceRow::change`, and with the Release in `DeviceRow::open`. A user sees the opened
            // device; the remover, which closes it, sees what the users did.
            match self.users.compare_exchange_weak(found.0, changed, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(found),
                Err(other) => found = Users(other),
            }
        }
        Err(found)
    }

    /// Registers a CPU that splits or joins a page.
    pub(super) fn enter(&self, device: DeviceId) -> Result<(), Users> {
        let enter = |users: Users| {
            let room = users.is_live(device) && users.changers() < Users::MOST_CHANGERS;
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
    pub(super) fn map(&self, device: DeviceId) -> Result<(), Users> {
        let map = |users: Users| {
            let room = users.is_live(device) && users.mappings() < Users::MOST_MAPPINGS;
            room.then(|| users.0 + Users::MAPPING)
        };
        self.change(map).map(|_| ())
    }

    /// Uncounts an entry of page tables.
    pub(super) fn unmap(&self, device: DeviceId) -> Result<(), Users> {
        let unmap = |users: Users| users.0.checked_sub(Users::MAPPING).filter(|_| users.are_of(device));
        self.change(unmap).map(|_| ())
    }

    /// Begins to remove the device. Fails if page tables map it, unless the removal may wait for them.
    pub(super) fn close(&self, device: DeviceId, removal: Removal) -> Result<(), Users> {
        let close = |users: Users| {
            let unmapped = removal == Removal::Wait || users.mappings() == 0;
            let unused = users.is_live(device) && users.changers() == 0;
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
    /// The word of the lock.
    pub(crate) fn lock_word(&self) -> &AtomicU32 {
        &self.lock.0
    }

    /// The rows that may be in use, and their numbers.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u16, &DeviceRow)> {
        // Acquire: pairs with the Release in `LockedDirectory::claim`.
        let used = (self.used.load(Ordering::Acquire) as usize).min(MAX_DEVICES);
        (0..).zip(&self.rows[..used])
    }

    /// All devices, and their rows.
    pub(super) fn devices(&self) -> impl Iterator<Item = (DeviceId, &DeviceRow, DeviceRequest)> {
        self.rows().filter_map(|(number, row)| {
            let (request, generation) = row.read()?;
            Some((DeviceId::new(number, generation), row, request))
        })
    }

    /// The row of a device; `None` if it was removed.
    pub(super) fn row(&self, device: DeviceId) -> Option<(&DeviceRow, DeviceRequest)> {
        let row = self.rows.get(usize::from(device.number()))?;
        let (request, generation) = row.read()?;
        (generation == device.generation()).then_some((row, request))
    }

    /// The device that has a frame.
    pub(super) fn row_of(&self, pfn: Pfn) -> Option<(DeviceId, &DeviceRow, DeviceRequest)> {
        self.devices().find(|(_, _, request)| request.range.contains(pfn))
    }

    /// Runs `work` under the directory's lock: no other CPU changes the table, or the sections that lead to devices. `work` must
    /// not wait.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Lock`] if the platform gives up; `work` has not run then.
    pub(super) fn locked<P: Platform, T>(
        &self,
        platform: &P,
        work: impl FnOnce(&LockedDirectory<'_>) -> T,
    ) -> Result<T, DeviceError> {
        let guard = platform.guard();
        platform.lock(LockId::Devices, &self.lock.0).map_err(DeviceError::Lock)?;
        let result = work(&LockedDirectory(self));
        platform.unlock(LockId::Devices, &self.lock.0);
        drop(guard);
        Ok(result)
    }
}

/// The table, locked.
pub(super) struct LockedDirectory<'a>(&'a DeviceDirectory);

impl LockedDirectory<'_> {
    /// All devices.
    pub(super) fn requests(&self) -> impl Iterator<Item = (DeviceId, DeviceRequest)> {
        self.0.devices().map(|(id, _, request)| (id, request))
    }

    /// Claims a free row for a device.
    pub(super) fn claim(&self, request: &DeviceRequest) -> Result<DeviceId, DeviceError> {
        let free = self.0.rows.iter().position(|row| row.request().is_none());
        let at = free.ok_or(DeviceError::TooManyDevices(MAX_DEVICES))?;
        let mapped = self.0.generation.load(Ordering::Relaxed);
        self.0.generation.store(mapped.wrapping_add(1), Ordering::Relaxed);
        let generation = (mapped % GENERATIONS) as u32 + 1;
        self.0.rows[at].write(request, generation);
        let used = (self.0.used.load(Ordering::Relaxed)).max(at as u32 + 1);
        // Release: pairs with the Acquire in `DeviceDirectory::rows`.
        self.0.used.store(used, Ordering::Release);
        Ok(DeviceId::new(at as u16, generation))
    }

    /// Releases a row.
    pub(super) fn release(&self, id: DeviceId) {
        self.0.rows[usize::from(id.number())].erase();
    }
}
