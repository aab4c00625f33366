//! The stored results as the tables, plots and claims read them.

use serde_json::{Map, Value};

use super::stored::Stored;

/// A row of a job.
pub(super) type JobRow = Map<String, Value>;

/// The results of a report.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Results {
    stored: Vec<Stored>,
}

impl Results {
    pub(super) fn new(stored: Vec<Stored>) -> Self {
        Self { stored }
    }

    pub(super) fn all(&self) -> &[Stored] {
        &self.stored
    }

    /// The results of a group: of the job with its name, or of the jobs `GROUP.DETAIL`, which replace it.
    pub(super) fn group<'r>(&'r self, group: &str) -> Vec<&'r Stored> {
        let is_detail =
            |stored: &&Stored| stored.result.job.strip_prefix(group).is_some_and(|rest| rest.starts_with('.'));
        let details: Vec<&Stored> = self.stored.iter().filter(is_detail).collect();
        if details.is_empty() {
            self.stored.iter().filter(|stored| stored.result.job == group).collect()
        } else {
            details
        }
    }

    /// The rows of a group.
    ///
    /// # Errors
    ///
    /// Why there are none.
    pub(super) fn rows<'r>(&'r self, group: &str) -> Result<Vec<&'r JobRow>, String> {
        let stored = self.group(group);
        let rows: Vec<&JobRow> = stored.iter().flat_map(|stored| &stored.result.rows).collect();
        if !rows.is_empty() {
            return Ok(rows);
        }
        match stored.iter().find_map(|stored| stored.result.error.as_ref().map(|error| (&stored.result.job, error))) {
            Some((job, error)) => Err(format!("job {job} failed: {error}")),
            None if stored.is_empty() => Err(format!("no stored result of job {group}")),
            None => Err(format!("job {group} printed no rows")),
        }
    }

    /// The row of a group whose columns have some texts or numbers.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(super) fn row<'r>(&'r self, group: &str, keys: &[(&str, Value)]) -> Result<&'r JobRow, String> {
        self.rows(group)?.into_iter().find(|row| matches(row, keys)).ok_or_else(|| {
            let wanted: Vec<String> = keys.iter().map(|(key, value)| format!("{key} {}", plain(value))).collect();
            format!("job {group} has no row with {}", wanted.join(", "))
        })
    }
}

/// Whether the columns of a row have these values.
pub(super) fn matches(row: &JobRow, keys: &[(&str, Value)]) -> bool {
    keys.iter().all(|(key, value)| match (row.get(*key), value) {
        (Some(found), Value::Number(number)) => found.as_f64() == number.as_f64(),
        (found, value) => found == Some(value),
    })
}

/// The number under a key.
pub(super) fn number(row: &JobRow, key: &str) -> Option<f64> {
    row.get(key).and_then(Value::as_f64)
}

/// The text under a key, empty where there is none.
pub(super) fn text<'r>(row: &'r JobRow, key: &str) -> &'r str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A value without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
