//! Progress of long commands on a terminal: one line on standard error, which a thread redraws and which leaves nothing behind.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Work that is done before this shows nothing.
const DELAY: Duration = Duration::from_millis(400);
/// How often the line is drawn again.
const TICK: Duration = Duration::from_millis(200);
/// The longest bar, in characters.
const BAR: usize = 60;
/// The length that stands for work of unknown length.
const UNKNOWN: u64 = 0;
const ERASE: &str = "\r\x1b[2K";

/// A bar on standard error that counts up to `total`, with the time so far and an estimate of the rest. Hidden, at no cost,
/// where standard error is no terminal.
pub(crate) fn progress_bar(what: &'static str, total: u64) -> ProgressBar {
    ProgressBar::new(what.to_owned(), total)
}

/// A sign on standard error that work of unknown length is under way. Hidden, at no cost, where that is no terminal.
pub(crate) fn spinner(what: String) -> ProgressBar {
    ProgressBar::new(what, UNKNOWN)
}

/// Whether progress is shown.
pub(crate) fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Progress, until it is finished or dropped.
#[derive(Debug)]
pub(crate) struct ProgressBar(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    begin: Instant,
    done: AtomicU64,
    total: AtomicU64,
    drawn: Mutex<Drawn>,
    ended: Condvar,
}

/// What only one thread at a time may draw.
#[derive(Debug)]
struct Drawn {
    what: String,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    NotYet,
    Drawn,
    Ended,
}

impl ProgressBar {
    fn new(what: String, total: u64) -> Self {
        let bar = Self::hidden(what, total);
        if is_terminal() {
            let shared = Arc::clone(&bar.0);
            // Without a thread there is no progress to see, and the work goes on.
            let _ = thread::Builder::new().name("progress".to_owned()).spawn(move || shared.redraw());
        }
        bar
    }

    /// Progress that nobody draws.
    pub(crate) fn hidden(what: String, total: u64) -> Self {
        let drawn = Mutex::new(Drawn { what, state: State::NotYet });
        let (done, total) = (AtomicU64::new(0), AtomicU64::new(total));
        Self(Arc::new(Shared { begin: Instant::now(), done, total, drawn, ended: Condvar::new() }))
    }

    pub(crate) fn inc(&self, by: u64) {
        self.0.done.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn position(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    pub(crate) fn set_position(&self, done: u64) {
        self.0.done.store(done, Ordering::Relaxed);
    }

    pub(crate) fn set_length(&self, total: u64) {
        self.0.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn set_message(&self, what: String) {
        self.0.drawn().what = what;
    }

    /// Does something that writes to the terminal, without the line in its way.
    pub(crate) fn suspend<R>(&self, writes: impl FnOnce() -> R) -> R {
        let mut drawn = self.0.drawn();
        drawn.erase(State::NotYet);
        writes()
    }

    /// Erases the line for good.
    pub(crate) fn finish_and_clear(&self) {
        self.0.drawn().erase(State::Ended);
        self.0.ended.notify_all();
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.finish_and_clear();
    }
}

impl Drawn {
    fn erase(&mut self, state: State) {
        if self.state == State::Drawn {
            write(ERASE);
        }
        self.state = state;
    }
}

impl Shared {
    fn drawn(&self) -> MutexGuard<'_, Drawn> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws the line until the work has ended. Short work flashes no empty bar.
    fn redraw(&self) {
        let (mut drawn, mut wait) = (self.drawn(), DELAY);
        loop {
            let waited = self.ended.wait_timeout_while(drawn, wait, |drawn| drawn.state != State::Ended);
            drawn = waited.unwrap_or_else(PoisonError::into_inner).0;
            if drawn.state == State::Ended {
                return;
            }
            let width = terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
            write(&format!("{ERASE}{}", self.line(&drawn.what, self.begin.elapsed(), width)));
            (drawn.state, wait) = (State::Drawn, TICK);
        }
    }

    /// The line, shorter than the terminal is wide: a line that is wrapped cannot be erased.
    fn line(&self, what: &str, elapsed: Duration, width: usize) -> String {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        let elapsed = elapsed.as_secs_f64();
        let line = if total == UNKNOWN {
            format!("{what}, {}", seconds(elapsed))
        } else {
            let part = (done as f64 / total as f64).min(1.0);
            let left = elapsed * (1.0 - part) / part;
            let left = if done == 0 { "-".to_owned() } else { seconds(left) };
            let after = format!("{:.0}% {}, {left} left", part * 100.0, seconds(elapsed));
            let room = width.saturating_sub(what.chars().count() + after.len() + " [>]  ".len()).min(BAR);
            let full = (room as f64 * part) as usize;
            format!("{what} [{}>{}] {after}", "=".repeat(full), " ".repeat(room - full))
        };
        line.chars().take(width.saturating_sub(1)).collect()
    }
}

fn write(text: &str) {
    // A terminal that is gone shows no progress.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// A time for people: `7s`, `2m 5s`, `3h 0m`.
fn seconds(time: f64) -> String {
    match time as u64 {
        few @ 0..60 => format!("{few}s"),
        some @ 60..3600 => format!("{}m {}s", some / 60, some % 60),
        many => format!("{}h {}m", many / 3600, many % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_bar_the_share_and_the_times_and_fits() {
        let bar = ProgressBar::hidden("testing".to_owned(), 4);
        let line = |bar: &ProgressBar, width| bar.0.line("testing", Duration::from_secs(90), width);
        assert!(line(&bar, 40).ends_with("] 0% 1m 30s, - left"));
        bar.inc(1);
        bar.inc(2);
        assert_eq!((bar.position(), line(&bar, 45).as_str()), (3, "testing [=========>   ] 75% 1m 30s, 30s left"));
        for width in 0..100 {
            assert!(line(&bar, width).len() <= width.saturating_sub(1));
        }
        bar.set_length(2);
        assert!(line(&bar, 200).contains("=>] 100% 1m 30s, 0s left"));
        assert_eq!(line(&spinner("testing".to_owned()), 40), "testing, 1m 30s");
    }

    #[test]
    fn times_are_short() {
        assert_eq!([0.9, 59.9, 125.0, 10_800.0].map(seconds), ["0s", "59s", "2m 5s", "3h 0m"]);
    }
}
