//! The page of a report: one file without scripts, fonts or addresses of other files. It depends on the results alone.

mod style;

use std::fmt::Write;

use super::chart::css_colour;
use super::claims::JudgedClaim;
use super::plots::Plot;
use super::results::Results;
use super::stored::Stored;
use super::tables::{ComparedRow, ComparedTable, Measured};
use style::STYLE;

/// What a page shows.
pub(super) struct Contents<'c> {
    pub(super) results: &'c Results,
    pub(super) claims: &'c [JudgedClaim],
    pub(super) tables: &'c [ComparedTable],
    pub(super) plots: &'c [Plot],
}

/// A table with more rows is folded up.
const FOLDED: usize = 24;

/// The page.
pub(super) fn html(contents: &Contents<'_>) -> String {
    let mut page = String::new();
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str(
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Frameyard report</title>\n",
    );
    // An icon of its own, so that the browser asks for no file.
    page.push_str("<link rel=\"icon\" href=\"data:,\">\n<style>\n");
    page.push_str(STYLE);
    page.push_str("</style>\n</head>\n<body>\n<main>\n<h1>Frameyard report</h1>\n");
    page.push_str(&head(contents.results));
    page.push_str("<h2>Claims</h2>\n");
    page.push_str(&claims(contents.claims));
    page.push_str("<h2>Plots</h2>\n");
    contents.plots.iter().for_each(|of| page.push_str(&plot(of, contents.results)));
    page.push_str("<h2>Published tables</h2>\n");
    contents.tables.iter().for_each(|of| page.push_str(&table(of, contents.results)));
    page.push_str("<h2>Jobs</h2>\n");
    page.push_str(&jobs(contents.results));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// Text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Machines and commits of some results.
fn origin<'r>(stored: impl Iterator<Item = &'r Stored>) -> String {
    let mut origins: Vec<String> = Vec::new();
    for Stored { result, run } in stored {
        let cpu = run.host.cpu.as_deref().unwrap_or("unknown CPU");
        let cpus = run.host.cpus.map_or_else(|| "?".to_owned(), |cpus| cpus.to_string());
        let origin = format!("{cpus} × {cpu}, commit {}", result.commit);
        if !origins.contains(&origin) {
            origins.push(origin);
        }
    }
    origins.join("; ")
}

fn head(results: &Results) -> String {
    let stored = results.all();
    let failed = stored.iter().filter(|stored| stored.result.error.is_some()).count();
    let seconds: f64 = stored.iter().map(|stored| stored.run.seconds).sum();
    let version = stored.first().map_or("", |stored| &stored.result.version);
    format!(
        "<p>Frameyard {}: {} jobs, {failed} of them failed, {seconds:.0} seconds in all. Ran on: {}.</p>\n",
        escaped(version),
        stored.len(),
        escaped(&origin(stored.iter()))
    )
}

/// A table whose cells carry their headings, for narrow screens.
fn grid<'c>(headings: &[&str], rows: impl Iterator<Item = (&'c str, Vec<String>)>) -> String {
    let mut html = "<table>\n<thead><tr>".to_owned();
    for heading in headings {
        let _ = write!(html, "<th>{}</th>", escaped(heading));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (class, cells) in rows {
        let _ = write!(html, "<tr class=\"{class}\">");
        for (heading, cell) in headings.iter().zip(cells) {
            let is_number = cell.starts_with(|letter: char| letter.is_ascii_digit() || letter == '−' || letter == '-');
            let align = if is_number { " class=\"number\"" } else { "" };
            let _ = write!(html, "<td data-label=\"{}\"{align}>{}</td>", escaped(heading), escaped(&cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n");
    html
}

fn claims(claims: &[JudgedClaim]) -> String {
    let figure = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number);
    let rows = claims.iter().map(|claim| {
        let class = match claim.held {
            Some(true) => "held",
            Some(false) => "broken",
            None => "missing",
        };
        let why = claim.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let cells = vec![
            claim.verdict().to_owned(),
            format!("{}{why}", claim.says),
            format!("{} {}", figure(claim.left_value), claim.left),
            claim.relation.sign().to_owned(),
            format!("{} {}", figure(claim.right_value), claim.right),
            claim.unit.to_owned(),
        ];
        (class, cells)
    });
    grid(&["verdict", "claim", "figure", "should be", "other figure", "unit"], rows)
}

/// How the figures of some groups are obtained again.
fn rerun(groups: &[&str], results: &Results) -> String {
    let mut html = String::new();
    let stored = || groups.iter().flat_map(|group| results.group(group));
    if stored().next().is_none() {
        return html;
    }
    let _ = write!(
        html,
        "<p class=\"note\">{}</p>\n<details><summary>Run it again</summary>\n",
        escaped(&origin(stored()))
    );
    for Stored { result, .. } in stored() {
        let _ = writeln!(html, "<p><code>{}</code></p>", escaped(&result.command));
    }
    html.push_str("</details>\n");
    html
}

fn plot(plot: &Plot, results: &Results) -> String {
    let mut html = format!("<figure id=\"{}\">\n<h3>{}</h3>\n", escaped(&plot.name), escaped(&plot.title));
    match &plot.svg {
        Ok(svg) => {
            html.push_str(svg);
            html.push_str("\n<ul class=\"legend\">");
            for (label, colour) in &plot.legend {
                let _ = write!(html, "<li><i style=\"background:{}\"></i>{}</li>", css_colour(*colour), escaped(label));
            }
            html.push_str("</ul>\n");
        }
        Err(why) => {
            let _ = writeln!(html, "<p class=\"absent\">Not measured: {}.</p>", escaped(why));
        }
    }
    let _ = writeln!(html, "<figcaption>{}</figcaption>", escaped(&plot.sentence));
    html.push_str(&rerun(&plot.groups, results));
    html.push_str("</figure>\n");
    html
}

fn table(table: &ComparedTable, results: &Results) -> String {
    let mut html = format!("<section id=\"{}\">\n<h3>{}</h3>\n", table.name, escaped(table.title));
    let _ = writeln!(html, "<p>{}</p>", escaped(&table.sentence));
    let shown: Vec<&ComparedRow> =
        table.rows.iter().filter(|row| row.simulated.is_some() || row.measured.is_some()).collect();
    let shown = if shown.is_empty() { table.rows.iter().collect() } else { shown };
    let headings = ["value", "unit", "published", "measured here", "ratio", "simulated", "ratio"];
    let rows = shown.iter().map(|row| ("", cells(row)));
    let grid = grid(&headings, rows);
    if shown.len() > FOLDED {
        let _ = writeln!(
            html,
            "<details><summary>{} of {} values</summary>\n{grid}</details>",
            shown.len(),
            table.rows.len()
        );
    } else {
        html.push_str(&grid);
    }
    html.push_str("<ul class=\"note\">");
    if shown.len() < table.rows.len() {
        let left = table.rows.len() - shown.len();
        let _ = write!(html, "<li>{left} published values have no counterpart: {}.csv has them</li>", table.name);
    }
    for why in &table.missing {
        let _ = write!(html, "<li>{}</li>", escaped(why));
    }
    html.push_str("</ul>\n");
    html.push_str(&rerun(&table.groups, results));
    html.push_str("</section>\n");
    html
}

/// The cells of a published value and its counterparts.
fn cells(row: &ComparedRow) -> Vec<String> {
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
    let stdev = row.published_stdev.map(|stdev| format!(" ± {}", number(stdev))).unwrap_or_default();
    let measured = row.measured.map_or_else(|| "–".to_owned(), measured);
    let fitted = if row.is_fitted { " (fitted)" } else { "" };
    let simulated = row.simulated.map_or_else(|| "–".to_owned(), |value| format!("{}{fitted}", number(value)));
    vec![
        format!("{} ({})", row.what, row.machine),
        row.unit.to_owned(),
        format!("{}{stdev}", number(row.published)),
        measured,
        ratio(row.measured_ratio()),
        simulated,
        ratio(row.simulated_ratio()),
    ]
}

fn measured(value: Measured) -> String {
    match (value.min, value.max) {
        (Some(min), Some(max)) if min < max => {
            format!("{} ({} to {})", number(value.median), number(min), number(max))
        }
        _ => number(value.median),
    }
}

/// A number with four significant digits, or as a whole number with spaces between thousands.
pub(super) fn number(value: f64) -> String {
    if value.abs() < 10_000.0 {
        let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 6) };
        let text = format!("{value:.*}", digits as usize);
        return if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("−{text}") } else { text }
}

fn jobs(results: &Results) -> String {
    let rows = results.all().iter().map(|Stored { result, run }| {
        let outcome = result
            .error
            .as_ref()
            .map_or_else(|| format!("{} rows", result.rows.len()), |error| format!("failed: {error}"));
        let class = if result.error.is_some() { "broken" } else { "" };
        (
            class,
            vec![
                result.job.clone(),
                result.kind.name().to_owned(),
                number(run.seconds),
                outcome,
                result.command.clone(),
            ],
        )
    });
    let grid = grid(&["job", "kind", "seconds", "outcome", "command"], rows);
    format!("<details class=\"jobs\"><summary>{} jobs</summary>\n{grid}</details>\n", results.all().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 1.0, 0.012345, 3.25152, 1234.56, 9999.9, 586_305.0, -1_234_567.0, 12.50].map(number);
        let expected =
            ["0", "1", "0.01235", "3.252", "1235", "10000", "586\u{202f}305", "−1\u{202f}234\u{202f}567", "12.5"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn texts_cannot_be_markup() {
        let html = grid(&["a\"b"], std::iter::once(("", vec!["<script>&".to_owned()])));
        assert!(html.contains("<td data-label=\"a&quot;b\">&lt;script&gt;&amp;</td>"), "{html}");
    }
}
