//! Writes what a report is: the page, `results.json` and a CSV file for each table. All of it depends on the results alone.

use std::path::Path;

use serde::Serialize;

use super::claims::{self, JudgedClaim};
use super::page::{self, Contents};
use super::plots;
use super::results::Results;
use super::stored::{JobResult, write_file};
use super::tables::{self, ComparedTable};
use crate::Failure;

/// The form of `results.json`.
#[derive(Serialize)]
struct ResultsFile<'r> {
    schema: u32,
    claims: &'r [JudgedClaim],
    tables: &'r [ComparedTable],
    jobs: Vec<JobSummary<'r>>,
}

/// A job without its rows, which its own file has.
#[derive(Serialize)]
struct JobSummary<'r> {
    job: &'r str,
    kind: super::job::JobKind,
    command: &'r str,
    version: &'r str,
    commit: &'r str,
    rows: usize,
    error: Option<&'r str>,
}

impl<'r> JobSummary<'r> {
    fn of(result: &'r JobResult) -> Self {
        Self {
            job: &result.job,
            kind: result.kind,
            command: &result.command,
            version: &result.version,
            commit: &result.commit,
            rows: result.rows.len(),
            error: result.error.as_deref(),
        }
    }
}

/// The version of `results.json`.
const SCHEMA: u32 = 1;

/// Renders the results into a folder. Returns the claims.
///
/// # Errors
///
/// [`Failure::RunTime`] that names the file which could not be written.
pub(super) fn write(results: &Results, folder: &Path) -> Result<Vec<JudgedClaim>, Failure> {
    let claims = claims::judged(results);
    let (tables, plots) = (tables::all(results), plots::all(results));
    let page = page::html(&Contents { results, claims: &claims, tables: &tables, plots: &plots });
    write_file(&folder.join("index.html"), page.as_bytes())?;
    let jobs = results.all().iter().map(|stored| JobSummary::of(&stored.result)).collect();
    let object = ResultsFile { schema: SCHEMA, claims: &claims, tables: &tables, jobs };
    let mut json = serde_json::to_string_pretty(&object).map_err(Failure::run_time)?;
    json.push('\n');
    write_file(&folder.join("results.json"), json.as_bytes())?;
    for table in &tables {
        write_file(&folder.join(format!("{}.csv", table.name)), table.csv().as_bytes())?;
    }
    write_file(&folder.join("claims.csv"), claims::csv(&claims).as_bytes())?;
    for plot in &plots {
        if let Ok(svg) = &plot.svg {
            write_file(&folder.join(format!("{}.svg", plot.name)), super::chart::standalone(svg).as_bytes())?;
        }
    }
    Ok(claims)
}
