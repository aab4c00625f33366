//! Allocates and frees a block, repeatedly, through the C interface or the Rust one, for counting instructions.
//!
//! ```console
//! cargo build --release -p frameyard-c --example pair
//! for interface in rust c; do
//!     for pairs in 100000 300000; do
//!         valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/pair $interface $pairs 0
//!     done
//! done
//! ```
//!
//! The arguments: `rust` or `c`, pairs of an allocation and a free, and the order. The difference between two counts, divided by the
//! difference between the numbers of pairs, is the cost of a pair. Both loops call functions that are not inlined, with an order and
//! flags that are not constant. Valgrind provides no `rseq`, so CPUs lock their lists, unless the build has
//! `RUSTFLAGS="--cfg frameyard_counted"`: the program then writes 0 as the number of its CPU where the kernel would write it.

use std::error::Error;
use std::hint::black_box;
use std::ptr;

use frameyard_c::hosted::{FY_BACKING_PHANTOM, fy_alloc, fy_config, fy_free, fy_yard, fy_yard_create, fy_yard_destroy};
use frameyard_c::shared::{FY_GFP_USER, FY_VERSION, fy_status};
use frameyard_host::{AllocError, Backing, ByteSize, FreeError, Gfp, HostYard, Order, Pfn};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let interface = arguments.next().ok_or("the first argument is rust or c")?;
    let mut number = |default: u32| arguments.next().map_or(Ok(default), |text| text.parse());
    let (pairs, order) = (number(100_000)?, number(0)?);
    #[cfg(all(frameyard_counted, target_arch = "x86_64"))]
    pretend_cpu_0();
    match interface.as_str() {
        "rust" => through_rust(pairs, order),
        "c" => through_c(pairs, order),
        other => Err(format!("{other} is no interface: rust or c").into()),
    }
}

const MEMORY: ByteSize = ByteSize::gib(4);

#[inline(never)]
fn alloc(yard: &HostYard, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
    yard.alloc(order, gfp)
}

#[inline(never)]
fn free(yard: &HostYard, pfn: Pfn, order: Order) -> Result<(), FreeError> {
    yard.free(pfn, order)
}

#[inline(never)]
fn through_rust(pairs: u32, order: u32) -> Result<(), Box<dyn Error>> {
    let yard = HostYard::builder().backing(Backing::Phantom).size(MEMORY).build()?;
    let (order, gfp) = black_box((Order(order as u8), Gfp::HIGHUSER_MOVABLE));
    for _ in 0..pairs {
        let pfn = alloc(&yard, order, gfp)?;
        free(&yard, pfn, order)?;
    }
    Ok(())
}

#[inline(never)]
fn through_c(pairs: u32, order: u32) -> Result<(), Box<dyn Error>> {
    let config = fy_config {
        size: size_of::<fy_config>(),
        version: FY_VERSION,
        cpus: 0,
        memory: MEMORY.0,
        frame_size: 0,
        device_space: 0,
        backing: FY_BACKING_PHANTOM,
        huge_pages: 0,
        policy: ptr::null(),
        log: None,
        log_context: ptr::null_mut(),
    };
    let mut yard: *mut fy_yard = ptr::null_mut();
    let mut frame = 0;
    let good = |status: fy_status| if status == fy_status::FY_OK { Ok(()) } else { Err(format!("{status:?}")) };
    // SAFETY: the configuration and the place of the handle are variables here.
    good(unsafe { fy_yard_create(&raw const config, &raw mut yard, ptr::null_mut()) })?;
    let (order, flags) = black_box((order, FY_GFP_USER));
    for _ in 0..pairs {
        // SAFETY: the handle is in use until the loop ends. The frame is a variable here.
        good(unsafe { fy_alloc(yard, order, flags, &raw mut frame, ptr::null_mut()) })?;
        // SAFETY: as above.
        good(unsafe { fy_free(yard, frame, order, ptr::null_mut()) })?;
    }
    // SAFETY: nothing uses the handle any more.
    unsafe { fy_yard_destroy(yard) };
    Ok(())
}

/// Writes the number of the calling thread's CPU.
#[cfg(all(frameyard_counted, target_arch = "x86_64"))]
fn pretend_cpu_0() {
    unsafe extern "C" {
        static __rseq_offset: isize;
    }
    // SAFETY: a constant of glibc: the distance of the thread's area from the thread pointer, which points to itself. The CPU number is
    // behind 4 bytes there.
    unsafe {
        let thread: *mut u8;
        core::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(nostack, readonly));
        thread.offset(__rseq_offset + 4).cast::<u32>().write_volatile(0);
    }
}
