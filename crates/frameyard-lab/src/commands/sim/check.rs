//! `sim check`: predictions beside published measurements.

use crate::Failure;
use crate::cli::CheckArgs;

/// Compares.
pub(super) fn run(_args: &CheckArgs) -> Result<(), Failure> {
    Err(Failure::input("sim check: is not there yet"))
}
