//! `trace record`: records tracepoints while a command runs: of the page allocator, or of a program's demand for pages.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum, ValueHint};
use frameyard_traces::TraceWriter;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};

use super::facts::{ChildrenUse, Facts};
use super::input::{SnapshotFiles, beside, snapshot_file};
use super::sources::{Source, Subject};
use super::tracefs::Instance;
use crate::Failure;
use crate::output::{OutputFile, ProgressBar, spinner};

/// What follows the options in the help text.
const HELP: &str = "\
Needs root. Uses a tracefs instance of its own and removes it, also after Ctrl-C, which ends the command. The file has
Frameyard's format. It also has buddyinfo, pagetypeinfo and zoneinfo of /proc before and after the command, which are written
beside it as well, as FILE.buddyinfo.before and so on, and the command's CPU time and page faults.

With --malloc the file has the pages that the command and its processes touch and give back, each as an allocation of order 0 of
a synthetic frame, and no files of /proc. The command runs without transparent huge pages. This needs x86-64.

Examples:
  frameyard trace record -o build.fyt -- make
  frameyard trace record --malloc -o program.fyt -- python3 program.py
  frameyard trace record -o build.fyt --scope command -- make -j2";

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

    /// Record the command's own demand for pages, not the kernel's allocator
    #[arg(long, conflicts_with = "scope")]
    malloc: bool,

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

/// Stops itself until the recording has begun, then becomes the command.
const WAITING_SHELL: &str = "kill -STOP $$ && exec \"$@\"";
/// Whether there is a command of that name.
const FINDING_SHELL: &str = "command -v \"$1\" >/dev/null";
/// The exit code of a shell whose command does not exist.
const NOT_FOUND: i32 = 127;
/// How long the recorder sleeps when there are no events.
const PAUSE: Duration = Duration::from_millis(20);
/// Files of /proc that describe free memory. The kernel may have been built without the first.
const PROC_FILES: [&str; 3] = ["pagetypeinfo", "buddyinfo", "zoneinfo"];

/// Records, and prints one line.
pub(super) fn run(args: &RecordArgs) -> Result<(), Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(Failure::run_time)?;
    }
    let instance = Instance::create()?;
    let subject = if args.malloc { Subject::Demand } else { Subject::Kernel };
    let source = subject.source(instance.pipes()?);
    let name = args.command.first().map(OsString::as_os_str).unwrap_or_default();
    find(name)?;
    let before = ChildrenUse::current().map_err(Failure::run_time)?;
    let child = match subject {
        Subject::Kernel => start_stopped(&args.command)?,
        Subject::Demand => without_huge_pages(|| start_stopped(&args.command))?,
    };
    let (begin, bar) = (Instant::now(), spinner("recording".to_owned()));
    // From here on, dropping it ends the command.
    let mut recorder = Recorder {
        source,
        instance,
        subject,
        child,
        interrupted,
        has_been_asked: false,
        begin,
        before,
        args,
        events: 0,
        lost: 0,
        bar,
    };
    let mut recorded = Ok(None);
    let written = args.out.write(|out| {
        let mut out = Sink { out, error: None };
        recorded = recorder.record(&mut out);
        out.error.map_or(Ok(()), Err)
    });
    recorder.bar.finish_and_clear();
    written.map_err(|error| Failure::run_time(format!("{error}. The file has what was recorded until then")))?;
    let status = recorded?;
    if status.and_then(|status| status.code()) == Some(NOT_FOUND) {
        return Err(Failure::run_time(format!(
            "{}: the command was not found, or ended with {NOT_FOUND}",
            name.display()
        )));
    }
    let (path, Recorder { events, lost, .. }) = (args.out.path().display(), &recorder);
    let ended = status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
    println!("{path}: {events} events, {lost} lost; {} ended with {ended}", name.display());
    Ok(())
}

/// Fails unless a shell finds the command.
fn find(name: &OsStr) -> Result<(), Failure> {
    let status = Command::new("sh").arg("-c").arg(FINDING_SHELL).arg("sh").arg(name).status();
    match status.map_err(|error| Failure::run_time(format!("sh: {error}")))?.success() {
        true => Ok(()),
        false => Err(Failure::run_time(format!("{}: the command was not found", name.display()))),
    }
}

/// Starts a shell that waits to become the command. Returns when it waits.
fn start_stopped(command: &[OsString]) -> Result<Child, Failure> {
    let child = Command::new("sh").arg("-c").arg(WAITING_SHELL).arg("sh").args(command).spawn();
    let child = child.map_err(|error| Failure::run_time(format!("sh: {error}")))?;
    waitpid(Some(pid(child.id())), WaitOptions::UNTRACED).map_err(Failure::run_time)?;
    Ok(child)
}

/// Runs `start` while the processes that this one starts get no transparent huge pages, so that each page has a fault of its own.
fn without_huge_pages<R>(start: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    let refused = |error| Failure::run_time(format!("transparent huge pages cannot be switched off: {error}"));
    let before = transparent_huge_pages_are_disabled().map_err(refused)?;
    disable_transparent_huge_pages(true).map_err(refused)?;
    let started = start();
    disable_transparent_huge_pages(before).map_err(refused)?;
    started
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed()).unwrap_or(Pid::INIT)
}

fn signal(id: u32, signal: Signal) -> io::Result<()> {
    Ok(kill_process(pid(id), signal)?)
}

/// The files of /proc; `when` is the end of their names.
fn snapshot(when: &str) -> Result<SnapshotFiles, Failure> {
    let mut files = SnapshotFiles::new();
    for name in PROC_FILES {
        let path = Path::new("/proc").join(name);
        match fs::read_to_string(&path) {
            Ok(text) => drop(files.insert(format!("{name}.{when}"), text)),
            Err(error) if name == PROC_FILES[0] && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::run_time(format!("{}: {error}", path.display()))),
        }
    }
    Ok(files)
}

/// A recording.
struct Recorder<'a> {
    /// Closed before the instance, which cannot be removed while they are open.
    source: Source,
    instance: Instance,
    subject: Subject,
    child: Child,
    interrupted: Arc<AtomicBool>,
    /// Whether the command has been asked to end.
    has_been_asked: bool,
    begin: Instant,
    before: ChildrenUse,
    args: &'a RecordArgs,
    events: u64,
    lost: u64,
    bar: ProgressBar,
}

impl Recorder<'_> {
    /// Starts tracing, then the command, and writes all until it has ended. `None`: the output failed.
    fn record(&mut self, out: &mut Sink<'_>) -> Result<Option<ExitStatus>, Failure> {
        let mut writer = TraceWriter::new(out).map_err(Failure::run_time)?;
        self.write_snapshot("before", &mut writer)?;
        let id = self.child.id();
        if self.args.scope == Scope::Command || self.subject == Subject::Demand {
            self.instance.follow(id)?;
        }
        self.instance.start(self.subject)?;
        signal(id, Signal::CONT).map_err(Failure::run_time)?;
        let Some(status) = self.write_events(&mut writer)? else { return Ok(None) };
        self.lost = self.instance.lost()?;
        self.facts(status)?.each(|name, value| writer.fact(name, value)).map_err(Failure::run_time)?;
        self.write_snapshot("after", &mut writer)?;
        writer.finish().map_err(Failure::run_time)?;
        Ok(Some(status))
    }

    /// Writes events until the command has ended and all are read. `None`: the output failed.
    fn write_events(&mut self, writer: &mut TraceWriter<&mut Sink<'_>>) -> Result<Option<ExitStatus>, Failure> {
        let mut status = None;
        loop {
            self.pass_interrupts();
            let failed = |error| Failure::run_time(format!("trace_pipe: {error}"));
            let now_us = self.instance.now_us()?;
            let mut events = self.source.round(now_us).map_err(failed)?;
            let is_end = status.is_some() && self.source.are_empty();
            if is_end {
                events.extend(self.source.rest());
            }
            self.events += events.len() as u64;
            let written = events.into_iter().try_for_each(|event| writer.event(event));
            if written.is_err() || writer.get_ref().error.is_some() {
                return Ok(None);
            }
            self.bar.set_message(format!("{} events", self.events));
            if is_end {
                return Ok(status);
            }
            if status.is_none() {
                status = self.child.try_wait().map_err(Failure::run_time)?;
                match status {
                    // What was traced until now is read before the end.
                    Some(_) => self.instance.stop()?,
                    None if self.source.are_empty() => std::thread::sleep(PAUSE),
                    None => {}
                }
            }
        }
    }

    /// Ends the command after a signal. From a terminal it has the signal, too, and may be gone.
    fn pass_interrupts(&mut self) {
        if self.interrupted.swap(false, Ordering::Relaxed) {
            let request = if self.has_been_asked { Signal::KILL } else { Signal::TERM };
            self.has_been_asked = true;
            let _ = signal(self.child.id(), request);
        }
    }

    /// Writes the files of /proc, into the recording and beside it.
    fn write_snapshot(&self, when: &str, writer: &mut TraceWriter<&mut Sink<'_>>) -> Result<(), Failure> {
        if self.subject == Subject::Demand {
            // They describe other frames.
            return Ok(());
        }
        let path = self.args.out.path();
        let prefix = path.metadata().is_ok_and(|file| file.is_file()).then(|| beside(path));
        for (name, text) in snapshot(when)? {
            if let Some(prefix) = &prefix {
                let file = snapshot_file(prefix, &name);
                let failed = |error| Failure::run_time(format!("{}: cannot write: {error}", file.display()));
                fs::write(&file, &text).map_err(failed)?;
            }
            writer.snapshot(&name, &text).map_err(Failure::run_time)?;
        }
        Ok(())
    }

    fn facts(&self, status: ExitStatus) -> Result<Facts, Failure> {
        let spent = ChildrenUse::current().map_err(Failure::run_time)?.since(self.before);
        let words: Vec<_> = self.args.command.iter().map(|word| word.to_string_lossy()).collect();
        let mut facts = Facts::default();
        facts.add("command", &words.join(" "));
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").map_err(Failure::run_time)?;
        facts.add("kernel", release.trim_end());
        let scope = if self.subject == Subject::Demand { "malloc" } else { self.args.scope.name() };
        facts.add("scope", scope);
        facts.add("exit_code", &status.code().map_or_else(|| "signal".to_owned(), |code| code.to_string()));
        facts.add("elapsed_ms", &self.begin.elapsed().as_millis());
        facts.add("user_ms", &spent.user_ms);
        facts.add("system_ms", &spent.system_ms);
        facts.add("minor_faults", &spent.minor_faults);
        facts.add("lost_events", &self.lost);
        facts.add("skipped_lines", &self.source.bad_lines());
        Ok(facts)
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

/// The output, which keeps its first error.
struct Sink<'a> {
    out: &'a mut dyn Write,
    error: Option<io::Error>,
}

impl Write for Sink<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.out.write_all(buffer).map(|()| buffer.len()).map_err(|error| {
            let kept = io::Error::from(error.kind());
            self.error.get_or_insert(error);
            kept
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
