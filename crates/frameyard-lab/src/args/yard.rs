//! Options for how a yard is set up.

use clap::{ArgAction, Args, ValueEnum};
use frameyard::CleanRegions;
use frameyard::boot::PageChecks;
use frameyard::watermarks::PcpSizing;

use super::Amount;
use super::values::{Sizings, clean_regions, one_sizing, page_checks};

/// How a yard is set up on its machine.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Yard")]
pub(crate) struct YardArgs {
    /// Memory of the Movable zones: a size, or a percentage as in 25% [default: none]
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub(crate) movable: Option<Amount>,

    /// Size of the per-CPU lists: scaled, classic, early, fraction:N or fixed:N [default: scaled]
    #[arg(long, value_name = "SIZING", value_parser = one_sizing)]
    pub(crate) pcp_sizing: Option<Sizings>,

    /// How the minimum of free memory is set
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub(crate) huge_page_minimum: HugePageMinimum,

    /// When page structures of free blocks are checked: never, when blocks move between per-CPU lists and zones, or also at
    /// each allocation and free
    #[arg(long, value_name = "WHEN", value_parser = page_checks(), default_value = PageChecks::None.name())]
    pub(crate) checks: PageChecks,

    /// Whether requests are placed so that regions of 1 GiB stay free of blocks that cannot move
    #[arg(long, value_name = "on|off", action = ArgAction::Set, value_parser = clean_regions(), default_value = CleanRegions::Off.name())]
    pub(crate) clean_regions: Vec<CleanRegions>,

    /// Fill free frames with a pattern and check it on allocation; writes to all memory
    #[arg(long)]
    pub(crate) poison: bool,
}

impl YardArgs {
    /// The size of the per-CPU lists, if the command line names one.
    pub(crate) fn sizing(&self) -> Option<PcpSizing> {
        self.pcp_sizing.as_ref().map(Sizings::first)
    }
}

/// Whether the huge-page daemon has raised the minimum of free memory.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum HugePageMinimum {
    /// The minimum is what the kernel computes from the size of memory
    #[default]
    KernelDefault,
    /// The huge-page daemon has raised it to what it recommends
    Recommended,
}

impl From<HugePageMinimum> for frameyard::watermarks::HugePageMinimum {
    fn from(minimum: HugePageMinimum) -> Self {
        match minimum {
            HugePageMinimum::KernelDefault => Self::KernelDefault,
            HugePageMinimum::Recommended => Self::Recommended,
        }
    }
}
