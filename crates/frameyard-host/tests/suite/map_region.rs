//! A memory map in a region of the caller, and regions that are refused.

use std::num::NonZeroUsize;

use frameyard::boot::ZoneLimits;
use frameyard::{ByteSize, Gfp, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{Backing, HostYard, HostYardError, HugePages, MapRegionProblem, Region};

/// The number of frames of the machine below.
const ALL: PageCount = PageCount(0x4_0000);
const CPUS: [NodeId; 1] = [NodeId(0)];
/// 1 GiB above 4 GiB.
const MEMORY: [(PfnRange, NodeId); 1] = [(PfnRange { start: Pfn(0x10_0000), end: Pfn(0x14_0000) }, NodeId(0))];
const TABLE: MemoryTable<'static> = MemoryTable { memory: &MEMORY, reserved: &[], cma: &[] };

fn config() -> YardConfig<'static> {
    YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&CPUS) }
}

fn map_bytes() -> ByteSize {
    Layout::plan(&TABLE, &config()).unwrap().map_bytes()
}

fn build(region: Region) -> Result<HostYard, HostYardError> {
    let builder = HostYard::builder().backing(Backing::Phantom).map_region(region);
    builder.machine(&TABLE, &config()).build()
}

fn problem(region: Region) -> MapRegionProblem {
    match build(region).unwrap_err() {
        HostYardError::MapRegion(problem) => problem,
        other => panic!("{other}"),
    }
}

#[test]
fn a_yard_uses_a_pre_faulted_region_and_returns_it() {
    let region = Region::zeroed(map_bytes(), HugePages::Never).unwrap();
    region.prefault(NonZeroUsize::MIN, &mut |_| {}).unwrap();
    let base = region.base();
    let yard = build(region).unwrap();
    assert_eq!((yard.map_region().base(), yard.stats().free_pages()), (base, ALL));
    let pfn = yard.alloc(Order(0), Gfp::KERNEL).unwrap();
    yard.free(pfn, Order(0)).unwrap();
    yard.validate().unwrap();
    let mut region = yard.into_map_region();
    assert_eq!((region.base(), region.is_zeroed()), (base, false));
    region.zero();
    build(region).unwrap().validate().unwrap();
}

#[test]
fn a_region_that_is_too_small_is_refused_with_the_needed_size() {
    let given = ByteSize(map_bytes().0 - (2 << 20));
    let problem = problem(Region::zeroed(given, HugePages::Never).unwrap());
    assert_eq!(problem, MapRegionProblem::TooSmall { given, needed: map_bytes() });
    assert_eq!(problem.to_string(), "the region for the memory map has 14M, and the map needs 16M");
}

#[test]
fn a_written_region_is_refused_if_no_initialiser_writes_the_map() {
    let mut region = Region::zeroed(map_bytes(), HugePages::Never).unwrap();
    region.bytes_mut().unwrap()[77] = 1;
    assert_eq!(problem(region), MapRegionProblem::NotZeroed);
}

#[test]
fn a_region_of_a_shared_yard_is_refused() {
    let shared = HostYard::builder().machine(&TABLE, &config()).backing(Backing::Phantom).shared().build().unwrap();
    assert_eq!(problem(shared.into_map_region()), MapRegionProblem::Shared);
}
