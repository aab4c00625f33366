//! The columns of will-it-scale's `runtest.py`: tasks, then iterations each second and idle time for processes and for
//! threads, and what the better of both with one task would make of so many.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Row, Values};
use crate::Failure;

/// The first two lines: the headings, and the point that graphs begin at.
const HEAD: &str = "tasks,processes,processes_idle,threads,threads_idle,linear\n0,0,100,0,100,0\n";
/// What stands for a result that is not there.
const NOT_RUN: i64 = -1;

/// Writes a file, or one for each pair of policies where there are several.
pub(super) fn write(file: &Path, rows: &[Row<Values>]) -> Result<(), Failure> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let pair = pair(row);
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    for pair in &pairs {
        let path = if pairs.len() > 1 { named_after(file, *pair) } else { file.to_owned() };
        let of_pair: Vec<&Row<Values>> = rows.iter().filter(|row| self::pair(row) == *pair).collect();
        let failed = |error| Failure::run_time(format!("{}: cannot write: {error}", path.display()));
        fs::write(&path, table(&of_pair)).map_err(failed)?;
    }
    Ok(())
}

fn pair(row: &Row<Values>) -> (&str, &str) {
    (row.setting.zone_policy, row.setting.lru_policy)
}

/// `results.csv` of policies vanilla and sharded: `results-vanilla-sharded.csv`.
fn named_after(file: &Path, (zone, lru): (&str, &str)) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = match file.extension() {
        Some(extension) => format!("{stem}-{zone}-{lru}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{zone}-{lru}"),
    };
    file.with_file_name(name)
}

fn table(rows: &[&Row<Values>]) -> String {
    let mut tasks: Vec<u32> = rows.iter().map(|row| row.setting.tasks).collect();
    tasks.sort_unstable();
    tasks.dedup();
    let result = |tasks: u32, mode: &str| {
        let found = rows.iter().find(|row| row.setting.tasks == tasks && row.setting.mode == mode);
        found.map(|row| (row.values.pages_per_s as i64, row.values.idle_share.map_or(0.0, |share| share * 100.0)))
    };
    // Where one task was not run, the fewest that were stand for it.
    let fewest = tasks.first().copied().unwrap_or(1);
    let best = ["processes", "threads"].iter().filter_map(|mode| result(fewest, mode)).map(|(rate, _)| rate).max();
    let linear = best.unwrap_or(0) / i64::from(fewest);
    let mut text = HEAD.to_owned();
    for tasks in tasks {
        let [(processes, processes_idle), (threads, threads_idle)] =
            ["processes", "threads"].map(|mode| result(tasks, mode).unwrap_or((NOT_RUN, 0.0)));
        let linear = linear * i64::from(tasks);
        writeln!(text, "{tasks},{processes},{processes_idle:.2},{threads},{threads_idle:.2},{linear}")
            .expect("writing to a text does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_several_pairs_are_named_after_them() {
        let name = |file: &str| named_after(Path::new(file), ("vanilla", "sharded")).to_string_lossy().into_owned();
        assert_eq!(name("a/results.csv"), "a/results-vanilla-sharded.csv");
        assert_eq!(name("results"), "results-vanilla-sharded");
    }
}
