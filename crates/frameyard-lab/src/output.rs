//! How results leave the program: text for people, one JSON object, or rows as CSV.
//!
//! A command makes a [`Report`] of [`Row`]s and prints it. Each column is declared once, where a row is made. Errors are a
//! line on standard error and never part of a report.

mod format;
mod host_facts;
mod json;
mod output_args;
mod output_file;
mod plot;
mod print;
mod progress;
mod report;
mod rounded_size;
mod row;
mod table;

pub(crate) use format::Format;
pub(crate) use host_facts::HostFacts;
pub(crate) use output_args::OutputArgs;
pub(crate) use output_file::OutputFile;
pub(crate) use plot::{Plot, PlotArgs};
pub(crate) use progress::{ProgressBar, is_terminal, progress_bar, spinner};
pub(crate) use report::Report;
pub(crate) use rounded_size::RoundedSize;
pub(crate) use row::Row;

/// A number of a row to a hundredth, which is finer than any clock here.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
