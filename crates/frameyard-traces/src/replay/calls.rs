//! The calls of a replay: what an operation asks of the yard, and what came of it.

use frameyard::{Block, Order, Pfn, Platform, Yard};

use super::plan::Operation;

/// The block of the yard that stands for a recorded one. Zero: none.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PackedBlock(u64);

impl PackedBlock {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn new(pfn: Pfn, order: Order) -> Self {
        Self(pfn.0 << 8 | u64::from(order.0) << 1 | 1)
    }

    pub(super) fn get(self) -> Option<Block> {
        (self != Self::NONE).then_some(Block { pfn: Pfn(self.0 >> 8), order: Order((self.0 >> 1) as u8 & 0x7f) })
    }

    /// As a number, for an atomic.
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// From what [`bits`](Self::bits) returned.
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// What came of calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Calls {
    pub(super) pages_allocated: u64,
    /// Allocations that failed.
    pub(super) failures: u64,
    /// Frees of what the yard has not allocated.
    pub(super) skipped_frees: u64,
}

impl Calls {
    /// Does an operation, on the CPU that runs, where the recorded frame has the block `before`. Returns the block that it has then. `None`, and
    /// nothing is done, for a free of anything else than that block.
    #[inline]
    pub(super) fn operate<P: Platform>(
        &mut self,
        yard: &Yard<P>,
        operation: &Operation,
        before: PackedBlock,
    ) -> Option<PackedBlock> {
        if operation.is_alloc {
            if let Some(block) = before.get() {
                // The free is missing in the recording.
                self.release(yard, block);
            }
            return Some(self.allocate(yard, operation));
        }
        let block = before.get().filter(|block| block.order == operation.order)?;
        self.release(yard, block);
        Some(PackedBlock::NONE)
    }

    #[inline]
    fn allocate<P: Platform>(&mut self, yard: &Yard<P>, operation: &Operation) -> PackedBlock {
        match yard.alloc(operation.order, operation.gfp) {
            Ok(pfn) => {
                self.pages_allocated += operation.order.pages().0;
                PackedBlock::new(pfn, operation.order)
            }
            Err(_) => {
                self.failures += 1;
                PackedBlock::NONE
            }
        }
    }

    #[inline]
    pub(super) fn release<P: Platform>(&mut self, yard: &Yard<P>, block: Block) {
        self.skipped_frees += u64::from(yard.free(block.pfn, block.order).is_err());
    }
}
