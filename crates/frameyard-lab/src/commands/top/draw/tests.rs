use std::collections::BTreeMap;

use frameyard::Order;
use frameyard::policy::ZonePolicy;

use super::super::sample::{Counters, ListFill};
use super::*;

/// A zone with free blocks of each order and lists of some CPUs.
fn zone(cpus: u64) -> ZoneSample {
    ZoneSample {
        name: "node 0 Normal".to_owned(),
        managed: 1 << 20,
        free: 700_000,
        per_cpu: 1234,
        blocks: (0..=10).map(|order| [3, 1_500 >> order, 7 * order, 0, 0, 1]).collect(),
        pageblocks: [20, 2000, 27, 0, 0, 1],
        counters: Counters {
            allocated: 5_000_000,
            freed: 4_000_000,
            acquisitions: 80_000,
            contended: 2_000,
            moved: 1_000_000,
            refills: 40_000,
            drains: 30_000,
            fallbacks: 6,
        },
        lists: (0..cpus).map(|cpu| ListFill { pages: 100 * cpu, high: 700 }).collect(),
    }
}

fn sample(time_ns: u64, zones: Vec<ZoneSample>) -> Sample {
    Sample {
        time_ns,
        policy: ZonePolicy::Bits,
        page_bytes: 4096,
        pageblock_order: Order(9),
        zones,
        failures: 17,
        faults: BTreeMap::from([(7, 40_000 * time_ns / 1_000_000_000)]),
        processes: 2,
    }
}

fn map() -> BlockMap {
    use Fill::{Free, Mixed, Used};
    use MigrateType::{Movable, Reclaimable, Unmovable};
    let cells = [(Unmovable, Used), (Unmovable, Mixed), (Movable, Used), (Movable, Free), (Reclaimable, Mixed)];
    let cells = cells.into_iter().cycle().take(150).map(|(migrate_type, fill)| Cell { migrate_type, fill });
    BlockMap { step: 14, cells: cells.collect() }
}

/// The text of a screen.
fn screen(picture: &Picture<'_>, width: u16, height: u16) -> String {
    plain(picture, Size { width, height })
}

fn with_picture<R>(cpus: u64, view: View, then: impl FnOnce(&Picture<'_>) -> R) -> R {
    let before = sample(1_000_000_000, vec![ZoneSample { counters: Counters::default(), ..zone(cpus) }]);
    let now = sample(3_000_000_000, vec![zone(cpus)]);
    then(&Picture { yard: "build-cache", now: &now, before: Some(&before), map: &map(), view })
}

const VIEW: View = View { zone: None, first_cpu: 0, is_paused: false, interval_ms: 1000 };

/// Compares a screen with its file. To renew the files: `FRAMEYARD_RENEW=1 cargo test -p frameyard-lab top::draw`.
#[track_caller]
fn assert_is(name: &str, found: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/top/draw").join(name);
    if std::env::var_os("FRAMEYARD_RENEW").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{name} differs:\n{found}");
}

#[test]
fn the_usual_screen_has_all_sections() {
    with_picture(4, VIEW, |picture| assert_is("80x24.txt", &screen(picture, 80, 24)));
}

#[test]
fn the_smallest_screen_has_all_sections() {
    let view = View { first_cpu: 5, is_paused: true, ..VIEW };
    with_picture(16, view, |picture| assert_is("60x20.txt", &screen(picture, 60, 20)));
}

#[test]
fn a_large_screen_shows_more_cpus_and_pageblocks() {
    with_picture(16, VIEW, |picture| assert_is("130x34.txt", &screen(picture, 130, 34)));
}

#[test]
fn a_screen_that_is_too_small_says_so() {
    with_picture(4, VIEW, |picture| {
        assert_eq!(screen(picture, 30, 3), "30x3: too small\nneeds 60x20\n\n");
        assert!(screen(picture, 59, 24).contains("59x24: too small"));
        assert!(screen(picture, 1, 1).starts_with('3') || screen(picture, 1, 1).starts_with('1'));
    });
}

#[test]
fn no_size_panics_and_each_line_fits() {
    with_picture(300, VIEW, |picture| {
        for (width, height) in (1..140).step_by(7).flat_map(|width| (1..60).map(move |height| (width, height))) {
            let text = screen(picture, width, height);
            assert_eq!(text.lines().count(), usize::from(height), "{width}x{height}");
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}x{height}");
        }
        assert!(screen(picture, 60, 20).lines().last().unwrap().starts_with("q quit"));
    });
}

#[test]
fn the_first_sample_has_no_rates() {
    let now = sample(0, vec![zone(1)]);
    let picture = Picture { yard: "a", now: &now, before: None, map: &BlockMap::default(), view: VIEW };
    let text = screen(&picture, 80, 24);
    assert!(text.contains("pages/s: - allocated, - freed"), "{text}");
}

#[test]
fn a_zone_can_be_chosen() {
    let other = ZoneSample { name: "node 1 Normal".to_owned(), managed: 2 << 20, ..zone(2) };
    let now = sample(0, vec![zone(2), other]);
    let text = |zone| {
        let view = View { zone, ..VIEW };
        screen(&Picture { yard: "a", now: &now, before: None, map: &BlockMap::default(), view }, 80, 24)
    };
    assert!(text(None).contains("all zones, ") && text(None).contains("of 12 GiB"), "{}", text(None));
    assert!(text(Some(1)).contains("node 1 Normal, ") && text(Some(1)).contains("of 8 GiB"));
}

#[test]
fn a_name_cannot_send_escape_sequences() {
    let now = sample(0, vec![zone(1)]);
    let picture = Picture { yard: "a\x1b[2J", now: &now, before: None, map: &BlockMap::default(), view: VIEW };
    assert!(screen(&picture, 80, 24).starts_with("frameyard top: a[2J "));
}

#[test]
fn numbers_take_at_most_four_characters() {
    let shown = [0, 999, 1000, 1234, 9949, 9950, 999_499, 999_500, 12_345_678, u64::MAX].map(short);
    assert_eq!(shown, ["0", "999", "1.0k", "1.2k", "9.9k", "10k", "999k", "1.0M", "12M", "18E"]);
}
