//! Where the figures of claims come from.

use serde_json::json;

use super::super::jobs::group;
use super::super::results::{JobRow, Results, number, text};
use super::super::tables;
use super::DEFAULT_POLICY;

type Figures = Result<(f64, f64), String>;

/// The number of a row, or which one is missing.
fn need(row: &JobRow, key: &str) -> Result<f64, String> {
    number(row, key).ok_or_else(|| format!("{key} was not measured"))
}

/// The map and the control region of a booted machine.
pub(super) fn metadata(results: &Results) -> Figures {
    results.rows(group::BOOT)?;
    let stored = results.group(group::BOOT);
    let totals = stored.first().map(|stored| &stored.result.totals).ok_or("no stored result")?;
    let metadata = need(totals, "map_bytes")? + need(totals, "control_bytes")?;
    Ok((metadata * 100.0 / need(totals, "memory_bytes")?, 1.6))
}

/// Nanoseconds of allocating and freeing a frame.
fn alloc_ns(results: &Results, kind: &str, tasks: u64, policy: &str) -> Result<f64, String> {
    let keys = [("kind", json!(kind)), ("order", json!(0)), ("tasks", json!(tasks)), ("policy", json!(policy))];
    let row = results.row(group::ALLOC, &keys)?;
    Ok(need(row, "get_ns")? + need(row, "put_ns")?)
}

pub(super) fn pair(results: &Results) -> Figures {
    Ok((alloc_ns(results, "repeat", 1, DEFAULT_POLICY)?, alloc_ns(results, "repeat", 1, "vanilla")? * 1.1))
}

pub(super) fn bulk(results: &Results) -> Figures {
    Ok((alloc_ns(results, "bulk", 2, DEFAULT_POLICY)?, alloc_ns(results, "bulk", 2, "vanilla")? / 2.0))
}

pub(super) fn zone_lock_faults(results: &Results) -> Figures {
    let of = |policy: &str| {
        let rows = results.rows(group::PAGE_FAULT)?;
        let of_policy = |row: &&&JobRow| text(row, "zone_policy") == policy && text(row, "mode") == "processes";
        let row = rows.iter().filter(of_policy).max_by_key(|row| number(row, "tasks").unwrap_or_default() as u64);
        let row = row.ok_or_else(|| format!("job {} has no row of {policy}", group::PAGE_FAULT))?;
        Ok::<_, String>(need(row, "zone_lock_acquisitions")? * 1000.0 / need(row, "iterations_total")?)
    };
    Ok((of(DEFAULT_POLICY)?, of("vanilla-4.16")? / 10.0))
}

fn skylake<'r>(results: &'r Results, policy: &str, lru: &str) -> Result<&'r JobRow, String> {
    let keys = [("tasks", json!(112)), ("zone_policy", json!(policy)), ("lru_policy", json!(lru))];
    results.row(group::SIM_SKYLAKE, &keys)
}

pub(super) fn faults_112(results: &Results) -> Figures {
    let of = |policy, lru| Ok::<_, String>(need(skylake(results, policy, lru)?, "pages_per_s")? / 1e6);
    Ok((of(DEFAULT_POLICY, "sharded")?, of("vanilla-4.17", "sharded")?))
}

pub(super) fn zone_lock_112(results: &Results) -> Figures {
    Ok((need(skylake(results, DEFAULT_POLICY, "sharded")?, "zone_lock_share")? * 100.0, 1.0))
}

/// The mean error of a table, in percent.
fn mean_error(results: &Results, table: &str) -> Result<f64, String> {
    let table = tables::all(results).into_iter().find(|of| of.name == table).ok_or("no such table")?;
    let why = || table.missing.first().cloned().unwrap_or_else(|| "no value was simulated".to_owned());
    table.errors().map(|(mean, ..)| mean * 100.0).ok_or_else(why)
}

pub(super) fn prediction_40(results: &Results) -> Figures {
    Ok((mean_error(results, "page_fault1-broadwell-40cpu")?, 15.0))
}

pub(super) fn prediction_88(results: &Results) -> Figures {
    let mean = |key: &str| {
        let rows = results.rows(group::CHECK_PAGE_FAULT_88)?;
        let errors: Vec<f64> = rows
            .iter()
            .filter(|row| number(row, "naive_error").is_some() && text(row, "role") == "predicted")
            .filter_map(|row| Some(number(row, key)?.abs() * 100.0))
            .collect();
        if errors.is_empty() {
            return Err(format!("{key} was not computed"));
        }
        Ok(errors.iter().sum::<f64>() / errors.len() as f64)
    };
    Ok((mean("error")?, mean("naive_error")?))
}

pub(super) fn prediction_init(results: &Results) -> Figures {
    Ok((mean_error(results, "deferred-init")?, 15.0))
}

pub(super) fn map_limit(results: &Results) -> Figures {
    let rows = results.rows(group::MEMMAP)?;
    let of_zeroes = rows.iter().filter(|row| text(row, "content") == "zero");
    let best = of_zeroes.filter_map(|row| number(row, "limit_fraction")).reduce(f64::max);
    Ok((best.ok_or("no share of the limit was measured")?, 0.9))
}

pub(super) fn stores_per_page(results: &Results) -> Figures {
    let of = |initialiser: &str| {
        let keys = [
            ("source", json!("measured")),
            ("initialiser", json!(initialiser)),
            ("content", json!("kernel")),
            ("init_mode", json!("eager")),
        ];
        need(results.row(group::MEMMAP, &keys)?, "ns_per_page")
    };
    Ok((of("stores-per-page")?, of("two-pass")?))
}

/// Whole pageblocks after the last iteration, in percent of memory.
fn whole(results: &Results, policy: &str) -> Result<f64, String> {
    let rows = results.rows(group::FRAG)?;
    let last = rows.iter().rfind(|row| text(row, "policy") == policy);
    need(last.ok_or_else(|| format!("job {} has no row of {policy}", group::FRAG))?, "whole_pageblocks_percent")
}

pub(super) fn whole_pageblocks(results: &Results) -> Figures {
    Ok((whole(results, DEFAULT_POLICY)?, 40.0))
}

pub(super) fn whole_pageblocks_vanilla(results: &Results) -> Figures {
    Ok((whole(results, DEFAULT_POLICY)?, whole(results, "vanilla")?))
}

/// The figures of the replay that holds least of a claim.
fn worst(pairs: Vec<(f64, f64)>) -> Figures {
    let ratio = |pair: &(f64, f64)| pair.0 / pair.1.max(f64::MIN_POSITIVE);
    pairs.into_iter().max_by(|one, other| ratio(one).total_cmp(&ratio(other))).ok_or_else(|| "no replay".to_owned())
}

/// A pair of figures of each replay in a group.
fn of_replays(
    results: &Results,
    group: &'static str,
    pair: impl Fn(&[JobRow]) -> Figures,
) -> Result<Vec<(f64, f64)>, String> {
    results.rows(group)?;
    results.group(group).iter().map(|stored| pair(&stored.result.rows)).collect()
}

fn row_of<'r>(rows: &'r [JobRow], policy: &str) -> Result<&'r JobRow, String> {
    rows.iter().find(|row| text(row, "policy") == policy).ok_or_else(|| format!("a replay has no row of {policy}"))
}

pub(super) fn replay_zone_lock(results: &Results) -> Figures {
    worst(of_replays(results, group::REPLAY, |rows| {
        let row = row_of(rows, DEFAULT_POLICY)?;
        Ok((need(row, "zone_locked_pages_per_1000")?, need(row, "kernel_zone_locked_pages_per_1000")? / 10.0))
    })?)
}

pub(super) fn replay_order9(results: &Results) -> Figures {
    let blocks = |rows: &[JobRow], policy| need(row_of(rows, policy)?, "free_order9_blocks");
    let pairs =
        of_replays(results, group::REPLAY, |rows| Ok((blocks(rows, "vanilla")?, blocks(rows, DEFAULT_POLICY)?)))?;
    worst(pairs).map(|(vanilla, default)| (default, vanilla))
}

pub(super) fn sim_replay_contention(results: &Results) -> Figures {
    let contended = |rows: &[JobRow], policy| need(row_of(rows, policy)?, "zone_lock_contended");
    worst(of_replays(results, group::SIM_REPLAY, |rows| {
        Ok((contended(rows, DEFAULT_POLICY)?, contended(rows, "vanilla")?))
    })?)
}

pub(super) fn replay_speed(results: &Results) -> Figures {
    results.rows(group::REPLAY)?;
    let stored = results.group(group::REPLAY);
    let times = stored.iter().flat_map(|stored| &stored.run.host_times);
    let slowest = times.filter_map(|row| number(row, "operations_per_s")).reduce(f64::min);
    Ok((slowest.ok_or("no time was measured")? / 1e6, 5.0))
}

pub(super) fn pins(results: &Results) -> Figures {
    let table =
        tables::all(results).into_iter().find(|table| table.name == "compound-pagemap").ok_or("no such table")?;
    let of = |pages: &str| {
        let what = format!("get user pages fast 1gib, {pages}");
        let row = table.rows.iter().find(|row| row.what == what).and_then(|row| row.measured);
        row.map(|measured| measured.median).ok_or_else(|| format!("{what}: not measured"))
    };
    Ok((of("compound pages of 2 MiB")?, of("base pages")? / 10.0))
}
