//! What the workloads of what owns frames have in common: every combination is run and becomes a row, and rows are shown
//! two by two: policies of zones down, policies of the lists of used pages across.

mod columns;
mod text;

use std::num::NonZeroU32;

use frameyard::{ByteSize, InitMode, Order};
use frameyard_host::HostTopology;
use serde::Serialize;

use crate::Failure;
use crate::bring_up::{BringUp, FrameBacking, MapLimit, Sharing};
use crate::chosen_machine::ChosenMachine;
use crate::cli::{ComparisonArgs, InitArgs, MachineArgs, TaskMode};
use crate::output::{RoundedSize, progress_bar};
use crate::workload::ground::{Ground, Setting, on_ground};

pub(super) use columns::{CountColumns, SettingColumns, counted};
pub(super) use text::{Headline, write_comparison};

/// How much memory the machine has unless something else is asked for: as much as the published desktop.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(4);

/// Whether the runs of a row have the same yard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Yards {
    /// They do, and a first run, which warms up, is not counted.
    OneForEachRow,
    /// They do not: a run leaves a yard that is no longer the same.
    OneForEachRun,
}

/// A comparison that is to be made.
#[derive(Debug)]
pub(super) struct Comparison<'a> {
    args: &'a ComparisonArgs,
    chosen: ChosenMachine,
    name: &'static str,
    yards: Yards,
    repeat: NonZeroU32,
    tasks: Vec<NonZeroU32>,
}

/// The runs of a combination.
#[derive(Debug)]
pub(super) struct Compared<R> {
    pub(super) setting: Setting,
    pub(super) memory: ByteSize,
    pub(super) runs: Vec<R>,
}

impl<'a> Comparison<'a> {
    /// Of a workload, which is run so often unless asked for otherwise.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for a machine that is none, or phantom.
    pub(super) fn new(
        args: &'a ComparisonArgs,
        name: &'static str,
        yards: Yards,
        repeat: NonZeroU32,
    ) -> Result<Self, Failure> {
        if args.machine.phantom {
            return Err(Failure::input(format!(
                "{name} --phantom: pages of address spaces and files need memory behind their frames; leave --phantom out"
            )));
        }
        let memory = args.machine.memory.or_else(|| args.machine.machine.is_none().then_some(DEFAULT_MEMORY));
        let chosen = ChosenMachine::of(&MachineArgs { memory, ..args.machine.clone() })?;
        if chosen.machine.geometry.page_size() != ByteSize::kib(4) {
            return Err(Failure::input(format!(
                "{name}: page tables are those of x86-64, so pages have 4K; leave --page-size out"
            )));
        }
        chosen.print_notes();
        let tasks = match &args.tasks[..] {
            [] => usual_tasks(&HostTopology::current().map_err(Failure::run_time)?),
            tasks => tasks.to_vec(),
        };
        Ok(Self { args, chosen, name, yards, repeat: args.repeat.unwrap_or(repeat), tasks })
    }

    /// The same, with the most tasks alone unless others are asked for.
    pub(super) fn with_most_tasks(mut self) -> Self {
        if self.args.tasks.is_empty() {
            self.tasks = self.tasks.iter().max().copied().into_iter().collect();
        }
        self
    }

    /// The name of the machine.
    pub(super) fn machine(&self) -> &str {
        &self.chosen.machine.name
    }

    /// Runs every combination, `variants` times with another number each time. `needed` says what must be free for it.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] where the machine has too little memory, and what a run or a check says.
    pub(super) fn measure<R>(
        &self,
        variants: usize,
        needed: impl Fn(&Setting) -> ByteSize,
        mut run: impl FnMut(&Ground<'_>, &Setting, usize) -> Result<R, Failure>,
    ) -> Result<Vec<(usize, Compared<R>)>, Failure> {
        let settings = self.settings();
        self.check_memory(settings.iter().map(&needed).max().unwrap_or_default())?;
        let (warm_up, repeat) = (u32::from(self.yards == Yards::OneForEachRow), self.repeat.get());
        let bar = progress_bar(self.name, (variants * settings.len()) as u64 * u64::from(warm_up + repeat));
        let mut rows = Vec::new();
        for setting in &settings {
            for variant in 0..variants {
                let mut once = |ground: &Ground<'_>| {
                    check_free(self.name, ground, needed(setting))?;
                    let result = run(ground, setting, variant);
                    bar.inc(1);
                    result
                };
                let runs = match self.yards {
                    Yards::OneForEachRow => self.on_ground(setting, |ground| {
                        once(ground)?;
                        (0..repeat).map(|_| once(ground)).collect::<Result<Vec<R>, Failure>>()
                    })?,
                    Yards::OneForEachRun => {
                        (0..repeat).map(|_| self.on_ground(setting, &mut once)).collect::<Result<Vec<R>, Failure>>()?
                    }
                };
                let memory = self.chosen.machine.memory_bytes();
                rows.push((variant, Compared { setting: *setting, memory, runs }));
            }
        }
        bar.finish_and_clear();
        Ok(rows)
    }

    /// Every combination, those next to each other that are to be compared.
    fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for &mode in &self.args.modes {
            for &tasks in &self.tasks {
                for &zone in &self.args.zone_policies {
                    let lru = self.args.lru_policies.iter();
                    settings.extend(lru.map(|&lru| Setting { mode, tasks, zone, lru }));
                }
            }
        }
        settings
    }

    fn on_ground<R>(
        &self,
        setting: &Setting,
        run: impl FnOnce(&Ground<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let machine = &self.chosen.machine;
        let map_init = InitArgs::default().map_init(InitMode::Eager, machine)?;
        let sharing = match setting.mode {
            TaskMode::Threads => Sharing::Private,
            TaskMode::Processes => Sharing::Processes,
        };
        let backing = FrameBacking::Real;
        let of_args = BringUp::of(&self.args.machine, &self.args.yard);
        let map_limit = if self.args.full { MapLimit::Full } else { MapLimit::Usual };
        on_ground(
            machine,
            &BringUp { map_init, map_limit, sharing, backing, policy: setting.zone, ..of_args },
            setting.lru,
            run,
        )
    }

    /// Refuses a machine whose blocks do not go up to an order.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`].
    pub(super) fn check_order(&self, order: Order) -> Result<(), Failure> {
        let max = self.chosen.machine.geometry.max_order();
        if order <= max {
            return Ok(());
        }
        let name = self.name;
        Err(Failure::input(format!("{name}: needs blocks of order {}, and the machine's go up to {}", order.0, max.0)))
    }

    /// Refuses what cannot be enough before any yard is made.
    fn check_memory(&self, needed: ByteSize) -> Result<(), Failure> {
        let memory = self.chosen.machine.memory_bytes();
        if needed > memory { Err(too_small(self.name, needed, memory)) } else { Ok(()) }
    }
}

fn check_free(name: &str, ground: &Ground<'_>, needed: ByteSize) -> Result<(), Failure> {
    let free = ground.free_memory();
    if needed > free { Err(too_small(name, needed, free)) } else { Ok(()) }
}

fn too_small(name: &str, needed: ByteSize, there: ByteSize) -> Failure {
    let [mut needs, mut has] = [needed, there].map(|size| RoundedSize(size).to_string());
    if needs == has {
        [needs, has] = [needed, there].map(|size| format!("{} KiB", size.0.div_ceil(1 << 10)));
    }
    Failure::input(format!(
        "{name}: these tasks need {needs} of free memory and the machine has {has}: give it more --memory, or run fewer --tasks"
    ))
}

/// 1, 2, 4, … up to the CPUs that this process may use, and those.
fn usual_tasks(host: &HostTopology) -> Vec<NonZeroU32> {
    let cpus = host.allowed().count().max(1);
    let powers = (0..u32::BITS).map(|shift| 1 << shift).take_while(|tasks| *tasks < cpus);
    powers.chain([cpus]).filter_map(NonZeroU32::new).collect()
}

/// The runs in the order of a value, the median one first: what is said of a row is said of that run.
pub(super) fn median_first<R>(mut runs: Vec<R>, value: impl Fn(&R) -> f64) -> (R, Vec<R>) {
    runs.sort_by(|one, other| value(one).total_cmp(&value(other)));
    let median = runs.remove((runs.len() - 1) / 2);
    (median, runs)
}

/// To a hundredth, which is finer than any clock here.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// A row of a workload: its own values between those of the setting and those that were counted.
#[derive(Serialize, Debug)]
pub(super) struct Row<V> {
    #[serde(flatten)]
    pub(super) setting: SettingColumns,
    #[serde(flatten)]
    pub(super) values: V,
    #[serde(flatten)]
    pub(super) counts: CountColumns,
}
