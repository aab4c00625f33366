//! Figures that hand-written documents quote: `results/quoted.toml`.
//!
//! ```toml
//! [sources]
//! side = "runs/2026-…/side-by-side.csv"
//!
//! [[quote]]
//! page = "README.md"
//! line = "takes {side[benchmark=repeat].bits :.1} ns"
//! ```
//!
//! A line, or a part of one, must stand exactly once in its page, with any figures in place of the braces. The page has no mark for
//! it: the words around the figures find the place.

use std::collections::BTreeMap;

use regex_lite::{Regex, escape};
use serde::Deserialize;

use crate::expression::{Origin, ReadResult};
use crate::template::{self, Filler, Piece, Runs, pieces};

/// A page quotes no more figures than this: readers of many figures read the page of results.
const MOST: usize = 10;

/// What [`expression::figure`](crate::expression::figure) makes of a number.
const FIGURE: &str = r"(?:\*\*)?[+−]?[0-9]+(?:\.[0-9]+)?(?: %)?†?(?:\*\*)?";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Quotes {
    #[serde(default)]
    runs: Runs,
    #[serde(default)]
    sources: toml::Table,
    #[serde(default)]
    quote: Vec<Quote>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Quote {
    page: String,
    line: String,
}

/// Pages with the right figures.
#[derive(Default)]
pub(crate) struct Quoted {
    /// Their texts by path.
    pub(crate) pages: BTreeMap<String, String>,
    pub(crate) origin: Origin,
    pub(crate) figures: usize,
    pub(crate) faults: Vec<String>,
}

/// Puts the figures of `results/quoted.toml` into the pages that quote them.
pub(crate) fn quote(quotes: &str, read: &ReadResult<'_>) -> Quoted {
    let mut quoted = Quoted::default();
    let quotes: Quotes = match toml::from_str(quotes) {
        Ok(quotes) => quotes,
        Err(error) => {
            quoted.faults.push(error.to_string().trim_end().to_owned());
            return quoted;
        }
    };
    let names = template::names(&quotes.runs, &quotes.sources, read, &mut quoted.faults);
    let mut filler = Filler::new(names, read);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for Quote { page, line } in &quotes.quote {
        let before = filler.figures;
        if let Err(what) = place(page, line, &mut filler, &mut quoted.pages) {
            quoted.faults.push(format!("{page}: \"{line}\": {what}"));
        }
        *counts.entry(page).or_default() += filler.figures - before;
    }
    let too_many = counts.into_iter().filter(|(_, count)| *count > MOST);
    let faults = too_many.map(|(page, count)| format!("{page}: {count} figures are quoted, of at most {MOST}"));
    quoted.faults.extend(faults);
    (quoted.origin, quoted.figures) = (filler.origin, filler.figures);
    quoted
}

fn place(page: &str, line: &str, filler: &mut Filler<'_>, pages: &mut BTreeMap<String, String>) -> Result<(), String> {
    if line.contains('\n') {
        return Err("a quote has one line".to_owned());
    }
    let (mut pattern, mut right) = (String::new(), String::new());
    let figures = filler.figures;
    for piece in pieces(line)? {
        match piece {
            Piece::Text(text) => {
                pattern.push_str(&escape(text));
                right.push_str(text);
            }
            Piece::Expression(expression) => {
                pattern.push_str(FIGURE);
                right.push_str(&filler.figure(expression)?);
            }
        }
    }
    if filler.figures == figures {
        return Err("there is no expression in braces".to_owned());
    }
    let regex = Regex::new(&pattern).map_err(|error| error.to_string())?;
    if regex.find(&right).is_none_or(|found| found.as_str() != right) {
        return Err(format!("\"{right}\" has a figure that is no number"));
    }
    if !pages.contains_key(page) {
        pages.insert(page.to_owned(), (filler.read)(page)?);
    }
    let text = pages.get_mut(page).ok_or("the page was not read")?;
    let places: Vec<_> = regex.find_iter(text).map(|found| found.range()).collect();
    match places.as_slice() {
        [place] => text.replace_range(place.clone(), &right),
        [] => return Err("the page has no such text".to_owned()),
        places => return Err(format!("the page has such a text {} times", places.len())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Result<String, String> {
        match path {
            "runs/a.csv" => Ok("policy,ns\nbits,6.72\nvanilla,15\nnone,fast\n".to_owned()),
            "README.md" => {
                Ok("A pair takes **9.9** ns, and 44 % of it (4 ns) here.\n| a | 1.5 |\n| b | 1.5 |\n".to_owned())
            }
            _ => Err(format!("{path}: not found")),
        }
    }

    fn quoted(lines: &[&str]) -> Quoted {
        let lines = lines.iter().map(|line| format!("[[quote]]\npage = 'README.md'\nline = '{line}'\n"));
        quote(&format!("[sources]\na = 'runs/a.csv'\nbits = 'a[policy=bits]'\n{}", lines.collect::<String>()), &read)
    }

    #[test]
    fn finds_the_place_by_the_words_around_its_figures_and_writes_the_right_ones() {
        let quoted =
            quoted(&["takes {bits.ns :.1} ns", "and {bits.ns / a[policy=vanilla].ns :.0%} of it", "| b | {bits.ns} |"]);
        assert_eq!(quoted.faults, [""; 0]);
        let expected = "A pair takes 6.7 ns, and 45 % of it (4 ns) here.\n| a | 1.5 |\n| b | 6.72 |\n";
        assert_eq!((quoted.pages["README.md"].as_str(), quoted.figures), (expected, 4 - 1));
        assert_eq!(quoted.origin.keys().collect::<Vec<_>>(), ["runs/a.csv"]);
    }

    #[test]
    fn writes_bold_marks_of_figures_that_miss_their_goal() {
        let quoted = quoted(&["takes {bits.ns :.1 <= 5} ns", "({bits.ns :.0 <= 5} ns)"]);
        assert!(
            quoted.pages["README.md"].contains("takes **6.7** ns") && quoted.pages["README.md"].contains("(**7** ns)")
        );
    }

    #[test]
    fn refuses_a_text_that_the_page_has_not_or_several_times() {
        let fault = |line: &str| quoted(&[line]).faults.remove(0);
        assert_eq!(fault("gone {bits.ns}"), "README.md: \"gone {bits.ns}\": the page has no such text");
        assert_eq!(fault("| {bits.ns} |"), "README.md: \"| {bits.ns} |\": the page has such a text 2 times");
        // The words must be the same, not only alike.
        assert!(fault("A pair.takes {bits.ns} ns").ends_with("the page has no such text"));
    }

    #[test]
    fn refuses_more_than_ten_figures_in_a_page() {
        let ten = format!("x{}", " {bits.ns}".repeat(10));
        assert_eq!(quoted(&[&ten]).faults.len(), 1);
        let faults = quoted(&[&ten, "takes {bits.ns} ns"]).faults;
        assert_eq!(faults[1], "README.md: 11 figures are quoted, of at most 10");
    }

    #[test]
    fn refuses_quotes_of_nothing() {
        let fault = |line: &str| quoted(&[line]).faults.remove(0);
        assert!(fault("A pair").ends_with("there is no expression in braces"));
        assert!(fault("takes {a[policy=none].ns} ns").ends_with("\"takes fast ns\" has a figure that is no number"));
        assert!(fault("takes {c.ns} ns").ends_with("{c.ns}: `c` is not defined"));
        let gone =
            quote("[sources]\na = 'runs/a.csv'\n[[quote]]\npage = 'gone.md'\nline = '{a[policy=bits].ns}'", &read);
        assert_eq!(gone.faults, ["gone.md: \"{a[policy=bits].ns}\": gone.md: not found"]);
        assert!(quote("[[quote]]\npages = 'README.md'", &read).faults[0].contains("unknown field `pages`"));
        assert!(quote("[[quote]]\npage = 'README.md'\nline = \"{a}\\n\"", &read).faults[0].ends_with("one line"));
    }
}
