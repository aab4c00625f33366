//! What the workloads of what owns frames have in common: every combination is run and becomes a row, and rows are shown
//! two by two: policies of zones down, policies of the lists of used pages across.

mod columns;
mod text;

use std::io::{self, Write};
use std::num::NonZeroU32;

use frameyard::{ByteSize, InitMode, Order};
use frameyard_host::{HostTopology, LockTiming};
use serde::Serialize;

use crate::Failure;
use crate::bring_up::{BringUp, FrameBacking, MapLimit, Sharing};
use crate::chosen_machine::ChosenMachine;
use crate::cli::{ComparisonArgs, InitArgs, MachineArgs};
use frameyard_workloads::TaskMode;
use crate::output::{self, RoundedSize, progress_bar};
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::Setting;
use crate::fixture::with_fixture;

pub(in crate::commands) use columns::{CountColumns, SettingColumns, counted, percent};
pub(super) use text::{Headline, write_comparison};

/// How much memory the machine has unless something else is asked for: as much as the published desktop.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(4);

/// Which runs are timed at their locks, which takes looks at the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimedRuns {
    /// All that count.
    All,
    /// One of its own, the last.
    OneApart,
}

/// Whether runs have the same yard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Yards {
    /// All runs that differ in the zones' policy alone do, one after the other, and the policy is switched between them. A
    /// first run, which warms up, is not counted.
    OneForAllPolicies,
    /// They do not: a run leaves a yard that is no longer the same.
    OneForEachRun,
}

/// What a round is for, in which every policy of zones has a run: so that they are compared, policies alternate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Round {
    /// What is measured without the cost of looks at the clock at each lock.
    Untimed,
    /// What locks are timed for.
    Timed,
}

/// A comparison that is to be made.
#[derive(Clone, Debug)]
pub(super) struct Comparison<'a> {
    args: &'a ComparisonArgs,
    chosen: ChosenMachine,
    name: &'static str,
    yards: Yards,
    repeat: NonZeroU32,
    timed: TimedRuns,
    tasks: Vec<NonZeroU32>,
}

/// The runs of a combination.
#[derive(Debug)]
pub(in crate::commands) struct Compared<R> {
    pub(in crate::commands) setting: Setting,
    pub(in crate::commands) memory: ByteSize,
    pub(in crate::commands) runs: Vec<R>,
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
        let repeat = args.repeat.unwrap_or(repeat);
        Ok(Self { args, chosen, name, yards, repeat, timed: TimedRuns::All, tasks })
    }

    /// The same, with locks timed in a further, last round alone: what the others measure is without the cost of it.
    pub(super) fn with_times_apart(mut self) -> Self {
        self.timed = TimedRuns::OneApart;
        self
    }

    /// The same, with so many tasks unless others are asked for.
    pub(super) fn with_usual_tasks(mut self, tasks: NonZeroU32) -> Self {
        if self.args.tasks.is_empty() {
            self.tasks = vec![tasks];
        }
        self
    }

    /// The same, with the most tasks alone unless others are asked for.
    pub(super) fn with_most_tasks(mut self) -> Self {
        if self.args.tasks.is_empty() {
            self.tasks = self.tasks.iter().max().copied().into_iter().collect();
        }
        self
    }

    /// Prints rows, for people as `write_rows` writes them, and a note under them.
    ///
    /// # Errors
    ///
    /// As [`output::print_rows`] has them.
    pub(super) fn print<V: Serialize>(
        &self,
        rows: &[Row<V>],
        write_rows: fn(&mut dyn Write, &[Row<V>]) -> io::Result<()>,
        note: &str,
    ) -> Result<(), Failure> {
        let write = |out: &mut dyn Write, rows: &[Row<V>]| {
            write_rows(out, rows)?;
            writeln!(out, "\n{note}")
        };
        output::print_rows(self.name, self.machine(), rows, write, &self.args.output)
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
        mut run: impl FnMut(&Fixture<'_>, &Setting, usize) -> Result<R, Failure>,
    ) -> Result<Vec<(usize, Compared<R>)>, Failure> {
        self.check_memory(&needed)?;
        let (settings, memory, rounds) = (self.settings(), self.chosen.machine.memory_bytes(), self.rounds());
        let empty = |setting: &Setting| Compared { setting: *setting, memory, runs: Vec::new() };
        let rows = settings.iter().flat_map(|setting| (0..variants).map(move |variant| (variant, empty(setting))));
        let mut rows: Vec<(usize, Compared<R>)> = rows.collect();
        let bar = progress_bar(self.name, (rows.len() * rounds.len()) as u64);
        let mut once = |fixture: &Fixture<'_>, round: Round, (variant, row): &(usize, Compared<R>)| {
            let yard = fixture.vm.yard();
            if yard.policy() != row.setting.zone {
                yard.set_policy(row.setting.zone).map_err(Failure::run_time)?;
            }
            yard.platform().time_locks(if round == Round::Timed { LockTiming::On } else { LockTiming::Off });
            check_free(self.name, fixture, needed(&row.setting))?;
            run(fixture, &row.setting, *variant)
        };
        for group in groups(&settings) {
            let is_member = |row: &&mut (usize, Compared<R>)| differ_in_policy_alone(&row.1.setting, &group);
            match self.yards {
                Yards::OneForAllPolicies => self.with_fixture(&group, |fixture| {
                    if let Some(row) = rows.iter_mut().find(is_member) {
                        once(fixture, Round::Untimed, row)?;
                    }
                    for &round in &rounds {
                        for row in rows.iter_mut().filter(is_member) {
                            row.1.runs.push(once(fixture, round, row)?);
                            bar.inc(1);
                        }
                    }
                    Ok(())
                })?,
                Yards::OneForEachRun => {
                    for &round in &rounds {
                        for row in rows.iter_mut().filter(is_member) {
                            let result = self.with_fixture(&row.1.setting, |fixture| once(fixture, round, row))?;
                            row.1.runs.push(result);
                            bar.inc(1);
                        }
                    }
                }
            }
        }
        bar.finish_and_clear();
        Ok(rows)
    }

    fn rounds(&self) -> Vec<Round> {
        let repeat = self.repeat.get() as usize;
        match self.timed {
            TimedRuns::All => vec![Round::Timed; repeat],
            TimedRuns::OneApart => std::iter::repeat_n(Round::Untimed, repeat).chain([Round::Timed]).collect(),
        }
    }

    /// Every combination, those next to each other that are to be compared.
    fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for &mode in &self.args.modes {
            for &tasks in &self.tasks {
                let pairs = self.args.policies.pairs();
                settings.extend(pairs.map(|(zone, lru)| Setting { mode, tasks, zone, lru }));
            }
        }
        settings
    }

    fn with_fixture<R>(
        &self,
        setting: &Setting,
        run: impl FnOnce(&Fixture<'_>) -> Result<R, Failure>,
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
        with_fixture(
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
    ///
    /// # Errors
    ///
    /// [`Failure::Input`].
    pub(super) fn check_memory(&self, needed: impl Fn(&Setting) -> ByteSize) -> Result<(), Failure> {
        let needed = self.settings().iter().map(needed).max().unwrap_or_default();
        let memory = self.chosen.machine.memory_bytes();
        if needed > memory { Err(too_small(self.name, needed, memory)) } else { Ok(()) }
    }
}

/// One setting of each group that differs in the zones' policy alone.
fn groups(settings: &[Setting]) -> Vec<Setting> {
    let mut groups: Vec<Setting> = Vec::new();
    for setting in settings {
        if !groups.iter().any(|group| differ_in_policy_alone(group, setting)) {
            groups.push(*setting);
        }
    }
    groups
}

fn differ_in_policy_alone(one: &Setting, other: &Setting) -> bool {
    Setting { zone: other.zone, ..*one } == *other
}

fn check_free(name: &str, fixture: &Fixture<'_>, needed: ByteSize) -> Result<(), Failure> {
    let free = fixture.free_memory();
    if needed > free { Err(too_small(name, needed, free)) } else { Ok(()) }
}

pub(in crate::commands) fn too_small(name: &str, needed: ByteSize, there: ByteSize) -> Failure {
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

/// A row of a workload: its own values between those of the setting and those that were counted.
#[derive(Serialize, Debug)]
pub(in crate::commands) struct Row<V> {
    #[serde(flatten)]
    pub(in crate::commands) setting: SettingColumns,
    #[serde(flatten)]
    pub(in crate::commands) values: V,
    #[serde(flatten)]
    pub(in crate::commands) counts: CountColumns,
}
