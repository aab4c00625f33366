//! Published tables, which are compiled into the program as comma-separated values.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What was published about the zone lock and the LRU lock.
const ZONE_LOCK: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/zone-lock.csv"));

/// What rows say of where their values come from: this program measured them …
pub(super) const MEASURED: &str = "measured";
/// … or they were published.
pub(super) const PUBLISHED: &str = "published";

/// The lines of a table; the fields of `T` are named as its columns. A line that is no `T` is left out.
pub(super) fn records<T: DeserializeOwned>(table: &'static str) -> impl Iterator<Item = T> {
    csv::Reader::from_reader(table.as_bytes()).into_deserialize().filter_map(Result::ok)
}

/// A line of the table of the zone lock.
#[derive(Clone, PartialEq, Deserialize, Debug)]
pub(super) struct ZoneLockRecord {
    pub(super) experiment: String,
    pub(super) machine: String,
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) policy: String,
    pub(super) value: f64,
    pub(super) note: Option<String>,
}

/// The table of the zone lock.
pub(super) fn zone_lock() -> impl Iterator<Item = ZoneLockRecord> {
    records(ZONE_LOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_and_an_empty_cell_is_none() {
        let all: Vec<ZoneLockRecord> = zone_lock().collect();
        assert_eq!(all.len(), ZONE_LOCK.lines().count() - 1);
        assert_eq!(all[0].note.as_deref(), Some("about 80 in all"));
        assert_eq!((all[1].value, &all[1].note), (42.0, &None));
    }

    #[test]
    fn a_cell_in_quotes_may_have_commas() {
        let read: Vec<(String, f64)> = records("a,b\n\"one, two\",3\ntoo,few,many\n").collect();
        assert_eq!(read, [("one, two".to_owned(), 3.0)]);
    }
}
