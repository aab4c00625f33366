//! Using addresses: as a processor would, and by bytes.
//!
//! # Protocol
//!
//! Bytes are read and written while the lock of the table is held whose entry maps them. So whoever takes an entry away
//! under that lock ([migration](crate::anonymous)) knows that nobody is at the bytes from then on, but for
//! [pins](crate::pin): they are references, so a pinned page cannot be frozen.

use frameyard::platform::Activity;
use frameyard::{PageCount, Pfn, Platform};

use crate::address::{PageLevel, VirtAddr};
use crate::fault::Faulted;
use crate::pin::frame_at;
use crate::space::{AddressSpace, FaultError, MemoryAccess, SpaceRef};
use crate::table::{Entry, Level, LockedTable, Spot};
use crate::words;

/// How long the map lock is held for one access to bytes: to the next multiple of this many bytes.
const STRETCH: u64 = PageLevel::Huge.size().0;

/// Who is at the bytes of a frame while the lock of the table that maps it is held.
#[derive(Clone, Copy)]
enum Sharing {
    /// Nobody else: nothing else maps it.
    Alone,
    /// Others, by other entries: it is of a device.
    Shared,
}

/// How an address was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Touched {
    /// It was mapped.
    There,
    /// By a fault.
    Faulted,
}

/// What an address leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Translation {
    /// The frame that the address is in.
    pub pfn: Pfn,
    /// What the entry maps.
    pub level: PageLevel,
    /// What the entry says beside that.
    pub flags: EntryFlags,
}

/// What an entry of page tables says of a page, in the bits of x86-64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EntryFlags(u64);

impl EntryFlags {
    const fn entry(self) -> Entry {
        Entry::from_bits(self.0)
    }

    /// Whether the page may be written.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.entry().is_writable()
    }

    /// Whether it was used.
    #[must_use]
    pub const fn is_accessed(self) -> bool {
        self.entry().is_accessed()
    }

    /// Whether it was written.
    #[must_use]
    pub const fn is_dirty(self) -> bool {
        self.entry().is_dirty()
    }

    /// Whether it is a page of a device.
    #[must_use]
    pub const fn is_device(self) -> bool {
        self.entry().is_device()
    }
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// The entry that maps an address, present; the address is mapped first where it is not. `Err` with what else happened.
    #[inline(always)]
    pub(crate) fn present(&self, addr: VirtAddr, access: MemoryAccess) -> Result<Spot<'y>, FaultError> {
        // Each time round the page has come, or has come and gone: somebody else gets on. The wait for one that is being
        // moved is bounded.
        loop {
            let spot = self.walk(addr.0);
            if spot.entry.is_present() {
                return if spot.entry.allows(access) { Ok(spot) } else { Err(FaultError::ReadOnly(addr)) };
            }
            let platform = self.vm().yard().platform();
            platform.begin_activity(Activity::Fault);
            let done = self.fault(spot, addr, access);
            platform.end_activity(Activity::Fault, PageCount(u64::from(done == Ok(Faulted::Mapped))));
            done?;
        }
    }

    #[inline]
    fn touch(&self, addr: VirtAddr, access: MemoryAccess) -> Result<(), FaultError> {
        check(addr)?;
        let platform = self.vm().yard().platform();
        platform.begin_activity(Activity::Fault);
        let done = self.touch_locked(addr, access);
        platform.end_activity(Activity::Fault, PageCount(u64::from(done == Ok(Touched::Faulted))));
        done.map(|_| ())
    }

    #[inline(always)]
    fn touch_locked(&self, addr: VirtAddr, access: MemoryAccess) -> Result<Touched, FaultError> {
        let _reading = self.map_lock().read();
        // As in `present`.
        loop {
            let spot = self.walk(addr.0);
            if spot.entry.is_present() {
                if !spot.entry.allows(access) {
                    return Err(FaultError::ReadOnly(addr));
                }
                if spot.entry.used(access) == spot.entry || self.locked(spot, |_, _| Ok(()), access)?.is_some() {
                    return Ok(Touched::There);
                }
            } else if self.fault(spot, addr, access)? == Faulted::Mapped {
                return Ok(Touched::Faulted);
            }
        }
    }

    /// Does something under the lock of a table while a page is present there, and notes the use; `None` where it is not
    /// present any more.
    #[inline(always)]
    fn locked<R>(
        &self,
        spot: Spot<'y>,
        work: impl FnOnce(&LockedTable<'y, P>, Entry) -> Result<R, FaultError>,
        access: MemoryAccess,
    ) -> Result<Option<R>, FaultError> {
        let table = self.lock_table(spot.table);
        let entry = table.entry(spot.index);
        if !entry.is_present() {
            return Ok(None);
        }
        let done = work(&table, entry)?;
        let used = entry.used(access);
        if used != entry {
            table.set(spot.index, used);
        }
        Ok(Some(done))
    }

    /// Does something with bytes, page by page: `copy` is told how many were done before, and the frame, the offset in it
    /// the number of bytes to do now, and who else may be there; `false` where there are none behind the frame.
    fn access(
        &self,
        addr: VirtAddr,
        len: usize,
        access: MemoryAccess,
        mut copy: impl FnMut(Sharing, usize, Pfn, usize, usize) -> bool,
    ) -> Result<(), FaultError> {
        let page_size = Level::SMALL.span();
        let mut done = 0;
        while done < len {
            let stretch_end = done + (STRETCH - (addr.0 + done as u64) % STRETCH) as usize;
            let _reading = self.map_lock().read();
            while done < len.min(stretch_end) {
                let at = VirtAddr(addr.0 + done as u64);
                check(at)?;
                let offset = (at.0 % page_size) as usize;
                let count = (len - done).min(page_size as usize - offset);
                let spot = self.present(at, access)?;
                let copied = self.locked(
                    spot,
                    |_, entry| {
                        let pfn = frame_at(entry, spot.level, at.0);
                        let sharing = if entry.is_device() { Sharing::Shared } else { Sharing::Alone };
                        let has_bytes = !entry.is_device() || entry.is_counted_device();
                        let copied = has_bytes && copy(sharing, done, pfn, offset, count);
                        if copied { Ok(()) } else { Err(FaultError::NoFrameBytes(at)) }
                    },
                    access,
                )?;
                if copied.is_some() {
                    done += count;
                }
            }
        }
        Ok(())
    }

    fn translate(&self, addr: VirtAddr) -> Option<Translation> {
        check(addr).ok()?;
        let _reading = self.map_lock().read();
        let Spot { entry, level, .. } = self.walk(addr.0);
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
    /// Uses an address as a processor would: maps it if it is not, and notes the use in its entry.
    ///
    /// # Errors
    ///
    /// [`FaultError`]. Cost: where the page is there and was used so before, the map lock and a walk of two loads; else the
    /// lock of its table, and for a fault a frame, zeroed, and the lock of the CPU's batch.
    #[inline]
    pub fn touch(&self, addr: VirtAddr, access: MemoryAccess) -> Result<(), FaultError> {
        self.space().touch(addr, access)
    }

    /// Reads bytes.
    ///
    /// Each page is read at once: nobody writes to it, or moves it, meanwhile. Different pages are read one after the other.
    /// Devices are read byte by byte, where the yard knows the device and the platform reaches its bytes.
    ///
    /// # Errors
    ///
    /// [`FaultError`] names the first address that cannot be read; what comes before it is read.
    pub fn read(&self, addr: VirtAddr, bytes: &mut [u8]) -> Result<(), FaultError> {
        let yard = self.space().vm().yard();
        self.space().access(addr, bytes.len(), MemoryAccess::Read, |sharing, done, pfn, offset, count| {
            let bytes = &mut bytes[done..done + count];
            match sharing {
                // SAFETY: `access` keeps writers from the page.
                Sharing::Alone => unsafe { words::read_bytes(yard, pfn, offset, bytes) },
                // SAFETY: only frames of devices are shared.
                Sharing::Shared => unsafe { words::read_shared(yard, pfn, offset, bytes) },
            }
        })
    }

    /// Writes bytes. As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// [`FaultError`] names the first address that cannot be written; what comes before it is written.
    pub fn write(&self, addr: VirtAddr, bytes: &[u8]) -> Result<(), FaultError> {
        let yard = self.space().vm().yard();
        self.space().access(addr, bytes.len(), MemoryAccess::Write, |sharing, done, pfn, offset, count| {
            let bytes = &bytes[done..done + count];
            match sharing {
                // SAFETY: `access` keeps all others from the page.
                Sharing::Alone => unsafe { words::write_bytes(yard, pfn, offset, bytes) },
                // SAFETY: only frames of devices are shared.
                Sharing::Shared => unsafe { words::write_shared(yard, pfn, offset, bytes) },
            }
        })
    }

    /// What an address leads to, a moment ago; `None` where nothing is mapped there yet, or its page is just being moved.
    #[must_use]
    pub fn translate(&self, addr: VirtAddr) -> Option<Translation> {
        self.space().translate(addr)
    }
}
