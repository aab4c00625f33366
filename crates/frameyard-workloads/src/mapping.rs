//! Anonymous mappings as workloads make them, and the exit of address spaces.

use std::fmt;

use frameyard::{ByteSize, Platform};
use frameyard_vm::{
    AddressSpace, ExitOutcome, ExitProblem, ExitStalled, HugeAdvice, MapError, MapRequest, PageLevel, VirtAddr,
    VirtRange,
};
use serde::{Deserialize, Serialize};

/// How much a task maps at a time: as much as will-it-scale's page_fault1.
pub const MAP_SIZE: ByteSize = ByteSize::mib(128);

/// The page size that a mapping prefers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB where available.
    Huge,
}

impl Pages {
    fn advice(self) -> HugeAdvice {
        match self {
            Self::Small => HugeAdvice::Never,
            Self::Huge => HugeAdvice::Huge,
        }
    }

    /// Bytes of such a page.
    #[must_use]
    pub fn size(self) -> ByteSize {
        match self {
            Self::Small => PageLevel::Small.size(),
            Self::Huge => PageLevel::Huge.size(),
        }
    }

    /// The name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Huge => "huge",
        }
    }
}

/// Maps anonymous memory at an address that the space chooses.
pub(crate) fn map<P: Platform>(
    space: &AddressSpace<'_, P>,
    bytes: ByteSize,
    pages: Pages,
) -> Result<VirtRange, MapError> {
    space.map(MapRequest::anonymous(bytes).advised(pages.advice()))
}

/// The address of each 4 KiB page of a range.
pub(crate) fn pages_of(range: VirtRange) -> impl Iterator<Item = VirtAddr> {
    (range.start.0..range.end.0).step_by(PageLevel::Small.size().0 as usize).map(VirtAddr)
}

/// Why an address space did not go away.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StillThere {
    /// Another handle refers to it.
    Used,
    /// Its exit stalled.
    Stalled(ExitProblem),
}

impl fmt::Display for StillThere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Used => f.write_str("the address space is still there: another handle refers to it"),
            Self::Stalled(problem) => write!(f, "the address space is still there: {problem}"),
        }
    }
}

impl std::error::Error for StillThere {}

/// Turns the outcome of an exit into an error unless the space is gone.
pub(crate) fn check_gone<P: Platform>(outcome: Result<ExitOutcome, ExitStalled<'_, P>>) -> Result<(), StillThere> {
    match outcome {
        Ok(ExitOutcome::Gone(_)) => Ok(()),
        Ok(ExitOutcome::StillUsed) => Err(StillThere::Used),
        Err(stalled) => Err(StillThere::Stalled(stalled.problem)),
    }
}
