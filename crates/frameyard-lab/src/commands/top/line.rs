//! Lines of styled text, and the size of the screen that they are for.

use std::fmt;

use anstyle::Style;

/// Columns and lines of a screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    pub(super) width: u16,
    pub(super) height: u16,
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}x{}", self.width, self.height)
    }
}

/// A line in pieces of one style each.
#[derive(Clone, Default, Debug)]
pub(super) struct Line(Vec<(Style, String)>);

impl Line {
    /// A line of one style.
    pub(super) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self(vec![(style, text.into())])
    }

    /// Appends a text.
    pub(super) fn push(&mut self, text: &str, style: Style) {
        match self.0.last_mut() {
            Some((last, before)) if *last == style => before.push_str(text),
            _ => self.0.push((style, text.to_owned())),
        }
    }

    /// The first `width` characters. Control characters, which the name of a yard may have, are left out.
    pub(super) fn cut(self, width: u16) -> Self {
        let mut room = usize::from(width);
        let cut = self.0.into_iter().map(|(style, text)| {
            let text: String = text.chars().filter(|letter| !letter.is_control()).take(room).collect();
            room -= text.chars().count();
            (style, text)
        });
        Self(cut.collect())
    }

    /// The pieces.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Style, &str)> {
        self.0.iter().map(|(style, text)| (*style, text.as_str()))
    }

    /// The text without styles and without spaces at its end.
    pub(super) fn plain(&self) -> String {
        self.pieces().map(|(_, text)| text).collect::<String>().trim_end().to_owned()
    }
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        Self::styled(text, Style::new())
    }
}
