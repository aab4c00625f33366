//! Tables of will-it-scale's page_fault1.

use serde_json::json;

use super::super::jobs::group;
use super::super::results::{Results, number, text};
use super::published::{self, Line};
use super::{ComparedRow, ComparedTable, Measured};

/// The forms of the two tables by tasks.
struct ByTasks {
    file: &'static str,
    machine: &'static str,
    check: &'static str,
}

/// Page faults of 1 to 40 tasks.
pub(super) fn cpus_40(results: &Results) -> ComparedTable {
    let table = ComparedTable::new(
        "page_fault1-broadwell-40cpu",
        "Page faults per second, 1 to 40 tasks",
        vec![group::CHECK_PAGE_FAULT, group::PAGE_FAULT],
        results,
    );
    let of = ByTasks { file: published::PAGE_FAULT_40, machine: "broadwell-40", check: group::CHECK_PAGE_FAULT };
    by_tasks(table, &of, results).saying(
        "Processes scale until the LRU lock saturates; threads, which share a map lock, stop earlier. Rates measured here \
        leave out hardware exceptions and system calls, so they are higher for each task.",
    )
}

/// Page faults of 1 to 88 tasks.
pub(super) fn cpus_88(results: &Results) -> ComparedTable {
    let table = ComparedTable::new(
        "page_fault1-broadwell-88cpu",
        "Page faults per second, 1 to 88 tasks",
        vec![group::CHECK_PAGE_FAULT_88, group::PAGE_FAULT],
        results,
    );
    let of = ByTasks { file: published::PAGE_FAULT_88, machine: "broadwell-88", check: group::CHECK_PAGE_FAULT_88 };
    by_tasks(table, &of, results)
        .saying("The machine was described before these values were known: all of them are predicted.")
}

fn by_tasks(mut table: ComparedTable, of: &ByTasks, results: &Results) -> ComparedTable {
    let simulated = results.rows(of.check).unwrap_or_default();
    let native = results.rows(group::PAGE_FAULT).unwrap_or_default();
    for line in published::lines(of.file) {
        for mode in ["processes", "threads"] {
            let Some(published) = line.number(&format!("{mode}_pgf_per_s")) else { continue };
            let (policy, tasks) = (line.text("policy"), line.number("tasks"));
            let is_same =
                |row: &&&_| text(row, "policy") == policy && text(row, "mode") == mode && number(row, "tasks") == tasks;
            let is_measured = |row: &&&_| {
                text(row, "zone_policy") == policy && text(row, "mode") == mode && number(row, "tasks") == tasks
            };
            let found = simulated.iter().find(is_same);
            let measured = native.iter().find(is_measured);
            table.rows.push(ComparedRow {
                what: format!("{policy}, {} {mode}", line.text("tasks")),
                unit: "faults/s",
                machine: of.machine.to_owned(),
                published,
                published_stdev: line.number(&format!("{mode}_stdev")),
                measured: measured.and_then(|row| Measured::of(row, "pages_per_s", 1.0)),
                simulated: found.and_then(|row| number(row, "predicted_per_s")),
                is_fitted: found.is_some_and(|row| text(row, "role") == "calibrated"),
            });
        }
    }
    let simulated = table.rows.iter().filter(|row| row.simulated.is_some()).count();
    if simulated > 0 && simulated < table.rows.len() {
        table
            .missing
            .push(format!("{simulated} of {} values were simulated: report --full simulates all", table.rows.len()));
    }
    table.missing.push("measured here only for as many tasks as the machine has CPUs".to_owned());
    table
}

/// All CPUs of four machines.
pub(super) fn full_load(results: &Results) -> ComparedTable {
    let mut table = ComparedTable::new(
        "page_fault1-full-load",
        "Page faults per second with a process on every CPU",
        vec![group::CHECK_ZONE_LOCK],
        results,
    );
    let row = |line: Line| {
        let policy = line.text("policy").to_owned();
        let keys = [("metric", json!("page faults a second")), ("policy", json!(policy))];
        let is_described = line.text("machine") == "skylake-112" && !policy.is_empty();
        let found = is_described.then(|| results.row(group::CHECK_ZONE_LOCK, &keys).ok()).flatten();
        let kernel = line.text("kernel").to_owned();
        ComparedRow {
            what: if policy.is_empty() { kernel } else { format!("{policy} ({kernel})") },
            unit: "faults/s",
            machine: line.text("machine").to_owned(),
            published: line.number("processes_pgf_per_s").unwrap_or_default(),
            simulated: found.and_then(|row| number(row, "predicted")),
            is_fitted: found.is_some_and(|row| text(row, "role") == "calibrated"),
            ..ComparedRow::default()
        }
    };
    table.rows = published::lines(published::FULL_LOAD).into_iter().map(row).collect();
    table.missing.push("simulated only for skylake-112: the other machines have no description with costs".to_owned());
    table.missing.push("measured here: not comparable, this machine has fewer CPUs".to_owned());
    table.saying(
        "Picking pages and prefetching their buddies before the lock is taken gains 7 to 14 % in the published runs.",
    )
}
