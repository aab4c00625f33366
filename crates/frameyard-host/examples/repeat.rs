//! Allocates blocks and frees them, repeatedly, for counting instructions.
//!
//! ```console
//! cargo build --release -p frameyard-host --example repeat
//! for pairs in 100000 300000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/repeat $pairs 0 1 depot
//! done
//! ```
//!
//! The arguments: pairs of an allocation and a free, the order, the blocks allocated before the first of them is freed, the
//! policy, the runs of memory: if there are several, the pairs use memory outside the largest run; and when page structures are
//! checked. The difference between two counts, divided by the difference between the numbers of pairs, is the cost of a pair.
//! The CPU is fixed because valgrind provides no `rseq`. Natively the CPU number comes from `rseq`, in no more instructions.

use std::error::Error;

use frameyard::boot::{PageChecks, ZoneLimits};
use frameyard::policy::ZonePolicy;
use frameyard::{AllocError, CpuId, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Yard, YardConfig};
use frameyard_host::{Backing, CpuIdentity, HostPlatform, HostTopology, HostYard};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (pairs, order, held) = (number(100_000)?, Order(number(0)? as u8), number(1)?);
    let policy = arguments.next().map_or(Ok(ZonePolicy::default()), |name| name.parse())?;
    let runs: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let checks = arguments.next().map_or(Ok(PageChecks::None), |text| text.parse())?;
    // Runs of 1 GiB on node 0, 1 TiB apart. Behind them a larger one, on a node without CPUs.
    let run = |at: u64| (PfnRange::new(Pfn(0x10_0000 + (at << 28)), PageCount(1 << 18)), NodeId(0));
    let largest = (PfnRange::new(Pfn(1 << 40), PageCount(1 << 20)), NodeId(u16::from(runs > 1)));
    let memory: Vec<_> = (1..runs).map(run).chain([largest]).collect();
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, policy, checks, ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let yard = HostYard::builder().backing(Backing::Phantom).identity(CpuIdentity::Fixed(CpuId(0))).build(
        &table,
        &config,
        &HostTopology::current()?,
    )?;
    Ok(repeat(&yard, order, pairs / held, held)?)
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
