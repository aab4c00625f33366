//! The files, links, functions and commands that documents name exist.
//!
//! - In the documents of the root and below `docs/`, text in backticks that begins with a folder of the repository must be a
//!   file or folder, and what follows `cargo xtask` a command.
//! - The targets of their links must be files or folders.
//! - In the walkthrough, `Type::function` must be a function of the workspace.

use std::collections::BTreeSet;
use std::path::Path;

use crate::sources::files::{entries, read, rust_files, walk};
use crate::sources::tokens::tokens;
use crate::sources::{Findings, Violation};

/// The document whose functions must exist.
const WALKTHROUGH: &str = "docs/design/walkthrough.md";

/// Checks the documents of the repository at `root`.
pub(crate) fn check(root: &Path) -> Result<Findings, String> {
    let mut documents = entries(root)?;
    documents.extend(walk(&root.join("docs"))?);
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    let names = names_of_workspace(root)?;
    let mut violations = Vec::new();
    for document in &documents {
        let text = read(document)?;
        let file = document.strip_prefix(root).unwrap_or(document).to_owned();
        let folder = document.parent().unwrap_or(root);
        let exists = |path: &str| root.join(path).exists();
        let linked = |path: &str| folder.join(path).exists();
        let known = |name: &str| file != Path::new(WALKTHROUGH) || names.contains(name);
        for (line, what) in
            check_text(&text, &exists, &linked, &known, &|name| crate::commands().any(|command| command == name))
        {
            violations.push(Violation { file: file.clone(), line, what });
        }
    }
    Ok(Findings { read: format!("{} documents have valid references", documents.len()), violations })
}

/// The names of the workspace's functions.
fn names_of_workspace(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for folder in entries(&root.join("crates"))? {
        if folder.join("src").is_dir() {
            for file in rust_files(&folder.join("src"))? {
                let tokens = tokens(&file.text);
                let declared = tokens.windows(2).filter(|pair| pair[0].is_word("fn"));
                names.extend(declared.filter_map(|pair| pair[1].word().map(str::to_owned)));
            }
        }
    }
    Ok(names)
}

fn check_text(
    text: &str,
    exists: &dyn Fn(&str) -> bool,
    linked: &dyn Fn(&str) -> bool,
    known: &dyn Fn(&str) -> bool,
    is_command: &dyn Fn(&str) -> bool,
) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for code in line.split('`').skip(1).step_by(2) {
            let is_path = ["crates/", "ci/", "xtask/", "docs/", "data/", "fuzz/", "runs/", "examples/"];
            let plain = code.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
            if plain && is_path.iter().any(|folder| code.starts_with(folder)) && !exists(code) {
                found.push((at + 1, format!("`{code}` is no file or folder")));
            }
            let command = code.strip_prefix("cargo xtask ").and_then(|rest| rest.split(' ').next());
            if let Some(name) = command.filter(|name| name.starts_with(|c: char| c.is_lowercase()) && !is_command(name))
            {
                found.push((at + 1, format!("`cargo xtask` has no command {name}")));
            }
            let path = code.split('(').next().unwrap_or_default();
            let last = path.split_once("::").map(|_| path.rsplit("::").next().unwrap_or_default());
            if let Some(name) = last.filter(|name| name.starts_with(|c: char| c.is_lowercase()))
                && !known(name)
            {
                found.push((at + 1, format!("`{code}` is no function of the workspace")));
            }
        }
        for (_, target) in line.match_indices("](").map(|(begin, _)| (begin, &line[begin + 2..])) {
            let target = target.split([')', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !linked(target) {
                found.push((at + 1, format!("the link to {target} leads nowhere")));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let exists = |path: &str| path == "ci/run";
        let linked = |path: &str| path == "there.md";
        let found = check_text(text, &exists, &linked, &|name| name == "alloc", &|name| name == "fmt");
        found.into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn refuses_files_links_functions_and_commands_that_do_not_exist() {
        assert_eq!(lines("`ci/run`\n`ci/gone`\n`crates/{a,b}.rs`"), [2]);
        assert_eq!(lines("[a](there.md#part) [b](https://x.y)\n[c](gone.md)"), [2]);
        assert_eq!(lines("`Yard::alloc(Order(0))`, `Yard`\n`Yard::gone()`\n`Gfp::KERNEL`"), [2]);
        assert_eq!(lines("`cargo xtask`, `cargo xtask fmt --x`, `cargo xtask NAME`\n`cargo xtask gone`"), [2]);
        assert_eq!(lines("```\n`ci/gone`\n```"), [0; 0]);
    }
}
