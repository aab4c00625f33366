//! The terminal: its own screen in raw mode, and its former state afterwards.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Stdin, Write};
use std::panic;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::line::{Line, Size};
use crate::Failure;

/// The alternative screen without a cursor, where long lines are cut instead of wrapped, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The terminal's settings before the screen was opened, while it is open.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Whether both standard input and standard output are a terminal.
pub(super) fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The size of the terminal.
pub(super) fn size() -> io::Result<Size> {
    let size = tcgetwinsize(io::stdout())?;
    // A terminal that does not know its size has the usual one.
    Ok(if size.ws_row == 0 || size.ws_col == 0 {
        Size { width: 80, height: 24 }
    } else {
        Size { width: size.ws_col, height: size.ws_row }
    })
}

/// The open screen. Dropping it restores the terminal; a panic restores it before its message.
pub(super) struct Screen {
    keys: Stdin,
    size: Size,
    /// The lines that the terminal shows, with their escape sequences.
    shown: Vec<String>,
}

impl Screen {
    /// Opens the screen.
    ///
    /// # Errors
    ///
    /// [`Failure::RunTime`] if the terminal refuses; it is as before then.
    pub(super) fn open() -> Result<Self, Failure> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let report = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                restore();
                report(info);
            }));
        });
        let before = tcgetattr(io::stdin()).map_err(Failure::run_time)?;
        let mut raw = before.clone();
        raw.make_raw();
        *before_open() = Some(before);
        let opened = tcsetattr(io::stdin(), OptionalActions::Flush, &raw)
            .map_err(io::Error::from)
            .and_then(|()| write(ENTER))
            .and_then(|()| size());
        match opened {
            Ok(size) => Ok(Self { keys: io::stdin(), size, shown: Vec::new() }),
            Err(error) => {
                restore();
                Err(Failure::run_time(error))
            }
        }
    }

    /// Shows the lines that `draw` makes for the terminal's size. Only lines that differ are written.
    pub(super) fn show(&mut self, draw: impl FnOnce(Size) -> Vec<Line>) -> io::Result<()> {
        let (now, mut text) = (size()?, String::new());
        if now != self.size {
            (self.size, self.shown) = (now, Vec::new());
            text += "\x1b[2J";
        }
        let lines: Vec<String> = draw(now).iter().map(escaped).collect();
        for (number, line) in lines.iter().enumerate() {
            if self.shown.get(number) != Some(line) {
                let _ = write!(text, "\x1b[{};1H\x1b[2K{line}", number + 1);
            }
        }
        self.shown = lines;
        write(&text)
    }

    /// The next key within a time; `None` after it, or if a signal came.
    pub(super) fn key(&mut self, within: Duration) -> io::Result<Option<Key>> {
        let limit = Timespec::try_from(within).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&self.keys, PollFlags::IN)];
        match poll(&mut ready, Some(&limit)) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        // A key's bytes come together. Keys that are pressed at once may be lost.
        let mut bytes = [0; 64];
        match self.keys.lock().read(&mut bytes)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal is gone")),
            read => Ok(Key::of(&bytes[..read])),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal its former settings and screen, once.
fn restore() {
    if let Some(before) = before_open().take() {
        // A terminal that is gone needs nothing.
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
    }
}

fn before_open() -> std::sync::MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A key that means something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Quit,
    Pause,
    Zone,
    Faster,
    Slower,
    Up,
    Down,
}

impl Key {
    /// The key of the bytes that a terminal sends for it.
    fn of(bytes: &[u8]) -> Option<Self> {
        Some(match bytes {
            // Escape alone, Ctrl-C, Ctrl-D.
            b"q" | b"Q" | b"\x1b" | b"\x03" | b"\x04" => Self::Quit,
            b" " | b"p" => Self::Pause,
            b"z" | b"\t" => Self::Zone,
            b"+" | b"=" => Self::Faster,
            b"-" => Self::Slower,
            b"\x1b[A" | b"\x1bOA" | b"k" => Self::Up,
            b"\x1b[B" | b"\x1bOB" | b"j" => Self::Down,
            // Several keys at once: the first that ends, if there is one.
            _ if bytes.iter().any(|byte| matches!(byte, b'q' | 0x03)) => Self::Quit,
            _ => return None,
        })
    }
}

/// A line with escape sequences that all terminals know.
fn escaped(line: &Line) -> String {
    // The convention of no-color.org.
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let piece = |(style, text): (anstyle::Style, &str)| {
        let style = if is_plain { style.fg_color(None) } else { style };
        format!("{style}{text}{style:#}")
    };
    line.pieces().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::super::pty::Pty;
    use super::*;

    /// Tells a test that runs in a pseudo-terminal to panic there.
    const PANIC: &str = "FRAMEYARD_TEST_PANIC";

    #[test]
    fn a_screen_panics_if_a_test_says_so() {
        if std::env::var_os(PANIC).is_some() {
            let _screen = Screen::open().unwrap();
            panic!("said so");
        }
    }

    #[test]
    fn a_panic_restores_the_terminal_before_its_message() {
        let test = "commands::top::screen::tests::a_screen_panics_if_a_test_says_so";
        let program = std::env::current_exe().unwrap();
        let words = ["--exact", test, "--nocapture", "--test-threads=1"];
        let variables = [(PANIC, "1")];
        let Some(mut pty) = Pty::start(&program, &words, &variables, (80, 24)) else { return };
        pty.wait();
        let text = pty.text();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in {text:?}"));
        assert!(at(ENTER) < at(LEAVE) && at(LEAVE) < at("said so"), "{text:?}");
        assert!(pty.is_as_before(), "raw mode is over");
    }

    #[test]
    fn escape_sequences_change_no_text() {
        let mut line = Line::styled("free  ", anstyle::Style::new().bold());
        line.push("u m r", anstyle::AnsiColor::Red.on_default());
        let escaped = escaped(&line);
        assert!(escaped.starts_with("\x1b[1mfree"), "{escaped:?}");
        assert_eq!(anstream::adapter::strip_str(&escaped).to_string(), line.plain());
    }

    #[test]
    fn keys_are_what_terminals_send() {
        for bytes in [&b"q"[..], b"\x1b", b"\x03", b"xq"] {
            assert_eq!(Key::of(bytes), Some(Key::Quit), "{bytes:?}");
        }
        assert_eq!(Key::of(b"\x1b[A"), Some(Key::Up));
        assert_eq!((Key::of(b"x"), Key::of(b"\x1b[5~")), (None, None));
    }
}
