//! Pools of huge pages in real memory: what the memory map costs the host before, during and after.

use frameyard::boot::{InitMode, Initialiser, MapInit};
use frameyard::huge_pages::HugePageSize::{self, Gigantic, Huge};
use frameyard::owners::Owners;
use frameyard::policy::ZonePolicy;
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{Backing, HostYard, HugePages, Region};

use frameyard_vm::{
    Dirty, MapRequest, MemoryAccess, PageLevel, PinCall, PinPath, PinRequest, RefHandling, Vm, VmConfig,
};

/// From 4 GiB on.
const FIRST: Pfn = Pfn(1 << 20);
/// 512 MiB.
const FRAMES: u64 = 1 << 17;
const MAP: ByteSize = ByteSize(FRAMES * 64);
const PAGES: u64 = 64;
/// Of 8 map pages of 4 KiB, 7 are returned.
const RETURNED: ByteSize = ByteSize(PAGES * 7 * 4096);

/// A map that an initialiser has written in full.
fn written() -> MapInit {
    MapInit { mode: InitMode::Eager, initialiser: Initialiser::Stream, ..MapInit::default() }
}

fn yard(frames: u64, map_init: MapInit, advice: HugePages) -> HostYard {
    yard_under(ZonePolicy::default(), frames, map_init, advice)
}

fn yard_under(policy: ZonePolicy, frames: u64, map_init: MapInit, advice: HugePages) -> HostYard {
    let memory = [(PfnRange::new(FIRST, PageCount(frames)), NodeId(0))];
    let memory = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let config = YardConfig { map_init, policy, ..YardConfig::new(&[NodeId(0); 2]) };
    let map = Region::zeroed(ByteSize(frames * 64), advice).unwrap();
    let yard = HostYard::builder().backing(Backing::Phantom).map_region(map);
    yard.machine(&memory, &config).build().unwrap()
}

/// Memory behind the page structures of all frames.
fn map_bytes(yard: &HostYard) -> ByteSize {
    let size = ByteSize(yard.core().map_frames().0 * 64);
    yard.map_region().memory_use(ByteSize(0), size).unwrap().proportional
}

fn reserve(yard: &HostYard, size: HugePageSize, pages: u64) {
    assert_eq!(yard.huge_pages().reserve(size, pages, &Owners::NONE).unwrap().pages, pages);
}

/// Does with the pages of a pool what their users do.
fn use_all(yard: &HostYard, size: HugePageSize) {
    let pages: Vec<_> = std::iter::from_fn(|| yard.huge_pages().alloc(size).ok()).collect();
    let further: Vec<_> = pages.clone();
    for page in pages {
        let pfn = page.into_pfn();
        assert!(yard.free(pfn + PageCount(70), Order::ZERO).is_err());
        yard.huge_pages().free(pfn, size).unwrap();
    }
    drop(further);
    yard.validate().unwrap();
}

#[test]
fn a_pool_returns_seven_of_eight_map_pages_and_keeps_them_away() {
    let ways = [HugePages::Never, HugePages::Advise].map(|advice| (ZonePolicy::Vanilla, advice));
    for (policy, advice) in ways.into_iter().chain([(ZonePolicy::Bits, HugePages::Never)]) {
        let yard = yard_under(policy, FRAMES, written(), advice);
        assert_eq!(map_bytes(&yard), MAP, "{advice:?}");
        reserve(&yard, Huge, PAGES);
        let left = ByteSize(MAP.0 - RETURNED.0);
        assert_eq!((map_bytes(&yard), yard.huge_pages().statistics(Huge).map_returned), (left, RETURNED), "{advice:?}");
        for _ in 0..3 {
            use_all(&yard, Huge);
        }
        assert_eq!(map_bytes(&yard), left, "{advice:?}: memory has come back");
        assert_eq!(yard.huge_pages().shrink(Huge, PAGES), Ok(PAGES));
        let singles: Vec<_> = std::iter::from_fn(|| yard.alloc(Order::ZERO, Gfp::ATOMIC | Gfp::NOWARN).ok()).collect();
        // Single frames of free lists: each structure is written. That of a frame that is a bit when it is free is not.
        let comes_back = !policy.keeps_bits();
        let is_back = map_bytes(&yard) >= ByteSize(MAP.0 - MAP.0 / 8);
        assert_eq!(is_back, comes_back, "{policy}, {advice:?}: {}", map_bytes(&yard));
        singles.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
        yard.validate().unwrap();
    }
}

#[test]
fn a_gigantic_page_keeps_one_map_page() {
    let yard = yard(3 << 18, written(), HugePages::Never);
    let before = map_bytes(&yard);
    reserve(&yard, Gigantic, 2);
    let returned = ByteSize(2 * 4095 * 4096);
    assert_eq!(map_bytes(&yard), ByteSize(before.0 - returned.0));
    use_all(&yard, Gigantic);
    assert_eq!(map_bytes(&yard), ByteSize(before.0 - returned.0), "memory has come back");
    assert_eq!(yard.huge_pages().shrink(Gigantic, 2), Ok(2));
    yard.validate().unwrap();
}

#[test]
fn the_host_maps_stay_few_however_many_pages_a_pool_has() {
    let yard = yard(FRAMES, written(), HugePages::Advise);
    reserve(&yard, Huge, 200);
    let size = ByteSize(yard.core().map_frames().0 * 64);
    let found = yard.map_region().memory_use(ByteSize(0), size).unwrap();
    assert!(found.mappings <= 5, "{found:?}");
    assert_eq!(yard.huge_pages().shrink(Huge, 200), Ok(200));
}

#[test]
fn pins_and_mappings_take_no_memory_for_tails() {
    const BYTES: u64 = PAGES << 21;
    let memory = [(PfnRange::new(FIRST, PageCount(FRAMES)), NodeId(0))];
    let memory = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let config = YardConfig { map_init: written(), ..YardConfig::new(&[NodeId(0); 2]) };
    let map = Region::zeroed(MAP, HugePages::Never).unwrap();
    // Address spaces keep their state in frames, so frames have bytes here.
    let yard = HostYard::builder().map_region(map);
    let yard = yard.machine(&memory, &config).build().unwrap();
    let vm = Vm::create(yard.core(), &VmConfig::default()).unwrap();
    let before = map_bytes(&yard);
    reserve(&yard, Huge, PAGES);
    let space = vm.create_space().unwrap();
    let mut mapped = Vec::new();
    for page in std::iter::from_fn(|| yard.huge_pages().alloc(Huge).ok()) {
        let request = MapRequest::pooled(PhysAddr(page.pfn().0 << 12), ByteSize::mib(2), PageLevel::Huge);
        let range = space.map(request).unwrap();
        space.touch(range.start, MemoryAccess::Write).unwrap();
        mapped.push((page, range));
    }
    let mut frames = vec![Pfn(0); 512];
    for (_, range) in &mapped {
        for request in [PinRequest::GET, PinRequest::PIN, PinRequest::PIN.by(PinPath::SlowOnly)] {
            assert_eq!(space.take_pages(range.start, request, &mut frames).unwrap(), PageCount(512));
            match request.call {
                PinCall::Get => vm.put_pages(&frames, RefHandling::PerPage).unwrap(),
                PinCall::Pin => vm.unpin_pages(&frames, RefHandling::Batched, Dirty::Mark).unwrap(),
            }
        }
    }
    assert_eq!(mapped.len() as u64, BYTES >> 21);
    vm.validate().unwrap();
    yard.validate().unwrap();
    assert_eq!(map_bytes(&yard), ByteSize(before.0 - RETURNED.0), "memory has come back");
    drop(space);
    drop(mapped);
    assert_eq!(map_bytes(&yard), ByteSize(before.0 - RETURNED.0), "memory has come back");
    assert_eq!(yard.huge_pages().shrink(Huge, PAGES), Ok(PAGES));
    // SAFETY: the only view.
    unsafe { vm.destroy() }.unwrap();
    yard.validate().unwrap();
}

#[test]
fn the_bytes_of_a_page_lie_one_behind_the_other() {
    let yard = HostYard::with_memory(ByteSize::mib(64)).unwrap();
    reserve(&yard, Huge, 2);
    let page = yard.huge_pages().alloc(Huge).unwrap();
    let bytes = page.as_ptr().unwrap();
    // SAFETY: the page has 2 MiB, and this is its only handle.
    unsafe { bytes.write_bytes(7, 2 << 20) };
    yard.validate().unwrap();
    drop(page);
    assert_eq!(yard.huge_pages().shrink(Huge, 2), Ok(2));
    yard.validate().unwrap();
}

#[test]
fn the_map_of_a_shared_yard_gets_holes() {
    let memory = [(PfnRange::new(FIRST, PageCount(FRAMES)), NodeId(0))];
    let memory = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let config = YardConfig { map_init: written(), ..YardConfig::new(&[NodeId(0); 2]) };
    let yard = HostYard::builder().machine(&memory, &config).backing(Backing::Phantom).shared().build().unwrap();
    assert_eq!(map_bytes(&yard), MAP);
    reserve(&yard, Huge, PAGES);
    let left = ByteSize(MAP.0 - RETURNED.0);
    assert_eq!(map_bytes(&yard), left);
    let pages: Vec<_> = (0..PAGES).map(|_| yard.huge_pages().alloc(Huge).unwrap()).collect();
    drop(pages);
    assert_eq!(map_bytes(&yard), left, "memory has come back");
    yard.validate().unwrap();
    assert_eq!(yard.huge_pages().shrink(Huge, PAGES), Ok(PAGES));
    yard.validate().unwrap();
}
