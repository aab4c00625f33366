//! Rows for people: two by two, then in detail.

use std::io::{self, Write};

use super::columns::percent;
use super::{CountColumns, Row};
use crate::output::Table;

/// What a row is about in a word, and what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Headline {
    /// What is compared with what: rows with the same text stand in one table.
    pub(in super::super) group: String,
    /// The result, with its unit.
    pub(in super::super) result: String,
}

/// A row of a group, and its result.
type Member<'r, V> = (&'r Row<V>, String);

/// Writes a table for each group, of zone policies down and policies of the lists of used pages across; then all rows, with
/// the columns that `details` gives behind those of the setting.
pub(in super::super) fn write_comparison<V, const N: usize>(
    out: &mut dyn Write,
    rows: &[Row<V>],
    headline: impl Fn(&Row<V>) -> Headline,
    headings: [&str; N],
    details: impl Fn(&Row<V>) -> [String; N],
) -> io::Result<()> {
    let mut groups: Vec<(String, Vec<Member<'_, V>>)> = Vec::new();
    for row in rows {
        let Headline { group, result } = headline(row);
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, members)) => members.push((row, result)),
            None => groups.push((group, vec![(row, result)])),
        }
    }
    for (group, members) in &groups {
        writeln!(out, "{group} (zone lock contended, LRU lock contended)")?;
        two_by_two(members).write(out)?;
        writeln!(out)?;
    }
    let common = ["mode", "tasks", "zone policy", "LRU policy"];
    let mut table = Table::with_headings(common.iter().chain(&headings).chain(&CountColumns::HEADINGS));
    for row in rows {
        let setting = &row.setting;
        let own = [setting.mode.to_owned(), setting.tasks.to_string(), setting.zone_policy.to_owned()];
        let cells = own.into_iter().chain([setting.lru_policy.to_owned()]).chain(details(row));
        table.push(cells.chain(row.counts.cells()));
    }
    table.write(out)
}

fn two_by_two<V>(members: &[Member<'_, V>]) -> Table {
    let mut zones: Vec<&str> = Vec::new();
    let mut lrus: Vec<&str> = Vec::new();
    for (row, _) in members {
        let (zone, lru) = (row.setting.zone_policy, row.setting.lru_policy);
        if !zones.contains(&zone) {
            zones.push(zone);
        }
        if !lrus.contains(&lru) {
            lrus.push(lru);
        }
    }
    let headings = lrus.iter().map(|lru| format!("LRU {lru}"));
    let mut table = Table::with_headings(std::iter::once("zone policy".to_owned()).chain(headings));
    for zone in zones {
        let cell = |lru: &&str| {
            let found =
                members.iter().find(|(row, _)| row.setting.zone_policy == zone && row.setting.lru_policy == *lru);
            found.map_or_else(
                || "-".to_owned(),
                |(row, result)| {
                    let counts = &row.counts;
                    let shares = [counts.zone_lock_contended_share, counts.lru_lock_contended_share].map(percent);
                    format!("{result} ({} %)", shares.join(" %, "))
                },
            )
        };
        table.push(std::iter::once(zone.to_owned()).chain(lrus.iter().map(cell)));
    }
    table
}
