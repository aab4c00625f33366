//! How results leave the program: one JSON object, or text for people.
//!
//! A command returns a typed outcome; what it looks like is in its [`Outcome`] implementation, and
//! [`print()`] chooses the form. Errors never come this way: they are a line on standard error.

mod host_facts;
mod json;
mod progress;
mod rounded_size;
mod table;

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::Failure;
use crate::cli::OutputArgs;

pub use host_facts::HostFacts;
pub use json::{RowError, Rows, SCHEMA};
pub use progress::{progress_bar, spinner};
pub use rounded_size::RoundedSize;
pub use table::Table;

/// What a command found out, ready to be rendered either way.
pub trait Outcome {
    /// The command, as it was typed: `boot`, `bench alloc`.
    fn command(&self) -> &'static str;

    /// The name of the machine it is about, if it is about one.
    fn machine(&self) -> Option<&str> {
        None
    }

    /// Values of the whole run, which stand beside `rows` in JSON. By default there are none.
    fn totals(&self) -> Map<String, Value> {
        Map::new()
    }

    /// The rows, flat and with the same keys in each.
    ///
    /// # Errors
    ///
    /// [`RowError`] when they are not.
    fn rows(&self) -> Result<Rows, RowError>;

    /// Writes the outcome for people. By default all rows as a table.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        Table::of(&self.rows().map_err(io::Error::other)?).write(out)
    }
}

/// Rows of a command about a machine, and how people read them.
struct Found<'a, R, W> {
    command: &'static str,
    machine: &'a str,
    rows: &'a [R],
    write_rows: W,
}

impl<R: Serialize, W: Fn(&mut dyn Write, &[R]) -> io::Result<()>> Outcome for Found<'_, R, W> {
    fn command(&self) -> &'static str {
        self.command
    }

    fn machine(&self) -> Option<&str> {
        Some(self.machine)
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(self.rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        (self.write_rows)(out, self.rows)
    }
}

/// Prints the rows of a command about a machine, for people as `write_rows` writes them: an outcome that is no more than that.
///
/// # Errors
///
/// As [`print()`] has them.
pub fn print_rows<R: Serialize>(
    command: &'static str,
    machine: &str,
    rows: &[R],
    write_rows: impl Fn(&mut dyn Write, &[R]) -> io::Result<()>,
    args: &OutputArgs,
) -> Result<(), Failure> {
    print(&Found { command, machine, rows, write_rows }, args)
}

/// A number of a row to a hundredth, which is finer than any clock here.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Prints an outcome to standard output.
///
/// # Errors
///
/// [`Failure::OutputClosed`] when the reader went away, [`Failure::RunTime`] when writing failed otherwise or
/// the rows of the outcome do not agree.
pub fn print(outcome: &dyn Outcome, form: &OutputArgs) -> Result<(), Failure> {
    // Strips the colours where standard output is no terminal, or the user wants none (NO_COLOR).
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    if form.json {
        json::write(outcome, &HostFacts::read(), &mut out)?;
    } else {
        outcome.write_text(&mut out)?;
    }
    Ok(out.flush()?)
}
