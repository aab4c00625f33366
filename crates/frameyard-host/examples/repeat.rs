//! Allocates blocks and frees them, repeatedly, for counting instructions.
//!
//! ```console
//! cargo build --release -p frameyard-host --example repeat
//! for pairs in 100000 300000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/repeat $pairs 0 1 bits
//! done
//! ```
//!
//! The arguments: pairs of an allocation and a free, the order, the blocks allocated before the first of them is freed, the
//! policy, the runs of memory: if there are several, the pairs use memory outside the largest run; when page structures are
//! checked; and `sections` or `locked`. The difference between two counts, divided by the difference between
//! the numbers of pairs, is the cost of a pair. Valgrind provides no `rseq`. With `sections`, in a build with `RUSTFLAGS="--cfg frameyard_counted"`, the program
//! itself writes 0 as the number of its CPU where the kernel would write it, and every instruction is that of a native run. Otherwise
//! the CPU is fixed and the lists are locked.

use std::error::Error;

use frameyard::boot::{PageChecks, ZoneLimits};
use frameyard::policy::ZonePolicy;
use frameyard::{
    AllocError, CpuId, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, Yard, YardConfig,
};
use frameyard_host::{Backing, CpuIdentity, HostPlatform, HostTopology, HostYard};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (pairs, order, held) = (number(100_000)?, Order(number(0)? as u8), number(1)?);
    let policy = arguments.next().map_or(Ok(ZonePolicy::default()), |name| name.parse())?;
    let runs: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let checks = arguments.next().map_or(Ok(PageChecks::None), |text| text.parse())?;
    let sequences = arguments.next().is_some_and(|word| word == "sections");
    // Runs of 1 GiB on node 0, 1 TiB apart. Behind them a larger one, on a node without CPUs.
    let run = |at: u64| (PfnRange::new(Pfn(0x10_0000 + (at << 28)), PageCount(1 << 18)), NodeId(0));
    let largest = (PfnRange::new(Pfn(1 << 40), PageCount(1 << 20)), NodeId(u16::from(runs > 1)));
    let memory: Vec<_> = (1..runs).map(run).chain([largest]).collect();
    let host = HostTopology::current()?;
    let cpus = vec![NodeId(0); if sequences { host.online().count() as usize } else { 1 }];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, policy, checks, ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let builder = HostYard::builder().backing(Backing::Phantom);
    let builder = if sequences {
        pretend_cpu_0();
        builder.identity(CpuIdentity::Rseq)
    } else {
        builder.identity(CpuIdentity::Fixed(CpuId(0)))
    };
    let yard = builder.machine(&table, &config).host(&host).build()?;
    assert_eq!(yard.platform().has_sequences(), sequences, "the system has what sequences need");
    Ok(repeat(yard.core(), order, pairs / held, held)?)
}

/// Writes the number of the calling thread's CPU.
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

#[inline(never)]
fn repeat(yard: &Yard<HostPlatform>, order: Order, rounds: u64, held: u64) -> Result<(), AllocError> {
    let mut blocks = vec![Pfn(0); held as usize];
    for _ in 0..rounds {
        for block in &mut blocks {
            *block = yard.alloc(order, Gfp::HIGHUSER_MOVABLE)?;
        }
        for block in &blocks {
            let freed = yard.free(*block, order);
            assert!(freed.is_ok(), "{freed:?}");
        }
    }
    Ok(())
}
