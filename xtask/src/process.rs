//! Programs that commands run.

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, ExitStatus};

/// Why a command ends without success.
pub(crate) struct Failed {
    /// The exit status.
    pub(crate) status: i32,
    /// What has not been printed yet.
    pub(crate) says: String,
}

pub(crate) type Outcome = Result<(), Failed>;

impl From<String> for Failed {
    fn from(says: String) -> Self {
        Self { status: 1, says }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        error.to_string().into()
    }
}

pub(crate) fn failed(says: impl Into<String>) -> Outcome {
    Err(says.into().into())
}

/// A program and its arguments, separated by spaces.
pub(crate) fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Runs a program. Its status is that of the command if it fails.
pub(crate) fn run(command: &mut Command) -> Outcome {
    succeeded(command.status().map_err(|error| cannot_run(command, &error))?)
}

/// The text that a program writes to its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, Failed> {
    let output = command.output().map_err(|error| cannot_run(command, &error))?;
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    succeeded(output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program and passes on each line that it writes, to its standard output or error.
pub(crate) fn stream(mut command: Command, mut each: impl FnMut(&str)) -> Result<ExitStatus, Failed> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().map_err(|error| cannot_run(&command, &error))?;
    // It has the pipe's other end.
    drop(command);
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        each(String::from_utf8_lossy(&line).trim_end_matches('\n'));
        line.clear();
    }
    Ok(child.wait()?)
}

pub(crate) fn succeeded(status: ExitStatus) -> Outcome {
    if status.success() { Ok(()) } else { Err(Failed { status: status.code().unwrap_or(1), says: String::new() }) }
}

fn cannot_run(command: &Command, error: &io::Error) -> Failed {
    format!("cannot run {}: {error}", command.get_program().display()).into()
}

/// Whether there is a program of this name.
pub(crate) fn is_installed(program: impl AsRef<OsStr>) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program.as_ref()).is_file())
}
