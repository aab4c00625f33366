//! A yard together with the memory that it lies in.

use std::ops::Deref;

use frameyard::boot::{AttachError, MemorySource};
use frameyard::{Layout, RawRegion, Yard, YardConfig};
use frameyard_counting::{CountingPlatform, TaskCounters};

use crate::platform::HostPlatform;
use crate::region::Region;
use crate::yard::HostYardError;

use super::mapping::Piece;
use super::window::MapWindow;

/// A yard and its two regions, which are unmapped after it.
#[derive(Debug)]
pub(crate) struct OwnedYard {
    // Dropped in this order: the view before what it looks at.
    yard: Yard<HostPlatform>,
    map: Region,
    control: Region,
}

/// A view of a yard of this process through which everything is counted.
pub type CountingYard<'y, W, const LINES: usize> = Yard<CountingPlatform<'y, HostPlatform, W, LINES>>;

fn raw(region: &Region) -> RawRegion {
    RawRegion { base: region.base(), size: region.size() }
}

/// A window for the platform of a yard in that map.
fn window_on(map: &Region, piece: Piece) -> MapWindow {
    // SAFETY: the platform has the window and is dropped with the yard, before the region. Page structures are reached as
    // atomics alone, and the yard takes what it reads there for a hint: no memory safety rests on what a device's page says.
    unsafe { MapWindow::new(map.mapping(), piece) }
}

/// A window on a region that a test keeps longer.
#[cfg(test)]
pub(crate) fn test_window(map: &Region, piece: Piece) -> MapWindow {
    window_on(map, piece)
}

impl OwnedYard {
    /// Creates a yard in a map that is zeroed, unless the initialiser writes all of it, and a control region that
    /// nobody has used. `platform` makes its platform, which has a window on the part of the map that is for devices, if
    /// there is one, and sees to it that it is zeroed.
    pub(crate) fn create(
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        layout: &Layout,
        (map, control): (Region, Region),
        devices: Option<Piece>,
        platform: impl FnOnce(Option<MapWindow>) -> Result<HostPlatform, HostYardError>,
    ) -> Result<Self, HostYardError> {
        let platform = platform(devices.map(|piece| window_on(&map, piece)))?;
        // SAFETY: both regions are ours alone. The control region is new, so zeroed; the map is zeroed where the
        // initialiser counts on it, as the builder has checked. Both regions move into the result, which keeps them mapped as long as the yard, and
        // whatever the yard hands out borrows it. The platform hands out addresses of its own mapping of the
        // frames, which lie in the order of their numbers and belong to whoever holds the frames; all of a range
        // of memory is mapped, as plan, frames and yard are made from one table. What it puts behind the map's part for
        // devices can be read and written where the yard reads and writes it, as the yard tells it beforehand.
        let yard = unsafe { Yard::create(memory, config, layout, raw(&map), raw(&control), platform)? };
        Ok(Self { yard, map, control })
    }

    /// Looks at a yard that another process has created in a memory file, of which these are two parts. `platform` as for
    /// [`create`](Self::create); it shows the part for devices as all other views do.
    pub(crate) fn attach(
        (map, control): (Region, Region),
        devices: Option<Piece>,
        platform: impl FnOnce(Option<MapWindow>) -> Result<HostPlatform, HostYardError>,
    ) -> Result<Self, HostYardError> {
        let platform = platform(devices.map(|piece| window_on(&map, piece)))?;
        // SAFETY: the file's header, checked when it was attached, says that these are its memory map and control
        // region, and who opens the file to other programs answers for what they write there. Both regions move
        // into the result.
        let yard = unsafe { Yard::attach(raw(&map), raw(&control), platform)? };
        Ok(Self { yard, map, control })
    }

    /// A further view, through which everything is counted in `rows`.
    pub(crate) fn counting<'y, W: Fn() -> u32 + Sync, const LINES: usize>(
        &'y self,
        rows: &'y [TaskCounters<LINES>],
        who: W,
    ) -> Result<CountingYard<'y, W, LINES>, AttachError> {
        let platform = CountingPlatform::new(self.yard.platform(), rows, who);
        // SAFETY: both regions are those of one yard. They stay mapped as long as `self`, which the view borrows by its
        // platform; that leaves addresses of frames to the platform that the yard was made with.
        unsafe { Yard::attach(raw(&self.map), raw(&self.control), platform) }
    }

    /// The memory map's region, when the yard is no more.
    pub(crate) fn into_map(self) -> Region {
        let Self { yard, mut map, control: _ } = self;
        drop(yard);
        map.mark_written();
        map
    }

    pub(crate) fn map(&self) -> &Region {
        &self.map
    }

    pub(crate) fn control(&self) -> &Region {
        &self.control
    }
}

impl Deref for OwnedYard {
    type Target = Yard<HostPlatform>;

    #[inline(always)]
    fn deref(&self) -> &Yard<HostPlatform> {
        &self.yard
    }
}
