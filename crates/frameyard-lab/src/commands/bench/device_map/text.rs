//! The rows for people: what was measured, and what was published.

use std::io::{self, Write};

use frameyard::ByteSize;

use super::NAME;
use super::row::Row;
use crate::commands::bench::compound_pagemap::MEASURED;
use crate::output::{Outcome, RoundedSize, RowError, Rows, Table};

/// All rows.
pub(super) struct DeviceMapOutcome {
    pub(super) rows: Vec<Row>,
}

impl Outcome for DeviceMapOutcome {
    fn command(&self) -> &'static str {
        NAME
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let (measured, published): (Vec<&Row>, Vec<&Row>) = self.rows.iter().partition(|row| row.source == MEASURED);
        table(&measured).write(out)?;
        for row in &measured {
            if let Some(reason) = &row.left_out {
                writeln!(out, "left out: {reason}")?;
            }
        }
        let mut beside = Table::new(["published", "pages", "value", "unit", "note"]);
        for row in published {
            beside.push([
                row.published_metric.clone().unwrap_or_default(),
                row.geometry.unwrap_or("-").to_owned(),
                row.published_value.map_or_else(String::new, |value| value.to_string()),
                row.published_unit.clone().unwrap_or_default(),
                row.published_note.clone().unwrap_or_default(),
            ]);
        }
        writeln!(out)?;
        beside.write(out)?;
        writeln!(
            out,
            "\nMedians (least–most) of runs that alternate. Resident: proportional size of the map's addresses after every tail was\n\
             read; page tables are what the process has more of then. Host alone: the time in which the host provides the same\n\
             pages when a byte of each is written and nothing else. Published figures are of kernels: 4K is before, and two map\n\
             pages of each compound page were kept after."
        )
    }
}

fn table(rows: &[&Row]) -> Table {
    let size = |bytes: Option<u64>| bytes.map_or_else(none, |bytes| RoundedSize(ByteSize(bytes)).to_string());
    let number = |number: Option<u64>| number.map_or_else(none, |number| number.to_string());
    let ms = |ns: Option<u64>| ns.map_or_else(none, |ns| format!("{:.2}", ns as f64 / 1e6));
    let mut table = Table::new([
        "yard",
        "size",
        "pages",
        "layout",
        "structures",
        "resident",
        "by equation",
        "page tables",
        "mappings",
        "bring-up ms",
        "host alone ms",
        "ratio",
        "remove ms",
    ]);
    for row in rows {
        table.push([
            row.yard.unwrap_or("-").to_owned(),
            size(row.size_bytes),
            row.geometry.unwrap_or("-").to_owned(),
            row.layout.unwrap_or("-").to_owned(),
            number(row.structures),
            size(row.map_bytes_resident),
            size(row.map_bytes_equation),
            size(row.page_table_bytes),
            number(row.mappings),
            spread(row.bring_up_ns, row.bring_up_ns_min, row.bring_up_ns_max),
            spread(row.host_fault_ns, row.host_fault_ns_min, row.host_fault_ns_max),
            row.bring_up_per_host_fault.map_or_else(none, |ratio| format!("{ratio:.2}")),
            ms(row.remove_ns),
        ]);
    }
    table
}

/// What stands for a value that there is not.
fn none() -> String {
    "-".to_owned()
}

fn spread(median: Option<u64>, min: Option<u64>, max: Option<u64>) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    match (median, min, max) {
        (Some(median), Some(min), Some(max)) => format!("{:.2} ({:.2}–{:.2})", ms(median), ms(min), ms(max)),
        _ => none(),
    }
}
