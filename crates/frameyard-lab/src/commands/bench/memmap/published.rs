//! What was published of the same ways to write a map, on another machine.

use frameyard::ByteSize;
use frameyard::boot::Initialiser;
use frameyard::page::{MapContent, Page};

use crate::commands::page_zeroing::{self, PublishedZeroing};
use crate::commands::published_table::PUBLISHED;
use crate::output::{Format, Row, rounded};

/// The line above the published rows.
pub(super) const TITLE: &str = "Published: one thread, 3312 GiB of memory in pages of 8 KiB";

/// The published ways among those of the command line: they write a kernel's content.
pub(super) fn of(initialisers: &[Initialiser], contents: &[MapContent]) -> Vec<PublishedZeroing> {
    let is_asked = |way: &PublishedZeroing| initialisers.contains(&way.initialiser);
    let all = if contents.contains(&MapContent::Kernel) { page_zeroing::all() } else { Vec::new() };
    all.into_iter().filter(is_asked).collect()
}

/// The row of JSON and CSV, with the keys of a measured row. What was not published is null.
pub(super) fn row(way: &PublishedZeroing) -> Row {
    let frames = page_zeroing::frames();
    let map = ByteSize(frames * size_of::<Page>() as u64);
    Row::new()
        .data("source", PUBLISHED)
        .data("machine", page_zeroing::MACHINE)
        .data("initialiser", way.initialiser.name())
        .data("content", MapContent::Kernel.name())
        .data("init_mode", None::<&str>)
        .data("granularity", None::<&str>)
        .data("threads", 1)
        .data("frames", frames)
        .data("map_bytes", map.0)
        .data("init_ns", (way.seconds * 1e9).round() as u64)
        .data("ns_per_page", rounded(way.ns_per_page()))
        .data("bytes_per_s", (map.0 as f64 / way.seconds).round())
        .data("fault_ns", None::<u64>)
        .data("memset_bytes_per_s", None::<f64>)
        .data("limit_bytes_per_s", None::<f64>)
        .data("limit_fraction", None::<f64>)
        .data("first_alloc_ns", None::<u64>)
}

/// The row that people see.
pub(super) fn table_row(way: &PublishedZeroing) -> Row {
    Row::new()
        .column("machine", "machine", page_zeroing::MACHINE)
        .column("initialiser", "initialiser", way.initialiser.name())
        .column_as("seconds", "s", Format::number(3), way.seconds)
        .column_as("ns_per_page", "ns per page", Format::number(1), way.ns_per_page())
        .column("passes", "passes", way.passes.clone())
}

#[cfg(test)]
mod tests {
    use super::super::{Case, Measured};
    use super::*;
    use crate::commands::bench::memmap::sweep::{Faulted, Place};
    use frameyard::boot::{InitMode, JobGranularity};

    #[test]
    fn a_published_row_has_the_keys_of_a_measured_one() {
        let case = Case {
            place: Place { frames: 1000, threads: 1, faulted: Faulted::Before },
            initialiser: Initialiser::Stream,
            content: MapContent::Kernel,
            mode: InitMode::Eager,
            granularity: JobGranularity::Sections,
            holes: 0,
        };
        let measured = super::super::row(&case, &Measured { init_ns: vec![2500.0], ..Measured::default() });
        assert_eq!(measured.number("ns_per_page"), Some(2.5));
        let published = of(&Initialiser::ALL, &MapContent::ALL);
        assert_eq!(published.len(), 3);
        for way in &published {
            assert!(row(way).keys().eq(measured.keys()));
        }
        assert_eq!(row(&published[0]).number("ns_per_page"), Some(40.22));
        assert_eq!(row(&published[1]).number("init_ns"), Some(61.09e9));
    }

    #[test]
    fn only_ways_of_the_command_line_that_write_a_kernels_content_are_shown() {
        assert_eq!(of(&[Initialiser::TwoPass, Initialiser::Stream], &MapContent::ALL).len(), 1);
        assert!(of(&Initialiser::ALL, &[MapContent::Zero]).is_empty());
    }
}
