//! The controller disturbs the tasks: it switches policies, compacts, allocates contiguous ranges, drains, resizes per-CPU
//! lists, and returns free memory to the host.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use frameyard::AllocError;
use frameyard::compaction::{CompactEffort, CompactOutcome, CompactRequest, CompactResult};
use frameyard::platform::FramesNotReturned;
use frameyard::policy::ZonePolicy;
use frameyard::reporting::ReportError;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Gfp, NodeId, Order, PageCount, PfnRange, ZoneId};
use frameyard_host::HostYard;

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::task::stress::holdings::{claim_range, free_range};
use crate::task::stress::shared_state::SharedState;

/// The longest contiguous range, in pageblocks.
const PAGEBLOCKS: u64 = 4;
/// The longest random pause between two disturbances.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a policy switch may take while no task uses the yard.
const SETTLE: Duration = Duration::from_secs(10);

/// Whether the controller switches the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Switching {
    /// It does not.
    No,
    /// It does, all the time.
    Yes,
}

/// What the controller did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disturbances {
    /// Policy switches.
    pub switches: u64,
    /// Compactions.
    pub compactions: u64,
    /// Compactions that gave up waiting for a CPU.
    pub compaction_stalls: u64,
    /// Pages that compaction migrated.
    pub migrated: u64,
    /// Contiguous ranges allocated.
    pub contiguous: u64,
    /// Requests for contiguous ranges that were refused.
    pub contiguous_refused: u64,
    /// Requests for contiguous ranges that gave up waiting for a CPU.
    pub contiguous_stalls: u64,
    /// Drains.
    pub drains: u64,
    /// Resizes of per-CPU lists.
    pub resizes: u64,
    /// Frames returned to the host.
    pub reported: u64,
}

/// The controller of a run.
pub(crate) struct Controller<'a> {
    fixture: &'a Fixture<'a>,
    state: &'a SharedState,
    switching: Switching,
    random: Rng,
    ranges: Vec<PfnRange>,
    zones: Vec<ZoneId>,
    done: Disturbances,
}

/// Switches the policy while no task uses the yard.
pub(crate) fn settle(yard: &HostYard, policy: ZonePolicy) -> Result<(), WorkloadError> {
    let begin = Instant::now();
    loop {
        match yard.core().set_policy(policy) {
            Ok(()) => return Ok(()),
            Err(error) if begin.elapsed() > SETTLE => {
                return Err(WorkloadError::run_time(format!("policy {policy}, with no task in the yard: {error}")));
            }
            Err(_) => thread::yield_now(),
        }
    }
}

impl<'a> Controller<'a> {
    pub(crate) fn new(fixture: &'a Fixture<'a>, state: &'a SharedState, switching: Switching, seed: u64) -> Self {
        let ranges = fixture.yard.memory_ranges().map(|(range, _)| range).collect();
        let zones = fixture.yard.stats().zones().map(|zone| zone.id).collect();
        let random = Rng::with_seed(!seed);
        Self { fixture, state, switching, random, ranges, zones, done: Disturbances::default() }
    }

    /// The disturbances so far.
    pub(crate) fn done(&self) -> Disturbances {
        self.done
    }

    /// Makes one random disturbance, then rests at least as long as that took.
    pub(crate) fn disturb(&mut self) -> Result<(), WorkloadError> {
        let begin = Instant::now();
        match self.random.u8(..16) {
            0..=5 if self.switching == Switching::Yes => self.switch()?,
            0..=7 => self.contiguous()?,
            8..=9 => self.compact(),
            10..=12 => self.drain(),
            13..=14 => self.resize(),
            _ => self.report()?,
        }
        let rest = Duration::from_micros(self.random.u64(..PAUSE.as_micros() as u64));
        thread::sleep(rest.max(begin.elapsed().min(PAUSE * 4)));
        Ok(())
    }

    fn zone(&mut self) -> ZoneId {
        self.zones[self.random.usize(..self.zones.len())]
    }

    fn switch(&mut self) -> Result<(), WorkloadError> {
        let policy = ZonePolicy::CHANGEABLE[self.random.usize(..ZonePolicy::CHANGEABLE.len())];
        self.done.switches += 1;
        let switched = self.fixture.yard.core().set_policy(policy);
        switched.map_err(|error| WorkloadError::run_time(format!("policy {policy}: {error}")))
    }

    /// Allocates a random range, holds it for a moment, and frees it.
    fn contiguous(&mut self) -> Result<(), WorkloadError> {
        let yard = self.fixture.yard;
        let memory = self.ranges[self.random.usize(..self.ranges.len())];
        let pageblock = yard.geometry().pageblock_order().pages().0;
        let most = (memory.count().0).min(PAGEBLOCKS * pageblock);
        let count = self.random.u64(1..=most);
        let mut start = memory.start + PageCount(self.random.u64(..=memory.count().0 - count));
        if self.random.bool() {
            start = start.align_down(yard.geometry().pageblock_order()).max(memory.start);
        }
        let range = PfnRange::new(start, PageCount(count));
        match yard.request(range, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).owners(&self.fixture.vm.owners()).range() {
            Ok(range) => {
                self.done.contiguous += 1;
                claim_range(yard, self.state, range).map_err(WorkloadError::run_time)?;
                thread::yield_now();
                free_range(yard, self.state, range).map_err(WorkloadError::run_time)?;
            }
            Err(AllocError::Stalled(_)) => self.done.contiguous_stalls += 1,
            Err(AllocError::Blocked(_) | AllocError::NotOneZone(_)) => self.done.contiguous_refused += 1,
            Err(error) => return Err(WorkloadError::run_time(format!("a contiguous range: {error}"))),
        }
        Ok(())
    }

    fn compact(&mut self) {
        let (yard, zone) = (self.fixture.yard, self.zone());
        let order = Order(self.random.u8(1..=yard.geometry().max_order().0));
        let owners = self.fixture.vm.owners();
        let outcome = match self.random.u8(..4) {
            0 => yard.core().compaction().zone(zone, CompactRequest::WHOLE_ZONE, &owners),
            1 => yard.core().compaction().zone(zone, CompactRequest::for_order(order, CompactEffort::Full), &owners),
            2 => yard.core().compaction().zone(zone, CompactRequest::for_order(order, CompactEffort::Async), &owners),
            _ => {
                let node = NodeId(self.random.u16(..yard.core().nodes()));
                yard.core().compaction().background(node, &owners).unwrap_or_default()
            }
        };
        self.count_compaction(&outcome);
    }

    fn count_compaction(&mut self, outcome: &CompactOutcome) {
        match outcome.result {
            CompactResult::Stalled => self.done.compaction_stalls += 1,
            CompactResult::Skipped | CompactResult::Deferred => {}
            _ => self.done.compactions += 1,
        }
        self.done.migrated += outcome.migrated.0;
    }

    fn drain(&mut self) {
        let (yard, zone) = (self.fixture.yard, self.zone());
        let cpu = CpuId(self.random.u32(..yard.core().cpus()));
        match self.random.u8(..4) {
            0 => yard.drain_all(),
            1 => yard.core().lists().drain_cpu(cpu),
            2 => yard.zone(zone).drain(),
            _ => yard.zone(zone).drain_cpu(cpu),
        }
        self.done.drains += 1;
    }

    fn resize(&mut self) {
        let sizing = match self.random.u8(..8) {
            0 => PcpSizing::Fixed(0),
            1 => PcpSizing::Classic,
            2 => PcpSizing::Fixed(self.random.u32(1..32)),
            3 | 4 => PcpSizing::Fixed(self.random.u32(32..4096)),
            _ => PcpSizing::Scaled,
        };
        self.fixture.yard.core().lists().resize(sizing);
        self.done.resizes += 1;
    }

    /// Returns some free memory to the host.
    fn report(&mut self) -> Result<(), WorkloadError> {
        let yard = self.fixture.yard;
        let order = Order(self.random.u8(4..=yard.geometry().max_order().0.max(4)));
        match yard.core().report_free_pages(order, PageCount(self.random.u64(1..2048))) {
            Ok(outcome) => self.done.reported += outcome.pages.0,
            Err(ReportError::Poisoning | ReportError::OrderTooLarge { .. }) => {}
            Err(ReportError::NotReturned {
                problem: FramesNotReturned::NotPossible | FramesNotReturned::Granule(_),
                ..
            }) => {}
            Err(error) => return Err(WorkloadError::run_time(error)),
        }
        Ok(())
    }
}
