//! `churn`: allocates and frees blocks of mixed orders and types at random, and leaves some allocated.
//!
//! Afterwards the free lists hold blocks of several orders, and pageblocks have several types. On a platform with a fixed
//! CPU the same seed leaves the same yard.

use std::fmt;

use fastrand::Rng;
use frameyard::{AllocError, Block, FreeError, Gfp, NodeId, Order, Pfn, Yard};
use frameyard_host::HostPlatform;

/// Allocations and frees.
const STEPS: u32 = 100_000;

/// At most one part in this number of all memory is allocated at a time.
const LIVE_PART: u64 = 4;

/// Why the workload ended early. Either is a fault of the yard: the workload stays within its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChurnError {
    /// A request failed for another reason than a lack of memory.
    Alloc(AllocError),
    /// A free failed.
    Free(FreeError),
}

impl fmt::Display for ChurnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc(error) => write!(f, "churn: {error}"),
            Self::Free(error) => write!(f, "churn: {error}"),
        }
    }
}

impl std::error::Error for ChurnError {}

/// Runs the workload on the calling thread. Blocks that it still holds at the end stay allocated.
///
/// # Errors
///
/// [`ChurnError`] for a fault of the yard.
pub fn churn(yard: &Yard<HostPlatform>, seed: u64) -> Result<(), ChurnError> {
    let mut random = Rng::with_seed(seed);
    let most = yard.stats().managed_pages().0 / LIVE_PART;
    let mut live: Vec<Block> = Vec::new();
    let mut pages = 0;
    for _ in 0..STEPS {
        let order = random_order(&mut random, yard.geometry().max_order());
        if pages + order.pages().0 <= most && random.u8(..5) < 3 {
            match allocate(yard, &mut random, order) {
                Ok(pfn) => {
                    live.push(Block { pfn, order });
                    pages += order.pages().0;
                }
                // A zone, or the larger blocks, may run out long before memory does.
                Err(AllocError::OutOfMemory { .. }) => {}
                Err(error) => return Err(ChurnError::Alloc(error)),
            }
        } else if !live.is_empty() {
            let Block { pfn, order } = live.swap_remove(random.usize(..live.len()));
            yard.free(pfn, order).map_err(ChurnError::Free)?;
            pages -= order.pages().0;
        }
    }
    Ok(())
}

/// Three of four requests prefer the caller's node, one a random node.
fn allocate(yard: &Yard<HostPlatform>, random: &mut Rng, order: Order) -> Result<Pfn, AllocError> {
    let kinds = [Gfp::KERNEL, Gfp::KERNEL | Gfp::RECLAIMABLE, Gfp::HIGHUSER_MOVABLE, Gfp::HIGHUSER_MOVABLE];
    let gfp = kinds[random.usize(..kinds.len())] | Gfp::NOWARN;
    if random.u8(..4) == 0 {
        return yard.request(order, gfp).node(NodeId(random.u16(..yard.nodes()))).frame();
    }
    yard.alloc(order, gfp)
}

/// Order 0 in half of the cases, each higher order half as often as the one below.
fn random_order(random: &mut Rng, most: Order) -> Order {
    Order((random.u64(..).trailing_zeros() as u8).min(most.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use frameyard::{MemoryTable, PageCount, PfnRange, YardConfig};
    use frameyard_host::{Backing, CpuIdentity, HostYard};

    /// 512 MiB on each of two nodes, one CPU.
    fn small() -> HostYard {
        let node = |start, node| (PfnRange::new(Pfn(start), PageCount(1 << 17)), NodeId(node));
        let memory = [node(0x10_0000, 0), node(0x12_0000, 1)];
        let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
        let builder = HostYard::builder().backing(Backing::Phantom).identity(CpuIdentity::Fixed(frameyard::CpuId(0)));
        builder.machine(&table, &YardConfig::new(&[NodeId(0), NodeId(1)])).build().unwrap()
    }

    #[test]
    fn some_memory_stays_allocated_and_the_yard_is_consistent() {
        let yard = small();
        let before = yard.stats().free_pages();
        churn(yard.core(), 7).unwrap();
        yard.validate().unwrap();
        assert!(yard.stats().free_pages() < before);
        let zones: Vec<_> = yard.stats().zones().collect();
        assert!(zones.iter().any(|zone| zone.frees > 0));
        assert!(zones.iter().all(|zone| zone.allocations >= zone.frees));
    }

    #[test]
    fn the_same_seed_leaves_the_same_yard() {
        let [first, again, other] = [1, 1, 2].map(|seed| {
            let yard = small();
            churn(yard.core(), seed).unwrap();
            yard.stats().zones().collect::<Vec<_>>()
        });
        assert_eq!(first, again);
        assert_ne!(first, other);
    }
}
