//! The rows for people: a table for each workload and setting, what was measured beside what was published.

use std::io::{self, Write};

use super::NAME;
use super::row::{MEASURED, PUBLISHED, Row};
use crate::output::{Outcome, RowError, Rows, Table};

/// All rows.
pub(super) struct ZoneLockOutcome {
    pub(super) machine: String,
    pub(super) rows: Vec<Row>,
}

/// Short headings of published metrics, which are sentences.
const SHORT: [(&str, &str); 9] = [
    ("CPU time spinning on the zone lock", "spinning"),
    ("zone lock contention on the allocation path", "zone lock, alloc"),
    ("zone lock contention on the free path", "zone lock, free"),
    ("zone lock contention", "zone lock"),
    ("LRU lock contention", "LRU lock"),
    ("throughput against vanilla", "vs vanilla"),
    ("mean time of one order-9 allocation", "request"),
    ("score of the order-0 tasks", "score"),
    ("score of the huge-page tasks", "score"),
];

impl Outcome for ZoneLockOutcome {
    fn command(&self) -> &'static str {
        NAME
    }

    fn machine(&self) -> Option<&str> {
        Some(&self.machine)
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let (measured, published): (Vec<&Row>, Vec<&Row>) = self.rows.iter().partition(|row| row.source == MEASURED);
        let mut groups: Vec<Vec<&Row>> = Vec::new();
        for row in measured {
            match groups.iter_mut().find(|group| are_compared(group[0], row)) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        for group in &groups {
            let beside: Vec<&Row> =
                published.iter().copied().filter(|row| are_of_one_workload(group[0], row)).collect();
            writeln!(out, "{}", title(group[0]))?;
            group_table(group, &beside).write(out)?;
            for row in group {
                if let Some(line) = drains(row) {
                    writeln!(out, "{line}")?;
                }
            }
            writeln!(out)?;
        }
        let alone: Vec<&Row> = published.iter().copied().filter(|row| row.workload.starts_with("drains ")).collect();
        if !alone.is_empty() {
            published_table(&alone).write(out)?;
            writeln!(out)?;
        }
        writeln!(
            out,
            "Medians (least–most) of runs whose locks were not timed; waited, held and kept are of one more run. Taken: acquisitions\n\
             of the lock for 1000 pages that were handed out, or in parallel-free taken back. Waited, held: ns for each page. In,\n\
             out: ns held for each page of a refill and of a drain, and page structures touched meanwhile (lines), as one thread does\n\
             what the tasks do. Kept: the most pages on per-CPU lists at once. Published figures are of kernels, on the machines\n\
             named, with the lists of used pages that are called vanilla here."
        )
    }
}

/// Whether rows differ in their policies alone.
fn are_compared(one: &Row, other: &Row) -> bool {
    let setting = |row: &Row| (row.workload.clone(), row.mode, row.tasks, row.task_kind, row.delay_ns);
    setting(one) == setting(other)
}

/// Whether a published row is of the workload of a measured one.
fn are_of_one_workload(measured: &Row, published: &Row) -> bool {
    let workload = |row: &Row| (row.workload.clone(), row.task_kind, row.delay_ns);
    workload(measured) == workload(published)
}

fn title(row: &Row) -> String {
    let mut title = row.workload.clone();
    if let Some(kind) = row.task_kind {
        title += &if row.workload == "alloc" { format!(" {kind}") } else { format!(", tasks with {kind} pages") };
    }
    if let Some(delay) = row.delay_ns {
        title += &format!(", virtual delay of {} ms", delay as f64 / 1e6);
    }
    title + &format!("; {}, tasks: {}", row.mode.unwrap_or("-"), row.tasks.unwrap_or(0))
}

/// How drains entered their zone under a policy that lets them do so as one cluster.
fn drains(row: &Row) -> Option<String> {
    let percent = |share: Option<f64>| share.map(|share| format!("{:.1} %", share * 100.0));
    let (drains, policy) = (row.drains?, &row.policy);
    let lru = row.lru_policy.map(|lru| format!(", {lru}")).unwrap_or_default();
    let ideal = percent(row.drains_ideal_share)?;
    let (whole, movable) = (percent(row.drains_whole_share)?, percent(row.drains_movable_share)?);
    Some(format!(
        "Drains of {policy}{lru}: {drains:.0}, {movable} of movable frames; one whole batch {ideal}, entered as one cluster {whole}."
    ))
}

/// A column of measured values: its heading and its cell, which needs the row that others are compared with.
type Column = (&'static str, fn(&Row, &Row) -> Option<String>);

const COLUMNS: [Column; 15] = [
    ("M ops/s", |row, _| Some(rate(row.ops_per_s?, row.ops_per_s_min?, row.ops_per_s_max?))),
    ("vs first %", |row, first| Some(format!("{:+.1}", (row.ops_per_s? / first.ops_per_s? - 1.0) * 100.0))),
    ("get ns", |row, _| row.get_ns.map(|ns| format!("{ns:.1}"))),
    ("put ns", |row, _| row.put_ns.map(|ns| format!("{ns:.1}"))),
    ("success %", |row, _| row.high_order_success.map(|share| format!("{:.1}", share * 100.0))),
    ("request ms", |row, _| row.high_order_ns.map(|ns| format!("{:.3}", ns / 1e6))),
    ("zone taken", |row, _| row.zone_lock_acquisitions_per_1000_pages.map(|taken| format!("{taken:.2}"))),
    ("waited", |row, _| row.zone_lock_wait_ns_per_page.map(|ns| format!("{ns:.1}"))),
    ("held", |row, _| row.zone_lock_hold_ns_per_page.map(|ns| format!("{ns:.1}"))),
    ("in", |row, _| row.zone_lock_hold_ns_per_page_refill.map(|ns| format!("{ns:.1}"))),
    ("out", |row, _| row.zone_lock_hold_ns_per_page_drain.map(|ns| format!("{ns:.1}"))),
    ("lines in", |row, _| row.page_lines_under_lock_per_page_refill.map(|lines| format!("{lines:.2}"))),
    ("lines out", |row, _| row.page_lines_under_lock_per_page_drain.map(|lines| format!("{lines:.2}"))),
    ("LRU taken", |row, _| row.lru_lock_acquisitions_per_1000_pages.map(|taken| format!("{taken:.1}"))),
    ("kept", |row, _| row.pcp_pages_held.map(|pages| pages.to_string())),
];

/// What stands for a value that there is not.
const NONE: &str = "-";

/// A table of rows that are compared, and what was published of the same. A column without any value is left out.
fn group_table(rows: &[&Row], published: &[&Row]) -> Table {
    let first = |row: &Row| rows.iter().find(|first| first.lru_policy == row.lru_policy).copied().unwrap_or(rows[0]);
    let columns: Vec<&Column> =
        COLUMNS.iter().filter(|(_, cell)| rows.iter().any(|row| cell(row, rows[0]).is_some())).collect();
    let metrics = metrics(published);
    let has_lru = rows.iter().any(|row| row.lru_policy.is_some());
    let own = std::iter::once("policy").chain(has_lru.then_some("LRU")).map(str::to_owned);
    let headings: Vec<String> = own
        .chain(columns.iter().map(|(heading, _)| (*heading).to_owned()))
        .chain(metrics.iter().map(|metric| heading(metric)))
        .collect();
    let settings = 1 + usize::from(has_lru);
    let mut table = Table::with_headings(headings)
        .with_band(settings, "measured here:")
        .with_band(settings + columns.len(), &machines(published));
    for row in rows {
        let own = std::iter::once(row.policy.clone()).chain(has_lru.then(|| row.lru_policy.unwrap_or(NONE).to_owned()));
        let measured = columns.iter().map(|(_, cell)| cell(row, first(row)).unwrap_or_else(|| NONE.to_owned()));
        let is_kernels = row.lru_policy.is_none_or(|lru| lru == "vanilla");
        let beside = metrics.iter().map(|metric| {
            let is_it = |other: &&&Row| other.policy == row.policy && same_metric(other, metric);
            let found = published.iter().find(is_it).filter(|_| is_kernels);
            found.map_or_else(|| NONE.to_owned(), |row| value(row))
        });
        table.push(own.chain(measured).chain(beside));
    }
    table
}

/// Published figures that nothing here is measured beside.
fn published_table(rows: &[&Row]) -> Table {
    let mut table = Table::new(["experiment", "metric", "policy", "value", "note"]).with_band(0, &machines(rows));
    for row in rows {
        let note = row.published_note.as_deref().unwrap_or(NONE);
        let metric = row.published_metric.as_deref().unwrap_or(NONE);
        table.push([row.workload.as_str(), metric, row.policy.as_str(), &value(row), note]);
    }
    table
}

/// One row of each metric, in the order of the table.
fn metrics<'r>(published: &[&'r Row]) -> Vec<&'r Row> {
    let mut metrics: Vec<&Row> = Vec::new();
    for row in published {
        if !metrics.iter().any(|other| same_metric(row, other)) {
            metrics.push(row);
        }
    }
    metrics
}

fn same_metric(one: &Row, other: &Row) -> bool {
    one.published_metric == other.published_metric
}

fn heading(row: &Row) -> String {
    let metric = row.published_metric.as_deref().unwrap_or(NONE);
    let short = SHORT.iter().find(|(long, _)| *long == metric).map_or(metric, |(_, short)| *short);
    let unit = match row.published_unit.as_deref() {
        Some("pct") => "%",
        Some("ns") => "ms",
        Some(other) => other,
        None => "",
    };
    format!("{short} {unit}")
}

fn value(row: &Row) -> String {
    let Some(value) = row.published_value else { return NONE.to_owned() };
    if row.published_unit.as_deref() == Some("ns") { format!("{:.3}", value / 1e6) } else { value.to_string() }
}

/// Where figures were measured that are not of this machine.
fn machines(published: &[&Row]) -> String {
    let mut names: Vec<&str> = published.iter().filter_map(|row| row.published_machine.as_deref()).collect();
    names.dedup();
    if names.is_empty() { String::new() } else { format!("{PUBLISHED}, {}:", names.join(", ")) }
}

/// A rate and its spread, in millions.
fn rate(median: f64, least: f64, most: f64) -> String {
    format!("{:.3} ({:.3}–{:.3})", median / 1e6, least / 1e6, most / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &str, lru: &'static str) -> Row {
        Row {
            source: MEASURED,
            workload: "page-fault".to_owned(),
            policy: policy.to_owned(),
            mode: Some("threads"),
            tasks: Some(2),
            lru_policy: Some(lru),
            ops_per_s: Some(2e6),
            ops_per_s_min: Some(1.9e6),
            ops_per_s_max: Some(2.1e6),
            zone_lock_acquisitions_per_1000_pages: Some(31.5),
            zone_lock_hold_ns_per_page: Some(12.34),
            pcp_pages_held: Some(378),
            ..Row::default()
        }
    }

    fn published(metric: &str, unit: &str, policy: &str, value: f64) -> Row {
        Row {
            source: PUBLISHED,
            workload: "page-fault".to_owned(),
            policy: policy.to_owned(),
            published_machine: Some("skylake-112".to_owned()),
            published_metric: Some(metric.to_owned()),
            published_unit: Some(unit.to_owned()),
            published_value: Some(value),
            ..Row::default()
        }
    }

    fn plain(rows: Vec<Row>) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        ZoneLockOutcome { machine: "host".to_owned(), rows }.write_text(&mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn what_was_measured_stands_beside_what_was_published_and_each_column_says_which() {
        let depot =
            Row { ops_per_s: Some(3e6), zone_lock_acquisitions_per_1000_pages: Some(0.02), ..row("depot", "vanilla") };
        let drains = Row {
            workload: "drains after boot".to_owned(),
            published_note: Some("62 %".to_owned()),
            ..published("drains", "count", "vanilla", 3885.0)
        };
        let text = plain(vec![
            row("vanilla", "vanilla"),
            row("vanilla", "sharded"),
            depot,
            published("zone lock contention on the allocation path", "pct", "vanilla", 42.0),
            published("LRU lock contention", "pct", "vanilla", 5.0),
            published("LRU lock contention", "pct", "cluster", 82.0),
            drains,
        ]);
        let (tables, notes) = text.split_once("Medians").unwrap();
        let expected = "\
page-fault; threads, tasks: 2
                  measured here:                                           published, skylake-112:
policy   LRU      M ops/s              vs first %  zone taken  held  kept  zone lock, alloc %  LRU lock %
vanilla  vanilla  2.000 (1.900–2.100)        +0.0       31.50  12.3   378                  42           5
vanilla  sharded  2.000 (1.900–2.100)        +0.0       31.50  12.3   378                   -           -
depot    vanilla  3.000 (1.900–2.100)       +50.0        0.02  12.3   378                   -           -

published, skylake-112:
experiment         metric  policy   value  note
drains after boot  drains  vanilla   3885  62 %

";
        assert_eq!(tables, expected);
        assert!(notes.contains("Published figures are of kernels"), "{notes}");
    }

    #[test]
    fn drains_that_may_enter_whole_are_told_under_the_table() {
        let shares = Row {
            drains: Some(1200.0),
            drains_ideal_share: Some(0.62),
            drains_whole_share: Some(0.9),
            drains_movable_share: Some(0.995),
            ..row("cluster-bulk", "vanilla")
        };
        let text = plain(vec![row("vanilla", "vanilla"), shares]);
        let line = "\nDrains of cluster-bulk, vanilla: 1200, 99.5 % of movable frames; one whole batch 62.0 %, entered as one \
                    cluster 90.0 %.\n\n";
        assert!(text.contains(line) && text.matches("Drains of").count() == 1, "{text}");
    }

    #[test]
    fn workloads_and_kinds_of_tasks_have_tables_of_their_own() {
        let alloc = Row {
            workload: "alloc".to_owned(),
            task_kind: Some("bulk"),
            lru_policy: None,
            ..row("vanilla", "vanilla")
        };
        let highalloc = Row {
            workload: "highalloc".to_owned(),
            delay_ns: Some(1_000_000),
            high_order_success: Some(0.875),
            high_order_ns: Some(2_500_000.0),
            ..row("vanilla", "vanilla")
        };
        let rate = Row {
            workload: "highalloc".to_owned(),
            delay_ns: Some(1_000_000),
            ..published("mean time of one order-9 allocation", "ns", "vanilla", 3_173_620.0)
        };
        let text = plain(vec![alloc, highalloc, rate]);
        assert!(text.contains("alloc bulk; threads, tasks: 2\n"), "{text}");
        assert!(text.contains("highalloc, virtual delay of 1 ms; threads, tasks: 2\n"), "{text}");
        assert!(text.contains("request ms  zone taken  held  kept  request ms\n"), "{text}");
        assert!(text.contains("87.5") && text.contains(" 3.174\n"), "{text}");
    }
}
