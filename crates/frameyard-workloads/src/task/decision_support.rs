//! The loop of `decision-support`: queries that scan a part of a table through the page cache, fill a work area of anonymous
//! memory, like that of a hash join or a sort, and free the area at once.
//!
//! The frames of an area are allocated one by one and freed in one call. Where per-CPU lists are smaller than an area, each
//! query refills and drains them all the time.

use fastrand::Rng;
use frameyard::units::ZoneKind;
use frameyard::{ByteSize, PageCount, Platform};
use frameyard_vm::{File, MemoryAccess};
use serde::{Deserialize, Serialize};

use crate::mapping::{Pages, map, pages_of};
use crate::report::{TaskProblem, TaskReport};
use crate::runtime::Runtime;
use crate::site::{Site, TaskSpace};
use crate::stamp::PAGE;

/// Pages read at a time.
const CHUNK: u64 = 16;
/// The largest scan or area is two to this power times the smallest.
const OCTAVES: u32 = 6;
/// Scans of full length that fit into the table of a task.
const TABLE: u64 = 4;

/// What the queries of one task use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueryMix {
    /// Pages of the largest work area.
    area: u64,
    /// Pages of the longest scan.
    scan: u64,
}

impl QueryMix {
    /// Queries with work areas and scans up to these sizes, which are rounded down to whole pages, at least one. The smallest are
    /// a 64th of the largest. A task caches as much of its table as its longest scan reads, and somewhat more during a query.
    #[must_use]
    pub fn new(work_area: ByteSize, scan: ByteSize) -> Self {
        let pages = |size: ByteSize| (size.0 / PAGE as u64).max(1);
        Self { area: pages(work_area), scan: pages(scan) }
    }

    /// The largest work area.
    #[must_use]
    pub fn work_area(self) -> ByteSize {
        ByteSize(self.area * PAGE as u64)
    }

    /// The longest scan.
    #[must_use]
    pub fn scan(self) -> ByteSize {
        ByteSize(self.scan * PAGE as u64)
    }

    /// Runs queries until told to stop. An iteration is one page read or touched; a round is one query.
    pub(crate) fn run<P: Platform, R: Runtime>(&self, site: &Site<'_, '_, P, R>) -> Result<TaskReport, TaskProblem> {
        let space = site.space()?;
        let scan = self.scan;
        let table = site.vm.create_file(site.number.into(), ByteSize(self.scan().0 * TABLE))?;
        let (mut random, mut buffer) = (Rng::with_seed(site.seed), vec![0; CHUNK as usize * PAGE]);
        let begin = site.begin()?;
        let (mut iterations, mut rounds) = (0, 0);
        while !site.is_over() {
            let pages = random_size(&mut random, scan);
            let first = random.u64(..=scan * TABLE - pages);
            iterations += read(site, &table, (first, pages), &mut buffer)?;
            let area = random_size(&mut random, self.area);
            iterations += use_area(site, &space, PageCount(area))?;
            evict(site, &table, scan);
            rounds += 1;
            site.runtime.round_ends(iterations);
        }
        Ok(site.runtime.report(begin, iterations, rounds))
    }
}

/// A random number of pages up to `most`. Each octave is equally likely, so small queries are frequent and large ones use most
/// of the memory.
fn random_size(random: &mut Rng, most: u64) -> u64 {
    let largest = most >> random.u32(..OCTAVES);
    random.u64(largest / 2..=largest).max(1)
}

/// Reads pages of a table, from `first` on. Returns the number of pages read.
fn read<P: Platform, R: Runtime>(
    site: &Site<'_, '_, P, R>,
    table: &File<'_, P>,
    (first, pages): (u64, u64),
    buffer: &mut [u8],
) -> Result<u64, TaskProblem> {
    let mut read = 0;
    while read < pages && !site.is_over() {
        let chunk = CHUNK.min(pages - read);
        table.read((first + read) * PAGE as u64, &mut buffer[..chunk as usize * PAGE])?;
        read += chunk;
    }
    Ok(read)
}

/// Maps a work area, touches its pages and unmaps it. Returns the number of pages touched.
fn use_area<P: Platform, R: Runtime>(
    site: &Site<'_, '_, P, R>,
    space: &TaskSpace<'_, '_, P>,
    pages: PageCount,
) -> Result<u64, TaskProblem> {
    let range = map(space, ByteSize(pages.0 * PAGE as u64), Pages::Small)?;
    let mut touched = 0;
    for addr in pages_of(range) {
        if site.is_over() {
            break;
        }
        space.touch(addr, MemoryAccess::Write)?;
        touched += 1;
    }
    space.unmap(range)?;
    Ok(touched)
}

/// Reclaims the pages by which the table's cache exceeds `most`: the least recently used pages of all tables.
fn evict<P: Platform, R: Runtime>(site: &Site<'_, '_, P, R>, table: &File<'_, P>, most: u64) {
    let excess = table.pages().0.saturating_sub(most);
    if excess > 0 {
        let yard = site.vm.yard();
        let node = yard.node_of_cpu(yard.platform().current_cpu());
        site.vm.reclaim_pages(node, ZoneKind::Movable, PageCount(excess));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_span_six_octaves_and_half_of_them_are_below_an_eighth() {
        let mut random = Rng::with_seed(1);
        let sizes: Vec<u64> = (0..6000).map(|_| random_size(&mut random, 1 << 14)).collect();
        assert!(sizes.iter().all(|size| (1 << 8..=1 << 14).contains(size)));
        assert!(sizes.iter().any(|size| *size < 1 << 9) && sizes.iter().any(|size| *size > 1 << 13));
        let small = sizes.iter().filter(|size| **size <= 1 << 11).count();
        assert!((2800..3200).contains(&small), "{small}");
        assert_eq!(random_size(&mut random, 1), 1);
    }
}
