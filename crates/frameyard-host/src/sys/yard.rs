//! A yard together with the memory that it lies in.

use std::ops::Deref;

use frameyard::{
    AttachError, BootError, CountingPlatform, CountingRow, Layout, MemorySource, RawRegion, Yard, YardConfig,
};

use crate::platform::HostPlatform;
use crate::region::Region;

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

impl OwnedYard {
    /// Creates a yard in a map that is zeroed, unless the initialiser writes all of it, and a control region that
    /// nobody has used.
    pub(crate) fn create(
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        layout: &Layout,
        (map, control): (Region, Region),
        platform: HostPlatform,
    ) -> Result<Self, BootError> {
        // SAFETY: both regions are ours alone. The control region is new, so zeroed; the map is zeroed where the
        // initialiser counts on it, as the builder has checked. Both regions move into the result, which keeps them mapped as long as the yard, and
        // whatever the yard hands out borrows it. The platform hands out addresses of its own mapping of the
        // frames, which lie in the order of their numbers and belong to whoever holds the frames; all of a range
        // of memory is mapped, as plan, frames and yard are made from one table.
        let yard = unsafe { Yard::create(memory, config, layout, raw(&map), raw(&control), platform)? };
        Ok(Self { yard, map, control })
    }

    /// Looks at a yard that another process has created in a memory file, of which these are two parts.
    pub(crate) fn attach((map, control): (Region, Region), platform: HostPlatform) -> Result<Self, AttachError> {
        // SAFETY: the file's header, checked when it was attached, says that these are its memory map and control
        // region, and who opens the file to other programs answers for what they write there. Both regions move
        // into the result.
        let yard = unsafe { Yard::attach(raw(&map), raw(&control), platform)? };
        Ok(Self { yard, map, control })
    }

    /// A further view, through which everything is counted in `rows`.
    pub(crate) fn counting<'y, W: Fn() -> u32 + Sync, const LINES: usize>(
        &'y self,
        rows: &'y [CountingRow<LINES>],
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
