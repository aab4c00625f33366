//! A yard whose regions come from the early memory map.

use crate::boot::{EarlyBootError, Initialiser, Layout, YardConfig};
use crate::memblock::{EarlyBlock, EarlyMemory, EarlyRequest, Memblock};
use crate::platform::Platform;
use crate::units::ByteSize;
use crate::yard::{RawRegion, Yard};

const PAGE: ByteSize = ByteSize::kib(4);

impl<P: Platform> Yard<P> {
    /// Creates a yard for the memory of a memblock, and allocates the memory map and the control region there. Both stay
    /// reserved.
    ///
    /// As [`Layout::plan`] and [`create`](Self::create), which a kernel calls itself if the regions are to lie in a certain
    /// place. The map is zeroed only where the initialiser needs that.
    ///
    /// # Errors
    ///
    /// [`EarlyBootError`]. The memblock's reservations are as before then, and the call can be repeated with another
    /// configuration.
    ///
    /// # Safety
    ///
    /// - The memory that the memblock maps ([`EarlyMemory::map`]) stays mapped while this yard or another view of it lives,
    ///   and nothing else uses what is reserved for the regions.
    /// - Frames that are free in the memblock have no other user. From now on they belong to the yard.
    /// - If the configuration has a [device space](YardConfig::device_space), all of the map's memory stays writable.
    /// - [`Platform::frame_bytes`] returns where a frame and the rest of its block can be read and written.
    pub unsafe fn from_memblock<M: EarlyMemory, const INLINE: usize>(
        memblock: &mut Memblock<M, INLINE>,
        config: &YardConfig<'_>,
        platform: P,
    ) -> Result<Self, EarlyBootError> {
        let sizes = Layout::plan(&*memblock, config)?;
        let request = EarlyRequest::new(sizes.map_bytes(), PAGE);
        let is_zeroed = config.map_init.initialiser == Initialiser::None || config.device_space.is_some();
        let map = if is_zeroed { memblock.alloc(request)? } else { memblock.alloc_raw(request)? };
        // Each reservation of these regions, and of a list that grows for them, takes one more entry of the tables.
        let control = memblock.alloc(EarlyRequest::new(ByteSize(sizes.control_bytes().0 + PAGE.0), PAGE));
        let control = control.inspect_err(|_| release(memblock, map))?;
        // The regions are reservations now.
        let created = Layout::plan(&*memblock, config).and_then(|layout| {
            // SAFETY: passed on to the caller; both regions were just allocated, zeroed where they must be.
            unsafe { Self::create(&*memblock, config, &layout, region(map), region(control), platform) }
        });
        created.map_err(|error| {
            release(memblock, control);
            release(memblock, map);
            EarlyBootError::Boot(error)
        })
    }
}

fn region(block: EarlyBlock) -> RawRegion {
    RawRegion { base: block.pointer, size: block.size }
}

/// Drops the reservation of a block that nothing uses. If a full list prevents that, the block stays reserved.
fn release<M: EarlyMemory, const INLINE: usize>(memblock: &mut Memblock<M, INLINE>, block: EarlyBlock) {
    let _ = memblock.free(block);
}
