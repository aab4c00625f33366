//! Counts lines of code, lines of tests and unsafe blocks, by crate and module. `runs/2026-11-23-structure` reports them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::sources::files::{SourceFile, entries, rust_files};
use crate::sources::tokens::{Token, tokens};
use crate::sources::{Findings, modules};

/// The counts of a set of files.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
struct Counts {
    files: usize,
    /// Lines with production code. Comments and blank lines do not count.
    code: usize,
    /// Lines with test code.
    tests: usize,
    unsafe_blocks: usize,
    unsafe_impls: usize,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.code += other.code;
        self.tests += other.tests;
        self.unsafe_blocks += other.unsafe_blocks;
        self.unsafe_impls += other.unsafe_impls;
    }
}

/// Prints a table with each crate of the repository at `root` and its modules.
pub(crate) fn check(root: &Path) -> Result<Findings, String> {
    println!("{:<44} {:>6} {:>8} {:>8} {:>7} {:>6}", "crate or module", "files", "code", "tests", "unsafe", "impls");
    let mut total = Counts::default();
    for folder in entries(&root.join("crates"))? {
        if !folder.join("src").is_dir() {
            continue;
        }
        let sources = rust_files(&folder.join("src"))?;
        let mut of_crate = Counts::default();
        let mut of_modules: BTreeMap<String, Counts> = BTreeMap::new();
        for (module, counts) in count(&sources) {
            of_crate.add(counts);
            of_modules.entry(module).or_default().add(counts);
        }
        for beside in ["tests", "examples", "benches"] {
            let beside = folder.join(beside);
            if beside.is_dir() {
                of_crate.tests += rust_files(&beside)?.iter().map(|file| lines(&tokens(&file.text))).sum::<usize>();
            }
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        print(&name, of_crate);
        for (module, counts) in of_modules {
            print(&format!("  {module}"), counts);
        }
        total.add(of_crate);
    }
    print("total", total);
    Ok(Findings { read: "code without comments, blank lines and tests".to_owned(), violations: Vec::new() })
}

fn print(name: &str, counts: Counts) {
    let Counts { files, code, tests, unsafe_blocks, unsafe_impls } = counts;
    println!("{name:<44} {files:>6} {code:>8} {tests:>8} {unsafe_blocks:>7} {unsafe_impls:>6}");
}

/// The counts of each file, with the name of its top module.
fn count(sources: &[SourceFile]) -> Vec<(String, Counts)> {
    let production = modules::without_tests(sources);
    let of_file = |source: &SourceFile| production.iter().find(|file| file.source.path == source.path);
    let counts = sources.iter().map(|source| {
        let all = lines(&tokens(&source.text));
        let top = source.path.iter().next().unwrap_or_default().to_string_lossy().trim_end_matches(".rs").to_owned();
        let Some(file) = of_file(source) else {
            return (top, Counts { files: 1, tests: all, ..Counts::default() });
        };
        let code = lines(&file.tokens);
        let followed = |by: &dyn Fn(&Token) -> bool| {
            file.tokens.windows(2).filter(|pair| pair[0].is_word("unsafe") && by(&pair[1])).count()
        };
        let unsafe_blocks = followed(&|next| next.is('{'));
        let unsafe_impls = followed(&|next| next.is_word("impl"));
        (top, Counts { files: 1, code, tests: all - code, unsafe_blocks, unsafe_impls })
    });
    counts.collect()
}

/// The number of lines that have a token.
fn lines(tokens: &[Token]) -> usize {
    let mut lines: Vec<usize> = tokens.iter().map(|token| token.line).collect();
    lines.dedup();
    lines.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_code_from_tests_and_comments() {
        let text = "//! Header.\n\nfn f() {\n    // SAFETY: x.\n    unsafe { g() }\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        let files = [SourceFile { path: "zone/pcp.rs".into(), text: text.to_owned() }];
        let expected = Counts { files: 1, code: 3, tests: 4, unsafe_blocks: 1, unsafe_impls: 0 };
        assert_eq!(count(&files), [("zone".to_owned(), expected)]);
    }
}
