//! The core as a kernel uses it: CPUs use their lists with preemption disabled. Allocates a frame and frees it, repeatedly,
//! for counting instructions.
//!
//! ```console
//! cargo build --release -p frameyard --example guarded_pair
//! for pairs in 100000 300000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/guarded_pair $pairs
//! done
//! ```
//!
//! The difference between two counts, divided by the difference between the numbers of pairs, is the cost of a pair. `cargo xtask instructions`
//! checks it.

use std::alloc::{Layout as HeapLayout, alloc_zeroed};
use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

use frameyard::boot::ZoneLimits;
use frameyard::platform::SequencesNotEnded;
use frameyard::{
    AllocError, ByteSize, CpuId, Gfp, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform,
    RawRegion, Yard, YardConfig,
};

/// What a kernel keeps for each CPU, and reaches by a segment register. A process reaches what it keeps for a thread that way.
struct ThisCpu {
    number: Cell<u32>,
    /// Guards that the CPU holds, and [`UNWANTED`]. As in Linux on x86-64, so that the drop of a guard
    /// compares one word with zero.
    preemption: Cell<u32>,
}

/// The scheduler does not want the CPU.
const UNWANTED: u32 = 1 << 31;

thread_local! {
    static THIS_CPU: ThisCpu =
        const { ThisCpu { number: Cell::new(0), preemption: Cell::new(UNWANTED) } };
}

/// A guard: preemption is disabled while it exists.
struct PreemptionOff;

impl PreemptionOff {
    #[inline(always)]
    fn enter() -> Self {
        THIS_CPU.with(|cpu| cpu.preemption.set(cpu.preemption.get().wrapping_add(1)));
        // The accesses under the guard come after this for an interrupt of this CPU.
        compiler_fence(Ordering::SeqCst);
        Self
    }
}

impl Drop for PreemptionOff {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        THIS_CPU.with(|cpu| {
            let left = cpu.preemption.get().wrapping_sub(1);
            cpu.preemption.set(left);
            if left == 0 {
                schedule();
            }
        });
    }
}

#[cold]
#[inline(never)]
fn schedule() {
    THIS_CPU.with(|cpu| cpu.preemption.set(UNWANTED));
}

/// A kernel with one CPU whose interrupt handlers do not use the yard.
struct Kernel;

impl Platform for Kernel {
    type Guard = PreemptionOff;

    #[inline(always)]
    fn guard(&self) -> PreemptionOff {
        PreemptionOff::enter()
    }

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        THIS_CPU.with(|cpu| CpuId(cpu.number.get()))
    }

    fn spin(&self, _round: u32) {
        std::hint::spin_loop();
    }

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }

    #[inline(always)]
    fn has_sequences(&self) -> bool {
        true
    }

    /// The caller has no guard, and there is no other CPU. A kernel interrupts the other CPUs here and waits for them.
    fn end_sequences(&self, _cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        assert_eq!(THIS_CPU.with(|cpu| cpu.preemption.get()), UNWANTED, "the caller may wait");
        Ok(())
    }
}

/// Zeroed memory for the rest of the program.
fn region(size: ByteSize) -> RawRegion {
    let layout = HeapLayout::from_size_align(size.0 as usize, 4096).expect("a size");
    // SAFETY: the layout has a size.
    let base = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
    RawRegion { base, size }
}

fn main() -> Result<(), Box<dyn Error>> {
    // The compiler does not see that these stay as they are.
    THIS_CPU.with(|cpu| black_box(cpu).number.set(0));
    let pairs = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let memory = [(PfnRange::new(Pfn(0x10_0000), PageCount(1 << 16)), NodeId(0))];
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0)]) };
    let layout = Layout::plan(&table, &config)?;
    let (map, control) = (region(layout.map_bytes()), region(layout.control_bytes()));
    // SAFETY: both regions are zeroed, nothing else uses them, and they are never freed. The frames have no bytes.
    let yard = unsafe { Yard::create(&table, &config, &layout, map, control, Kernel)? };
    repeat(&yard, pairs)?;
    assert!(yard.stats().zones().any(|zone| zone.per_cpu > PageCount(0)), "the list was used");
    yard.drain_all();
    Ok(yard.validate()?)
}

#[inline(never)]
fn repeat(yard: &Yard<Kernel>, pairs: u64) -> Result<(), AllocError> {
    for _ in 0..pairs {
        let pfn = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE)?;
        let freed = yard.free(pfn, Order::ZERO);
        assert!(freed.is_ok(), "{freed:?}");
    }
    Ok(())
}
