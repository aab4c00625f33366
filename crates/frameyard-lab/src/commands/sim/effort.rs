//! The amount of simulated work for a prediction.

use std::num::NonZeroU32;

use clap::Args;
use frameyard_sim::Effort;

use crate::args::values::{positive_number, whole_number};

/// Few enough for a prediction within a second. Lists of big-pcp have larger batches.
pub(super) const QUICK_PAGES: NonZeroU32 = NonZeroU32::new(512).unwrap();
/// Few enough to predict hundreds of values in minutes.
pub(super) const FEW_PAGES: NonZeroU32 = NonZeroU32::new(4096).unwrap();
/// More than a batch of the largest lists.
pub(super) const MORE_PAGES: NonZeroU32 = NonZeroU32::new(8192).unwrap();
/// The mapping of the published benchmark.
pub(super) const ALL_PAGES: NonZeroU32 = NonZeroU32::new(32768).unwrap();

/// The amount of simulated work for a prediction.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct EffortArgs {
    /// Counted mappings of each task; with few, threads look faster than in the long run
    #[arg(long, value_name = "N", default_value = "4", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    mappings: NonZeroU32,

    /// Seed of the tasks' phases
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    seed: u64,
}

impl EffortArgs {
    /// The effort with these pages of each of many tasks.
    pub(super) fn with_pages(self, pages: NonZeroU32) -> Effort {
        Effort { pages: pages.get(), rounds: self.mappings.get(), seed: self.seed }
    }
}
