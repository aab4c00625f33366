//! `page-fault`: map, touch every page, unmap, and again, as will-it-scale's page_fault1 does.

use std::time::Duration;

use frameyard::{ByteSize, Platform};
use frameyard_vm::{AddressSpace, HugeAdvice, MapRequest, MemoryAccess, PageLevel, VirtAddr, VirtRange};
use serde::{Deserialize, Serialize};

use super::counts::Counts;
use super::course::Course;
use super::ground::{Ground, Setting};
use super::task::{Site, TaskOrder, TaskProblem, TaskReport, Work};
use crate::Failure;

/// How much a task maps at a time: as much as page_fault1.
pub(crate) const MAP_SIZE: ByteSize = ByteSize::mib(128);

/// The loop of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Loop {
    /// How much it maps at a time.
    pub(crate) bytes: u64,
    /// With huge pages or without.
    pub(crate) pages: Pages,
}

/// Which pages a mapping is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Pages {
    /// Of 4 KiB.
    Small,
    /// Of 2 MiB where there are any.
    Huge,
}

impl Pages {
    /// As a mapping is asked for.
    fn advice(self) -> HugeAdvice {
        match self {
            Self::Small => HugeAdvice::Never,
            Self::Huge => HugeAdvice::Huge,
        }
    }

    /// The name in rows.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Huge => "huge",
        }
    }
}

impl Loop {
    /// Runs until told to stop; an iteration is a page of 4 KiB touched.
    pub(crate) fn run<P: Platform, C: Course>(&self, site: &Site<'_, '_, P, C>) -> Result<TaskReport, TaskProblem> {
        let space = site.space()?;
        let begin = site.begin()?;
        let (mut iterations, mut bytes) = (0, site.course.first_round(self.bytes));
        while !site.is_over() {
            let range = map(&space, ByteSize(bytes), self.pages)?;
            for addr in pages_of(range) {
                if site.is_over() {
                    break;
                }
                space.touch(addr, MemoryAccess::Write)?;
                iterations += 1;
            }
            space.unmap(range)?;
            site.course.round_ends(iterations);
            bytes = self.bytes;
        }
        Ok(site.course.report(begin, iterations))
    }
}

/// Maps anonymous memory where the space chooses.
pub(crate) fn map<P: Platform>(
    space: &AddressSpace<'_, P>,
    bytes: ByteSize,
    pages: Pages,
) -> Result<VirtRange, frameyard_vm::MapError> {
    space.map(MapRequest::anonymous(bytes).advised(pages.advice()))
}

/// The address of each page of 4 KiB of a range.
pub(crate) fn pages_of(range: VirtRange) -> impl Iterator<Item = VirtAddr> {
    (range.start.0..range.end.0).step_by(PageLevel::Small.size().0 as usize).map(VirtAddr)
}

/// One run: what each task did, and what was counted meanwhile.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TaskRun {
    /// What each task did.
    pub(crate) reports: Vec<TaskReport>,
    /// What was counted.
    pub(crate) counts: Counts,
    /// The part of the host's processor time in which nobody ran, where the kernel says it.
    pub(crate) idle: Option<f64>,
}

impl TaskRun {
    /// Steps of all tasks in a second, of those whose report is chosen.
    pub(crate) fn rate_of(&self, chosen: impl Fn(usize) -> bool) -> f64 {
        self.reports.iter().enumerate().filter(|(task, _)| chosen(*task)).map(|(_, report)| report.rate()).sum()
    }

    /// Steps of all tasks in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.rate_of(|_| true)
    }
}

/// Lets tasks work for a time, and says what they did.
pub(crate) fn run_for(ground: &Ground<'_>, orders: &[TaskOrder], duration: Duration) -> Result<TaskRun, Failure> {
    ground.lead(orders, |crew| {
        crew.wait_prepared().map_err(Failure::run_time)?;
        let before = (Counts::of(&ground.vm), super::host_time::HostTime::now());
        crew.begin().map_err(Failure::run_time)?;
        crew.watch(duration).map_err(Failure::run_time)?;
        crew.end();
        let idle = super::host_time::idle_share(before.1, super::host_time::HostTime::now());
        let reports = crew.reports().map_err(Failure::run_time)?;
        let counts = Counts::of(&ground.vm).since(&before.0);
        Ok(TaskRun { reports, counts, idle })
    })
}

/// One run of the workload.
pub(crate) fn run(ground: &Ground<'_>, setting: &Setting, seed: u64, duration: Duration) -> Result<TaskRun, Failure> {
    run_for(ground, &orders(setting, seed, MAP_SIZE), duration)
}

/// What the tasks of a run are told, each of which maps so much at a time.
pub(crate) fn orders(setting: &Setting, seed: u64, map: ByteSize) -> Vec<TaskOrder> {
    let work = Work::PageFault(Loop { bytes: map.0, pages: Pages::Small });
    TaskOrder::alike(setting.tasks.get(), seed, &work)
}

/// What a yard must have free for so many tasks: their mappings, page tables for them, and a reserve.
#[must_use]
pub(crate) fn memory_needed(tasks: u32, map: ByteSize) -> ByteSize {
    let mapped = map.0.saturating_mul(u64::from(tasks));
    ByteSize(mapped.saturating_add(mapped / 16).saturating_add(ByteSize::mib(32).0))
}
