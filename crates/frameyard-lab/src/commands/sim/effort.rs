//! The amount of simulated work for a prediction.

use std::num::NonZeroU32;

use clap::Args;
use frameyard_sim::Effort;

use crate::args::values::{positive_number, whole_number};

/// Few enough for a prediction within a second. Lists of big-pcp have larger batches.
pub(super) const QUICK_PAGES: NonZeroU32 = NonZeroU32::new(512).unwrap();
/// Few enough for many mappings, after which the tasks' phases depend little on the start. The published benchmark maps 32768.
pub(super) const USUAL_PAGES: NonZeroU32 = NonZeroU32::new(4096).unwrap();

/// The amount of simulated work for a prediction.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct EffortArgs {
    /// Counted mappings of each task; the same number precedes them
    #[arg(long, value_name = "N", default_value = "4", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    mappings: NonZeroU32,

    /// Seed of the sizes of the first mappings
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    seed: u64,
}

impl EffortArgs {
    /// The effort with these pages of each of many tasks.
    pub(super) fn with_pages(self, pages: NonZeroU32) -> Effort {
        Effort { pages: pages.get(), rounds: self.mappings.get(), seed: self.seed }
    }
}
