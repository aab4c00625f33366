//! Why the program ends without a result: one line and an exit code.

use std::error::Error;
use std::fmt;
use std::io;
use std::process::ExitCode;

use frameyard_workloads::WorkloadError;

/// A reason to end without success.
///
/// Its `Display` form is a single line, whatever its text.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad usage or bad input, which the user can correct: exit code 2.
    Input(Box<dyn Error + Send + Sync>),
    /// A failure at run time: exit code 1.
    RunTime(Box<dyn Error + Send + Sync>),
    /// The reader of standard output has gone, as `head` does after its last line. Ends silently with exit code 141, which a
    /// shell reports for a program that SIGPIPE ends.
    OutputClosed,
}

impl Failure {
    /// Bad usage or bad input.
    pub(crate) fn input(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Input(reason.into())
    }

    /// A failure at run time.
    pub(crate) fn run_time(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::RunTime(reason.into())
    }

    /// The exit code, as a number.
    #[must_use]
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::RunTime(_) => 1,
            Self::OutputClosed => 141,
        }
    }

    /// Prints the line to standard error and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if !matches!(self, Self::OutputClosed) {
            anstream::eprintln!("{ERROR}error:{ERROR:#} {self}");
        }
        ExitCode::from(self.code())
    }
}

const ERROR: anstyle::Style = anstyle::AnsiColor::Red.on_default().bold();

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Input(reason) | Self::RunTime(reason) => reason.to_string(),
            Self::OutputClosed => return f.write_str("standard output was closed"),
        };
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        f.write_str(lines.next().unwrap_or("unknown"))?;
        lines.try_for_each(|line| write!(f, " {line}"))
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Input(reason) | Self::RunTime(reason) => reason.source(),
            Self::OutputClosed => None,
        }
    }
}

impl From<WorkloadError> for Failure {
    fn from(error: WorkloadError) -> Self {
        match error {
            WorkloadError::Input(reason) => Self::Input(reason),
            WorkloadError::RunTime(reason) => Self::RunTime(reason),
        }
    }
}

impl From<io::Error> for Failure {
    /// For errors of writing to standard output.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::OutputClosed } else { Self::run_time(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_whatever_its_text() {
        assert_eq!(Failure::input("one\n\n  two\nthree\n").to_string(), "one two three");
        assert_eq!(Failure::run_time("").to_string(), "unknown");
    }

    #[test]
    fn a_closed_reader_has_the_exit_code_of_sigpipe() {
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).code(), 141);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::StorageFull)).code(), 1);
    }
}
