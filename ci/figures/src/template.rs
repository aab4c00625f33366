//! Templates: text with expressions in braces, and the names that the expressions use.
//!
//! A line `each name: a b c` repeats the next line for each word, which replaces `$name`. Several such lines, one below the other,
//! repeat it for each combination; the first varies slowest.

use std::collections::BTreeMap;

use crate::expression::{self, Names, Origin, ReadResult};

/// Short names of runs: `latest = "runs/2026-11-30-…"`.
pub(crate) type Runs = BTreeMap<String, String>;

/// The values of the names in `[sources]`, `name = "PATH[key=value]"`. The path may begin with the short name of a run, or be a name
/// from a line above. Adds the faults of names that have no value.
pub(crate) fn names(runs: &Runs, sources: &toml::Table, read: &ReadResult<'_>, faults: &mut Vec<String>) -> Names {
    let mut names = Names::new();
    for (name, source) in sources {
        let value = match source.as_str() {
            Some(source) => expression::evaluate(&with_path_in_quotes(source, runs), &names, read),
            None => Err("a source is a text".to_owned()),
        };
        match value {
            Ok(value) => drop(names.insert(name.clone(), value)),
            Err(what) => faults.push(format!("source `{name}`: {what}")),
        }
    }
    names
}

/// The expression for a source.
fn with_path_in_quotes(source: &str, runs: &Runs) -> String {
    let (path, selection) = source.split_at(source.find('[').unwrap_or(source.len()));
    let Some((run, file)) = path.split_once('/') else { return source.to_owned() };
    match runs.get(run) {
        Some(folder) => format!("\"{folder}/{file}\"{selection}"),
        None => format!("\"{path}\"{selection}"),
    }
}

/// Fills templates and remembers which files their figures came from.
pub(crate) struct Filler<'a> {
    pub(crate) names: Names,
    pub(crate) read: &'a ReadResult<'a>,
    pub(crate) origin: Origin,
    pub(crate) figures: usize,
}

impl<'a> Filler<'a> {
    pub(crate) fn new(names: Names, read: &'a ReadResult<'a>) -> Self {
        Self { names, read, origin: Origin::new(), figures: 0 }
    }

    /// The text of a template.
    pub(crate) fn fill(&mut self, template: &str) -> Result<String, String> {
        let mut filled = Vec::new();
        let mut repeats: Vec<(String, Vec<&str>)> = Vec::new();
        for line in template.lines() {
            if let Some((name, words)) = line.strip_prefix("each ").and_then(|rest| rest.split_once(": ")) {
                repeats.push((format!("${name}"), words.split_whitespace().collect()));
                continue;
            }
            let mut lines = vec![line.to_owned()];
            for (name, words) in repeats.drain(..) {
                let replaced = |line: &String| words.iter().map(|word| line.replace(&name, word)).collect::<Vec<_>>();
                lines = lines.iter().flat_map(replaced).collect();
            }
            for line in lines {
                filled.push(self.fill_line(&line)?);
            }
        }
        Ok(filled.join("\n"))
    }

    fn fill_line(&mut self, line: &str) -> Result<String, String> {
        let mut filled = String::new();
        for piece in pieces(line)? {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Expression(expression) => filled.push_str(&self.figure(expression)?),
            }
        }
        Ok(filled)
    }

    /// The text of a figure.
    pub(crate) fn figure(&mut self, expression: &str) -> Result<String, String> {
        self.figures += 1;
        expression::figure(expression, &self.names, self.read, &mut self.origin)
            .map_err(|what| format!("{{{expression}}}: {what}"))
    }
}

/// A part of a line of a template.
pub(crate) enum Piece<'a> {
    Text(&'a str),
    Expression(&'a str),
}

/// Cuts a line at its braces.
pub(crate) fn pieces(line: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut parts = line.split('{');
    let mut pieces = vec![Piece::Text(parts.next().unwrap_or_default())];
    for part in parts {
        let (expression, text) =
            part.split_once('}').ok_or_else(|| format!("a `}}` is missing in `{}`", line.trim()))?;
        pieces.extend([Piece::Expression(expression), Piece::Text(text)]);
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCES: &str = r#"
[sources]
a = "latest/a.csv"
one = "a[tasks=1]"
b = "data/b.csv[n=2]"
"#;

    fn read(path: &str) -> Result<String, String> {
        match path {
            "runs/new/a.csv" => Ok("policy,tasks,ns\nvanilla,1,15.0\nbits,1,13.08\nbits,2,99\n".to_owned()),
            "data/b.csv" => Ok("n,m\n2,3\n".to_owned()),
            _ => Err(format!("{path}: not found")),
        }
    }

    fn defined(text: &str) -> (Names, Vec<String>) {
        let table: BTreeMap<String, toml::Table> = toml::from_str(text).unwrap();
        let runs = Runs::from([("latest".to_owned(), "runs/new".to_owned())]);
        let mut faults = Vec::new();
        (names(&runs, &table["sources"], &read, &mut faults), faults)
    }

    fn filled(sources: &str, template: &str) -> Result<String, String> {
        let (names, faults) = defined(sources);
        assert_eq!(faults, [""; 0]);
        Filler::new(names, &read).fill(template)
    }

    #[test]
    fn fills_expressions_and_repeats_lines() {
        assert_eq!(filled(SOURCES, "{b.m} and {one[policy=bits].ns :.0}\nend").unwrap(), "3 and 13\nend");
        let rows = "each name: vanilla bits\n| $name | {one[policy=$name].ns :.1 <= 14} |\n.";
        assert_eq!(filled(SOURCES, rows).unwrap(), "| vanilla | **15.0** |\n| bits | 13.1 |\n.");
        assert_eq!(filled(SOURCES, "each a: 1 2\neach b: x y\n$a$b").unwrap(), "1x\n1y\n2x\n2y");
    }

    #[test]
    fn a_figure_that_cannot_be_shown_names_its_expression() {
        let fault = filled(SOURCES, "{a[policy=bits].ns}").unwrap_err();
        assert_eq!(fault, "{a[policy=bits].ns}: runs/new/a.csv[policy=bits].ns selects 2 rows, not one");
        assert_eq!(filled(SOURCES, "x {b.m").unwrap_err(), "a `}` is missing in `x {b.m`");
    }

    #[test]
    fn a_source_that_does_not_exist_is_a_fault_with_its_name() {
        let (_, faults) = defined("[sources]\na = \"runs/gone.csv\"\nb = \"c[x=1]\"\nd = 1");
        let expected = [
            "source `a`: runs/gone.csv: not found",
            "source `b`: `c` is not defined",
            "source `d`: a source is a text",
        ];
        assert_eq!(faults, expected);
    }
}
