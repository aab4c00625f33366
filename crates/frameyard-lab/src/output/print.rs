//! Printing reports, in the form that the command line asks for.

use std::io::{self, Write};

use super::json;
use super::{HostFacts, OutputArgs, OutputFile, Report, table};
use crate::Failure;

impl Report {
    /// Prints the report to standard output, and writes its rows to the file of `--csv`.
    ///
    /// # Errors
    ///
    /// [`Failure::OutputClosed`] where the reader of standard output has gone, [`Failure::RunTime`] where writing fails
    /// otherwise or rows have different columns. The report is printed even where the file cannot be written.
    pub(crate) fn print(&self, args: &OutputArgs) -> Result<(), Failure> {
        let file = args.csv.as_ref().map_or(Ok(()), |file| self.write_csv(file));
        // Strips the colours where standard output is no terminal, or the user wants none (NO_COLOR).
        let mut out = io::BufWriter::new(anstream::stdout().lock());
        if args.json {
            json::write(self, &HostFacts::read(), &mut out)?;
        } else {
            self.write_text(table::terminal_width(), &mut out)?;
        }
        out.flush()?;
        file
    }

    /// Writes the JSON form to a file.
    ///
    /// # Errors
    ///
    /// [`Failure::RunTime`] where writing fails or rows have different columns.
    pub(crate) fn write_json(&self, file: &OutputFile) -> Result<(), Failure> {
        let mut text = Vec::new();
        json::write(self, &HostFacts::read(), &mut text)?;
        file.write(|out| out.write_all(&text))
    }
}
