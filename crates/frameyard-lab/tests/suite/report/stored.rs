//! The page rendered from results that are stored here. To renew the results and the expected files after a change:
//! `FRAMEYARD_RENEW=1 cargo test -p frameyard-lab --test suite report::stored`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{fresh, text};
use crate::program::{frameyard, stderr};

/// Stored results, and what is rendered from them.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/report/stored")
}

/// The stored results rendered into a fresh folder.
pub(super) fn rendered(name: &str) -> PathBuf {
    let target = fresh(name);
    let output = frameyard(&["report", "--merge", text(&folder()), "-o", text(&target)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    target
}

#[test]
fn stored_results_give_the_expected_files() {
    let target = rendered("report-stored");
    for name in ["index.html", "results.json", "claims.csv", "page_fault1-broadwell-88cpu.csv", "compound-pagemap.csv"]
    {
        let (expected, found) = (folder().join(name), fs::read_to_string(target.join(name)).unwrap());
        if std::env::var_os("FRAMEYARD_RENEW").is_some() {
            fs::write(&expected, &found).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap_or_default();
        let differing = expected.lines().zip(found.lines()).position(|(one, other)| one != other);
        let line = differing.map(|line| (line + 1, expected.lines().nth(line), found.lines().nth(line)));
        assert!(expected == found, "{name} differs: {line:?}");
    }
}

#[test]
fn rendering_twice_gives_the_same_bytes() {
    let (one, other) = (rendered("report-once"), rendered("report-twice"));
    for name in ["index.html", "results.json"] {
        assert!(fs::read(one.join(name)).unwrap() == fs::read(other.join(name)).unwrap(), "{name}");
    }
}
