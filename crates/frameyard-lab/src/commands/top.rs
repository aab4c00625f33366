//! `top`: watches a shared yard on a terminal, without changing it.
//!
//! `find` finds the yard, `sample` reads its state, `draw` draws it as `line`s, `screen` is the terminal.

mod draw;
mod find;
mod line;
#[cfg(test)]
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../../tests/suite/program/pty.rs"]
mod pty;
mod sample;
mod screen;

use std::io::{self, Write};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use crate::Failure;
use crate::args::values::{positive_duration, positive_number};
use draw::{LEAST, PLAIN, Picture, View};
use find::Found;
use line::Size;
use sample::{BlockMap, Sample};
use screen::{Key, Screen};

/// What follows the options in the help text.
const HELP: &str = "\
Shows fragmentation, free blocks by order and type, per-CPU lists, lock rates and page faults of the processes. It reads the yard and
cannot change it. Keys: q, Escape and Ctrl-C quit, space pauses, z shows the next zone, + and - change the interval, the arrows
move through the CPUs.

Examples:
  frameyard top                          the only shared yard there is
  frameyard top build-cache              the yard of this name
  frameyard top 4711                     the yard of this process, as of frameyard stress --mode processes or trace replay
  frameyard top build-cache --frames 1   plain text";

/// Watches a running workload, replay or shared yard
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct TopArgs {
    /// The name or path of a shared yard, or the number of a process that uses one [default: the only yard there is]
    #[arg(value_name = "NAME|PID")]
    yard: Option<String>,

    /// Time between two looks at the yard, as in 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    interval: Duration,

    /// Print this number of frames as plain text and end; needs no terminal
    #[arg(long, value_name = "N", value_parser = positive_number)]
    frames: Option<NonZeroU32>,
}

/// The shortest and longest interval that keys choose.
const SHORTEST: Duration = Duration::from_millis(125);
const LONGEST: Duration = Duration::from_secs(64);
/// How often the end of the yard and signals are noticed.
const NOTICE: Duration = Duration::from_millis(200);

/// Watches until a key ends it, or the yard's last process ends.
pub(super) fn run(args: &TopArgs) -> Result<(), Failure> {
    if args.frames.is_none() {
        check_terminal()?;
    }
    let found = find::find(args.yard.as_deref())?;
    let mut watch = Watch::new(&found, args.interval)?;
    match args.frames {
        Some(frames) => print_frames(&mut watch, frames),
        None => watch.on_screen(),
    }
}

/// Refuses what is no terminal, or too small.
fn check_terminal() -> Result<(), Failure> {
    if !screen::is_terminal() {
        return Err(Failure::input("top needs a terminal: write --frames 1 for plain text"));
    }
    let size = screen::size().map_err(Failure::run_time)?;
    if size.width < LEAST.width || size.height < LEAST.height {
        return Err(Failure::input(format!("top needs a terminal of at least {LEAST}: this one has {size}")));
    }
    Ok(())
}

fn print_frames(watch: &mut Watch<'_>, frames: NonZeroU32) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for frame in 0..frames.get() {
        std::thread::sleep(watch.interval);
        watch.sample(PLAIN)?;
        let text = draw::plain(&watch.picture(), PLAIN);
        let gap = if frame > 0 { "\n" } else { "" };
        // The last line has keys, of which there are none here.
        let lines: Vec<&str> = text.lines().collect();
        let text = lines[..lines.len() - 1].join("\n");
        writeln!(out, "{gap}{}", text.trim_end())?;
        out.flush()?;
    }
    Ok(())
}

/// A yard, its last two samples, and what of them is shown.
struct Watch<'y> {
    found: &'y Found,
    begin: Instant,
    before: Option<Sample>,
    now: Sample,
    map: BlockMap,
    view: View,
    interval: Duration,
}

impl<'y> Watch<'y> {
    fn new(found: &'y Found, interval: Duration) -> Result<Self, Failure> {
        let begin = Instant::now();
        let now = Sample::read(found.yard.core(), &processes(found)?, 0);
        let view = View { zone: None, first_cpu: 0, is_paused: false, interval_ms: interval.as_millis() as u64 };
        Ok(Self { found, begin, before: None, now, map: BlockMap::default(), view, interval })
    }

    /// Takes a sample, for a screen of that size.
    fn sample(&mut self, size: Size) -> Result<(), Failure> {
        let time_ns = self.begin.elapsed().as_nanos() as u64;
        let now = Sample::read(self.found.yard.core(), &processes(self.found)?, time_ns);
        self.before = Some(std::mem::replace(&mut self.now, now));
        self.read_map(size);
        Ok(())
    }

    fn read_map(&mut self, size: Size) {
        let yard = &self.found.yard;
        let zone = self.view.zone.and_then(|at| sample::zones(yard.core()).nth(at));
        self.map = BlockMap::read(yard.core(), zone, draw::map_room(size));
    }

    fn picture(&self) -> Picture<'_> {
        Picture {
            yard: &self.found.name,
            now: &self.now,
            before: self.before.as_ref(),
            map: &self.map,
            view: self.view.clone(),
        }
    }

    fn on_screen(&mut self) -> Result<(), Failure> {
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&ended)).map_err(Failure::run_time)?;
        }
        let mut screen = Screen::open()?;
        self.read_map(screen::size().map_err(Failure::run_time)?);
        let mut next = Instant::now() + self.interval;
        while !ended.load(Ordering::Relaxed) {
            screen.show(|size| draw::draw(&self.picture(), size)).map_err(Failure::run_time)?;
            let rest = next.saturating_duration_since(Instant::now());
            match screen.key(rest.min(NOTICE)).map_err(Failure::run_time)? {
                Some(Key::Quit) => break,
                Some(key) => {
                    self.obey(key);
                    next = next.min(Instant::now() + self.interval);
                    self.read_map(screen::size().map_err(Failure::run_time)?);
                }
                None => {}
            }
            // Also while it is paused: the end of the yard ends the watch.
            processes(self.found)?;
            if Instant::now() >= next {
                next = Instant::now() + self.interval;
                if !self.view.is_paused {
                    self.sample(screen::size().map_err(Failure::run_time)?)?;
                }
            }
        }
        Ok(())
    }

    fn obey(&mut self, key: Key) {
        match key {
            Key::Quit => {}
            Key::Pause => self.view.is_paused = !self.view.is_paused,
            Key::Zone => {
                let next = self.view.zone.map_or(0, |zone| zone + 1);
                self.view.zone = (next < self.now.zones.len()).then_some(next);
            }
            Key::Faster => self.interval = (self.interval / 2).max(SHORTEST),
            Key::Slower => self.interval = (self.interval * 2).min(LONGEST),
            Key::Up => self.view.first_cpu = self.view.first_cpu.saturating_sub(1),
            Key::Down => {
                let last = self.now.zone(None).lists.len().saturating_sub(1);
                self.view.first_cpu = (self.view.first_cpu + 1).min(last);
            }
        }
        self.view.interval_ms = self.interval.as_millis() as u64;
    }
}

/// The processes of the yard.
///
/// # Errors
///
/// [`Failure::RunTime`] if all have ended.
fn processes(found: &Found) -> Result<Vec<u32>, Failure> {
    let processes = found.yard.processes().map_err(Failure::run_time)?;
    if processes.is_empty() {
        return Err(Failure::run_time(format!("{}: the last process of the yard has ended", found.name)));
    }
    Ok(processes)
}
