//! The published files, and their lines by the names of columns.

use std::collections::BTreeMap;

macro_rules! published {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/", $name, ".csv"))
    };
}

pub(super) const PAGE_FAULT_40: &str = published!("page_fault1-broadwell-40cpu");
pub(super) const PAGE_FAULT_88: &str = published!("page_fault1-broadwell-88cpu");
pub(super) const FULL_LOAD: &str = published!("page_fault1-full-load");
pub(super) const ZONE_LOCK: &str = published!("zone-lock");
pub(super) const KERNBENCH: &str = published!("kernbench-epyc2-256cpu");
pub(super) const DEFERRED_INIT: &str = published!("deferred-init");
pub(super) const DEFERRED_INIT_THREADS: &str = published!("deferred-init-threads");
pub(super) const PAGE_ZEROING: &str = published!("page-zeroing-sparc-m7");
pub(super) const COMPOUND_PAGEMAP: &str = published!("compound-pagemap");

/// A line of a file.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Line(BTreeMap<String, String>);

impl Line {
    /// The cell of a column; empty where there is none.
    pub(super) fn text(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }

    /// The number in a column; `None` in an empty cell.
    pub(super) fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }
}

/// The lines of a file, whose first line names the columns.
pub(super) fn lines(file: &str) -> Vec<Line> {
    csv::Reader::from_reader(file.as_bytes()).into_deserialize().filter_map(Result::ok).map(Line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_file_is_read() {
        let files = [
            PAGE_FAULT_40,
            PAGE_FAULT_88,
            FULL_LOAD,
            ZONE_LOCK,
            KERNBENCH,
            DEFERRED_INIT,
            DEFERRED_INIT_THREADS,
            PAGE_ZEROING,
            COMPOUND_PAGEMAP,
        ];
        for file in files {
            assert_eq!(lines(file).len(), file.lines().count() - 1, "{}", &file[..40]);
        }
    }
}
