//! `sim calibrate`: fits the free parameters of a machine on rows of a published table.

use crate::Failure;
use crate::cli::CalibrateArgs;

/// Fits.
pub(super) fn run(_args: &CalibrateArgs) -> Result<(), Failure> {
    Err(Failure::input("sim calibrate: is not there yet"))
}
