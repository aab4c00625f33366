//! `bench device-map` as a user meets it: small devices.

use crate::program::{assert_refused, frameyard, json, stdout};
use serde_json::Value;

/// Keys that each row has, measured or published.
const KEYS: [&str; 10] = [
    "size_bytes",
    "geometry",
    "layout",
    "structures",
    "map_bytes_resident",
    "map_bytes_equation",
    "page_table_bytes",
    "mappings",
    "bring_up_ns",
    "remove_ns",
];

fn rows(options: &str) -> (Vec<Value>, Vec<Value>) {
    let line = format!("bench device-map {options} --json");
    let object = json(&line.split_whitespace().collect::<Vec<_>>());
    let rows = object["rows"].as_array().unwrap().clone();
    for row in &rows {
        assert!(KEYS.iter().all(|key| row.get(key).is_some()), "{row}");
    }
    rows.into_iter().partition(|row| row["source"] == "measured")
}

#[test]
fn each_geometry_and_layout_takes_the_memory_of_its_formula() {
    let (measured, published) = rows("--size 4G --geometry 2M,1G --repeat 1");
    // Structures, and bytes of them in whole pages.
    let expected = [
        ("2M", "full", 1 << 20, 64 << 20),
        ("2M", "deduplicated", 2048, 8 << 20),
        ("2M", "deduplicated-two", 2048 * 128, 16 << 20),
        ("2M", "folded", 2048, 128 << 10),
        ("1G", "full", 1 << 20, 64 << 20),
        ("1G", "deduplicated", 4, 16 << 10),
        ("1G", "deduplicated-two", 4 * 128, 32 << 10),
        ("1G", "folded", 4, 4 << 10),
    ];
    assert_eq!(measured.len(), expected.len());
    for (row, (geometry, layout, structures, bytes)) in measured.iter().zip(expected) {
        assert_eq!((row["geometry"].as_str(), row["layout"].as_str()), (Some(geometry), Some(layout)), "{row}");
        assert_eq!((row["structures"].as_u64(), row["map_bytes_equation"].as_u64()), (Some(structures), Some(bytes)));
        assert_eq!(row["map_bytes_resident"].as_u64(), Some(bytes), "{row}");
        for key in ["bring_up_ns", "remove_ns", "host_fault_ns", "mappings"] {
            assert!(row[key].as_u64().is_some_and(|value| value > 0), "{key}: {row}");
        }
        assert!(row["published_value"].is_null() && row["left_out"].is_null(), "{row}");
    }
    assert!(
        published.iter().any(|row| row["map_bytes_equation"] == 16u64 << 30 && row["map_bytes_resident"].is_null())
    );
    assert!(published.iter().all(|row| row["published_value"].is_number()));
}

#[test]
fn pieces_take_the_memory_of_the_whole_device() {
    let (measured, _) = rows("--size 4G --geometry 4K --layout full --piece 512M --repeat 1");
    assert_eq!(measured.len(), 1);
    assert_eq!((&measured[0]["pieces"], &measured[0]["structures"]), (&Value::from(8), &Value::from(1 << 20)));
    assert_eq!(measured[0]["map_bytes_resident"], 64 << 20);
    assert_refused(&["bench", "device-map", "--size", "4G", "--piece", "3G"], 2, "a power of two");
}

#[test]
fn tails_of_a_shared_yard_take_mappings_up_to_the_limit_of_the_host() {
    let (measured, _) = rows("--size 8G --geometry 1G --yard shared,private --layout deduplicated,folded --repeat 1");
    let yards: Vec<&str> = measured.iter().map(|row| row["yard"].as_str().unwrap()).collect();
    assert_eq!(yards, ["shared", "shared", "private", "private"]);
    for row in &measured {
        // The window of zeroes is a little more.
        let most = row["map_bytes_equation"].as_u64().unwrap() + (4 << 20);
        assert!(row["map_bytes_resident"].as_u64().is_some_and(|bytes| bytes > 0 && bytes <= most), "{row}");
    }
    assert!(measured[0]["mappings"].as_u64() > measured[2]["mappings"].as_u64(), "{measured:?}");
    let (measured, _) = rows("--size 256G --geometry 2M --yard shared --layout deduplicated --repeat 1");
    let reason = measured[0]["left_out"].as_str().unwrap_or_default();
    assert!(reason.contains("vm.max_map_count") && reason.contains("folded"), "{:?}", measured[0]);
}

#[test]
fn base_pages_have_a_structure_each_in_every_layout() {
    let (measured, _) = rows("--size 128M --geometry 4K --repeat 1");
    assert!(measured.iter().all(|row| row["structures"] == 1 << 15 && row["map_bytes_equation"] == 2 << 20));
    assert_eq!(measured.len(), 4);
}

#[test]
fn the_table_has_measured_and_published_rows() {
    let output = frameyard(&["bench", "device-map", "--size", "1G", "--layout", "folded", "--repeat", "1"]);
    let text = stdout(&output);
    assert!(text.starts_with("yard "), "{text}");
    assert!(text.contains("namespace_bootstrap") && text.contains("Host alone"), "{text}");
}

#[test]
fn refusals_come_before_the_first_run() {
    let refused = |options: &str, says: &str| {
        let line: Vec<&str> = ["bench", "device-map"].into_iter().chain(options.split_whitespace()).collect();
        assert_refused(&line, 2, says);
    };
    refused("--size 1T --geometry 4K", "choose another --layout, larger pages");
    refused("--size 3T --layout full", "takes");
    refused("--size 1500M --geometry 1G", "nearest: 1G and 2G");
    refused("--size 100T --geometry 1G --layout folded", "at most 2^32");
    refused("--geometry 3M", "write 4K, 2M or 1G");
    refused("--layout sparse", "possible values: full");
    refused("--repeat 0", "from 1");
}
