//! Effort: how much work a request may spend on memory that other CPUs have or that must be merged first. Its flags
//! decide.
//!
//! A request that must not wait may run in an interrupt handler, on the CPU of the very thread that it would wait for.
//! So it does not sleep, spins for a few rounds at most, and merges little. A request that may sleep does more before
//! it fails.

use core::cell::Cell;

use crate::gfp::Gfp;
use crate::owners::MigrateMode;
use crate::platform::Platform;

/// The most pageblocks that a request that must not wait searches for deferred merges.
pub(crate) const FEW_PAGEBLOCKS: u64 = 32;

/// The most lines of bits that a request with [`Gfp::NORETRY`], or one that must not sleep, returns to the free lists so that they merge.
const FEW_LINES: usize = 1024;

/// How a caller waits for other CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// It spins a few rounds: it must not sleep.
    Spins,
    /// It may sleep.
    Sleeps,
}

impl Patience {
    pub(crate) const fn of(gfp: Gfp) -> Self {
        if gfp.contains(Gfp::DIRECT_RECLAIM) { Self::Sleeps } else { Self::Spins }
    }

    /// The most rounds of one wait. (Few in models.)
    pub(crate) const fn rounds(self) -> u32 {
        match self {
            Self::Spins => [32, 2][cfg!(loom) as usize],
            Self::Sleeps => [4096, 3][cfg!(loom) as usize],
        }
    }

    /// Waits one round. The caller holds no lock of the yard.
    pub(crate) fn wait<P: Platform>(self, platform: &P, round: u32) {
        match self {
            Self::Spins => platform.spin(round),
            Self::Sleeps => platform.wait(round),
        }
    }

    /// How owners move blocks for the caller.
    pub(crate) const fn mode(self) -> MigrateMode {
        match self {
            Self::Spins => MigrateMode::Async,
            Self::Sleeps => MigrateMode::Sync,
        }
    }
}

/// What is left of the effort of one request.
#[derive(Debug)]
pub(crate) struct Effort {
    pub(crate) patience: Patience,
    /// The rounds that it has waited for the memory map, if it must not sleep.
    pub(crate) spins: Cell<u32>,
    /// The most lines of bits that it returns to the free lists.
    pub(crate) lines: usize,
}

impl Effort {
    pub(crate) const fn of(gfp: Gfp) -> Self {
        let patience = Patience::of(gfp);
        let lines = match patience {
            Patience::Sleeps if !gfp.contains(Gfp::NORETRY) => usize::MAX,
            _ => FEW_LINES,
        };
        Self { patience, spins: Cell::new(0), lines }
    }
}
