//! Which build of the program this is.

use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

/// The version of the package.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, `-dirty` when the sources differ from it, or `unknown`.
pub(crate) const COMMIT: &str = env!("FRAMEYARD_COMMIT");

/// What `frameyard --version` prints behind the program's name.
pub(crate) const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("FRAMEYARD_COMMIT"), ")");

/// What tells the file of this program from that of another build: its size and the time of its last change. `None` if it cannot be read.
pub(crate) fn executable() -> Option<String> {
    static EXECUTABLE: OnceLock<Option<String>> = OnceLock::new();
    let read = || {
        let metadata = std::fs::metadata(std::env::current_exe().ok()?).ok()?;
        let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(format!("{} bytes, {}.{:09}", metadata.len(), changed.as_secs(), changed.subsec_nanos()))
    };
    EXECUTABLE.get_or_init(read).clone()
}

/// Whether a result is of this build: the same version and commit, and where sources differ from the commit the same file.
pub(crate) fn is_this_build(version: &str, commit: &str, executable: Option<&str>) -> bool {
    is_same_build((version, commit, executable), (VERSION, COMMIT, self::executable().as_deref()))
}

type Build<'a> = (&'a str, &'a str, Option<&'a str>);

fn is_same_build(one: Build<'_>, other: Build<'_>) -> bool {
    let is_commit = !one.1.ends_with("-dirty") && one.1 != "unknown";
    (one.0, one.1) == (other.0, other.1) && (is_commit || (one.2.is_some() && one.2 == other.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_one_build_and_changed_sources_are_many() {
        let clean = |file| ("1", "0123456789ab", file);
        assert!(is_same_build(clean(Some("a")), clean(None)));
        assert!(!is_same_build(clean(None), ("2", "0123456789ab", None)));
        for commit in ["0123456789ab-dirty", "unknown"] {
            let dirty = |file| ("1", commit, file);
            assert!(is_same_build(dirty(Some("a")), dirty(Some("a"))));
            assert!(!is_same_build(dirty(Some("a")), dirty(Some("b"))));
            assert!(!is_same_build(dirty(None), dirty(None)), "nothing is known of both files");
        }
        assert!(is_this_build(VERSION, COMMIT, executable().as_deref()));
    }
}
