//! A yard together with the memory that it lies in.

use std::mem::ManuallyDrop;
use std::{ptr, thread};

use frameyard::boot::{AttachError, BootError, MemorySource};
use frameyard::counting::{CountingPlatform, TaskCounters};
use frameyard::{Layout, PageCount, RawRegion, Yard, YardConfig};

use crate::map_tails::MapTails;
use crate::platform::HostPlatform;
use crate::region::Region;
use crate::sys::mapping::{Piece, Sharing};
use crate::sys::private_yards::ForkSafe;
use crate::sys::window::MapWindow;

/// Leaked blocks of larger yards are not counted when they are dropped: 64 GiB in frames of 4 KiB.
const MOST_COUNTED: PageCount = PageCount(1 << 24);

/// A yard and its two regions.
#[derive(Debug)]
pub(crate) struct OwnedYard {
    // Fields drop in this order: the views before the memory that they read.
    fork_safe: Option<ForkSafe>,
    yard: Yard<HostPlatform>,
    map: Region,
    control: Region,
}

/// A view of a yard of this process that counts accesses to page structures and locks.
pub type CountingYard<'y, W, const LINES: usize> = Yard<CountingPlatform<'y, HostPlatform, W, LINES>>;

fn raw(region: &Region) -> RawRegion {
    RawRegion { base: region.base(), size: region.size() }
}

/// A window for the platform of a yard whose memory map lies in `map`.
fn window_on(map: &Region, piece: Piece) -> MapWindow {
    // SAFETY: the platform owns the window and drops with the yard, before the region. Page structures are reached as
    // atomics only. The yard treats the page structures of devices as hints: it derives no memory safety from them. Other structures
    // change through a window only where the yard itself asks for it (`MapTails`): from zero to zero.
    unsafe { MapWindow::new(map.mapping(), piece) }
}

/// The whole memory map, for the platform of a yard in it. The platform changes only what the yard passes to it as tails of a huge
/// page: structures that are zero and stay so.
fn tails_of(map: &Region) -> MapTails {
    let sharing = if map.is_private() { Sharing::Private } else { Sharing::Shared };
    MapTails::new(window_on(map, map.mapping().whole()), sharing)
}

/// A window on a region that the calling test keeps longer.
#[cfg(test)]
pub(crate) fn test_window(map: &Region, piece: Piece) -> MapWindow {
    window_on(map, piece)
}

impl OwnedYard {
    /// Creates a yard in two private regions.
    ///
    /// The control region is new. The map is zeroed unless the initialiser writes all of it. `platform` makes the
    /// platform of the yard. It gets a window on the part of the map for devices, if there is one, and zeroes that
    /// part.
    pub(crate) fn create<E: From<BootError>>(
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        layout: &Layout,
        (map, control): (Region, Region),
        devices: Option<Piece>,
        platform: impl FnOnce(Option<MapWindow>) -> Result<HostPlatform, E>,
    ) -> Result<Self, E> {
        let platform = platform(devices.map(|piece| window_on(&map, piece)))?.with_map(tails_of(&map));
        // SAFETY: no other code has the two regions. The control region is new, so zeroed. The builder has checked that
        // the map is zeroed if the initialiser relies on it. Both regions move into the result, which keeps them mapped
        // as long as the yard, and everything that the yard returns borrows it. The platform returns addresses of its
        // own mapping of the frames, in the order of their numbers. Every range of memory is mapped whole, since plan,
        // frames and yard are made from one table. The memory behind the map's part for devices can be read and written
        // wherever the yard reads and writes it: the yard asks the platform for it beforehand.
        let yard = unsafe { Yard::create(memory, config, layout, raw(&map), raw(&control), platform)? };
        Ok(Self { fork_safe: None, yard, map, control })
    }

    /// Attaches the yard that another process has created in a memory file. The regions are two parts of that file.
    ///
    /// `platform` as for [`create`](Self::create). It shows the part for devices as all other views do.
    ///
    /// # Safety
    ///
    /// The regions are the memory map and the control region of one file, to which only yards write.
    pub(crate) unsafe fn attach<E: From<AttachError>>(
        (map, control): (Region, Region),
        devices: Option<Piece>,
        platform: impl FnOnce(Option<MapWindow>) -> Result<HostPlatform, E>,
    ) -> Result<Self, E> {
        let platform = platform(devices.map(|piece| window_on(&map, piece)))?.with_map(tails_of(&map));
        // SAFETY: the caller says that these are the regions of one yard, and what writes to them. Both move into the
        // result.
        let yard = unsafe { Yard::attach(raw(&map), raw(&control), platform)? };
        Ok(Self { fork_safe: None, yard, map, control })
    }

    /// Has the yard, which lies in two private regions, go on in forked children. The handlers are installed.
    pub(crate) fn make_fork_safe(&mut self) -> Result<(), AttachError> {
        let sequences = self.yard.platform().sequences();
        // SAFETY: both regions belong to one yard and are private. They stay mapped until `fork_safe` is dropped, before them.
        self.fork_safe = Some(unsafe { ForkSafe::new(raw(&self.map), raw(&self.control), sequences)? });
        Ok(())
    }

    /// A second view of the yard that counts in `counters`.
    pub(crate) fn counting<'y, W: Fn() -> u32 + Sync, const LINES: usize>(
        &'y self,
        counters: &'y [TaskCounters<LINES>],
        task: W,
    ) -> Result<CountingYard<'y, W, LINES>, AttachError> {
        let platform = CountingPlatform::new(self.yard.platform(), counters, task);
        // SAFETY: both regions belong to one yard and stay mapped as long as `self`. The view borrows `self` through
        // its platform, which takes addresses of frames from the platform that the yard was made with.
        unsafe { Yard::attach(raw(&self.map), raw(&self.control), platform) }
    }

    /// Drops the yard and returns the region of its memory map.
    pub(crate) fn into_map(self) -> Region {
        self.report_leaks();
        let this = ManuallyDrop::new(self);
        // SAFETY: each field is read once, and `this` is never dropped.
        let (fork_safe, yard, mut map, _control) = unsafe {
            (
                ptr::read(&raw const this.fork_safe),
                ptr::read(&raw const this.yard),
                ptr::read(&raw const this.map),
                ptr::read(&raw const this.control),
            )
        };
        drop((fork_safe, yard));
        map.mark_written();
        map
    }

    /// In builds with debug assertions, says how many blocks of a private yard were never freed.
    fn report_leaks(&self) {
        let is_own = || self.fork_safe.as_ref().is_some_and(ForkSafe::is_of_this_process);
        if !cfg!(debug_assertions) || thread::panicking() || !is_own() {
            return;
        }
        let stats = self.yard.stats();
        let (managed, free) = (stats.managed_pages(), stats.free_pages());
        if managed == free || managed > MOST_COUNTED {
            return;
        }
        let (blocks, frames) = stats
            .allocated_blocks()
            .fold((0_u64, 0), |(blocks, frames), block| (blocks + 1, frames + block.order.pages().0));
        if blocks > 0 {
            eprintln!(
                "frameyard: a yard is dropped, but not all of its blocks were freed: {blocks} with {frames} frames; \
                 `stats().allocated_blocks()` lists them"
            );
        }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Yard<HostPlatform> {
        &self.yard
    }

    pub(crate) fn map(&self) -> &Region {
        &self.map
    }

    pub(crate) fn control(&self) -> &Region {
        &self.control
    }
}

impl Drop for OwnedYard {
    fn drop(&mut self) {
        self.report_leaks();
    }
}
