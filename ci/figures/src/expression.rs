//! Expressions in braces: `{alloc[kind=bulk tasks=1 policy=bits].get_ns :.1 <= 12}`.
//!
//! | part | meaning |
//! |---|---|
//! | `"runs/…/bench-alloc.json"` | the rows of a stored result |
//! | `alloc` | a name from `[sources]` |
//! | `[kind=bulk tasks=1]` | only rows with these cells |
//! | `.get_ns`, `."zone lock %"` | a column; must be of one row, except in the functions |
//! | `median(…)`, `min(…)`, `max(…)` | of a column of any number of rows |
//! | `+ - * / ( )`, numbers | arithmetic |
//! | `:.1`, `:+.1`, `:.1%` | decimal places, with a sign, in percent; without a format the cell appears as stored |
//! | `<= 12` | the goal (also `<`, `>=`, `>`); a figure that misses it is bold |
//!
//! A figure from a run whose sources differed from its commit ends in a dagger.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use crate::results::{self, Row};

/// Marks figures of runs whose sources differed from their commit.
const DIRTY: &str = "†";

/// Reads a stored result by its path.
pub(crate) type ReadResult<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// The files that a value comes from, with the commits that they name.
pub(crate) type Origin = BTreeMap<String, Option<String>>;

/// What an expression stands for.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    content: Content,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Content {
    Rows { described: String, rows: Vec<Row> },
    Cells { described: String, cells: Vec<String> },
    Number(f64),
}

/// The values of names.
pub(crate) type Names = BTreeMap<String, Value>;

/// The value of an expression without format or goal.
pub(crate) fn evaluate(text: &str, names: &Names, read: &ReadResult<'_>) -> Result<Value, String> {
    let mut parser = Parser { rest: text.chars().peekable(), names, read };
    let value = parser.sum()?;
    parser.end()?;
    Ok(value)
}

/// The text of a figure: the contents of the braces, evaluated and formatted. Adds the files that it comes from to `origin`.
pub(crate) fn figure(text: &str, names: &Names, read: &ReadResult<'_>, origin: &mut Origin) -> Result<String, String> {
    let mut parser = Parser { rest: text.chars().peekable(), names, read };
    let value = parser.sum()?;
    let format = if parser.takes(':') { Some(parser.format()?) } else { None };
    let goal = parser.goal()?;
    parser.end()?;

    let mut shown = match format {
        Some(format) => format.apply(value.number()?),
        None => value.as_stored()?,
    };
    if value.origin.values().flatten().any(|commit| commit.ends_with("-dirty")) {
        shown.push_str(DIRTY);
    }
    origin.extend(value.origin.clone());
    let meets = match &goal {
        Some((holds, limit)) => {
            origin.extend(limit.origin.clone());
            value.number()?.partial_cmp(&limit.number()?).is_some_and(holds)
        }
        None => true,
    };
    Ok(if meets { shown } else { format!("**{shown}**") })
}

impl Value {
    fn one_cell(&self) -> Result<&str, String> {
        match &self.content {
            Content::Cells { cells, .. } if cells.len() == 1 => Ok(&cells[0]),
            Content::Cells { described, cells } => Err(format!("{described} selects {} rows, not one", cells.len())),
            Content::Rows { described, .. } => Err(format!("{described} names no column")),
            Content::Number(_) => Err("a number is no cell".to_owned()),
        }
    }

    fn number(&self) -> Result<f64, String> {
        if let Content::Number(number) = self.content {
            return Ok(number);
        }
        parsed(self.one_cell()?)
    }

    /// All numbers of a column.
    fn numbers(&self) -> Result<Vec<f64>, String> {
        let Content::Cells { described, cells } = &self.content else { return Ok(vec![self.number()?]) };
        if cells.is_empty() {
            return Err(format!("{described} selects no row"));
        }
        cells.iter().map(|cell| parsed(cell)).collect()
    }

    fn as_stored(&self) -> Result<String, String> {
        match self.content {
            Content::Number(number) => Ok(with_minus(&number.to_string())),
            _ => self.one_cell().map(with_minus),
        }
    }

    fn select(self, key: &str, wanted: &str) -> Result<Self, String> {
        let Content::Rows { described, mut rows } = self.content else {
            return Err(format!("[{key}={wanted}] needs rows before it"));
        };
        if !rows.is_empty() && !rows.iter().any(|row| cell(row, key).is_some()) {
            return Err(format!("{described} has no column `{key}`"));
        }
        rows.retain(|row| cell(row, key).is_some_and(|cell| same(cell, wanted)));
        Ok(Self { content: Content::Rows { described: format!("{described}[{key}={wanted}]"), rows }, ..self })
    }

    fn column(self, name: &str) -> Result<Self, String> {
        let Content::Rows { described, rows } = self.content else {
            return Err(format!(".{name} needs rows before it"));
        };
        let cells: Vec<String> = rows.iter().filter_map(|row| cell(row, name)).map(str::to_owned).collect();
        if cells.is_empty() && !rows.is_empty() {
            return Err(format!("{described} has no column `{name}`"));
        }
        Ok(Self { content: Content::Cells { described: format!("{described}.{name}"), cells }, ..self })
    }
}

fn cell<'a>(row: &'a Row, column: &str) -> Option<&'a str> {
    row.iter().find(|(name, _)| name == column).map(|(_, cell)| cell.as_str())
}

/// The number at the beginning of a cell: printed tables have remarks behind theirs.
fn parsed(cell: &str) -> Result<f64, String> {
    let number = cell.split(' ').next().unwrap_or_default();
    number.parse().map_err(|_| format!("\"{cell}\" is no number"))
}

/// Whether two cells are the same number or the same text.
fn same(cell: &str, wanted: &str) -> bool {
    match (cell.parse::<f64>(), wanted.parse::<f64>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => cell == wanted,
    }
}

/// With a typographic minus before a negative number.
fn with_minus(text: &str) -> String {
    match text.strip_prefix('-') {
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_digit()) => format!("−{digits}"),
        _ => text.to_owned(),
    }
}

struct Format {
    digits: usize,
    sign: bool,
    percent: bool,
}

impl Format {
    fn apply(&self, number: f64) -> String {
        let (number, unit) = if self.percent { (number * 100.0, " %") } else { (number, "") };
        let digits = self.digits;
        let shown = format!("{number:.digits$}");
        // What rounds to zero has no sign.
        let shown = if shown.parse() == Ok(0.0) { shown.trim_start_matches('-').to_owned() } else { shown };
        let plus = if self.sign && number > 0.0 { "+" } else { "" };
        format!("{plus}{}{unit}", with_minus(&shown))
    }
}

/// Whether an order between a figure and its goal meets the goal.
type Holds = fn(Ordering) -> bool;

struct Parser<'a> {
    rest: Peekable<Chars<'a>>,
    names: &'a Names,
    read: &'a ReadResult<'a>,
}

impl Parser<'_> {
    /// Takes a character after spaces, if it is next.
    fn takes(&mut self, wanted: char) -> bool {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        self.rest.next_if_eq(&wanted).is_some()
    }

    fn expects(&mut self, wanted: char) -> Result<(), String> {
        if self.takes(wanted) {
            return Ok(());
        }
        let found = self.rest.peek().map_or_else(|| "the end".to_owned(), |c| format!("`{c}`"));
        Err(format!("expected `{wanted}`, found {found}"))
    }

    fn end(&mut self) -> Result<(), String> {
        let rest: String = self.rest.by_ref().collect();
        if rest.trim().is_empty() { Ok(()) } else { Err(format!("`{}` does not belong here", rest.trim())) }
    }

    fn taken_while(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let mut text = String::new();
        while let Some(c) = self.rest.next_if(|&c| belongs(c)) {
            text.push(c);
        }
        text
    }

    /// A text in quotes, or else the characters that `belongs` accepts.
    fn text(&mut self, belongs: impl Fn(char) -> bool) -> Result<String, String> {
        if self.takes('"') {
            let text = self.taken_while(|c| c != '"');
            self.expects('"')?;
            return Ok(text);
        }
        let text = self.taken_while(belongs);
        if text.is_empty() { Err("a name is missing".to_owned()) } else { Ok(text) }
    }

    fn sum(&mut self) -> Result<Value, String> {
        let mut value = self.product()?;
        loop {
            value = if self.takes('+') {
                combined(value, self.product()?, |a, b| a + b)?
            } else if self.takes('-') {
                combined(value, self.product()?, |a, b| a - b)?
            } else {
                return Ok(value);
            };
        }
    }

    fn product(&mut self) -> Result<Value, String> {
        let mut value = self.selection()?;
        loop {
            value = if self.takes('*') {
                combined(value, self.selection()?, |a, b| a * b)?
            } else if self.takes('/') {
                combined(value, self.selection()?, |a, b| a / b)?
            } else {
                return Ok(value);
            };
        }
    }

    fn selection(&mut self) -> Result<Value, String> {
        let mut value = self.operand()?;
        loop {
            if self.takes('[') {
                while !self.takes(']') {
                    let key = self.text(is_word)?;
                    self.expects('=')?;
                    let wanted = self.text(|c| !c.is_whitespace() && c != ']')?;
                    value = value.select(&key, &wanted)?;
                }
            } else if self.takes('.') {
                let column = self.text(is_word)?;
                value = value.column(&column)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn operand(&mut self) -> Result<Value, String> {
        if self.takes('(') {
            let value = self.sum()?;
            self.expects(')')?;
            return Ok(value);
        }
        if self.rest.peek() == Some(&'"') {
            let path = self.text(is_word)?;
            let text = (self.read)(path_of(&path))?;
            let results = results::parse(&path, &text)?;
            let content = Content::Rows { described: path.clone(), rows: results.rows };
            let file = path_of(&path).to_owned();
            return Ok(Value { content, origin: Origin::from([(file, results.commit)]) });
        }
        if self.rest.peek().is_some_and(char::is_ascii_digit) {
            let digits = self.taken_while(|c| is_word(c) || c == '.');
            let number = digits.parse().map_err(|_| format!("\"{digits}\" is no number"))?;
            return Ok(Value { content: Content::Number(number), origin: Origin::new() });
        }
        let name = self.text(is_word)?;
        if self.takes('(') {
            let value = self.sum()?;
            self.expects(')')?;
            return aggregate(&name, &value);
        }
        self.names.get(&name).cloned().ok_or_else(|| format!("`{name}` is not defined"))
    }

    fn format(&mut self) -> Result<Format, String> {
        let sign = self.takes('+');
        self.expects('.')?;
        let digits = self.taken_while(|c| c.is_ascii_digit());
        let digits = digits.parse().map_err(|_| "the number of decimal places is missing".to_owned())?;
        Ok(Format { digits, sign, percent: self.takes('%') })
    }

    fn goal(&mut self) -> Result<Option<(Holds, Value)>, String> {
        let holds: Holds = if self.takes('<') {
            if self.takes('=') { Ordering::is_le } else { Ordering::is_lt }
        } else if self.takes('>') {
            if self.takes('=') { Ordering::is_ge } else { Ordering::is_gt }
        } else {
            return Ok(None);
        };
        Ok(Some((holds, self.sum()?)))
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The file of a path that may name a list.
fn path_of(path: &str) -> &str {
    path.split_once('#').map_or(path, |(file, _)| file)
}

fn combined(mut a: Value, b: Value, operation: fn(f64, f64) -> f64) -> Result<Value, String> {
    let number = operation(a.number()?, b.number()?);
    if !number.is_finite() {
        return Err("the result is not finite".to_owned());
    }
    a.origin.extend(b.origin);
    Ok(Value { content: Content::Number(number), origin: a.origin })
}

fn aggregate(name: &str, value: &Value) -> Result<Value, String> {
    let mut numbers = value.numbers()?;
    numbers.sort_by(f64::total_cmp);
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    let number = match name {
        "min" => first,
        "max" => last,
        "median" => f64::midpoint(numbers[(numbers.len() - 1) / 2], numbers[numbers.len() / 2]),
        _ => return Err(format!("`{name}` is no function: min, max or median")),
    };
    Ok(Value { content: Content::Number(number), origin: value.origin.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str =
        "policy,tasks,get_ns,note,range\nvanilla,1,14.02,a b,14 (13 to 15)\nbits,1,13.08,,\nbits,2,15.23,,\n";

    fn shown(text: &str) -> Result<String, String> {
        let read = |path: &str| match path {
            "a.csv" => Ok(ROWS.to_owned()),
            "dirty.json" => Ok(r#"{"commit": "1-dirty", "rows": [{"ns": 229.45}]}"#.to_owned()),
            _ => Err(format!("{path}: not found")),
        };
        let names = Names::from([("a".to_owned(), evaluate("\"a.csv\"", &Names::new(), &read).unwrap())]);
        figure(text, &names, &read, &mut Origin::new())
    }

    #[test]
    fn tells_the_files_behind_a_figure_and_its_goal() {
        let read = |path: &str| match path {
            "a.csv" | "c.csv" => Ok("ns\n1\n".to_owned()),
            _ => Ok(r#"{"commit": "12", "rows": [{"ns": 2}]}"#.to_owned()),
        };
        let mut origin = Origin::new();
        figure("\"a.csv\".ns + \"b.json\".ns <= max(\"c.csv\".ns)", &Names::new(), &read, &mut origin).unwrap();
        let files: Vec<_> = origin.iter().map(|(file, commit)| (file.as_str(), commit.as_deref())).collect();
        assert_eq!(files, [("a.csv", None), ("b.json", Some("12")), ("c.csv", None)]);
    }

    #[test]
    fn selects_calculates_and_formats() {
        assert_eq!(shown("a[policy=bits tasks=1].get_ns :.1").unwrap(), "13.1");
        assert_eq!(shown("a[tasks=1.0][policy=vanilla].get_ns").unwrap(), "14.02");
        assert_eq!(shown("a[note=\"a b\"].\"get_ns\"").unwrap(), "14.02");
        assert_eq!(shown("a[tasks=2].get_ns / a[policy=vanilla].get_ns - 1 :+.0%").unwrap(), "+9 %");
        assert_eq!(shown("a[policy=vanilla].range :.0").unwrap(), "14");
        assert_eq!(shown("(1 - 3) * 2 + 1 :.1").unwrap(), "−3.0");
        assert_eq!(shown("0 - 0.01 :+.1").unwrap(), "0.0");
        assert_eq!(shown("median(a.get_ns) :.2").unwrap(), "14.02");
        assert_eq!(shown("median(a[policy=bits].get_ns) :.3").unwrap(), "14.155");
        assert_eq!(shown("min(a.get_ns) + max(a.get_ns) :.2").unwrap(), "28.31");
    }

    #[test]
    fn a_figure_that_misses_its_goal_is_bold() {
        assert_eq!(shown("a[tasks=2].get_ns :.0 <= 15").unwrap(), "**15**");
        assert_eq!(shown("a[tasks=2].get_ns :.0 <= 15.23").unwrap(), "15");
        assert_eq!(shown("a[tasks=2].get_ns :.0 < 15.23").unwrap(), "**15**");
        assert_eq!(shown("a[tasks=2].get_ns >= a[policy=vanilla].get_ns").unwrap(), "15.23");
        assert_eq!(shown("a[tasks=2].get_ns > 16").unwrap(), "**15.23**");
    }

    #[test]
    fn a_row_that_matches_nothing_or_several_fails() {
        assert_eq!(
            shown("a[policy=cluster].get_ns").unwrap_err(),
            "a.csv[policy=cluster].get_ns selects 0 rows, not one"
        );
        assert_eq!(
            shown("a[policy=bits].get_ns :.1").unwrap_err(),
            "a.csv[policy=bits].get_ns selects 2 rows, not one"
        );
        assert_eq!(
            shown("median(a[policy=cluster].get_ns)").unwrap_err(),
            "a.csv[policy=cluster].get_ns selects no row"
        );
    }

    #[test]
    fn a_missing_file_name_or_column_fails() {
        assert_eq!(shown("\"gone.csv\".x").unwrap_err(), "gone.csv: not found");
        assert_eq!(shown("b.x").unwrap_err(), "`b` is not defined");
        assert_eq!(shown("a[tasks=2].put_ns").unwrap_err(), "a.csv[tasks=2] has no column `put_ns`");
        assert_eq!(shown("a[kind=bulk].get_ns").unwrap_err(), "a.csv has no column `kind`");
    }

    #[test]
    fn refuses_what_is_no_figure() {
        assert_eq!(shown("a[tasks=2].policy :.1").unwrap_err(), "\"bits\" is no number");
        assert_eq!(shown("a").unwrap_err(), "a.csv names no column");
        assert_eq!(shown("1 / (2 - 2)").unwrap_err(), "the result is not finite");
        assert_eq!(shown("1 2").unwrap_err(), "`2` does not belong here");
        assert_eq!(shown("(1").unwrap_err(), "expected `)`, found the end");
        assert_eq!(shown("mean(a.get_ns)").unwrap_err(), "`mean` is no function: min, max or median");
    }

    #[test]
    fn marks_a_figure_whose_sources_differed_from_the_commit() {
        assert_eq!(shown("\"dirty.json\".ns :.0").unwrap(), "229†");
        assert_eq!(shown("\"dirty.json\".ns + 1 :.0 <= 40").unwrap(), "**230†**");
    }
}
