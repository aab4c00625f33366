//! The driver of a simulated run: moves tasks from stage to stage and reads the counters.
//!
//! All tasks run on one host thread and are suspended only where they call the platform, so plain cells suffice.

use std::cell::{Cell, RefCell};

use crate::counts::Counts;
use frameyard_sim::{Picos, Profile};

use crate::sim::fixture::SimFixture;
use crate::sim::time_spent::TimeSpent;

/// When a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// Each task does its work once.
    Once,
    /// Tasks repeat rounds until the first `measured` tasks have been measured for `duration`.
    Rounds {
        /// Number of tasks that are measured.
        measured: usize,
        /// The shortest measurement of a task.
        duration: Picos,
    },
}

/// The progress of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Tasks set themselves up.
    Prepare,
    /// Tasks work, and the driver measures.
    Work,
    /// Tasks stop, check and free what they hold, and report.
    End,
}

/// Counters and profile at a moment.
#[derive(Clone, Debug)]
struct Snapshot {
    at: Picos,
    counts: Counts,
    profile: Profile,
}

/// The stage of a run and the progress of its tasks.
pub(crate) struct Driver<'f, 'y> {
    fixture: &'f SimFixture<'y>,
    plan: Plan,
    stage: Cell<Stage>,
    /// Tasks that are not prepared yet.
    unprepared: Cell<usize>,
    /// Measured tasks in their first round.
    in_first_round: Cell<usize>,
    /// Measured tasks whose measurement is not complete.
    unmeasured: Cell<usize>,
    /// At the start of the work, or of the measurement.
    first: RefCell<Option<Snapshot>>,
    /// When the last measurement was complete.
    last: RefCell<Option<Snapshot>>,
    /// A round that ends at this moment or later completes the measurement of its task.
    long_enough: Cell<Picos>,
}

impl<'f, 'y> Driver<'f, 'y> {
    pub(crate) fn new(fixture: &'f SimFixture<'y>, tasks: usize, plan: Plan) -> Self {
        let measured = match plan {
            Plan::Once => 0,
            Plan::Rounds { measured, .. } => measured,
        };
        Self {
            fixture,
            plan,
            stage: Cell::new(Stage::Prepare),
            unprepared: Cell::new(tasks),
            in_first_round: Cell::new(measured),
            unmeasured: Cell::new(measured),
            first: RefCell::default(),
            last: RefCell::default(),
            long_enough: Cell::new(Picos(u64::MAX)),
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot { at: self.fixture.now(), counts: Counts::of(&self.fixture.vm), profile: self.fixture.profile() }
    }

    /// The yard and its owners.
    pub(crate) fn fixture(&self) -> &'f SimFixture<'y> {
        self.fixture
    }

    /// Whether a task is measured.
    pub(crate) fn measures(&self, task: usize) -> bool {
        matches!(self.plan, Plan::Rounds { measured, .. } if task < measured)
    }

    /// Ends the run at any stage.
    pub(crate) fn end(&self) {
        self.stage.set(Stage::End);
    }

    /// Whether all tasks are prepared and the run is not over.
    pub(crate) fn is_working(&self) -> bool {
        self.stage.get() == Stage::Work
    }

    /// Whether the run is over.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.stage.get() == Stage::End
    }

    /// Whether the measurement has begun.
    pub(crate) fn is_measuring(&self) -> bool {
        self.first.borrow().is_some()
    }

    /// Whether a measurement that ends at `now` is long enough.
    pub(crate) fn is_long_enough(&self, now: Picos) -> bool {
        now >= self.long_enough.get()
    }

    /// Records that a task is prepared. The last one starts the work.
    pub(crate) fn prepared(&self) {
        self.unprepared.set(self.unprepared.get() - 1);
        if self.unprepared.get() == 0 && self.stage.get() == Stage::Prepare {
            if self.plan == Plan::Once {
                self.first.replace(Some(self.snapshot()));
            }
            self.stage.set(Stage::Work);
        }
    }

    /// Records that a measured task has ended its first round. The last one starts the measurement.
    pub(crate) fn first_round_ended(&self) {
        self.in_first_round.set(self.in_first_round.get() - 1);
        if let (0, Plan::Rounds { duration, .. }) = (self.in_first_round.get(), self.plan) {
            let snapshot = self.snapshot();
            self.long_enough.set(Picos(snapshot.at.0.saturating_add(duration.0)));
            self.first.replace(Some(snapshot));
        }
    }

    /// Records that the measurement of a task is complete. The last one ends the run.
    pub(crate) fn measured(&self) {
        self.unmeasured.set(self.unmeasured.get() - 1);
        if self.unmeasured.get() == 0 {
            self.last.replace(Some(self.snapshot()));
            self.end();
        }
    }

    /// The counters at the start of the work, and the time spent since.
    pub(crate) fn since_work_began(&self, fixture: &SimFixture<'_>) -> (Counts, TimeSpent) {
        let first = self.first.borrow().clone().unwrap_or_else(|| self.snapshot());
        let spent =
            TimeSpent::of(fixture.platform(), &fixture.profile().since(&first.profile), fixture.now() - first.at);
        (first.counts, spent)
    }

    /// Counter changes and time spent during the measurement.
    pub(crate) fn while_measured(&self, fixture: &SimFixture<'_>) -> (Counts, TimeSpent) {
        let first = self.first.borrow().clone().unwrap_or_else(|| self.snapshot());
        let last = self.last.borrow().clone().unwrap_or_else(|| self.snapshot());
        let spent = TimeSpent::of(fixture.platform(), &last.profile.since(&first.profile), last.at - first.at);
        (last.counts.since(&first.counts), spent)
    }
}
