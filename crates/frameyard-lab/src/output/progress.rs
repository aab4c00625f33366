//! Progress of long commands on a terminal.

use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is done before this shows nothing.
const DELAY: Duration = Duration::from_millis(400);
/// How often the time is drawn again.
const TICK: Duration = Duration::from_millis(200);

/// A bar on standard error that counts up to `total`, with the time so far and an estimate of the rest. Hidden, at no cost,
/// where standard error is no terminal.
#[must_use]
pub(crate) fn progress_bar(what: &'static str, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template("{msg} [{wide_bar}] {percent}% {elapsed}, {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    shown_later(bar.with_message(what))
}

/// A sign on standard error that work of unknown length is under way. Hidden, at no cost, where that is no terminal.
#[must_use]
pub(crate) fn spinner(what: String) -> ProgressBar {
    shown_later(ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(what))
}

/// Lets a thread draw the bar once [`DELAY`] is over, so that short work flashes no empty bar.
fn shown_later(bar: ProgressBar) -> ProgressBar {
    if is_terminal() {
        let later = bar.downgrade();
        thread::spawn(move || {
            thread::sleep(DELAY);
            if let Some(bar) = later.upgrade().filter(|bar| !bar.is_finished()) {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(TICK);
            }
        });
    }
    bar
}

/// Whether progress is shown.
#[must_use]
pub(crate) fn is_terminal() -> bool {
    !ProgressDrawTarget::stderr().is_hidden()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_work_shows_no_bar() {
        let bar = progress_bar("testing", 3);
        bar.inc(1);
        assert_eq!((bar.position(), bar.length(), bar.is_hidden()), (1, Some(3), true));
    }
}
