//! Comparisons on this machine.

use std::num::NonZeroU32;

use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use frameyard::{ByteSize, Order};
use frameyard_host::{HostTopology, LockTiming};
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::{Setting, TaskMode};

use super::{Compared, ComparedRow, Measured, Native, Workload, powers_up_to, settings, text, too_small};
use crate::Failure;
use crate::args::{ComparisonArgs, InitArgs};
use crate::boot::{BootOptions, FrameBacking, Sharing};
use crate::chosen_machine::ChosenMachine;
use crate::fixture::with_fixture;
use crate::output::{Report, progress_bar};

/// Memory of the machine unless the command line says otherwise: that of the published desktop.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(4);

/// Which runs time their locks. That reads the clock twice for each acquisition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimedRuns {
    /// All runs that count.
    All,
    /// One further run, the last.
    OneApart,
}

/// Which runs share a yard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::commands) enum Yards {
    /// Runs that differ only in policies between which a yard can change share one, which switches its policy between them. The first run
    /// warms up and does not count.
    OneForAllPolicies,
    /// Every run has its own yard, because a run leaves it changed.
    OneForEachRun,
}

/// A round, in which every policy of zones has one run: policies alternate, so that they can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Round {
    /// Locks are not timed.
    Untimed,
    /// Locks are timed.
    Timed,
}

/// Each combination of setting and workload, with its runs.
type MeasuredRows<'w, W> = Vec<(&'w W, Measured<<W as Workload>::Run>)>;

/// A comparison of policies on this machine.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Comparison<'a> {
    args: &'a ComparisonArgs,
    chosen: ChosenMachine,
    name: &'static str,
    yards: Yards,
    repeat: NonZeroU32,
    timed: TimedRuns,
    tasks: Vec<NonZeroU32>,
}

impl<'a> Comparison<'a> {
    /// A comparison with `repeat` runs of each row, unless the command line says otherwise.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for a bad or phantom machine.
    pub(in crate::commands) fn new(
        args: &'a ComparisonArgs,
        name: &'static str,
        yards: Yards,
        repeat: NonZeroU32,
    ) -> Result<Self, Failure> {
        args.machine.refuse_phantom(name, "pages of address spaces and files need memory behind their frames")?;
        let chosen = ChosenMachine::with_memory(&args.machine, args.quick.memory(DEFAULT_MEMORY))?;
        chosen.check_page_size(name)?;
        let tasks = match args.compared.tasks() {
            tasks if tasks.is_empty() => usual_tasks(&HostTopology::current().map_err(Failure::run_time)?),
            tasks => tasks,
        };
        let repeat = args.repeat.unwrap_or(repeat);
        Ok(Self { args, chosen, name, yards, repeat, timed: TimedRuns::All, tasks })
    }

    /// The same comparison, with locks timed only in one further round, the last.
    pub(in crate::commands) fn with_times_apart(mut self) -> Self {
        self.timed = TimedRuns::OneApart;
        self
    }

    /// The same comparison, with `tasks` tasks unless the command line says otherwise.
    pub(in crate::commands) fn with_usual_tasks(mut self, tasks: NonZeroU32) -> Self {
        if self.args.compared.tasks.is_empty() {
            self.tasks = vec![tasks];
        }
        self
    }

    /// The same comparison, with only the largest number of tasks unless the command line says otherwise.
    pub(in crate::commands) fn with_most_tasks(mut self) -> Self {
        if self.args.compared.tasks.is_empty() {
            self.tasks = self.tasks.iter().max().copied().into_iter().collect();
        }
        self
    }

    /// Memory of the machine.
    pub(in crate::commands) fn memory(&self) -> ByteSize {
        self.chosen.machine.memory_bytes()
    }

    /// Runs every combination of setting and workload.
    ///
    /// # Errors
    ///
    /// As [`measure`](Self::measure) has them.
    pub(in crate::commands) fn rows<W: Native + Compared>(&self, workloads: &[W]) -> Result<Vec<ComparedRow>, Failure> {
        let measured = self.measure(workloads)?;
        Ok(measured.into_iter().flat_map(|(workload, measured)| workload.rows(measured)).collect())
    }

    /// The report of rows, with a note.
    pub(in crate::commands) fn report(&self, rows: &[ComparedRow], note: impl Into<String>) -> Report {
        text::report(self.name, self.machine(), rows).note(note)
    }

    /// Runs every combination and prints the report.
    ///
    /// # Errors
    ///
    /// As [`measure`](Self::measure) and [`Report::print`] have them.
    pub(in crate::commands) fn run<W: Native + Compared>(
        &self,
        workloads: &[W],
        note: impl Into<String>,
    ) -> Result<(), Failure> {
        self.report(&self.rows(workloads)?, note).print(&self.args.output)
    }

    /// The name of the machine.
    pub(in crate::commands) fn machine(&self) -> &str {
        &self.chosen.machine.name
    }

    /// Runs every combination of setting and workload.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] where the machine has too little memory, and the failures of runs and checks.
    pub(in crate::commands) fn measure<'w, W: Native>(
        &self,
        workloads: &'w [W],
    ) -> Result<MeasuredRows<'w, W>, Failure> {
        workloads.iter().try_for_each(|workload| self.check_memory(|setting| workload.needed(setting)))?;
        let (settings, memory, rounds) = (self.settings(), self.chosen.machine.memory_bytes(), self.rounds());
        let empty = |setting: &Setting| Measured { setting: *setting, memory, runs: Vec::new() };
        let rows = settings.iter().flat_map(|setting| workloads.iter().map(move |workload| (workload, empty(setting))));
        let mut rows: Vec<(&W, Measured<W::Run>)> = rows.collect();
        self.chosen.print_notes();
        let bar = progress_bar(self.name, (rows.len() * rounds.len()) as u64);
        let once = |fixture: &Fixture<'_>, round: Round, (workload, row): &(&W, Measured<W::Run>)| {
            let yard = fixture.vm.yard();
            if yard.policy() != row.setting.zone {
                yard.set_policy(row.setting.zone).map_err(Failure::run_time)?;
            }
            yard.platform().time_locks(if round == Round::Timed { LockTiming::On } else { LockTiming::Off });
            check_free(self.name, fixture, workload.needed(&row.setting))?;
            workload.run(fixture, &row.setting)
        };
        for group in groups(&settings) {
            let is_member = |row: &&mut (&W, Measured<W::Run>)| can_share_a_yard(&row.1.setting, &group);
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

    fn settings(&self) -> Vec<Setting> {
        settings(&self.args.compared, &self.tasks)
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
        let options = BootOptions {
            map_init,
            map_limit: self.args.full.map_limit(),
            sharing,
            backing: FrameBacking::Real,
            policy: setting.zone,
            ..BootOptions::of(&self.args.machine, &self.args.yard)
        };
        with_fixture(machine, &options, setting.lru, run)
    }

    /// Refuses a machine without blocks of an order.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`].
    pub(in crate::commands) fn check_order(&self, order: Order) -> Result<(), Failure> {
        self.chosen.check_order(self.name, order)
    }

    /// Refuses a machine with too little memory before any yard is made.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`].
    pub(in crate::commands) fn check_memory(&self, needed: impl Fn(&Setting) -> ByteSize) -> Result<(), Failure> {
        let needed = self.settings().iter().map(needed).max().unwrap_or_default();
        let memory = self.chosen.machine.memory_bytes();
        if needed > memory { Err(too_small(self.name, needed, memory)) } else { Ok(()) }
    }
}

/// One setting of each group whose members can share a yard.
fn groups(settings: &[Setting]) -> Vec<Setting> {
    let mut groups: Vec<Setting> = Vec::new();
    for setting in settings {
        if !groups.iter().any(|group| can_share_a_yard(group, setting)) {
            groups.push(*setting);
        }
    }
    groups
}

/// Whether two settings are equal but for the policy of zones, to which a yard can change.
fn can_share_a_yard(one: &Setting, other: &Setting) -> bool {
    can_change(one.zone, other.zone) && Setting { zone: other.zone, ..*one } == *other
}

/// Whether a yard with one policy can have the other later.
pub(in crate::commands) fn can_change(one: ZonePolicy, other: ZonePolicy) -> bool {
    one == other || one.is_changeable() && other.is_changeable()
}

fn check_free(name: &str, fixture: &Fixture<'_>, needed: ByteSize) -> Result<(), Failure> {
    let free = fixture.free_memory();
    if needed > free { Err(too_small(name, needed, free)) } else { Ok(()) }
}

/// 1, 2, 4, … up to the CPUs that this process may use, and that number.
fn usual_tasks(host: &HostTopology) -> Vec<NonZeroU32> {
    powers_up_to(host.allowed().count().max(1))
}
