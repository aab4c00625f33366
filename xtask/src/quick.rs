//! What to run after each edit. It takes a minute at most, once the crates have been built.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use crate::builds;
use crate::process::{Failed, Outcome, command, output, run};
use crate::sources::{self, crates, layers, orderings, references};

/// Nothing begins after this time. What has begun is not stopped: a compiler that is stopped would begin anew the next time.
const LAST_BEGIN: Duration = Duration::from_secs(30);

/// Formatting, the checks of sources, and lints and unit tests of the crates that differ from `main`, or the branch given, the crate with the
/// newest change first. Then, as far as the time goes, the same for the crates that use these, in the order of the layers.
pub(crate) fn quick(arguments: &[String]) -> Outcome {
    let begin = Instant::now();
    builds::fmt()?;
    sources::check("layering", layers::check)?;
    sources::check("orderings", orderings::check)?;
    sources::check("references", references::check)?;

    let users = users_of_crates()?;
    let differing = differing_crates(arguments.first().map_or("main", String::as_str), &users)?;
    let dependents: Vec<&str> = layers::CRATES
        .iter()
        .copied()
        .filter(|name| differing.iter().any(|own| users[own].iter().any(|user| user == name)))
        .filter(|name| !differing.iter().any(|own| own == name))
        .collect();
    let mut steps: Vec<String> = Vec::new();
    for name in &differing {
        steps.push(format!("cargo test --quiet -p {name} --lib --bins"));
        steps.push(format!("cargo clippy --quiet -p {name} --all-targets -- -D warnings"));
    }
    if !dependents.is_empty() {
        steps.push(format!("cargo clippy --quiet -p {} -- -D warnings", dependents.join(" -p ")));
    }
    steps.extend(dependents.iter().map(|name| format!("cargo test --quiet -p {name} --lib --bins")));
    for (at, step) in steps.iter().enumerate() {
        if begin.elapsed() > LAST_BEGIN {
            println!("quick: left out to save time:\n  {}", steps[at..].join("\n  "));
            break;
        }
        println!("quick: {step}");
        // An eighth of the usual random cases.
        run(command(step).env("PROPTEST_CASES", "32"))?;
    }
    println!("quick: passed in {} s", begin.elapsed().as_secs());
    Ok(())
}

/// The crates that this machine can build, each with those that depend on it.
fn users_of_crates() -> Result<BTreeMap<String, Vec<String>>, Failed> {
    let has_heaps = builds::selection().is_some();
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in layers::CRATES.iter().filter(|name| has_heaps || **name != "frameyard-heap") {
        users.entry((*name).to_owned()).or_default();
        for dependency in crates::dependencies(&fs::read_to_string(format!("crates/{name}/Cargo.toml"))?) {
            users.entry(dependency.name).or_default().push((*name).to_owned());
        }
    }
    Ok(users)
}

/// The crates with files that differ from a branch, or from the last commit where there is no such branch.
fn differing_crates(branch: &str, crates: &BTreeMap<String, Vec<String>>) -> Result<Vec<String>, Failed> {
    let base = |branch: &str| output(command(&format!("git merge-base HEAD {branch}")).stderr(Stdio::null())).ok();
    let base = base(branch).or_else(|| base(&format!("origin/{branch}"))).unwrap_or("HEAD".to_owned());
    let mut files = output(&mut command(&format!("git diff --name-only {base}")))?;
    files += &output(&mut command("git ls-files --others --exclude-standard"))?;
    let mut newest: BTreeMap<&str, SystemTime> = BTreeMap::new();
    for file in files.lines() {
        let name = file.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
        if let Some(name) = name.filter(|name| crates.contains_key(*name)) {
            let changed = Path::new(file).metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            let newest = newest.entry(name).or_insert(changed);
            *newest = changed.max(*newest);
        }
    }
    let mut names: Vec<_> = newest.into_iter().collect();
    names.sort_by_key(|(_, changed)| std::cmp::Reverse(*changed));
    Ok(names.into_iter().map(|(name, _)| name.to_owned()).collect())
}
