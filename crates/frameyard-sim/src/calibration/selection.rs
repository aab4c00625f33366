//! Rows of a table by name: `big-pcp/processes/1,5,10..12`.

use std::fmt;
use std::str::FromStr;

use frameyard::policy::ZonePolicy;

use crate::page_fault::Mode;

use super::Point;

/// Rows of one policy and mode: `POLICY/MODE/TASKS`, where TASKS are numbers and ranges separated by commas.
///
/// ```
/// use frameyard_sim::Selection;
///
/// let rows: Selection = "big-pcp/threads/1,5,10..12".parse()?;
/// assert_eq!(rows.points().map(|point| point.tasks).collect::<Vec<_>>(), [1, 5, 10, 11, 12]);
/// assert_eq!(rows.to_string(), "big-pcp/threads/1,5,10..12");
/// # Ok::<(), frameyard_sim::ParseSelectionError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selection {
    policy: ZonePolicy,
    mode: Mode,
    /// The first and last number of each range.
    tasks: Vec<(u32, u32)>,
}

/// The text does not name rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseSelectionError(String);

impl fmt::Display for ParseSelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' does not name rows: write POLICY/MODE/TASKS, as in big-pcp/processes/1,5,10..12", self.0)
    }
}

impl std::error::Error for ParseSelectionError {}

/// The most CPUs of a simulated machine.
const MOST_TASKS: u32 = 1024;

impl Selection {
    /// The named points, in order.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        let Self { policy, mode, .. } = *self;
        let tasks = self.tasks.iter().flat_map(|(first, last)| *first..=*last);
        tasks.map(move |tasks| Point { policy, mode, tasks })
    }
}

impl FromStr for Selection {
    type Err = ParseSelectionError;

    fn from_str(text: &str) -> Result<Self, ParseSelectionError> {
        parse(text).ok_or_else(|| ParseSelectionError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Selection> {
    let mut parts = text.split('/');
    let (policy, mode, tasks) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
    let range = |text: &str| {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (1 <= first && first <= last && last <= MOST_TASKS).then_some((first, last))
    };
    let tasks = tasks.split(',').map(range).collect::<Option<_>>()?;
    parts.next().is_none().then_some(Selection { policy, mode, tasks })
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", self.policy, self.mode)?;
        for (at, (first, last)) in self.tasks.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}..{last}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_round_trip() {
        for text in ["big-pcp/processes/1,5,10..12", "vanilla-4.16/threads/40"] {
            assert_eq!(text.parse::<Selection>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn texts_that_name_no_rows_are_refused() {
        let wrong =
            ["", "big-pcp", "big-pcp/processes", "big-pcp/processes/", "big-pcp/processes/0", "bits/threads/3..2"];
        for text in
            wrong.into_iter().chain(["no/threads/1", "bits/fibers/1", "bits/threads/1/2", "bits/threads/1..9999"])
        {
            assert_eq!(text.parse::<Selection>(), Err(ParseSelectionError(text.to_owned())));
        }
    }
}
