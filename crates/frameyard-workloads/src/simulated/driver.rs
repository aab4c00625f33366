//! Who leads the tasks of a run through its stages, and looks at what was counted.
//!
//! All tasks are on one host thread, and suspend only where they ask the platform for something: so plain cells do.

use std::cell::{Cell, RefCell};

use frameyard::{CpuId, Platform};
use frameyard_sim::{CostId, Picos, Profile};

use super::{SimGround, TimeSpent, whole_ns};
use crate::workload::counts::Counts;
use crate::workload::course::Course;
use crate::workload::exchange::{Exchange, Piece, Refusal};
use crate::workload::kernbench::Labour;
use crate::workload::stage::Stage;
use crate::workload::task::{Abandoned, TaskReport};

/// How a run goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    /// Each task does its work once.
    Once,
    /// Tasks go round until the first so many of them have been watched for so long.
    Rounds {
        /// How many are watched.
        watched: usize,
        /// For how long at least.
        duration: Picos,
    },
}

/// What was counted, and where time had gone, at a moment.
#[derive(Clone, Debug)]
struct Look {
    at: Picos,
    counts: Counts,
    profile: Profile,
}

/// The stages of a run, and what is known of it.
pub(super) struct Conductor<'g, 'y> {
    ground: &'g SimGround<'y>,
    plan: Plan,
    stage: Cell<Stage>,
    /// Tasks that are not prepared yet.
    unprepared: Cell<usize>,
    /// Watched tasks that have not ended their first round yet.
    in_first_round: Cell<usize>,
    /// Watched tasks that have not been watched long enough.
    unwatched: Cell<usize>,
    /// When work began, or watching; and when the last task had been watched for long enough.
    first: RefCell<Option<Look>>,
    last: RefCell<Option<Look>>,
    /// The moment from which on rounds that end have been watched for long enough.
    long_enough: Cell<Picos>,
}

impl<'g, 'y> Conductor<'g, 'y> {
    pub(super) fn new(ground: &'g SimGround<'y>, tasks: usize, plan: Plan) -> Self {
        let watched = match plan {
            Plan::Once => 0,
            Plan::Rounds { watched, .. } => watched,
        };
        Self {
            ground,
            plan,
            stage: Cell::new(Stage::Prepare),
            unprepared: Cell::new(tasks),
            in_first_round: Cell::new(watched),
            unwatched: Cell::new(watched),
            first: RefCell::default(),
            last: RefCell::default(),
            long_enough: Cell::new(Picos(u64::MAX)),
        }
    }

    fn look(&self) -> Look {
        Look { at: self.ground.now(), counts: Counts::of(&self.ground.vm), profile: self.ground.profile() }
    }

    /// Ends the run, however far it is.
    pub(super) fn end(&self) {
        self.stage.set(Stage::End);
    }

    /// Whether all tasks are prepared, and the run is not over.
    pub(super) fn is_working(&self) -> bool {
        self.stage.get() == Stage::Work
    }

    /// Whether the run is over.
    pub(super) fn is_over(&self) -> bool {
        self.stage.get() == Stage::End
    }

    /// One more task is prepared.
    fn prepared(&self) {
        self.unprepared.set(self.unprepared.get() - 1);
        if self.unprepared.get() == 0 && self.stage.get() == Stage::Prepare {
            if self.plan == Plan::Once {
                self.first.replace(Some(self.look()));
            }
            self.stage.set(Stage::Work);
        }
    }

    /// One more watched task has ended its first round; when it was the last, watching begins.
    fn first_round_ended(&self) {
        self.in_first_round.set(self.in_first_round.get() - 1);
        if let (0, Plan::Rounds { duration, .. }) = (self.in_first_round.get(), self.plan) {
            let look = self.look();
            self.long_enough.set(Picos(look.at.0.saturating_add(duration.0)));
            self.first.replace(Some(look));
        }
    }

    /// One more task has been watched for long enough; after the last of them, all stop.
    fn watched(&self) {
        self.unwatched.set(self.unwatched.get() - 1);
        if self.unwatched.get() == 0 {
            self.last.replace(Some(self.look()));
            self.end();
        }
    }

    /// The counters when work began, and where time has gone since.
    pub(super) fn since_work_began(&self, ground: &SimGround<'_>) -> (Counts, TimeSpent) {
        let first = self.first.borrow().clone().unwrap_or_else(|| self.look());
        let spent = TimeSpent::of(ground, &ground.profile().since(&first.profile), ground.now() - first.at);
        (first.counts, spent)
    }

    /// What was counted, and where time went, while tasks were watched.
    pub(super) fn while_watched(&self, ground: &SimGround<'_>) -> (Counts, TimeSpent) {
        let first = self.first.borrow().clone().unwrap_or_else(|| self.look());
        let last = self.last.borrow().clone().unwrap_or_else(|| self.look());
        let spent = TimeSpent::of(ground, &last.profile.since(&first.profile), last.at - first.at);
        (last.counts.since(&first.counts), spent)
    }
}

/// How far a watched task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Watch {
    /// In its first round, or before watching has begun.
    NotYet,
    /// Since a moment at which it had done so many steps.
    Since(Picos, u64),
    /// For so long, with so many steps.
    For(Picos, u64),
}

/// The course of a run to one of its tasks.
pub(super) struct VirtualCourse<'c, 'g, 'y> {
    conductor: &'c Conductor<'g, 'y>,
    exchange: &'c Exchange,
    /// Decides how much of its first round the task does.
    seed: u64,
    is_watched: bool,
    has_ended_a_round: Cell<bool>,
    watch: Cell<Watch>,
    /// The costs that kinds of labour are charged as, where the machine was told of them.
    labours: [Option<CostId>; Labour::COSTS.len()],
}

impl<'c, 'g, 'y> VirtualCourse<'c, 'g, 'y> {
    pub(super) fn new(conductor: &'c Conductor<'g, 'y>, exchange: &'c Exchange, task: usize, seed: u64) -> Self {
        let is_watched = matches!(conductor.plan, Plan::Rounds { watched, .. } if task < watched);
        let (has_ended_a_round, watch) = (Cell::new(false), Cell::new(Watch::NotYet));
        let labours = std::array::from_fn(|at| conductor.ground.platform().cost(Labour::COSTS[at]));
        Self { conductor, exchange, seed, is_watched, has_ended_a_round, watch, labours }
    }

    fn now(&self) -> Picos {
        self.conductor.ground.now()
    }

    /// Waits in virtual time until there is an answer, or the run is over.
    fn wait_for<T>(&self, mut answer: impl FnMut() -> Option<T>) -> Option<T> {
        let platform = self.conductor.ground.platform();
        for round in 0u32.. {
            if let Some(answer) = answer() {
                return Some(answer);
            }
            if self.is_over() {
                break;
            }
            platform.relax(round);
        }
        None
    }
}

impl Course for VirtualCourse<'_, '_, '_> {
    type Moment = Picos;

    fn begin(&self) -> Result<Picos, Abandoned> {
        self.conductor.prepared();
        self.wait_for(|| (self.conductor.stage.get() == Stage::Work).then_some(())).ok_or(Abandoned)?;
        Ok(self.now())
    }

    fn elapsed_ns(&self, since: Picos) -> u64 {
        whole_ns(self.now() - since)
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.conductor.stage.get() == Stage::End
    }

    /// Takes no time on a machine that was not told of it.
    fn spend(&self, labour: Labour, cycles: u64) {
        if let Some(cost) = self.labours[labour as usize] {
            self.conductor.ground.platform().spend(cost, cycles);
        }
    }

    /// A random part of it, in whole pages of 4 KiB: so that tasks are out of step from the second round on.
    fn first_round(&self, bytes: u64) -> u64 {
        let pages = bytes >> 12;
        if pages == 0 { bytes } else { (fastrand::Rng::with_seed(self.seed).u64(..pages) + 1) << 12 }
    }

    fn round_ends(&self, iterations: u64) {
        if !self.is_watched || self.is_over() {
            return;
        }
        if !self.has_ended_a_round.replace(true) {
            self.conductor.first_round_ended();
        }
        let now = self.now();
        match self.watch.get() {
            Watch::NotYet if self.conductor.first.borrow().is_some() => self.watch.set(Watch::Since(now, iterations)),
            Watch::Since(since, before) if now >= self.conductor.long_enough.get() => {
                self.watch.set(Watch::For(now - since, iterations - before));
                self.conductor.watched();
            }
            _ => {}
        }
    }

    fn report(&self, begin: Picos, iterations: u64) -> TaskReport {
        let (iterations, elapsed_ns) = match self.watch.get() {
            Watch::For(time, iterations) => (iterations, whole_ns(time)),
            _ => (iterations, self.elapsed_ns(begin)),
        };
        TaskReport { iterations, elapsed_ns, ..TaskReport::default() }
    }

    fn put(&self, piece: Piece, bound: usize) -> Result<(), Piece> {
        // Nobody may take it any more.
        if self.is_over() {
            return Err(piece);
        }
        let put = self.wait_for(|| match self.exchange.try_put(piece, bound) {
            Ok(()) => Some(Ok(())),
            Err(Refusal::Closed) => Some(Err(piece)),
            Err(Refusal::Full) => None,
        });
        put.unwrap_or(Err(piece))
    }

    fn take(&self) -> Option<Piece> {
        self.wait_for(|| self.exchange.try_take())
    }

    /// A task of a simulated machine stays on its CPU.
    fn keep_to(&self, _some: impl FnOnce(&[CpuId]) -> &[CpuId]) {}
}
