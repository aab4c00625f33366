//! Comparing policies: one runner for this machine ([`native`]) and one for simulated machines ([`simulated`]).
//!
//! A [`Workload`] states what its tasks need, and how its runs become rows. The runners run every combination of mode, number
//! of tasks and policies. Text shows policies of zones down and policies of LRU lists across, then all rows.

mod columns;
mod native;
pub(super) mod profile;
mod simulated;
mod text;

use std::num::NonZeroU32;

use frameyard::ByteSize;
use frameyard::watermarks::PcpSizing;
use frameyard_workloads::Setting;
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::sim::{FrameContents, SimFixture, SimRun};

use crate::Failure;
use crate::args::ComparedArgs;
use crate::output::{RoundedSize, Row};

pub(super) use columns::{contended_share, counts, effort, setting};
pub(super) use native::{Comparison, Yards, can_change};
pub(super) use simulated::{simulate, simulate_each, too_few_cpus};
pub(super) use text::{ComparedRow, grouped};

/// A workload whose runs are compared.
pub(super) trait Workload {
    /// What a run gives.
    type Run;

    /// Memory that must be free.
    fn needed(&self, setting: &Setting) -> ByteSize;
}

/// A workload whose rows are those of a comparison.
pub(super) trait Compared: Workload {
    /// The rows of the runs of a combination.
    fn rows(&self, measured: Measured<Self::Run>) -> Vec<ComparedRow>;
}

/// A workload that runs on this machine.
pub(super) trait Native: Workload {
    /// Runs once.
    fn run(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<Self::Run, Failure>;
}

/// A workload that runs on a simulated machine.
pub(super) trait Simulated: Compared {
    /// Whether frames have contents.
    const CONTENTS: FrameContents = FrameContents::Dropped;

    /// How per-CPU lists are sized, where workloads differ in it. Otherwise the command line says it.
    fn sizing(&self) -> Option<PcpSizing> {
        None
    }

    /// CPUs that the tasks occupy.
    fn cpus(&self, setting: &Setting) -> u64 {
        setting.tasks.get().into()
    }

    /// Runs once.
    fn simulate(&self, fixture: &SimFixture<'_>, setting: &Setting) -> Result<SimRun<Self::Run>, Failure>;
}

/// The runs of a combination.
#[derive(Debug)]
pub(super) struct Measured<R> {
    pub(super) setting: Setting,
    pub(super) memory: ByteSize,
    pub(super) runs: Vec<R>,
}

impl<R> Measured<R> {
    /// The columns of the setting, with which every row begins.
    pub(super) fn columns(&self) -> Row {
        setting(&self.setting, self.memory, self.runs.len())
    }
}

/// Every setting. Settings that differ only in policies are neighbours.
fn settings(args: &ComparedArgs, tasks: &[NonZeroU32]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for &mode in &args.modes {
        for &tasks in tasks {
            settings.extend(args.policies.pairs().map(|(zone, lru)| Setting { mode, tasks, zone, lru }));
        }
    }
    settings
}

/// 1, 2, 4, … up to a number, and that number.
fn powers_up_to(most: u32) -> Vec<NonZeroU32> {
    let powers = (0..u32::BITS).map(|shift| 1 << shift).take_while(|number| *number < most);
    powers.chain([most]).filter_map(NonZeroU32::new).collect()
}

/// The refusal of a setting whose tasks need more memory than there is.
pub(super) fn too_small(name: &str, needed: ByteSize, there: ByteSize) -> Failure {
    let [mut needs, mut has] = [needed, there].map(|size| RoundedSize(size).to_string());
    if needs == has {
        [needs, has] = [needed, there].map(|size| format!("{} KiB", size.0.div_ceil(1 << 10)));
    }
    Failure::input(format!(
        "{name}: these tasks need {needs} of free memory and the machine has {has}: give it more --memory, or run fewer --tasks"
    ))
}
