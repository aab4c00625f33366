//! Published times of writing the memory map of `sparc-m7` in three ways, by one thread.

use frameyard::boot::Initialiser;
use frameyard_machines::built_in;
use serde::Deserialize;

use super::published_table::records;

/// The machine of the table.
pub(super) const MACHINE: &str = "sparc-m7";

const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/page-zeroing-sparc-m7.csv"));

/// A line of the table: one pass over the map.
#[derive(Deserialize)]
struct Record {
    strategy: String,
    what: String,
    seconds: f64,
}

/// The published time of a way.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PublishedZeroing {
    pub(super) initialiser: Initialiser,
    /// All passes together.
    pub(super) seconds: f64,
    /// Each pass, with its time if there are several.
    pub(super) passes: String,
    /// The number of passes.
    pub(super) pass_count: u32,
}

impl PublishedZeroing {
    /// Nanoseconds for each page of the machine.
    pub(super) fn ns_per_page(&self) -> f64 {
        self.seconds * 1e9 / frames() as f64
    }
}

/// The frames of the machine.
pub(super) fn frames() -> u64 {
    built_in(MACHINE).map_or(0, |machine| machine.geometry.pages_in(machine.memory_bytes()).0)
}

/// The published ways, in the order of the table.
pub(super) fn all() -> Vec<PublishedZeroing> {
    let mut ways: Vec<PublishedZeroing> = Vec::new();
    for Record { strategy, what, seconds } in records(TABLE) {
        let Ok(initialiser) = strategy.parse::<Initialiser>() else { continue };
        match ways.last_mut().filter(|way| way.initialiser == initialiser) {
            Some(way) => {
                way.passes = format!("{} ({} s), {what} ({seconds} s)", way.passes, way.seconds);
                way.seconds += seconds;
                way.pass_count += 1;
            }
            None => ways.push(PublishedZeroing { initialiser, seconds, passes: what, pass_count: 1 }),
        }
    }
    ways
}

/// The published time of a way.
pub(super) fn of(initialiser: Initialiser) -> Option<PublishedZeroing> {
    all().into_iter().find(|way| way.initialiser == initialiser)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_pass_of_a_known_way() {
        let ways = all();
        let lines: f64 =
            TABLE.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse::<f64>().unwrap()).sum();
        assert!((ways.iter().map(|way| way.seconds).sum::<f64>() - lines).abs() < 1e-9, "{ways:?}");
        let found: Vec<Initialiser> = ways.iter().map(|way| way.initialiser).collect();
        assert_eq!(found, [Initialiser::TwoPass, Initialiser::MemsetPerPage, Initialiser::StoresPerPage]);
        assert_eq!(ways.iter().map(|way| way.pass_count).collect::<Vec<_>>(), [2, 1, 1]);
        assert!(ways[0].passes.contains("(8.83 s)") && ways[0].passes.contains("(8.63 s)"), "{ways:?}");
    }

    #[test]
    fn times_are_divided_by_the_pages_of_the_machine() {
        assert_eq!(frames(), 3312 << 17);
        let ns = of(Initialiser::StoresPerPage).unwrap().ns_per_page();
        assert!((ns - 19.64).abs() < 0.01, "{ns}");
    }

    #[test]
    fn the_packaged_table_equals_the_published_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/published/page-zeroing-sparc-m7.csv");
        // The published table is absent where the crate is built from its package.
        if let Ok(text) = std::fs::read_to_string(path) {
            assert_eq!(text, TABLE);
        }
    }
}
