//! The terminal: its own screen in raw mode, and its former state afterwards.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Stdin, Stdout, Write};
use std::panic;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::Failure;

/// The alternative screen without a cursor, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

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
    Ok(if size.ws_row == 0 || size.ws_col == 0 { Size::new(80, 24) } else { Size::new(size.ws_col, size.ws_row) })
}

/// The open screen. Dropping it restores the terminal; a panic restores it before its message.
pub(super) struct Screen {
    pub(super) terminal: Terminal<Escapes>,
    keys: Stdin,
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
        let terminal = tcsetattr(io::stdin(), OptionalActions::Flush, &raw)
            .map_err(io::Error::from)
            .and_then(|()| write(ENTER))
            .and_then(|()| Terminal::new(Escapes { out: io::stdout(), text: String::new() }));
        match terminal {
            Ok(terminal) => Ok(Self { terminal, keys: io::stdin() }),
            Err(error) => {
                restore();
                Err(Failure::run_time(error))
            }
        }
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

/// Draws cells with escape sequences that all terminals know.
pub(super) struct Escapes {
    out: Stdout,
    /// What is not written yet.
    text: String,
}

impl Backend for Escapes {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, cells: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let (mut next, mut last) = (None, anstyle::Style::new());
        for (x, y, cell) in cells {
            if next != Some((x, y)) {
                let _ = write!(self.text, "\x1b[{};{}H", y + 1, x + 1);
            }
            next = Some((x + 1, y));
            let style = style(cell);
            if style != last {
                let _ = write!(self.text, "{last:#}{style}");
                last = style;
            }
            self.text += cell.symbol();
        }
        let _ = write!(self.text, "{last:#}");
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        // It is hidden as long as the screen is open.
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        let _ = write!(self.text, "\x1b[{};{}H", y + 1, x + 1);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.text += "\x1b[2J";
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        size()
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

fn style(cell: &Cell) -> anstyle::Style {
    let mut style = anstyle::Style::new();
    for (modifier, effect) in [(Modifier::BOLD, anstyle::Effects::BOLD), (Modifier::DIM, anstyle::Effects::DIMMED)] {
        if cell.modifier.contains(modifier) {
            style = style.effects(style.get_effects() | effect);
        }
    }
    let colour = match cell.fg {
        Color::Red => anstyle::AnsiColor::Red,
        Color::Green => anstyle::AnsiColor::Green,
        Color::Yellow => anstyle::AnsiColor::Yellow,
        Color::Magenta => anstyle::AnsiColor::Magenta,
        Color::Cyan => anstyle::AnsiColor::Cyan,
        Color::Blue => anstyle::AnsiColor::Blue,
        Color::LightGreen => anstyle::AnsiColor::BrightGreen,
        _ => return style,
    };
    // The convention of no-color.org.
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        style
    } else {
        style.fg_color(Some(colour.into()))
    }
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
    fn keys_are_what_terminals_send() {
        for bytes in [&b"q"[..], b"\x1b", b"\x03", b"xq"] {
            assert_eq!(Key::of(bytes), Some(Key::Quit), "{bytes:?}");
        }
        assert_eq!(Key::of(b"\x1b[A"), Some(Key::Up));
        assert_eq!((Key::of(b"x"), Key::of(b"\x1b[5~")), (None, None));
    }
}
