//! `huge-pool`: reserves a pool of huge pages, measures the memory map before and after, hands all pages out and gives them up.
//!
//! Frames have no memory behind them, so a pool may be larger than the host. Their page structures are real.

use std::time::Instant;

use frameyard::boot::{BootError, InitMode, Initialiser, MapInit};
use frameyard::huge_pages::HugePageSize;
use frameyard::owners::Owners;
use frameyard::{ByteSize, MemoryTable, NodeId, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{Backing, HostTopology, HostYard, HostYardError, HugePages, Region};

use crate::device_map::YardSharing;
use crate::error::WorkloadError;
use crate::measure::nanoseconds;

/// The first frame, a multiple of the largest pages.
const FIRST: Pfn = Pfn(0x10_0000);
/// The part of a pool's size that the yard has besides, for reserves: at least this, and one in 64.
const SPARE: ByteSize = ByteSize::mib(128);
const PAGE: u64 = 4096;
const PAGE_STRUCTURE: u64 = 64;

/// What the memory map is before pages are reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapBefore {
    /// Every page structure is written, as at the boot of a kernel, in pages of 4 KiB of the host.
    Written,
    /// The same, in transparent huge pages of the host.
    WrittenHuge,
    /// Untouched memory, of which only heads are written.
    Fresh,
}

impl MapBefore {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Written, Self::WrittenHuge, Self::Fresh];

    /// The name on command lines and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::WrittenHuge => "written-huge",
            Self::Fresh => "fresh",
        }
    }

    fn init(self) -> MapInit {
        match self {
            Self::Written | Self::WrittenHuge => {
                MapInit { mode: InitMode::Eager, initialiser: Initialiser::Stream, ..MapInit::default() }
            }
            Self::Fresh => MapInit::default(),
        }
    }
}

/// A pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolShape {
    /// The memory of its pages.
    pub size: ByteSize,
    /// The size of its pages.
    pub page: HugePageSize,
    /// The memory map before.
    pub before: MapBefore,
    /// Whether the yard is private.
    pub yard: YardSharing,
}

impl PoolShape {
    /// The number of its pages.
    #[must_use]
    pub const fn pages(self) -> u64 {
        self.size.0 / (self.page.order().pages().0 * PAGE)
    }

    /// The page structures of all its frames.
    #[must_use]
    pub const fn full_map(self) -> ByteSize {
        ByteSize(self.size.0 / PAGE * PAGE_STRUCTURE)
    }

    /// Memory of the page structures that remain: a map page for each page.
    #[must_use]
    pub const fn map_bytes(self) -> ByteSize {
        ByteSize(self.pages() * PAGE)
    }
}

/// The result of a run. Sizes are those of the page structures of the pool's frames; if the map was fresh, of all frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HugePoolRun {
    /// Memory before pages are reserved.
    pub before: ByteSize,
    /// Memory after all pages were reserved, handed out and taken back, and every tail was read.
    pub resident: ByteSize,
    /// Mappings (VMAs) of the whole memory map then.
    pub mappings: u64,
    /// Time to reserve all pages.
    pub reserve_ns: u64,
    /// Time to hand all pages out.
    pub hand_out_ns: u64,
    /// Time to take all pages back.
    pub take_back_ns: u64,
    /// Time to give all pages up.
    pub shrink_ns: u64,
}

/// Runs a pool once, in a new yard.
///
/// # Errors
///
/// [`WorkloadError::Input`] if no yard can have a pool of this size, [`WorkloadError::RunTime`] if the host refuses or memory of the
/// map comes back while the pool is used.
pub fn run(shape: PoolShape, host: &HostTopology) -> Result<HugePoolRun, WorkloadError> {
    let yard = yard(shape, host)?;
    let pools = yard.huge_pages();
    let whole_before = map_use(&yard)?.0;
    // The structures of frames outside the pool keep their memory.
    let (before, outside) = match shape.before {
        MapBefore::Fresh => (whole_before, ByteSize(0)),
        _ => (shape.full_map(), ByteSize(whole_before.0.saturating_sub(shape.full_map().0))),
    };
    let begin = Instant::now();
    let reserved = pools.reserve(shape.page, shape.pages(), &Owners::NONE).map_err(WorkloadError::run_time)?;
    let reserve_ns = nanoseconds(begin.elapsed());
    if let Some(problem) = reserved.stopped {
        return Err(WorkloadError::run_time(format!("{} of {} pages: {problem}", reserved.pages, shape.pages())));
    }
    let mut pages = Vec::with_capacity(shape.pages() as usize);
    let begin = Instant::now();
    for _ in 0..shape.pages() {
        pages.push(pools.alloc(shape.page).map_err(WorkloadError::run_time)?);
    }
    let hand_out_ns = nanoseconds(begin.elapsed());
    let begin = Instant::now();
    pages.clear();
    let take_back_ns = nanoseconds(begin.elapsed());
    if shape.yard == YardSharing::Private {
        // Reads every tail. In a memory file that would take memory again.
        yard.validate().map_err(WorkloadError::run_time)?;
    }
    let (whole, mappings) = map_use(&yard)?;
    let resident = ByteSize(whole.0.saturating_sub(outside.0));
    let begin = Instant::now();
    let freed = pools.shrink(shape.page, u64::MAX).map_err(WorkloadError::run_time)?;
    let shrink_ns = nanoseconds(begin.elapsed());
    if freed != shape.pages() {
        return Err(WorkloadError::run_time(format!("{freed} of {} pages were given up", shape.pages())));
    }
    yard.validate().map_err(WorkloadError::run_time)?;
    Ok(HugePoolRun { before, resident, mappings, reserve_ns, hand_out_ns, take_back_ns, shrink_ns })
}

/// A yard of phantom frames, with memory for the pool and a little more behind it.
fn yard(shape: PoolShape, host: &HostTopology) -> Result<HostYard, WorkloadError> {
    let frames = (shape.size.0 + SPARE.0.max(shape.size.0 / 64)) / PAGE;
    let memory = [(PfnRange::new(FIRST, PageCount(frames)), NodeId(0))];
    let cpus = vec![NodeId(0); host.allowed().as_slice().len().max(1)];
    let config = YardConfig { map_init: shape.before.init(), ..YardConfig::new(&cpus) };
    let memory = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let builder = HostYard::builder().machine(&memory, &config).host(host).backing(Backing::Phantom);
    let made = match shape.yard {
        YardSharing::Private => {
            let advice = if shape.before == MapBefore::WrittenHuge { HugePages::Advise } else { HugePages::Never };
            let map = Region::zeroed(ByteSize(frames * PAGE_STRUCTURE), advice).map_err(WorkloadError::run_time)?;
            builder.map_region(map).build()
        }
        YardSharing::Shared => builder.shared().build(),
    };
    made.map_err(|error| match error {
        HostYardError::Boot(error) if !BootError::is_at_run_time(&error) => WorkloadError::input(error),
        other => WorkloadError::run_time(other),
    })
}

/// Memory behind the memory map, and its mappings.
fn map_use(yard: &HostYard) -> Result<(ByteSize, u64), WorkloadError> {
    let region = yard.map_region();
    let found = region.memory_use(ByteSize(0), region.size()).map_err(WorkloadError::run_time)?;
    Ok((found.proportional, found.mappings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_leaves_one_map_page_of_each_page() {
        let host = HostTopology::current().unwrap();
        for page in HugePageSize::ALL {
            for before in [MapBefore::Written, MapBefore::Fresh] {
                let shape = PoolShape { size: ByteSize::gib(2), page, before, yard: YardSharing::Private };
                let run = run(shape, &host).unwrap();
                let most = match before {
                    MapBefore::Fresh => ByteSize(shape.map_bytes().0 + shape.full_map().0 / 16),
                    _ => shape.map_bytes(),
                };
                assert!(run.resident >= shape.map_bytes() && run.resident <= most, "{shape:?}: {run:?}");
            }
        }
    }
}
