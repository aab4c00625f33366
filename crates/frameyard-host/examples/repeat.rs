//! Allocates and frees one block repeatedly, for counting instructions.
//!
//! ```console
//! cargo build --release -p frameyard-host --example repeat
//! for steps in 100000 300000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/repeat $steps 0
//! done
//! ```
//!
//! The difference between two counts, divided by the difference between the numbers of steps, is the cost of a pair.
//! The CPU is fixed because valgrind provides no `rseq`. Natively the CPU number comes from `rseq`, in no more
//! instructions.

use std::error::Error;

use frameyard::boot::ZoneLimits;
use frameyard::{AllocError, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Yard, YardConfig};
use frameyard_host::{Backing, CpuIdentity, HostPlatform, HostTopology, HostYard};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let steps: u64 = arguments.next().ok_or("how many steps?")?.parse()?;
    let order = Order(arguments.next().unwrap_or_else(|| "0".to_owned()).parse()?);
    let memory = [(PfnRange::new(Pfn(0x10_0000), PageCount(1 << 18)), NodeId(0))];
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let yard = HostYard::builder().backing(Backing::Phantom).identity(CpuIdentity::Fixed(frameyard::CpuId(0))).build(
        &table,
        &config,
        &HostTopology::current()?,
    )?;
    Ok(repeat(&yard, order, steps)?)
}

#[inline(never)]
fn repeat(yard: &Yard<HostPlatform>, order: Order, steps: u64) -> Result<(), AllocError> {
    for _ in 0..steps {
        let block = yard.alloc(order, Gfp::HIGHUSER_MOVABLE)?;
        let freed = yard.free(block, order);
        assert!(freed.is_ok(), "{freed:?}");
    }
    Ok(())
}
