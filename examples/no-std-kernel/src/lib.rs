//! Frameyard in a kernel: no `std`, no heap, one CPU, 16 MiB of memory.
//!
//! | file | shows |
//! |---|---|
//! | `lib.rs` | early memory, a [`Yard`] in a static, the kernel's allocation functions |
//! | `interrupts.rs` | a [`Platform::Guard`] that disables interrupts, and so keeps other code off the CPU's lists |
//!
//! A real kernel takes its memory from the firmware's table instead of `RAM`, reserves its image there, and gives each CPU its number.
#![cfg_attr(not(test), no_std)]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};

use frameyard::boot::{EarlyBootError, ZoneLimits};
use frameyard::memblock::{EarlyMemory, Memblock, RegionFlags};
use frameyard::platform::SequencesNotEnded;
use frameyard::units::PhysAddr;
use frameyard::{
    AllocError, ByteSize, CpuId, FreeError, Geometry, Gfp, NodeId, Order, Pfn, Platform, Yard, YardConfig,
};

mod interrupts;

pub use interrupts::InterruptsOff;

/// The kernel's memory: 4096 frames.
const RAM_BYTES: usize = 16 << 20;
/// The physical address of the first byte.
const RAM_BASE: PhysAddr = PhysAddr(16 << 20);
/// Pages of 4 KiB, pageblocks of 2 MiB, and one section for all of [`RAM`].
const GEOMETRY: Geometry = match Geometry::new(ByteSize(4096), ByteSize(RAM_BYTES as u64), Order(9), Order(10)) {
    Ok(geometry) => geometry,
    Err(_) => panic!("a section is a power of two and holds whole blocks"),
};
static RAM: Ram = Ram(UnsafeCell::new([0; RAM_BYTES]));
static YARD: OnceYard = OnceYard { state: AtomicU8::new(EMPTY), yard: UnsafeCell::new(MaybeUninit::uninit()) };

/// The machine's memory, which a real kernel finds there.
#[repr(C, align(4096))]
struct Ram(UnsafeCell<[u8; RAM_BYTES]>);

// SAFETY: the bytes are accessed only through raw pointers, by the owners of their frames.
unsafe impl Sync for Ram {}

/// Where a range of physical memory is: the kernel's direct map.
fn direct_map(start: PhysAddr, size: ByteSize) -> Option<NonNull<u8>> {
    let offset = start.0.checked_sub(RAM_BASE.0)?;
    let is_inside = offset.checked_add(size.0).is_some_and(|end| end <= RAM_BYTES as u64);
    // SAFETY: the offset is inside the memory.
    is_inside.then(|| unsafe { NonNull::from(&RAM.0).cast().add(offset as usize) })
}

/// The memory that the kernel uses before there is a yard.
struct Early;

// SAFETY: the memory is mapped for ever. `init` makes the only value, and nothing else uses the memory before the yard has it.
unsafe impl EarlyMemory for Early {
    fn map(&self, start: PhysAddr, size: ByteSize) -> Option<NonNull<u8>> {
        direct_map(start, size)
    }
}

/// What the yard needs from this kernel.
#[derive(Debug)]
pub struct Kernel;

impl Platform for Kernel {
    type Guard = InterruptsOff;

    /// Interrupt handlers allocate and free, so no handler may run while its CPU holds a lock of the yard.
    fn guard(&self) -> InterruptsOff {
        InterruptsOff::enter()
    }

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    /// Pauses, and never sleeps: the caller may hold locks, or be an interrupt handler. 32 pauses take about 1 µs.
    ///
    /// With one CPU and interrupts disabled under every lock, a lock is never contended; a kernel for several CPUs waits here.
    fn spin(&self, round: u32) {
        for _ in 0..1 << round.min(5) {
            core::hint::spin_loop();
        }
    }

    /// Handlers are off the CPU while a guard exists, so its lists need no lock.
    fn has_sequences(&self) -> bool {
        true
    }

    /// There is one CPU, and the caller has no guard. A kernel for several CPUs interrupts each other one here and waits for its answer.
    fn end_sequences(&self, _cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        Ok(())
    }

    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        direct_map(GEOMETRY.address_of(pfn), GEOMETRY.page_size())
    }
}

/// Why the yard could not be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// The memory is too small, or the table is wrong.
    Boot(EarlyBootError),
    /// Another call is creating the yard, or failed to.
    Taken,
}

impl From<EarlyBootError> for SetupError {
    fn from(error: EarlyBootError) -> Self {
        Self::Boot(error)
    }
}

const EMPTY: u8 = 0;
const IN_PROGRESS: u8 = 1;
const READY: u8 = 2;

/// A yard that is created once, at boot.
struct OnceYard {
    state: AtomicU8,
    yard: UnsafeCell<MaybeUninit<Yard<Kernel>>>,
}

// SAFETY: `init` writes the yard once, before it stores READY. Afterwards it is only read, and a yard is `Sync`.
unsafe impl Sync for OnceYard {}

/// Creates the yard. Called once, early at boot.
///
/// # Errors
///
/// [`SetupError`]. A failed call leaves the kernel without a yard for good.
pub fn init() -> Result<&'static Yard<Kernel>, SetupError> {
    // Relaxed: the exchange only elects the caller that creates the yard; `yard` orders its contents.
    if YARD.state.compare_exchange(EMPTY, IN_PROGRESS, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return Err(SetupError::Taken);
    }
    // Eight regions are enough here. With the default of 128, a memblock is too large for many stacks.
    let mut memblock = Memblock::<_, 8>::with_geometry(Early, GEOMETRY);
    memblock
        .add_node(RAM_BASE, ByteSize(RAM_BYTES as u64), NodeId(0), RegionFlags::NONE)
        .map_err(EarlyBootError::from)?;
    let config = YardConfig { geometry: GEOMETRY, zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0)]) };
    // SAFETY: the memory is mapped for ever, and has no other user: this function runs once. `frame_bytes` maps all of it.
    let yard = unsafe { Yard::from_memblock(&mut memblock, &config, Kernel) }?;
    // SAFETY: the state admits one caller, and readers only after READY.
    let yard: &'static Yard<Kernel> = unsafe { (*YARD.yard.get()).write(yard) };
    // Release: pairs with the Acquire in `yard`.
    YARD.state.store(READY, Ordering::Release);
    Ok(yard)
}

/// The yard; `None` before [`init`] has succeeded.
pub fn yard() -> Option<&'static Yard<Kernel>> {
    // Acquire: pairs with the Release in `init`.
    let is_ready = YARD.state.load(Ordering::Acquire) == READY;
    // SAFETY: READY is stored after the yard was written, and the yard is never written again.
    is_ready.then(|| unsafe { (*YARD.yard.get()).assume_init_ref() })
}

/// A zeroed frame for a page table.
///
/// # Errors
///
/// [`AllocError`].
pub fn page_table_frame() -> Result<Pfn, AllocError> {
    yard().ok_or(AllocError::Empty)?.alloc(Order::ZERO, Gfp::KERNEL | Gfp::ZERO)
}

/// A frame for an interrupt handler, which must not wait and may use the reserves.
///
/// # Errors
///
/// [`AllocError`].
pub fn interrupt_frame() -> Result<Pfn, AllocError> {
    yard().ok_or(AllocError::Empty)?.alloc(Order::ZERO, Gfp::ATOMIC)
}

/// Frees a frame of [`page_table_frame`] or [`interrupt_frame`].
///
/// # Errors
///
/// [`FreeError`] where the frame is not allocated.
pub fn free_frame(pfn: Pfn) -> Result<(), FreeError> {
    match yard() {
        Some(yard) => yard.free(pfn, Order::ZERO),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use frameyard::PageCount;

    use super::*;

    /// One test: the yard is created once per process.
    #[test]
    fn boots_allocates_and_masks_interrupts() {
        assert!(yard().is_none());
        let yard = init().expect("the regions are large enough");
        assert_eq!(init().unwrap_err(), SetupError::Taken);

        let free = yard.stats().free_pages();
        let table = page_table_frame().unwrap();
        let bytes = Kernel.frame_bytes(table).unwrap();
        // SAFETY: the frame is allocated to this test.
        assert!(unsafe { core::slice::from_raw_parts(bytes.as_ptr(), 4096) }.iter().all(|byte| *byte == 0));

        assert!(interrupts::are_enabled());
        {
            let _outer = Kernel.guard();
            let _inner = Kernel.guard();
            assert!(!interrupts::are_enabled());
            // A handler may allocate while the interrupted code holds no lock.
            let frame = interrupt_frame().unwrap();
            free_frame(frame).unwrap();
            assert!(!interrupts::are_enabled(), "the guards inside are dropped with interrupts still disabled");
        }
        assert!(interrupts::are_enabled());

        free_frame(table).unwrap();
        assert!(free_frame(table).is_err(), "a second free is refused");
        let held = || yard.stats().zones().map(|zone| zone.per_cpu).sum::<PageCount>();
        assert!(held() > PageCount(0), "the CPU's list has frames");
        yard.drain_all();
        assert_eq!(held(), PageCount(0), "a drain takes them");
        assert_eq!(yard.stats().free_pages(), free);
        yard.validate().unwrap();
        assert_eq!(Kernel.frame_bytes(Pfn(0)), None);
    }
}
