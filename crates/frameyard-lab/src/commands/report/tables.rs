//! Published tables beside what was measured here and simulated.
//!
//! A table is made of the lines of one published file, so that no value is left out. Where a figure is missing, the table says
//! why.

mod kernbench;
mod memory_map;
mod page_fault;
mod published;
mod zone_lock;

use serde::Serialize;
use serde_json::{Map, Value};

use super::results::Results;

/// A published table with its counterparts.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct ComparedTable {
    /// The name of the published file without its ending, which also names the CSV file.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// What the table shows.
    pub(super) sentence: String,
    /// Groups of jobs that have the figures.
    pub(super) groups: Vec<&'static str>,
    /// Why figures are missing.
    pub(super) missing: Vec<String>,
    pub(super) rows: Vec<ComparedRow>,
}

/// A published value with its counterparts.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
pub(super) struct ComparedRow {
    pub(super) what: String,
    pub(super) unit: &'static str,
    /// The machine of the published value.
    pub(super) machine: String,
    pub(super) published: f64,
    pub(super) published_stdev: Option<f64>,
    pub(super) measured: Option<Measured>,
    pub(super) simulated: Option<f64>,
    /// The machine's description was fitted to this value, so that it predicts nothing.
    pub(super) is_fitted: bool,
}

/// A value measured here: the median, and the range of the runs.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub(super) struct Measured {
    pub(super) median: f64,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
}

impl Measured {
    /// A single value.
    pub(super) fn one(median: f64) -> Self {
        Self { median, min: None, max: None }
    }

    /// The values under `key`, `key_min` and `key_max`, times `scale`.
    pub(super) fn of(row: &Map<String, Value>, key: &str, scale: f64) -> Option<Self> {
        let number = |key: &str| row.get(key).and_then(Value::as_f64).map(|value| value * scale);
        Some(Self { median: number(key)?, min: number(&format!("{key}_min")), max: number(&format!("{key}_max")) })
    }
}

impl ComparedRow {
    /// A value over the published one; `None` where that is zero.
    fn ratio(&self, value: Option<f64>) -> Option<f64> {
        value.filter(|_| self.published != 0.0).map(|value| value / self.published)
    }

    pub(super) fn measured_ratio(&self) -> Option<f64> {
        self.ratio(self.measured.map(|measured| measured.median))
    }

    pub(super) fn simulated_ratio(&self) -> Option<f64> {
        self.ratio(self.simulated)
    }
}

impl ComparedTable {
    fn new(name: &'static str, title: &'static str, groups: Vec<&'static str>, results: &Results) -> Self {
        let missing = groups.iter().filter_map(|group| results.rows(group).err()).collect();
        Self { name, title, sentence: String::new(), groups, missing, rows: Vec::new() }
    }

    /// The same table with a sentence; what is known of its errors precedes it.
    fn saying(mut self, sentence: &str) -> Self {
        self.sentence = format!("{}{sentence}", self.errors_sentence());
        self
    }

    /// Distances of simulated from published values that no fit used: mean and worst, as fractions.
    pub(super) fn errors(&self) -> Option<(f64, f64, usize)> {
        let errors: Vec<f64> = self
            .rows
            .iter()
            .filter(|row| !row.is_fitted)
            .filter_map(|row| Some((row.simulated_ratio()? - 1.0).abs()))
            .collect();
        let worst = errors.iter().copied().reduce(f64::max)?;
        Some((errors.iter().sum::<f64>() / errors.len() as f64, worst, errors.len()))
    }

    fn errors_sentence(&self) -> String {
        match self.errors() {
            Some((mean, worst, count)) => format!(
                "{count} simulated values that no fit used differ from the published ones by {:.1} % on average and by {:.1} % at worst. ",
                mean * 100.0,
                worst * 100.0
            ),
            None => "No value was simulated. ".to_owned(),
        }
    }

    /// The table as comma-separated values.
    pub(super) fn csv(&self) -> String {
        let mut out = csv::Writer::from_writer(Vec::new());
        let cell = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        // Writing to memory cannot fail.
        let _ = out.write_record([
            "what",
            "unit",
            "machine",
            "published",
            "published_stdev",
            "measured",
            "measured_min",
            "measured_max",
            "measured_ratio",
            "simulated",
            "simulated_ratio",
            "is_fitted",
        ]);
        for row in &self.rows {
            let measured = |of: fn(Measured) -> Option<f64>| cell(row.measured.and_then(of));
            let _ = out.write_record([
                row.what.clone(),
                row.unit.to_owned(),
                row.machine.clone(),
                row.published.to_string(),
                cell(row.published_stdev),
                measured(|value| Some(value.median)),
                measured(|value| value.min),
                measured(|value| value.max),
                cell(row.measured_ratio()),
                cell(row.simulated),
                cell(row.simulated_ratio()),
                row.is_fitted.to_string(),
            ]);
        }
        out.into_inner().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

/// Every published table.
pub(super) fn all(results: &Results) -> Vec<ComparedTable> {
    vec![
        page_fault::cpus_40(results),
        page_fault::cpus_88(results),
        page_fault::full_load(results),
        zone_lock::table(results),
        kernbench::table(results),
        memory_map::deferred_init(results),
        memory_map::deferred_init_threads(results),
        memory_map::page_zeroing(results),
        memory_map::compound_pagemap(results),
    ]
}
