//! Joins the results of several folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::stored::Stored;
use crate::Failure;

/// Reads the results of all folders and checks that they belong together.
///
/// # Errors
///
/// [`Failure::Input`] that names the folders: a damaged result, results of different versions or commits, or two results of a
/// job that differ.
pub(super) fn joined(folders: &[PathBuf]) -> Result<Vec<Stored>, Failure> {
    let mut found: BTreeMap<String, (&Path, Stored)> = BTreeMap::new();
    let mut first: Option<(&Path, String, String)> = None;
    for folder in folders {
        for stored in Stored::read_all(folder)? {
            let (version, commit) = (&stored.result.version, &stored.result.commit);
            match &first {
                None => first = Some((folder, version.clone(), commit.clone())),
                Some((_, known_version, known_commit)) if (known_version, known_commit) == (version, commit) => {}
                Some((other, known_version, known_commit)) => {
                    return Err(Failure::input(format!(
                        "--merge: {} has results of {version} ({commit}), {} of {known_version} ({known_commit}): run one build",
                        folder.display(),
                        other.display()
                    )));
                }
            }
            let name = stored.result.job.clone();
            match found.get(&name) {
                Some((_, known)) if known.result == stored.result => {}
                Some((other, known)) => {
                    let why = if known.result.command != stored.result.command {
                        "of other command lines"
                    } else if stored.result.kind.is_deterministic() {
                        "that differ, though the job is deterministic"
                    } else {
                        "of two runs"
                    };
                    return Err(Failure::input(format!(
                        "--merge: {} and {} have results of job {name} {why}: leave one out",
                        other.display(),
                        folder.display()
                    )));
                }
                None => drop(found.insert(name, (folder, stored))),
            }
        }
    }
    Ok(found.into_values().map(|(_, stored)| stored).collect())
}

#[cfg(test)]
mod tests {
    use super::super::job::{Job, JobKind};
    use super::super::stored::create_folder;
    use super::*;
    use crate::output::HostFacts;
    use serde_json::{Map, json};

    fn stored(name: &str, kind: JobKind, row: u64) -> Stored {
        let host = HostFacts { cpu: None, cpus: None, memory_bytes: None, kernel: None };
        let printed = json!({"rows": [{"n": row}]}).as_object().unwrap().clone();
        Stored::new(&Job::new(name, kind, "sim purge"), host, 1.0, Ok::<Map<_, _>, _>(printed))
    }

    fn folders(test: &str, contents: &[&[Stored]]) -> Vec<PathBuf> {
        let root = std::env::temp_dir().join(format!("frameyard-merge-{test}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&root));
        let folder = |(number, results): (usize, &&[Stored])| {
            let folder = root.join(number.to_string());
            create_folder(&folder).unwrap();
            results.iter().for_each(|result| result.write(&folder).unwrap());
            folder
        };
        contents.iter().enumerate().map(folder).collect()
    }

    #[test]
    fn results_are_joined_and_equal_ones_are_one() {
        let (a, b) = (stored("a", JobKind::Simulation, 1), stored("b", JobKind::Native, 2));
        let folders = folders("equal", &[std::slice::from_ref(&a), &[b.clone(), a.clone()]]);
        assert_eq!(joined(&folders).unwrap(), [a, b]);
    }

    #[test]
    fn conflicts_name_job_and_folders() {
        let one =
            folders("conflict", &[&[stored("a", JobKind::Simulation, 1)], &[stored("a", JobKind::Simulation, 2)]]);
        let refused = joined(&one).unwrap_err();
        assert_eq!(refused.code(), 2);
        assert!(
            refused.to_string().contains("/0 and ") && refused.to_string().contains("job a that differ"),
            "{refused}"
        );
        let two = folders("native", &[&[stored("a", JobKind::Native, 1)], &[stored("a", JobKind::Native, 2)]]);
        assert!(joined(&two).unwrap_err().to_string().contains("job a of two runs"));
    }

    #[test]
    fn results_of_other_commits_are_refused() {
        let mut other = stored("b", JobKind::Simulation, 1);
        other.result.commit = "0123456789ab".to_owned();
        let folders = folders("commit", &[&[stored("a", JobKind::Simulation, 1)], &[other]]);
        assert!(joined(&folders).unwrap_err().to_string().contains("(0123456789ab)"));
    }
}
