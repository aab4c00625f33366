//! Options for the form of results.

use clap::{Args, ValueHint};

use super::OutputFile;

/// The form of results.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// Also write the rows to a file, as comma-separated values with the keys of JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<OutputFile>,
}
