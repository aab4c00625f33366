//! Accesses to addresses: touches, as a processor would make them, and reads and writes of bytes.
//!
//! # Protocol
//!
//! Bytes are accessed under the lock of the table whose entry maps them. A CPU that changes an entry under that lock
//! ([migration](crate::anonymous)) therefore excludes all accesses except those through [pins](crate::pin). Pins are
//! references, so a pinned page cannot be frozen.
//!
//! A page of a file has several users: its bytes are accessed under its page lock, like those that handles of the file
//! access. The CPU gets a reference under the lock of the table, releases that lock, and then waits for the page lock.

use core::ops::Range;

use frameyard::platform::{Activity, Probe};
use frameyard::{Order, PageCount, Pfn, Platform, Yard};

use crate::address::{PageLevel, VirtAddr};
use crate::error::VmError;
use crate::fault::Faulted;
use crate::pin::frame_at;
use crate::space::{AddressSpace, FaultError, MemoryAccess, SpaceRef};
use crate::table::{Entry, Level, LockedTable, Spot};
use crate::words::{DeviceBytes, FrameBytes};

/// An access holds the map lock up to the next multiple of this many bytes.
const STRETCH: u64 = PageLevel::Huge.size().0;

/// Attempts to find an address mapped. Each failed one means that another CPU has mapped or unmapped its page meanwhile, unless
/// the entry is damaged.
const RETRIES: u32 = 1 << 12;

/// The bytes of a mapped frame, while the lock of its table is held.
enum MappedBytes<'a, P: Platform> {
    Memory(FrameBytes<'a, P>),
    Device(DeviceBytes<'a, P>),
}

impl<P: Platform> MappedBytes<'_, P> {
    #[inline(always)]
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), VmError> {
        match self {
            Self::Memory(frame) => frame.read(offset, bytes),
            Self::Device(frame) => frame.read(offset, bytes),
        }
    }

    #[inline(always)]
    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), VmError> {
        match self {
            Self::Memory(frame) => frame.write(offset, bytes),
            Self::Device(frame) => frame.write(offset, bytes),
        }
    }
}

impl<P: Platform> LockedTable<'_, P> {
    /// The bytes of the frame that a present entry of this table maps at `addr`. `None` for a device that the yard does
    /// not know.
    #[inline(always)]
    fn bytes<'a>(
        &'a mut self,
        yard: &'a Yard<P>,
        (entry, level): (Entry, Level),
        addr: VirtAddr,
    ) -> Option<MappedBytes<'a, P>> {
        let pfn = frame_at(entry, level, addr.0);
        if !entry.is_device() {
            // SAFETY: callers treat entries of files apart. An anonymous frame has one entry, and its bytes are accessed
            // only under the lock of that entry's table, which this guard holds. The mapping keeps the frame allocated.
            return Some(MappedBytes::Memory(unsafe { FrameBytes::new(yard, pfn, Order::ZERO) }));
        }
        // SAFETY: the entry counts as a user of the yard's device, or of the huge page, which keeps it. A pool gives no references to
        // the bytes of its pages.
        (entry.is_counted_device() || entry.is_pooled())
            .then(|| MappedBytes::Device(unsafe { DeviceBytes::new(yard, pfn) }))
    }
}

/// The outcome of a touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Touched {
    /// The address was mapped.
    Present,
    /// A fault mapped it.
    Faulted,
}

/// What an address maps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Translation {
    /// The frame of the address.
    pub pfn: Pfn,
    /// The size that the entry maps.
    pub level: PageLevel,
    /// The flags of the entry.
    pub flags: EntryFlags,
}

/// The flags of a page-table entry, in x86-64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EntryFlags(u64);

impl EntryFlags {
    const fn entry(self) -> Entry {
        Entry::from_bits(self.0)
    }

    /// Whether the page can be written.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.entry().is_writable()
    }

    /// Whether the page was accessed.
    #[must_use]
    pub const fn is_accessed(self) -> bool {
        self.entry().is_accessed()
    }

    /// Whether the page was written.
    #[must_use]
    pub const fn is_dirty(self) -> bool {
        self.entry().is_dirty()
    }

    /// Whether the page belongs to a device or to a pool of huge pages.
    #[must_use]
    pub const fn is_device(self) -> bool {
        self.entry().is_device()
    }
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// The present entry of an address. Faults the page in first if necessary.
    #[inline(always)]
    pub(crate) fn present(&self, addr: VirtAddr, access: MemoryAccess) -> Result<Spot<'y>, FaultError> {
        // Each round means that another CPU mapped or unmapped the page. The wait for a migration has a bound.
        for _ in 0..RETRIES {
            let spot = self.walk(addr.0)?;
            if spot.entry.is_present() {
                if spot.entry.allows(access) {
                    return Ok(spot);
                }
                self.fault_on_write(spot, addr)?;
                continue;
            }
            let platform = self.vm().yard().platform();
            platform.probe().begin_activity(Activity::Fault);
            let done = self.fault(spot, addr, access);
            platform.probe().end_activity(Activity::Fault, PageCount(u64::from(done == Ok(Faulted::Mapped))));
            done?;
        }
        Err(VmError::Stalled.into())
    }

    #[inline]
    fn touch(&self, addr: VirtAddr, access: MemoryAccess) -> Result<(), FaultError> {
        check(addr)?;
        let platform = self.vm().yard().platform();
        platform.probe().begin_activity(Activity::Fault);
        let done = self.touch_locked(addr, access);
        platform.probe().end_activity(Activity::Fault, PageCount(u64::from(done == Ok(Touched::Faulted))));
        done.map(|_| ())
    }

    #[inline(always)]
    fn touch_locked(&self, addr: VirtAddr, access: MemoryAccess) -> Result<Touched, FaultError> {
        let _reading = self.map_lock().read().map_err(VmError::from)?;
        match self.touch_once(addr, access)? {
            Some(touched) => Ok(touched),
            None => self.touch_again(addr, access),
        }
    }

    #[cold]
    fn touch_again(&self, addr: VirtAddr, access: MemoryAccess) -> Result<Touched, FaultError> {
        // As in `present`.
        for _ in 1..RETRIES {
            if let Some(touched) = self.touch_once(addr, access)? {
                return Ok(touched);
            }
        }
        Err(VmError::Stalled.into())
    }

    /// `None` if the entry has changed meanwhile.
    #[inline(always)]
    fn touch_once(&self, addr: VirtAddr, access: MemoryAccess) -> Result<Option<Touched>, FaultError> {
        let spot = self.walk(addr.0)?;
        if !spot.entry.is_present() {
            let faulted = self.fault(spot, addr, access)?;
            return Ok((faulted == Faulted::Mapped).then_some(Touched::Faulted));
        }
        if !spot.entry.allows(access) {
            let faulted = self.fault_on_write(spot, addr)?;
            return Ok((faulted == Faulted::Mapped).then_some(Touched::Faulted));
        }
        let done = spot.entry.used(access) == spot.entry || self.locked(spot, |_, _| Ok(()), access)?.is_some();
        Ok(done.then_some(Touched::Present))
    }

    /// Runs `work` under the lock of a table while the page is present, and notes the access; `None` if the page is not
    /// present any more.
    #[inline(always)]
    fn locked<R>(
        &self,
        spot: Spot<'y>,
        work: impl FnOnce(&mut LockedTable<'y, P>, Entry) -> Result<R, FaultError>,
        access: MemoryAccess,
    ) -> Result<Option<R>, FaultError> {
        let mut table = self.lock_table(spot.table)?;
        let entry = table.entry(spot.index);
        if !entry.is_present() {
            return Ok(None);
        }
        let done = work(&mut table, entry)?;
        let used = entry.used(access);
        if used != entry {
            table.set(spot.index, used);
        }
        Ok(Some(done))
    }

    /// Runs `copy` for each page of a range. Its arguments are the frame's bytes, the offset in them, and the part of the
    /// range that the page covers.
    fn access(
        &self,
        addr: VirtAddr,
        len: usize,
        access: MemoryAccess,
        mut copy: impl FnMut(MappedBytes<'_, P>, usize, Range<usize>) -> Result<(), VmError>,
    ) -> Result<(), FaultError> {
        let page_size = Level::SMALL.span();
        let (mut done, mut retries) = (0, 0);
        while done < len {
            let stretch_end = done + (STRETCH - (addr.0 + done as u64) % STRETCH) as usize;
            let _reading = self.map_lock().read().map_err(VmError::from)?;
            while done < len.min(stretch_end) {
                let at = VirtAddr(addr.0 + done as u64);
                check(at)?;
                let offset = (at.0 % page_size) as usize;
                let count = (len - done).min(page_size as usize - offset);
                let spot = self.present(at, access)?;
                if spot.entry.is_file() {
                    let copied =
                        self.access_file_page(spot, access, |bytes| copy(bytes, offset, done..done + count))?;
                    match copied {
                        Some(()) => (done, retries) = (done + count, 0),
                        None if retries == RETRIES => return Err(VmError::Stalled.into()),
                        None => retries += 1,
                    }
                    continue;
                }
                let copied = self.locked(
                    spot,
                    |table, entry| {
                        let bytes = table.bytes(self.vm().yard(), (entry, spot.level), at);
                        let copied = bytes.is_some_and(|bytes| copy(bytes, offset, done..done + count).is_ok());
                        if copied { Ok(()) } else { Err(FaultError::NoFrameBytes(at)) }
                    },
                    access,
                )?;
                if copied.is_some() {
                    (done, retries) = (done + count, 0);
                } else if retries == RETRIES {
                    return Err(VmError::Stalled.into());
                } else {
                    retries += 1;
                }
            }
        }
        Ok(())
    }

    /// Runs `copy` on the bytes of a mapped page of a file, under the page lock; `None` if the entry has changed or the
    /// page has left its file: retry.
    fn access_file_page(
        &self,
        spot: Spot<'y>,
        access: MemoryAccess,
        copy: impl FnOnce(MappedBytes<'_, P>) -> Result<(), VmError>,
    ) -> Result<Option<()>, FaultError> {
        let vm = self.vm();
        let page = self.locked(
            spot,
            |_, entry| {
                if !entry.is_file() || !entry.allows(access) {
                    return Ok(None);
                }
                // The mapping has a reference, and stays while the table is locked.
                vm.get_mapped(entry.pfn()).map(Some).map_err(FaultError::from)
            },
            access,
        )?;
        let Some(page) = page.flatten() else { return Ok(None) };
        let Some(mut locked) = vm.lock_mapped(page)? else { return Ok(None) };
        copy(MappedBytes::Memory(locked.bytes()))?;
        if access == MemoryAccess::Write {
            locked.set_dirty()?;
        }
        Ok(Some(()))
    }

    fn translate(&self, addr: VirtAddr) -> Option<Translation> {
        check(addr).ok()?;
        let _reading = self.map_lock().read().ok()?;
        let Spot { entry, level, .. } = self.walk(addr.0).ok()?;
        let mapped = match level {
            Level::SMALL => PageLevel::Small,
            Level::HUGE => PageLevel::Huge,
            _ => PageLevel::Gigantic,
        };
        entry.is_present().then(|| Translation {
            pfn: frame_at(entry, level, addr.0),
            level: mapped,
            flags: EntryFlags(entry.bits()),
        })
    }
}

#[inline(always)]
fn check(addr: VirtAddr) -> Result<(), FaultError> {
    if addr < VirtAddr::END { Ok(()) } else { Err(FaultError::NotMapped(addr)) }
}

impl<'y, P: Platform> AddressSpace<'y, P> {
    /// Accesses an address as a processor would: faults the page in if it is missing, and sets the accessed bit of its
    /// entry (for a write, the dirty bit as well).
    ///
    /// # Errors
    ///
    /// [`FaultError`].
    ///
    /// # Cost
    ///
    /// If the page is present and the bits are already set: the map lock, and a walk of two loads. Otherwise the lock
    /// of the table as well, and for a fault a zeroed frame and the lock of the CPU's batch.
    #[inline]
    pub fn touch(&self, addr: VirtAddr, access: MemoryAccess) -> Result<(), FaultError> {
        self.space().touch(addr, access)
    }

    /// Reads bytes.
    ///
    /// The read of each page is atomic with respect to writes and migration, but different pages are read one after the
    /// other. A device is read byte by byte, if the yard knows the device and the platform maps its bytes.
    ///
    /// # Errors
    ///
    /// [`FaultError`] names the first address that cannot be read. The bytes before it have been read.
    pub fn read(&self, addr: VirtAddr, bytes: &mut [u8]) -> Result<(), FaultError> {
        self.space()
            .access(addr, bytes.len(), MemoryAccess::Read, |frame, offset, part| frame.read(offset, &mut bytes[part]))
    }

    /// Writes bytes, in the same way as [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// [`FaultError`] names the first address that cannot be written. The bytes before it have been written.
    pub fn write(&self, addr: VirtAddr, bytes: &[u8]) -> Result<(), FaultError> {
        self.space()
            .access(addr, bytes.len(), MemoryAccess::Write, |mut frame, offset, part| frame.write(offset, &bytes[part]))
    }

    /// What an address maps; may be stale. `None` if nothing is mapped there, if the page is in migration, or if the
    /// map lock cannot be taken.
    #[must_use]
    pub fn translate(&self, addr: VirtAddr) -> Option<Translation> {
        self.space().translate(addr)
    }
}
