//! Maps memory, faults pages in, reads it back, pins a page and unmaps.
//!
//! The platform is the smallest that works: one CPU, no interrupts, and 16 MiB of heap memory as the frames.

use std::alloc::{Layout as Heap, alloc_zeroed};
use std::error::Error;
use std::ptr::NonNull;

use frameyard::boot::ZoneLimits;
use frameyard::{
    ByteSize, CpuId, Layout, MemoryTable, NodeId, PageCount, Pfn, PfnRange, Platform, RawRegion, Yard, YardConfig,
};
use frameyard_vm::{ExitOutcome, MapRequest, MemoryAccess, VirtAddr, VirtRange, Vm, VmConfig};

const FIRST: Pfn = Pfn(0x1000);
const FRAMES: PageCount = PageCount(4096);
const PAGE: u64 = 4096;

/// Zeroed memory, aligned to a page, that is never freed.
fn memory(size: ByteSize) -> NonNull<u8> {
    let layout = Heap::from_size_align(size.0 as usize, PAGE as usize).expect("a valid layout");
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory")
}

/// One CPU, and the bytes of all frames.
struct OneCpu {
    frames: NonNull<u8>,
}

// SAFETY: the frames are plain memory that is never freed. The yard decides which code may access each frame.
unsafe impl Send for OneCpu {}
// SAFETY: as above.
unsafe impl Sync for OneCpu {}

impl Platform for OneCpu {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn spin(&self, _round: u32) {
        std::hint::spin_loop();
    }

    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        let index = pfn.0.checked_sub(FIRST.0).filter(|index| *index < FRAMES.0)?;
        // SAFETY: the index is below the number of frames.
        Some(unsafe { self.frames.add((index * PAGE) as usize) })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // A yard of 16 MiB, as in the documentation of `frameyard`.
    let memory_table = [(PfnRange::new(FIRST, FRAMES), NodeId(0))];
    let source = MemoryTable { memory: &memory_table, ..MemoryTable::default() };
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0)]) };
    let layout = Layout::plan(&source, &config)?;
    let region = |size| RawRegion { base: memory(size), size };
    let (map, control) = (region(layout.map_bytes()), region(layout.control_bytes()));
    let platform = OneCpu { frames: memory(ByteSize(FRAMES.0 * PAGE)) };
    // SAFETY: both regions are fresh zeroed memory without another user, and never freed.
    let yard = unsafe { Yard::create(&source, &config, &layout, map, control, platform)? };

    let vm = Vm::create(&yard, &VmConfig::default())?;
    let space = vm.create_space()?;

    // Map: reserves addresses, allocates nothing.
    let range = space.map(MapRequest::anonymous(ByteSize(64 * PAGE)))?;
    assert_eq!(space.statistics().resident, PageCount(0));

    // Fault: the first access to each page allocates and maps a zeroed frame.
    space.touch(range.start, MemoryAccess::Write)?;
    assert_eq!(space.statistics().resident, PageCount(1));

    // Write and read back across a page boundary.
    let addr = VirtAddr(range.start.0 + PAGE - 3);
    space.write(addr, b"frames")?;
    let mut bytes = [0; 6];
    space.read(addr, &mut bytes)?;
    assert_eq!(&bytes, b"frames");
    assert_eq!(space.statistics().resident, PageCount(2));

    // Pin: the frame stays, even after its address is unmapped.
    let pinned = space.pin(addr)?;
    assert_eq!(space.translate(addr).map(|found| found.pfn), Some(pinned.pfn()));
    let unmapped = space.unmap(VirtRange { start: range.start, end: range.end })?;
    assert_eq!(unmapped.pages, PageCount(2));
    assert!(space.read(addr, &mut bytes).is_err(), "nothing is mapped there any more");
    drop(pinned);

    // Exit: with the last handle all memory of the space returns to the yard.
    let one_worker = std::num::NonZeroUsize::MIN;
    assert!(matches!(space.exit(one_worker), Ok(ExitOutcome::Gone(_))));
    vm.validate()?;
    // SAFETY: no other view is left.
    unsafe { vm.destroy()? };
    yard.validate()?;
    assert_eq!(yard.stats().free_pages(), yard.stats().managed_pages());
    println!("mapped {range}, pinned and unmapped it: all {} are free again", yard.stats().free_pages());
    Ok(())
}
