//! The columns of will-it-scale's `runtest.py`: tasks, then iterations each second and idle time for processes and for
//! threads, and `linear`: the better result of one task times the number of tasks.

use std::io;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::args::PolicyArgs;
use crate::commands::comparison::ComparedRow;
use crate::output::OutputFile;

/// The first two lines: the headings, and the point at which graphs begin.
const HEAD: [[&str; 6]; 2] =
    [["tasks", "processes", "processes_idle", "threads", "threads_idle", "linear"], ["0", "0", "100", "0", "100", "0"]];
/// What stands for a mode that was not run.
const NOT_RUN: i64 = -1;

/// A file for each pair of policies.
pub(super) struct WillItScale {
    files: Vec<(String, String, OutputFile)>,
}

impl WillItScale {
    /// Creates the file, or one for each pair of policies where there are several.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`].
    pub(super) fn create(file: &Path, policies: &PolicyArgs) -> Result<Self, Failure> {
        let pairs: Vec<(&str, &str)> = policies.pairs().map(|(zone, lru)| (zone.name(), lru.name())).collect();
        let path = |pair: (&str, &str)| if pairs.len() > 1 { named_after(file, pair) } else { file.to_owned() };
        let create = |&pair: &(&str, &str)| Ok((pair.0.to_owned(), pair.1.to_owned(), OutputFile::create(path(pair))?));
        Ok(Self { files: pairs.iter().map(create).collect::<Result<_, Failure>>()? })
    }

    /// Writes each pair's rows to its file.
    ///
    /// # Errors
    ///
    /// [`Failure::RunTime`].
    pub(super) fn write(&self, rows: &[ComparedRow]) -> Result<(), Failure> {
        self.files.iter().try_for_each(|(zone, lru, file)| {
            let is_of_pair = |row: &&ComparedRow| {
                row.row.text("zone_policy") == Some(zone) && row.row.text("lru_policy") == Some(lru)
            };
            let of_pair: Vec<&ComparedRow> = rows.iter().filter(is_of_pair).collect();
            file.write(|out| write_table(&of_pair, out))
        })
    }
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

fn write_table(rows: &[&ComparedRow], out: &mut dyn io::Write) -> io::Result<()> {
    let of_row = |row: &ComparedRow| row.row.number("tasks").map_or(0, |tasks| tasks as u32);
    let mut tasks: Vec<u32> = rows.iter().map(|row| of_row(row)).collect();
    tasks.sort_unstable();
    tasks.dedup();
    let result = |tasks: u32, mode: &str| {
        let row = &rows.iter().find(|row| of_row(row) == tasks && row.row.text("mode") == Some(mode))?.row;
        Some((row.number("pages_per_s")? as i64, row.number("idle_share").map_or(0.0, |share| share * 100.0)))
    };
    // Where one task was not run, the fewest tasks stand for it.
    let fewest = tasks.first().copied().unwrap_or(1);
    let best = ["processes", "threads"].iter().filter_map(|mode| result(fewest, mode)).map(|(rate, _)| rate).max();
    let linear = best.unwrap_or(0) / i64::from(fewest);
    let mut out = csv::Writer::from_writer(out);
    HEAD.iter().try_for_each(|line| out.write_record(line))?;
    for tasks in tasks {
        let [(processes, processes_idle), (threads, threads_idle)] =
            ["processes", "threads"].map(|mode| result(tasks, mode).unwrap_or((NOT_RUN, 0.0)));
        let [processes_idle, threads_idle] = [processes_idle, threads_idle].map(|idle| format!("{idle:.2}"));
        out.serialize((tasks, processes, processes_idle, threads, threads_idle, linear * i64::from(tasks)))?;
    }
    out.flush()
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
