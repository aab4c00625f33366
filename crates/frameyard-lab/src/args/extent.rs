//! Options that limit how much is measured.

use std::time::Duration;

use clap::Args;
use frameyard::ByteSize;

use super::values::positive_duration;

/// Memory of quick runs: enough for every workload, and soon filled.
const QUICK_MEMORY: ByteSize = ByteSize::gib(1);

/// A short run.
///
/// Options with another default for quick runs name `quick` in a `default_value_if`.
#[derive(Args, Clone, Copy, Default, Debug)]
pub(crate) struct QuickArgs {
    /// Rows within 30 seconds: fewer, shorter and smaller runs, unless other options say otherwise
    #[arg(long)]
    pub(crate) quick: bool,
}

impl QuickArgs {
    /// The usual memory of a command, or less for a quick run.
    #[must_use]
    pub(crate) fn memory(self, usual: ByteSize) -> ByteSize {
        if self.quick { usual.min(QUICK_MEMORY) } else { usual }
    }
}

/// A run without limits.
#[derive(Args, Clone, Copy, Default, Debug)]
pub(crate) struct FullArgs {
    /// Lift the limits on time and memory: memory maps of more than 4 GiB are written, and sweeps are complete
    #[arg(long)]
    pub(crate) full: bool,
}

/// The counted virtual time.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct VirtualDurationArgs {
    /// Virtual time to count, as in 100ms or 1s; tasks finish their last round, so a run takes longer
    #[arg(long, value_name = "TIME", default_value = "100ms", default_value_if("quick", "true", "10ms"), value_parser = positive_duration)]
    pub(crate) duration: Duration,
}

/// The duration of a run.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DurationArgs {
    /// Duration of each run, as in 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "1s", default_value_if("quick", "true", "200ms"), value_parser = positive_duration)]
    pub(crate) duration: Duration,
}
