//! `trace record`: records the page allocator's tracepoints while a command runs.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum, ValueHint};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use ruzstd::encoding::{CompressionLevel, compress};

use super::facts::{ChildrenUse, Facts};
use super::tracefs::Instance;
use crate::Failure;
use crate::output::{OutputFile, spinner};

/// What follows the options in the help text.
const HELP: &str = "\
Needs root. Uses a tracefs instance of its own and removes it, also after Ctrl-C. The file is ftrace text, compressed by zstd; its
last lines are comments with the command's CPU time and page faults.

Examples:
  frameyard trace record -o build.trace.zst -- make
  frameyard trace record -o build.trace.zst --scope command -- make -j2";

/// Records what this kernel's page allocator does while a command runs
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct RecordArgs {
    /// The file for the trace
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: OutputFile,

    /// Whose events to record
    #[arg(long, value_name = "SCOPE", value_enum, default_value = "system")]
    scope: Scope,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Whose events are recorded.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    /// Those of the whole system, so that every free has its allocation
    System,
    /// Those of the command and the processes that it starts; frees by the kernel's own threads are missing
    Command,
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Command => "command",
        }
    }
}

/// Stops itself until the recording has begun, then becomes the command, if there is one of that name.
const WAITING_SHELL: &str = "kill -STOP $$ && command -v \"$1\" >/dev/null || exit 127; exec \"$@\"";
/// The exit code of a shell whose command does not exist.
const NOT_FOUND: i32 = 127;
/// How long the recorder sleeps when there are no events.
const PAUSE: Duration = Duration::from_millis(20);

/// Records, and prints one line.
pub(super) fn run(args: &RecordArgs) -> Result<(), Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(Failure::run_time)?;
    }
    let instance = Instance::create()?;
    let pipe = instance.pipe()?;
    let before = ChildrenUse::current().map_err(Failure::run_time)?;
    let child = start_stopped(&args.command)?;
    let (begin, bar) = (Instant::now(), spinner("recording".to_owned()));
    // From here on, dropping it ends the command.
    let mut recorder =
        Recorder { pipe, instance, child, interrupted, begin, before, args, tail: None, error: None, lines: 0, bar };
    recorder.start()?;
    args.out.write(|out| {
        let mut out = Sink { out, error: None };
        compress(&mut recorder, &mut out, CompressionLevel::Fastest);
        out.error.map_or(Ok(()), Err)
    })?;
    recorder.finish()
}

/// Starts a shell that waits to become the command. Returns when it waits.
fn start_stopped(command: &[OsString]) -> Result<Child, Failure> {
    let child = Command::new("sh").arg("-c").arg(WAITING_SHELL).arg("sh").args(command).spawn();
    let child = child.map_err(|error| Failure::run_time(format!("sh: {error}")))?;
    waitpid(Some(pid(child.id())), WaitOptions::UNTRACED).map_err(Failure::run_time)?;
    Ok(child)
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed()).unwrap_or(Pid::INIT)
}

fn signal(id: u32, signal: Signal) -> io::Result<()> {
    Ok(kill_process(pid(id), signal)?)
}

/// A recording, as a source of text: header, events, facts.
struct Recorder<'a> {
    /// Closed before the instance, which cannot be removed while it is open.
    pipe: File,
    instance: Instance,
    child: Child,
    interrupted: Arc<AtomicBool>,
    begin: Instant,
    before: ChildrenUse,
    args: &'a RecordArgs,
    /// What is left of the last lines, once the command has ended.
    tail: Option<io::Cursor<String>>,
    error: Option<Failure>,
    lines: u64,
    bar: indicatif::ProgressBar,
}

impl Recorder<'_> {
    /// Starts tracing, then the command.
    fn start(&self) -> Result<(), Failure> {
        let id = self.child.id();
        if self.args.scope == Scope::Command {
            self.instance.follow(id)?;
        }
        self.instance.start()?;
        signal(id, Signal::CONT).map_err(Failure::run_time)
    }

    /// Reads events until the command has ended and all are read; then `Ok(0)`.
    fn read_events(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        let mut status = None;
        loop {
            if self.interrupted.swap(false, Ordering::Relaxed) {
                // From a terminal the command has the signal, too. It may be gone.
                let _ = signal(self.child.id(), Signal::TERM);
            }
            match self.pipe.read(buffer) {
                Ok(read) if read > 0 => {
                    self.lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
                    self.bar.set_message(format!("{} events", self.lines));
                    return Ok(read);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::run_time(format!("trace_pipe: {error}"))),
            }
            if let Some(status) = status {
                self.tail = Some(io::Cursor::new(self.facts(status)?.comments()));
                return Ok(0);
            }
            status = self.child.try_wait().map_err(Failure::run_time)?;
            match status {
                // What was traced until now is read before the end.
                Some(_) => self.instance.stop()?,
                None => std::thread::sleep(PAUSE),
            }
        }
    }

    fn facts(&self, status: ExitStatus) -> Result<Facts, Failure> {
        let spent = ChildrenUse::current().map_err(Failure::run_time)?.since(self.before);
        let words: Vec<_> = self.args.command.iter().map(|word| word.to_string_lossy()).collect();
        let mut facts = Facts::default();
        facts.add("command", &words.join(" "));
        facts.add("scope", self.args.scope.name());
        facts.add("exit_code", &status.code().map_or_else(|| "signal".to_owned(), |code| code.to_string()));
        facts.add("elapsed_ms", &self.begin.elapsed().as_millis());
        facts.add("user_ms", &spent.user_ms);
        facts.add("system_ms", &spent.system_ms);
        facts.add("minor_faults", &spent.minor_faults);
        facts.add("lost_events", &self.instance.lost()?);
        Ok(facts)
    }

    /// Ends the command if it still runs, and says what was recorded.
    fn finish(mut self) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let status = self.child.wait().map_err(Failure::run_time)?;
        let name = self.args.command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
        if status.code() == Some(NOT_FOUND) {
            return Err(Failure::run_time(format!("{name}: the command was not found, or ended with {NOT_FOUND}")));
        }
        let lost = self.instance.lost()?;
        println!("{}: {} events, {lost} lost; {name} ended with {status}", self.args.out.path().display(), self.lines);
        Ok(())
    }
}

impl Read for Recorder<'_> {
    /// Never fails, because the compressor would panic: an error ends the text and is kept.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(tail) = &mut self.tail {
            return tail.read(buffer);
        }
        if self.error.is_some() {
            return Ok(0);
        }
        match self.read_events(buffer) {
            Ok(0) => self.read(buffer),
            Ok(read) => Ok(read),
            Err(error) => {
                self.error = Some(error);
                Ok(0)
            }
        }
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = signal(self.child.id(), Signal::TERM);
            let _ = signal(self.child.id(), Signal::CONT);
        }
    }
}

/// A writer that never fails, because the compressor would panic: it keeps the first error.
struct Sink<'a> {
    out: &'a mut dyn Write,
    error: Option<io::Error>,
}

impl Write for Sink<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        if self.error.is_none()
            && let Err(error) = self.out.write_all(buffer)
        {
            self.error = Some(error);
        }
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
