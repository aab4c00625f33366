//! Counting the events of a recording, one pass.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use frameyard::{CpuId, MigrateType, Order};
use frameyard_traces::{BadLines, GfpFlags, Imported, Item, PageEvent, TraceError, TraceEvent, TracedBlock, import};

use super::super::facts::Facts;

/// Limits of lifetimes.
pub(super) const LIFETIMES_US: [u64; 7] = [10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// The most samples of the live pages.
const MOST_SAMPLES: usize = 32;

/// A value over time, of a recording whose length is not known: every n-th event has a sample, and n doubles when there are too many.
#[derive(Debug)]
pub(super) struct Samples {
    every: u64,
    events: u64,
    samples: Vec<(u64, u64)>,
    last: Option<(u64, u64)>,
}

impl Default for Samples {
    fn default() -> Self {
        Self { every: 1, events: 0, samples: Vec::new(), last: None }
    }
}

impl Samples {
    fn add(&mut self, time_us: u64, value: u64) {
        if self.events.is_multiple_of(self.every) {
            self.samples.push((time_us, value));
        }
        self.events += 1;
        self.last = Some((time_us, value));
        if self.samples.len() > MOST_SAMPLES {
            self.every *= 2;
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
    }

    /// Times and values; the last event has one.
    pub(super) fn get(&self) -> impl Iterator<Item = (u64, u64)> {
        let last = self.last.filter(|last| self.samples.last() != Some(last));
        self.samples.iter().copied().chain(last)
    }
}

/// Blocks allocated and freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Flow {
    pub(super) allocated: u64,
    pub(super) freed: u64,
}

/// A block that is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Live {
    order: Order,
    migrate_type: MigrateType,
    cpu: CpuId,
    time_us: u64,
}

/// The counts of a trace.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) times: Option<(u64, u64)>,
    /// By order and type; no type where the trace does not have the allocation.
    pub(super) flows: BTreeMap<(Order, Option<MigrateType>), Flow>,
    pub(super) failed: u64,
    pub(super) freed_in_batches: u64,
    /// Frees on another CPU than that of the allocation.
    pub(super) freed_elsewhere: u64,
    /// Allocations of a frame that was allocated: its free is missing.
    pub(super) allocated_twice: u64,
    pub(super) extfrag: u64,
    /// Pages that left the free lists under the zone lock: for per-CPU lists, and for requests that bypass them.
    pub(super) zone_locked_pages: u64,
    /// Those of them for per-CPU lists. Kernels before 5.19 do not tell them apart.
    pub(super) refilled_pages: u64,
    pub(super) drained_pages: u64,
    /// Requests by flags: number and pages.
    pub(super) flags: BTreeMap<GfpFlags, (u64, u64)>,
    /// Blocks freed after a time below each of [`LIFETIMES_US`], and after a longer one; blocks and pages.
    pub(super) lifetimes: [(u64, u64); LIFETIMES_US.len() + 1],
    /// Pages that are live, over time.
    pub(super) live_over_time: Samples,
    live: HashMap<u64, Live>,
    pub(super) live_pages: u64,
    pub(super) peak_pages: u64,
    pub(super) facts: Facts,
}

impl Counted {
    /// Counts the events of a recording. A line that cannot be read is an error.
    pub(super) fn read(source: impl Read) -> Result<(Self, Imported), TraceError> {
        let mut counted = Self::default();
        let imported = import(source, BadLines::Refuse, &mut |item| {
            match item {
                Item::Events(events) => events.iter().for_each(|event| counted.add(event)),
                Item::Fact { name, value } => counted.facts.add(&name, &value),
                Item::Snapshot { .. } => {}
            }
            Ok(())
        })?;
        Ok((counted, imported))
    }

    fn add(&mut self, TraceEvent { cpu, time_us, what, .. }: &TraceEvent) {
        let (first, last) = self.times.unwrap_or((*time_us, *time_us));
        self.times = Some((first.min(*time_us), last.max(*time_us)));
        match what {
            PageEvent::Alloc { pfn: Some(pfn), order, migrate_type, gfp } => {
                let block = TracedBlock { pfn: *pfn, order: *order };
                let (requests, pages) = self.flags.entry(*gfp).or_default();
                (*requests, *pages) = (*requests + 1, *pages + order.pages().0);
                let live = Live { order: *order, migrate_type: *migrate_type, cpu: *cpu, time_us: *time_us };
                self.allocate(block, live);
            }
            PageEvent::Alloc { pfn: None, .. } => self.failed += 1,
            PageEvent::Free(block) => self.free(*block, *cpu, *time_us),
            PageEvent::FreeBatched(_) => self.freed_in_batches += 1,
            PageEvent::AllocZoneLocked { block, percpu_refill, .. } => {
                let pages = block.order.pages().0;
                self.zone_locked_pages += pages;
                self.refilled_pages += if *percpu_refill == Some(true) { pages } else { 0 };
            }
            PageEvent::PcpuDrain { block, .. } => self.drained_pages += block.order.pages().0,
            PageEvent::ExtFrag(_) => self.extfrag += 1,
            PageEvent::Lost(_) => {}
        }
        self.live_over_time.add(*time_us, self.live_pages);
    }

    fn allocate(&mut self, block: TracedBlock, live: Live) {
        self.flows.entry((block.order, Some(live.migrate_type))).or_default().allocated += 1;
        if let Some(before) = self.live.insert(block.pfn.0, live) {
            self.allocated_twice += 1;
            self.live_pages -= before.order.pages().0;
        }
        self.live_pages += block.order.pages().0;
        self.peak_pages = self.peak_pages.max(self.live_pages);
    }

    fn free(&mut self, block: TracedBlock, cpu: CpuId, time_us: u64) {
        let live = self.live.remove(&block.pfn.0);
        self.flows.entry((block.order, live.map(|live| live.migrate_type))).or_default().freed += 1;
        if let Some(live) = live {
            self.live_pages -= live.order.pages().0;
            self.freed_elsewhere += u64::from(live.cpu != cpu);
            let lifetime = time_us.saturating_sub(live.time_us);
            let (blocks, pages) = &mut self.lifetimes[LIFETIMES_US.partition_point(|below| *below <= lifetime)];
            (*blocks, *pages) = (*blocks + 1, *pages + live.order.pages().0);
        }
    }

    /// Pages of all flows.
    pub(super) fn pages(&self, blocks: impl Fn(&Flow) -> u64) -> u64 {
        self.flows.iter().map(|((order, _), flow)| blocks(flow) << order.0).sum()
    }

    pub(super) fn pages_allocated(&self) -> u64 {
        self.pages(|flow| flow.allocated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stay_few_and_have_the_begin_and_the_end() {
        let mut samples = Samples::default();
        (0..100_001).for_each(|time| samples.add(time, 2 * time));
        let all: Vec<_> = samples.get().collect();
        assert!((MOST_SAMPLES / 2..=MOST_SAMPLES + 1).contains(&all.len()), "{}", all.len());
        assert_eq!((all[0], all[all.len() - 1]), ((0, 0), (100_000, 200_000)));
        assert!(all.is_sorted() && all.iter().all(|(time, value)| *value == 2 * time));
    }
}
