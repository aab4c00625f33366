//! Documents: finds their comments and generates the text that follows them.

use crate::expression::{self, Names, ReadResult};

/// A document with new figures.
pub(crate) struct Generated {
    pub(crate) text: String,
    pub(crate) figures: usize,
    /// Lines of the old document, with what is wrong there. A faulty figure keeps its old text.
    pub(crate) faults: Vec<(usize, String)>,
}

const BEGIN: &str = "<!-- ";
const CLOSE: &str = "-->";
const END: &str = "<!-- end -->";

/// Generates the figures of a document.
pub(crate) fn generate(document: &str, read: &ReadResult<'_>) -> Generated {
    let mut generated = Generated { text: String::new(), figures: 0, faults: Vec::new() };
    let mut names = Names::new();
    let mut at = 0;
    while let Some(begin) = document[at..].find(BEGIN).map(|offset| at + offset) {
        let inside = begin + BEGIN.len();
        let Some(close) = document[inside..].find(CLOSE).map(|offset| inside + offset) else { break };
        let after = close + CLOSE.len();
        let (comment, line) = (&document[inside..close], line_of(document, begin));
        generated.text.push_str(&document[at..after]);
        at = after;
        if let Some(definitions) = comment.strip_prefix("sources\n") {
            define(definitions, line + 1, &mut names, read, &mut generated.faults);
            continue;
        }
        let in_line = comment.starts_with('{');
        let (template, line, edge) = match comment.strip_prefix("template\n") {
            Some(template) => (template, line + 1, "\n"),
            None if in_line => (comment.trim_end(), line, ""),
            None => continue,
        };
        let next = document[after..].find(BEGIN).map(|offset| after + offset);
        let Some(end) = next.filter(|&next| document[next..].starts_with(END)) else {
            generated.faults.push((line, format!("no `{END}` follows")));
            continue;
        };
        if in_line
            && document[..begin].rsplit('\n').next().is_some_and(|text| text.trim_matches([' ', '-', '>']).is_empty())
        {
            generated.faults.push((line, "a figure in a sentence must not begin its line".to_owned()));
        }
        match fill(template, line, &names, read, &mut generated.figures) {
            Ok(text) => generated.text.extend([edge, text.as_str()]),
            Err(fault) => {
                generated.faults.push(fault);
                generated.text.push_str(&document[after..end]);
            }
        }
        generated.text.push_str(END);
        at = end + END.len();
    }
    generated.text.push_str(&document[at..]);
    generated
}

fn line_of(document: &str, at: usize) -> usize {
    document[..at].matches('\n').count() + 1
}

/// Defines the names of a `sources` comment.
fn define(text: &str, first: usize, names: &mut Names, read: &ReadResult<'_>, faults: &mut Vec<(usize, String)>) {
    for (line, text) in text.lines().enumerate().map(|(at, text)| (first + at, text)) {
        let value = match text.split_once(" = ") {
            Some((name, expression)) => expression::evaluate(expression, names, read).map(|value| (name.trim(), value)),
            None if text.trim().is_empty() => continue,
            None => Err("a source is written `name = expression`".to_owned()),
        };
        match value {
            Ok((name, value)) => drop(names.insert(name.to_owned(), value)),
            Err(what) => faults.push((line, what)),
        }
    }
}

/// The text of a template. Counts its figures.
fn fill(
    template: &str,
    first: usize,
    names: &Names,
    read: &ReadResult<'_>,
    figures: &mut usize,
) -> Result<String, (usize, String)> {
    let mut filled = String::new();
    let mut repeats: Option<(String, Vec<&str>)> = None;
    for (at, line) in template.split_inclusive('\n').enumerate() {
        if let Some((name, words)) = line.strip_prefix("each ").and_then(|rest| rest.split_once(": ")) {
            repeats = Some((format!("${name}"), words.split_whitespace().collect()));
            continue;
        }
        let lines = match repeats.take() {
            Some((name, words)) => words.into_iter().map(|word| line.replace(&name, word)).collect(),
            None => vec![line.to_owned()],
        };
        for line in lines {
            let filled_line = fill_line(&line, names, read, figures).map_err(|what| (first + at, what))?;
            filled.push_str(&filled_line);
        }
    }
    Ok(filled)
}

fn fill_line(line: &str, names: &Names, read: &ReadResult<'_>, figures: &mut usize) -> Result<String, String> {
    let mut pieces = line.split('{');
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (expression, text) = piece.split_once('}').ok_or("a `}` is missing")?;
        let figure = expression::figure(expression, names, read).map_err(|what| format!("{{{expression}}}: {what}"))?;
        filled.extend([figure.as_str(), text]);
        *figures += 1;
    }
    Ok(filled)
}

/// The lines in which a document differs from the generated one.
pub(crate) fn differences(document: &str, generated: &str) -> Vec<(usize, String)> {
    let (found, expected): (Vec<_>, Vec<_>) = (document.lines().collect(), generated.lines().collect());
    let differs = |&at: &usize| found.get(at) != expected.get(at);
    let lines = (0..found.len().max(expected.len())).filter(differs);
    let show = |lines: &[&str], at: usize| lines.get(at).map_or("nothing", |line| *line).to_owned();
    let describe = |at| (at + 1, format!("expected\n  {}\nfound\n  {}", show(&expected, at), show(&found, at)));
    // If a line is missing, all lines below it differ.
    let most = if found.len() == expected.len() { usize::MAX } else { 1 };
    lines.take(most).map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# Results
<!-- sources
a = \"a.csv\"
one = a[tasks=1]
-->
<!-- template
| policy | ns |
|---|---|
each name: vanilla bits
| `$name` | {one[policy=$name].ns :.1 <= 14} |
-->
| policy | ns |
|---|---|
| `vanilla` | **15.0** |
| `bits` | 13.1 |
<!-- end -->
Under bits it takes <!-- {one[policy=bits].ns :.0} -->13<!-- end --> ns. <!-- A remark. -->
";

    fn read(path: &str) -> Result<String, String> {
        match path {
            "a.csv" => Ok("policy,tasks,ns\nvanilla,1,15.0\nbits,1,13.08\nbits,2,99\n".to_owned()),
            _ => Err(format!("{path}: not found")),
        }
    }

    /// Lines of faults and differences.
    fn lines(document: &str) -> Vec<usize> {
        let generated = generate(document, &read);
        let differences = differences(document, &generated.text);
        generated.faults.iter().chain(&differences).map(|(line, _)| *line).collect()
    }

    #[test]
    fn a_document_that_agrees_stays_as_it_is() {
        let generated = generate(DOCUMENT, &read);
        assert_eq!((generated.text.as_str(), generated.figures), (DOCUMENT, 3));
        assert_eq!(lines(DOCUMENT), [0; 0]);
    }

    #[test]
    fn a_changed_figure_or_a_lost_bold_mark_is_found_and_written() {
        for (old, new, line) in [("| 13.1 |", "| 12.1 |", 15), ("**15.0**", "15.0", 14), (">13<", ">12<", 17)] {
            let changed = DOCUMENT.replace(old, new);
            assert_eq!(lines(&changed), [line], "{new}");
            assert_eq!(generate(&changed, &read).text, DOCUMENT, "{new}");
        }
        let (_, what) = differences("a\nb 1", "a\nb 2").remove(0);
        assert_eq!(what, "expected\n  b 2\nfound\n  b 1");
    }

    #[test]
    fn a_missing_row_is_found_and_written() {
        let shorter = DOCUMENT.replace("| `bits` | 13.1 |\n", "");
        assert_eq!(lines(&shorter), [15]);
        assert_eq!(generate(&shorter, &read).text, DOCUMENT);
    }

    #[test]
    fn a_missing_file_fails_on_the_line_of_its_name() {
        let faults = generate(&DOCUMENT.replace("a.csv", "gone.csv"), &read).faults;
        assert_eq!(faults[0], (3, "gone.csv: not found".to_owned()));
    }

    #[test]
    fn a_row_that_matches_nothing_or_several_fails_on_the_line_of_the_template() {
        let faults = generate(&DOCUMENT.replace("vanilla bits", "vanilla cluster"), &read).faults;
        let what = "{one[policy=cluster].ns :.1 <= 14}: a.csv[tasks=1][policy=cluster].ns selects 0 rows, not one";
        assert_eq!(faults, [(10, what.to_owned())]);
        let faults = generate(&DOCUMENT.replace("one[policy=bits]", "a[policy=bits]"), &read).faults;
        assert_eq!(faults, [(17, "{a[policy=bits].ns :.0}: a.csv[policy=bits].ns selects 2 rows, not one".to_owned())]);
    }

    #[test]
    fn refuses_comments_that_are_not_closed_or_begin_a_line() {
        assert_eq!(lines(&DOCUMENT.replacen("<!-- end -->", "", 1)), [7]);
        assert_eq!(lines(&DOCUMENT.replace("13<!-- end -->", "13")), [17]);
        assert_eq!(lines(&DOCUMENT.replace("Under bits it takes ", "")), [17]);
        assert_eq!(lines(&DOCUMENT.replace("Under bits it takes", "-")), [17]);
        assert_eq!(lines(&DOCUMENT.replace("<= 14}", "<= 14")), [10]);
        assert_eq!(lines(&DOCUMENT.replace("one = ", "one ")), [4, 10, 17]);
    }
}
