//! The text of a comparison: policies of zones down, policies of LRU lists across, then all rows.

use crate::output::{Format, Report, Row};

/// A row, and its place in the text.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::commands) struct ComparedRow {
    pub(in crate::commands) row: Row,
    /// What the row is compared with: rows of the same group are in one table.
    pub(in crate::commands) group: String,
    /// The result, with its unit.
    pub(in crate::commands) result: String,
}

impl ComparedRow {
    fn policies(&self) -> (&str, &str) {
        (self.row.text("zone_policy").unwrap_or_default(), self.row.text("lru_policy").unwrap_or_default())
    }

    /// The result, and which part of the acquisitions of both locks had to wait.
    fn headline(&self) -> String {
        let percent =
            |key| self.row.number(key).map_or_else(|| "-".to_owned(), |share| format!("{:.2}", share * 100.0));
        let [zone, lru] = ["zone_lock_contended_share", "lru_lock_contended_share"].map(percent);
        format!("{} ({zone} %, {lru} %)", self.result)
    }
}

/// The report of a comparison, with a table for each group.
pub(super) fn report(name: &'static str, machine: &str, rows: &[ComparedRow]) -> Report {
    let all = || rows.iter().map(|row| row.row.clone());
    let mut report = Report::new(name, all().collect()).of_machine(machine);
    for (group, members) in grouped(rows, |row| row.group.as_str()) {
        report = report.title(format!("{group} (zone lock contended, LRU lock contended)")).table(two_by_two(&members));
    }
    report.table(all())
}

/// Items with the same key together, in the order in which keys first occur.
pub(in crate::commands) fn grouped<'r, T, K: PartialEq>(
    items: &'r [T],
    key: impl Fn(&'r T) -> K,
) -> Vec<(K, Vec<&'r T>)> {
    let mut groups: Vec<(K, Vec<&T>)> = Vec::new();
    for item in items {
        let its = key(item);
        match groups.iter_mut().find(|(known, _)| *known == its) {
            Some((_, members)) => members.push(item),
            None => groups.push((its, vec![item])),
        }
    }
    groups
}

fn two_by_two(members: &[&ComparedRow]) -> Vec<Row> {
    let names = |of: fn((&str, &str)) -> String| {
        let mut names: Vec<String> = Vec::new();
        for name in members.iter().map(|member| of(member.policies())) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    let lrus = names(|(_, lru)| lru.to_owned());
    let row = |zone: String| {
        let result = |lru: &String| {
            members.iter().find(|member| member.policies() == (&zone, lru)).map(|member| member.headline())
        };
        let first = Row::new().remark("zone policy", Format::Plain, zone.clone());
        lrus.iter().fold(first, |row, lru| row.remark(format!("LRU {lru}"), Format::Plain, result(lru)))
    };
    names(|(zone, _)| zone.to_owned()).into_iter().map(row).collect()
}
