//! Progress of what takes long, for people at a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error that counts up to `total`; hidden, at no cost, where that is no terminal.
#[must_use]
pub fn progress_bar(what: &'static str, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{msg} [{wide_bar}] {percent}% {eta}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.with_message(what)
}

/// A sign on standard error that something is under way whose length is not known; hidden, at no cost, where
/// that is no terminal.
#[must_use]
pub fn spinner(what: String) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_message(what);
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// Short enough to look alive, long enough that what is done within it shows nothing.
const TICK: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IsTerminal;

    #[test]
    fn the_bar_is_shown_only_at_a_terminal() {
        let bar = progress_bar("testing", 3);
        bar.inc(1);
        assert_eq!((bar.position(), bar.length()), (1, Some(3)));
        if !std::io::stderr().is_terminal() {
            assert!(bar.is_hidden());
        }
    }
}
