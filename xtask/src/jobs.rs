//! Jobs: commands with arguments, run one after another. At the end, what they skipped is compared with `xtask/allowed-skips`.

use std::env;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::process::{Failed, Outcome, command, failed, stream, succeeded};

/// The jobs of CI. A host may run the groups at the same time.
const CI: &[(&str, &[&str])] = &[
    ("readme", &["readme test"]),
    (
        "tests",
        &[
            // Again as root, with a quarter of the random cases that tests run otherwise, listing what tests skip.
            "user --root env LABEL=root PROPTEST_CASES=64 cargo xtask test",
            "variations no-browser",
            // The crate whose code depends on the number of CPUs. The whole suite takes five minutes: `cargo xtask long variations`.
            "variations one-cpu -- -p frameyard-host",
            "user env LABEL=user cargo xtask heap-tests",
            "user --root env LABEL=root cargo xtask heap-tests",
            "release-tests",
        ],
    ),
    ("programs", &["readme boot report", "programs", "user cargo xtask predictions"]),
    ("checks", &["fmt", "clippy", "layering", "orderings", "prose", "tables --check", "oldest"]),
    ("interfaces", &["instructions", "no-std", "c-interface", "freestanding", "memblock-tests"]),
    ("models", &["doc", "loom", "shuttle", "package", "fuzz"]),
];

pub(crate) fn ci(groups: &[String]) -> Outcome {
    if let Some(unknown) = groups.iter().find(|group| !CI.iter().any(|(name, _)| name == group)) {
        let names: Vec<_> = CI.iter().map(|(name, _)| *name).collect();
        return failed(format!("ci: there is no group {unknown}; the groups are {}", names.join(", ")));
    }
    let chosen = CI.iter().filter(|(name, _)| groups.is_empty() || groups.iter().any(|group| group == name));
    let jobs = chosen.flat_map(|(_, jobs)| jobs.iter().copied());
    run_jobs(["install"].into_iter().chain(jobs), &[])
}

pub(crate) fn jobs(jobs: &[String]) -> Outcome {
    run_jobs(jobs.iter().map(String::as_str), &[])
}

/// The jobs that take hours.
pub(crate) fn long(jobs: &[String]) -> Outcome {
    let all = "test,heap-tests,variations,programs --full,jemalloc-tests,sanitize,loom,shuttle,predictions,memblock-tests,fuzz,artefacts,deny,api";
    let given = |name, default: &str| (name, env::var(name).unwrap_or(default.to_owned()));
    let variables = [
        // Models have their full bounds, shuttle runs many schedules, and tests kill a sharing process fifty times under each policy.
        ("FRAMEYARD_LONG_RUNS", "1".to_owned()),
        ("FRAMEYARD_KILLS", "50".to_owned()),
        // Random calls on the early allocator and on the kernel's.
        given("SEEDS", "5000"),
        given("FUZZ_SECONDS", "3600"),
    ];
    if jobs.is_empty() {
        run_jobs(all.split(','), &variables)
    } else {
        run_jobs(jobs.iter().map(String::as_str), &variables)
    }
}

fn run_jobs<'a>(jobs: impl Iterator<Item = &'a str>, variables: &[(&str, String)]) -> Outcome {
    let begin = Instant::now();
    let mut skips = Vec::new();
    for job in jobs {
        judged(job, || {
            let mut command = Command::new("/proc/self/exe");
            command.args(job.split_whitespace()).envs(variables.iter().cloned());
            let status = stream(command, |line| {
                println!("{line}");
                skips.extend(is_skip(line).then(|| line.to_owned()));
            })?;
            succeeded(status)
        })?;
    }
    judged("skips", || judge(skips))?;
    println!("=== all jobs passed in {} s", begin.elapsed().as_secs());
    Ok(())
}

/// Prints the name of a job, and whether it passed.
fn judged(job: &str, run: impl FnOnce() -> Outcome) -> Outcome {
    println!("=== {job}");
    let start = Instant::now();
    if let Err(Failed { says, .. }) = run() {
        if !says.is_empty() {
            eprintln!("{says}");
        }
        return failed(format!("=== {job} FAILED after {} s", start.elapsed().as_secs()));
    }
    println!("=== {job} passed in {} s", start.elapsed().as_secs());
    Ok(())
}

/// A job prints `skipped: reason`. For a test, a label and the test's name come first.
fn is_skip(line: &str) -> bool {
    let of_test = line.split_once(": ").filter(|(label, _)| !label.is_empty() && !label.contains(' '));
    line.starts_with("skipped: ")
        || of_test.is_some_and(|(_, rest)| rest.rfind(" skipped: ").is_some_and(|length| length > 0))
}

pub(crate) fn skips(arguments: &[String]) -> Outcome {
    let [file] = arguments else { return failed("skips: name a file with the output of jobs") };
    let output = fs::read(file)?;
    let output = String::from_utf8_lossy(&output);
    judge(output.lines().filter(|line| is_skip(line)).map(str::to_owned).collect())
}

/// Prints each skip that `xtask/allowed-skips` does not permit, which is a failure if CI is set, and each permitted one that did not occur.
fn judge(mut skips: Vec<String>) -> Outcome {
    skips.sort();
    skips.dedup();
    let mut refused = skips.clone();
    let mut unused = Vec::new();
    let permitted = fs::read_to_string("xtask/allowed-skips")?;
    for line in permitted.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some((pattern, _)) = line.split_once('\t').filter(|(_, reason)| !reason.is_empty()) else {
            return failed(format!("skips: xtask/allowed-skips gives no reason, after a tab, for: {line}"));
        };
        let matching = matching(pattern, &skips)?;
        if matching.is_empty() {
            unused.push(pattern);
        }
        refused.retain(|skip| !matching.contains(skip));
    }
    for skip in &refused {
        eprintln!("skips: not in xtask/allowed-skips: {skip}");
    }
    for pattern in unused {
        println!("skips: did not occur: {pattern}");
    }
    println!("skips: {} refused", refused.len());
    let judges = env::var("CI").is_ok_and(|value| !value.is_empty());
    if judges && !refused.is_empty() { failed("") } else { Ok(()) }
}

/// The lines that match an extended regular expression.
fn matching(pattern: &str, lines: &[String]) -> Result<Vec<String>, Failed> {
    let mut grep = command("grep -aE -e");
    let mut child = grep.arg(pattern).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all((lines.join("\n") + "\n").as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.code().is_none_or(|code| code > 1) {
        return Err(format!("skips: grep cannot read the pattern: {pattern}").into());
    }
    let matching = String::from_utf8_lossy(&output.stdout).into_owned();
    // The empty line is that of an empty list.
    Ok(matching.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_of_jobs_and_of_labelled_tests_are_recognised() {
        assert!(is_skip("skipped: no valgrind"));
        assert!(is_skip("root: suite::a_test skipped: needs 4 CPUs"));
        for other in
            ["a job skipped: x", "root: 5 passed, 3 skipped", "root: skipped: x", "programs: 9 passed, 0 skipped"]
        {
            assert!(!is_skip(other), "{other}");
        }
    }

    #[test]
    fn patterns_are_extended_regular_expressions() {
        let lines = ["root: a skipped: [x]", "user: b skipped: 16 of 2M"].map(str::to_owned);
        let found = |pattern| matching(pattern, &lines).ok();
        assert_eq!(found("^(root|busy): .* skipped: "), Some(lines[..1].to_vec()));
        assert_eq!(found("[0-9]+ of 2M$"), Some(lines[1..].to_vec()));
        assert_eq!(found("^skipped"), Some(vec![]));
        assert_eq!(found("("), None);
    }
}
