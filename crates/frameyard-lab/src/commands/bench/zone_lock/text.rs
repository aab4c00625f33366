//! The text: a table for each workload and setting, and under it what was published of the same.

use super::NAME;
use super::published::DRAINS;
use crate::commands::comparison::grouped;
use crate::commands::published_table::MEASURED;
use crate::output::{Format, Report, Row};

const NOTE: &str = "Medians (minimum–maximum) of runs without timed locks; waited, held and kept are of one further run. Taken: acquisitions \
    of the lock for 1000 pages that were allocated, or in parallel-free freed. Waited, held: ns for each page. Refill, drain: ns \
    held for each page, and page structures touched under the lock (lines), while one thread does the tasks' work. Kept: the \
    most pages on per-CPU lists at once. Published figures are of kernels, on the named machines, with the vanilla LRU policy.";

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

/// The report of all rows.
pub(super) fn report(machine: String, rows: Vec<Row>) -> Report {
    let (measured, published): (Vec<Row>, Vec<Row>) =
        rows.iter().cloned().partition(|row| row.text("source") == Some(MEASURED));
    let mut report = Report::new(NAME, rows).of_machine(machine);
    let setting = |row: &Row| ["workload", "mode", "tasks", "task_kind", "delay_ns"].map(|key| row.value(key).clone());
    for (_, group) in grouped(&measured, setting) {
        report = report.title(title(group[0])).table(against_first(&group));
        report = report.verbatim(group.iter().filter_map(|row| drains(row)).collect::<String>());
        let workload = |row: &Row| ["workload", "task_kind", "delay_ns"].map(|key| row.value(key).clone());
        let same: Vec<&Row> = published.iter().filter(|row| workload(row) == workload(group[0])).collect();
        if !same.is_empty() {
            report = report.title(machines(&same)).table(by_policy(&same));
        }
    }
    let of_drains = |row: &&Row| row.text("workload").is_some_and(|workload| workload.starts_with(DRAINS));
    let alone: Vec<&Row> = published.iter().filter(of_drains).collect();
    if !alone.is_empty() {
        report = report.title(machines(&alone)).table(alone.into_iter().map(published_row));
    }
    report.note(NOTE)
}

fn title(row: &Row) -> String {
    let workload = row.text("workload").unwrap_or_default();
    let kind = match row.text("task_kind") {
        Some(kind) if workload == "alloc" => format!(" {kind}"),
        Some(kind) => format!(", tasks with {kind} pages"),
        None => String::new(),
    };
    let delay = row.number("delay_ns").map(|ns| format!(", virtual delay of {} ms", ns / 1e6)).unwrap_or_default();
    let (mode, tasks) = (row.text("mode").unwrap_or("-"), row.number("tasks").unwrap_or(0.0));
    format!("{workload}{kind}{delay}; {mode}, tasks: {tasks}")
}

/// Rows that differ only in their policies, each compared with the first of its LRU policy.
fn against_first<'r>(rows: &[&'r Row]) -> Vec<Row> {
    let first = |row: &'r Row| rows.iter().copied().find(|first| first.text("lru_policy") == row.text("lru_policy"));
    let against = |row: &&'r Row| {
        let ratio = || Some(row.number("ops_per_s")? / first(row)?.number("ops_per_s")? - 1.0);
        (*row).clone().remark("vs first %", Format::percent(1).signed(), ratio())
    };
    rows.iter().map(against).collect()
}

/// How drains entered their zone under a policy that lets a drain enter as one cluster.
fn drains(row: &Row) -> Option<String> {
    let percent = |key| row.number(key).map(|share| format!("{:.1} %", share * 100.0));
    let (drains, policy) = (row.number("drains")?, row.text("policy")?);
    let lru = row.text("lru_policy").map(|lru| format!(", {lru}")).unwrap_or_default();
    let [ideal, whole, movable] = ["drains_ideal_share", "drains_whole_share", "drains_movable_share"].map(percent);
    Some(format!(
        "Drains of {policy}{lru}: {drains:.0}, {} of movable frames; one whole batch {}, entered as one cluster {}.\n",
        movable?, ideal?, whole?
    ))
}

/// Published figures of one workload: policies down, metrics across.
fn by_policy(rows: &[&Row]) -> Vec<Row> {
    let mut metrics: Vec<&Row> = Vec::new();
    for row in rows {
        if !metrics.iter().any(|known| same_metric(row, known)) {
            metrics.push(row);
        }
    }
    let of_policy = |(policy, rows): (Option<&str>, Vec<&&Row>)| {
        let value = |metric: &Row| {
            rows.iter().find(|row| same_metric(row, metric)).and_then(|row| row.number("published_value"))
        };
        let first = Row::new().remark("policy", Format::Plain, policy);
        metrics.iter().fold(first, |row, metric| row.remark(heading(metric), format(metric), value(metric)))
    };
    grouped(rows, |row| row.text("policy")).into_iter().map(of_policy).collect()
}

/// A published figure without a workload here.
fn published_row(row: &Row) -> Row {
    let text = |key: &str| row.value(key).clone();
    Row::new()
        .remark("experiment", Format::Plain, text("workload"))
        .remark("metric", Format::Plain, text("published_metric"))
        .remark("policy", Format::Plain, text("policy"))
        .remark("value", format(row), text("published_value"))
        .remark("note", Format::Plain, text("published_note"))
}

fn same_metric(one: &Row, other: &Row) -> bool {
    one.text("published_metric") == other.text("published_metric")
}

fn heading(row: &Row) -> String {
    let metric = row.text("published_metric").unwrap_or_default();
    let short = SHORT.iter().find(|(long, _)| *long == metric).map_or(metric, |(_, short)| *short);
    let unit = match row.text("published_unit") {
        Some("pct") => "%",
        Some("ns") => "ms",
        other => other.unwrap_or_default(),
    };
    format!("{short} {unit}")
}

fn format(row: &Row) -> Format {
    let value = row.number("published_value").unwrap_or(0.0);
    match row.text("published_unit") {
        Some("ns") => Format::millions(3),
        _ => Format::number(usize::from(value.fract() != 0.0)),
    }
}

fn machines(rows: &[&Row]) -> String {
    let mut names: Vec<&str> = rows.iter().filter_map(|row| row.text("published_machine")).collect();
    names.dedup();
    format!("published, {}:", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::row::Subject;
    use super::super::sample::Sample;
    use super::*;
    use crate::commands::published_table::ZoneLockRecord;
    use frameyard::locks::LockUse;
    use frameyard_workloads::counts::Drains;

    fn subject(policy: &str, lru: &'static str) -> Subject {
        Subject {
            workload: "page-fault".to_owned(),
            policy: policy.to_owned(),
            mode: Some("threads"),
            tasks: Some(2),
            lru: Some(lru),
            ..Subject::default()
        }
    }

    fn samples(rate: f64, acquisitions: u64) -> [Sample; 3] {
        let zone_lock = LockUse { acquisitions, ..LockUse::default() };
        [rate * 0.9, rate, rate * 1.1].map(|rate| Sample {
            rates: vec![(None, rate)],
            pages: 1000,
            zone_lock,
            ..Sample::default()
        })
    }

    fn published(metric: &str, unit: &str, policy: &str, value: f64) -> ZoneLockRecord {
        ZoneLockRecord {
            experiment: "page-fault".to_owned(),
            machine: "skylake-112".to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            policy: policy.to_owned(),
            value,
            note: None,
        }
    }

    fn published_row(record: ZoneLockRecord) -> Row {
        let (workload, policy) = (record.experiment.clone(), record.policy.clone());
        Subject { workload, policy, published: Some(record), ..Subject::default() }.row(&[])
    }

    fn plain(rows: Vec<Row>) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        report("host".to_owned(), rows).write_text(None, &mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn what_was_published_stands_under_what_was_measured() {
        let drains = ZoneLockRecord {
            experiment: "drains after boot".to_owned(),
            note: Some("62 %".to_owned()),
            ..published("drains", "count", "vanilla", 3885.0)
        };
        let text = plain(vec![
            subject("vanilla", "vanilla").row(&samples(2e6, 31)),
            subject("vanilla", "sharded").row(&samples(2e6, 31)),
            subject("bits", "vanilla").row(&samples(3e6, 1)),
            published_row(published("zone lock contention on the allocation path", "pct", "vanilla", 42.0)),
            published_row(published("LRU lock contention", "pct", "vanilla", 5.0)),
            published_row(published("LRU lock contention", "pct", "cluster", 82.0)),
            published_row(drains),
        ]);
        let (tables, notes) = text.split_once("Medians").unwrap();
        let expected = "\
page-fault; threads, tasks: 2
policy   LRU                  M ops/s  zone taken  vs first %
vanilla  vanilla  2.000 (1.800–2.200)       31.00        +0.0
vanilla  sharded  2.000 (1.800–2.200)       31.00        +0.0
bits     vanilla  3.000 (2.700–3.300)        1.00       +50.0

published, skylake-112:
policy   zone lock, alloc %  LRU lock %
vanilla                  42           5
cluster                   -          82

published, skylake-112:
experiment         metric  policy   value  note
drains after boot  drains  vanilla   3885  62 %

";
        assert_eq!(tables, expected);
        assert!(notes.contains("Published figures are of kernels"), "{notes}");
    }

    #[test]
    fn drains_that_may_enter_whole_are_described_under_the_table() {
        let drains = Drains { all: 1000, movable: 995, full_batches: 620, spliced: 900, ..Drains::default() };
        let runs = samples(1e6, 1).map(|run| Sample { drains, ..run });
        let text = plain(vec![
            subject("vanilla", "vanilla").row(&samples(1e6, 1)),
            subject("cluster-bulk", "vanilla").row(&runs),
        ]);
        let line = "\nDrains of cluster-bulk, vanilla: 1000, 99.5 % of movable frames; one whole batch 62.0 %, entered as one \
                    cluster 90.0 %.\n\n";
        assert!(text.contains(line) && text.matches("Drains of").count() == 1, "{text}");
    }

    #[test]
    fn workloads_and_kinds_of_tasks_have_their_own_tables() {
        let alloc = Subject {
            workload: "alloc".to_owned(),
            task_kind: Some("bulk"),
            lru: None,
            ..subject("vanilla", "vanilla")
        };
        let highalloc =
            Subject { workload: "highalloc".to_owned(), delay_ns: Some(1_000_000), ..subject("vanilla", "vanilla") };
        let text = plain(vec![alloc.row(&samples(1e6, 1)), highalloc.row(&samples(1e6, 1))]);
        assert!(text.contains("alloc bulk; threads, tasks: 2\npolicy   zone taken\n"), "{text}");
        assert!(text.contains("highalloc, virtual delay of 1 ms; threads, tasks: 2\n"), "{text}");
    }
}
