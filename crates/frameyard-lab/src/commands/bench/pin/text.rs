//! The rows for people: a table for each size, call, path and interface.

use std::io::{self, Write};

use frameyard::ByteSize;

use super::NAME;
use super::row::Row;
use crate::commands::bench::compound_pagemap::{MEASURED, PUBLISHED};
use crate::output::{Outcome, RowError, Rows, Table};

/// All rows.
pub(super) struct PinOutcome {
    pub(super) rows: Vec<Row>,
}

impl Outcome for PinOutcome {
    fn command(&self) -> &'static str {
        NAME
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let measured = || self.rows.iter().filter(|row| row.source == MEASURED);
        let mut groups: Vec<Vec<&Row>> = Vec::new();
        for row in measured().filter(|row| row.left_out.is_none()) {
            match groups.iter_mut().find(|group| title(group[0]) == title(row)) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        for group in groups {
            writeln!(out, "{}", title(group[0]))?;
            table(&group).write(out)?;
            writeln!(out)?;
        }
        for reason in measured().filter_map(|row| row.left_out.as_ref()) {
            writeln!(out, "left out: {reason}")?;
        }
        let mut published = Table::new(["published", "map", "µs", "note"]);
        for row in self.rows.iter().filter(|row| row.source == PUBLISHED) {
            published.push([
                row.published_metric.clone().unwrap_or_default(),
                row.map_geometry.unwrap_or("-").to_owned(),
                row.published_value.map_or_else(String::new, |value| value.to_string()),
                row.published_note.clone().unwrap_or_default(),
            ]);
        }
        published.write(out)?;
        writeln!(
            out,
            "\nMedians (least–most) of runs that alternate between the kinds of memory. Pages: what an entry of the page tables maps;\n\
             map: what a page structure is the head of. Times as fast: against the first row of 4K pages. Array alone: writing as\n\
             many frame numbers into the same array, and taking in times of that. Published figures are of a kernel, for an array."
        )
    }
}

fn title(row: &Row) -> String {
    let size = row.bytes.map_or_else(String::new, |bytes| ByteSize(bytes).to_string());
    let text = |text: Option<&'static str>| text.unwrap_or("-");
    let all = row.bytes.map(|bytes| bytes / 4096);
    let each = if row.pages_per_call == all { None } else { row.pages_per_call };
    let each = each.map_or_else(String::new, |pages| format!(", {pages} pages a call"));
    format!(
        "{} {size}, {} path, {}, refs {}{each}",
        text(row.call),
        text(row.path),
        text(row.interface),
        text(row.refs)
    )
}

fn table(rows: &[&Row]) -> Table {
    let none = || "-".to_owned();
    let spread = |median: Option<u64>, min: Option<u64>, max: Option<u64>| match (median, min, max) {
        (Some(median), Some(min), Some(max)) => format!("{} ({}–{})", us(median), us(min), us(max)),
        _ => none(),
    };
    let number = |value: Option<f64>| value.map_or_else(none, |value| format!("{value:.1}"));
    let mut table = Table::new([
        "memory",
        "pages",
        "map",
        "take µs",
        "times as fast",
        "release µs",
        "times as fast",
        "array alone µs",
        "ratio",
        "runs",
    ]);
    for row in rows {
        table.push([
            row.memory.unwrap_or("-").to_owned(),
            row.page_bytes.map_or_else(none, |bytes| ByteSize(bytes).to_string()),
            row.map_geometry.unwrap_or("-").to_owned(),
            spread(row.take_ns, row.take_ns_min, row.take_ns_max),
            number(row.take_times_as_fast),
            spread(row.release_ns, row.release_ns_min, row.release_ns_max),
            number(row.release_times_as_fast),
            row.array_write_ns.map_or_else(none, us),
            row.take_per_array_write.map_or_else(none, |ratio| format!("{ratio:.2}")),
            row.runs.map_or_else(none, |runs| runs.to_string()),
        ]);
    }
    table
}

/// Microseconds, with as many digits as matter.
fn us(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    if us < 100.0 { format!("{us:.2}") } else { format!("{us:.0}") }
}
