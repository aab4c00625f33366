//! Arguments of `sim calibrate` and `sim check`.

use clap::Args;

use super::OutputArgs;

/// Arguments of `sim calibrate`.
#[derive(Args, Clone, Debug)]
pub struct CalibrateArgs {
    /// How the result is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `sim check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// How the result is written.
    #[command(flatten)]
    pub output: OutputArgs,
}
