//! Pages of pools: reserved and handed out once, mapped one behind the other.

use frameyard::huge_pages::HugePageSize;
use frameyard::owners::Owners;
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, Pfn, PfnRange};
use frameyard_host::{DeviceAlignment, HostYard};
use frameyard_vm::{MapRequest, VirtAddr, VirtRange};

use super::{PAGE, PinFixture, PinKind, PinnedMemory};
use crate::error::WorkloadError;

/// Reserves pages of a pool for `size` of memory and hands all of them out by number; the ranges that they make up, ascending.
pub(super) fn hand_out(yard: &HostYard, page: HugePageSize, size: ByteSize) -> Result<Vec<PfnRange>, WorkloadError> {
    let pages = size.0 / (page.order().pages().0 * PAGE);
    let reserved = yard.huge_pages().reserve(page, pages, &Owners::NONE).map_err(WorkloadError::run_time)?;
    if let Some(problem) = reserved.stopped {
        return Err(WorkloadError::run_time(problem));
    }
    let handed_out = (0..pages).map(|_| yard.huge_pages().alloc(page).map(|page| page.into_pfn()));
    let mut heads: Vec<Pfn> = handed_out.collect::<Result<_, _>>().map_err(WorkloadError::run_time)?;
    heads.sort_unstable();
    let mut ranges: Vec<PfnRange> = Vec::new();
    for head in heads {
        match ranges.last_mut() {
            Some(last) if last.end == head => last.end = head + page.order().pages(),
            _ => ranges.push(PfnRange::new(head, page.order().pages())),
        }
    }
    Ok(ranges)
}

impl PinKind {
    /// The size of the pages of a pool.
    pub(super) fn pooled(self) -> Option<HugePageSize> {
        match (self.memory, self.page) {
            (PinnedMemory::Pool, DeviceAlignment::Gigantic) => Some(HugePageSize::Gigantic),
            (PinnedMemory::Pool, _) => Some(HugePageSize::Huge),
            _ => None,
        }
    }
}

impl PinFixture<'_> {
    /// Maps pages of a pool one behind the other.
    pub(super) fn map_pooled(&self, kind: PinKind) -> Result<VirtRange, WorkloadError> {
        let space = &self.space;
        let ranges = self.yard.pooled.iter().filter(|(page, _)| kind.pooled() == Some(*page)).map(|(_, range)| *range);
        let request = |range: PfnRange, bytes| MapRequest::pooled(PhysAddr(range.start.0 * PAGE), bytes, kind.level());
        let first = ranges.clone().next().ok_or_else(|| WorkloadError::run_time("no pool of that size"))?;
        // Finds addresses for all of them.
        let all = space.map(request(first, self.yard.size)).map_err(WorkloadError::run_time)?;
        let _ = space.unmap(all).map_err(WorkloadError::run_time)?;
        let mut at = all.start;
        for range in ranges {
            let bytes = ByteSize(range.count().0 * PAGE);
            space.map(request(range, bytes).at(at)).map_err(WorkloadError::run_time)?;
            at = VirtAddr(at.0 + bytes.0);
        }
        Ok(all)
    }
}
