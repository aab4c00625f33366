//! Writing the memory map while it is initialised: long runs of page structures.

use frameyard::Pfn;
use frameyard::platform::MapWrite;

use super::Engine;
use crate::account::{Accessed, Cause, Spent};
use crate::lines::{PageLine, Use};
use crate::time::Picos;

/// The name of the cost of writing a page structure and freeing its page, beside the line. Every machine has it.
pub(crate) const COST: &str = "map-page";

/// Page structures charged at once: few enough that CPUs meet at the memory channel in order.
const PIECE: u64 = 16;

impl Engine {
    /// The source of a line of a long run in a node's memory, and its time. The threads of a core share the lines in
    /// flight.
    fn line_of_run(&self, node: usize, lines_in_flight: f64) -> (Cause, Picos) {
        let place = self.context.place;
        let (cause, latency) = if usize::from(place.socket) == node {
            (Cause::LocalMemory, self.machine.costs.local_memory_ns)
        } else {
            (Cause::RemoteMemory, self.machine.costs.remote_memory_ns)
        };
        let threads = f64::from(self.busy_threads(place.core).max(1));
        (cause, Picos((latency * 1000.0 * threads / lines_in_flight).round() as u64))
    }

    /// The running CPU writes the first of `count` consecutive page structures. Returns the number written.
    pub(crate) fn write_map(&mut self, first: Pfn, count: u64, how: MapWrite) -> u64 {
        let pages = count.min(PIECE);
        let node = self.node_of(first);
        let costs = self.machine.map_init;
        let kilocycle = self.kilocycle() as f64;
        let cycles = (costs.page_cycles * pages as f64 * kilocycle / 1024.0).round() as u64;
        let memset_each = costs.memset_lines_in_flight.filter(|_| how == MapWrite::MemsetEach);
        let (cause, line) = self.line_of_run(node, memset_each.unwrap_or(costs.lines_in_flight));
        self.charge(Spent::Cost(self.map_page).slot(), Picos(cycles));
        self.charge(Spent::Access(Accessed::Pages, cause).slot(), Picos(line.0 * pages));
        let transfers = match how {
            MapWrite::Cached | MapWrite::MemsetEach => 2.0,
            MapWrite::Memset => costs.memset_transfers,
            MapWrite::Streamed => 1.0,
        };
        let lines = (transfers * pages as f64).round() as u64;
        let wait = self.channels[node].move_lines_at(self.context.clock, lines, costs.channel_share);
        if wait > Picos(0) {
            self.charge(Spent::Access(Accessed::Pages, Cause::Bandwidth).slot(), wait);
        }
        self.note_written(first, pages, how);
        pages
    }

    /// Written lines are in the writer's caches. Streamed lines are in none.
    fn note_written(&mut self, first: Pfn, pages: u64, how: MapWrite) {
        let line = match how {
            MapWrite::Streamed => 0,
            MapWrite::Cached | MapWrite::MemsetEach | MapWrite::Memset => {
                self.fill(pages, pages);
                PageLine::held(self.context.place.core, None, Use::Write, self.context.stamps).0
            }
        };
        let from = first.0.wrapping_sub(self.regions.frames.start.0) as usize;
        if let Some(entries) = self.pages.get_mut(from..from + pages as usize) {
            entries.fill(line);
        }
    }
}
