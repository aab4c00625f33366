//! Every memory ordering stronger than `Relaxed` names the function it pairs with.
//!
//! The comment is on the same line, or ends within the four lines above. It says "pairs with" and names a function of the
//! workspace in backticks: "Acquire: pairs with the Release in `Platform::unlock`."

use std::collections::BTreeSet;
use std::path::Path;

use crate::sources::files::{SourceFile, entries, rust_files};
use crate::sources::tokens::{Comment, Token, comments, tokens};
use crate::sources::{Findings, Violation, modules};

const STRONG: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];

/// The maximum distance, in lines, between the end of a comment and its ordering.
const REACH: usize = 4;

/// The module that defines atomics for models, where orderings are data.
const ATOMICS: &str = "sync";

/// Checks the crates of the repository at `root`.
pub(crate) fn check(root: &Path) -> Result<Findings, String> {
    let mut crates = Vec::new();
    for folder in entries(&root.join("crates"))? {
        let source = folder.join("src");
        if source.is_dir() {
            crates.push((source.clone(), rust_files(&source)?));
        }
    }
    let functions: BTreeSet<String> =
        crates.iter().flat_map(|(_, files)| files).flat_map(|file| functions_of(&file.text)).collect();
    let (mut orderings, mut violations) = (0, Vec::new());
    for (source, files) in &crates {
        for file in modules::without_tests(files) {
            if file.module.first().is_some_and(|top| top == ATOMICS) {
                continue;
            }
            let (count, found) = check_file(file.source, &file.tokens, &functions);
            orderings += count;
            let path = source.strip_prefix(root).unwrap_or(source).join(&file.source.path);
            violations.extend(found.into_iter().map(|(line, what)| Violation { file: path.clone(), line, what }));
        }
    }
    Ok(Findings { read: format!("{orderings} orderings stronger than Relaxed name their partners"), violations })
}

/// The names of the functions that a source text declares.
fn functions_of(text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let declared = tokens.windows(2).filter(|pair| pair[0].is_word("fn"));
    declared.filter_map(|pair| pair[1].word().map(str::to_owned)).collect()
}

/// The number of strong orderings, and those without a partner.
fn check_file(file: &SourceFile, tokens: &[Token], functions: &BTreeSet<String>) -> (usize, Vec<(usize, String)>) {
    let comments = comments(&file.text);
    let (mut count, mut found) = (0, Vec::new());
    for (line, ordering) in strong_orderings(tokens) {
        count += 1;
        if let Err(what) = partner(&comments, line, functions) {
            found.push((line, format!("{ordering} {what}")));
        }
    }
    (count, found)
}

/// The uses of strong orderings as values: line and name.
fn strong_orderings(tokens: &[Token]) -> Vec<(usize, &str)> {
    let mut imported = BTreeSet::new();
    let mut in_use = false;
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.is_word("use") {
            in_use = true;
        } else if token.is(';') {
            in_use = false;
        }
        let Some(word) = token.word().filter(|word| STRONG.contains(word)) else { continue };
        let qualified = at >= 3 && tokens[at - 3].is_word("Ordering") || at >= 2 && tokens[at - 2].is_word("Ordering");
        if in_use {
            if tokens[..at]
                .iter()
                .rev()
                .take_while(|token| !token.is_word("use"))
                .any(|token| token.is_word("Ordering"))
            {
                imported.insert(word);
            }
            continue;
        }
        let argument = tokens.get(at + 1).is_some_and(|next| next.is(',') || next.is(')'));
        let pattern = tokens.get(at + 1).is_some_and(|next| next.is('=') || next.is('|'));
        if !pattern && (qualified || imported.contains(word) && argument) {
            found.push((token.line, word));
        }
    }
    found
}

/// Checks that the comments near a line name a function that exists. The error says what is wrong.
fn partner(comments: &[Comment<'_>], line: usize, functions: &BTreeSet<String>) -> Result<(), String> {
    let near = |comment: &Comment<'_>| comment.line <= line && comment.line + REACH >= line;
    let Some(mut first) = comments.iter().position(near) else {
        return Err("has no comment that names its partner".to_owned());
    };
    // A comment that begins further up belongs to the ordering as a whole.
    while first > 0 && comments[first - 1].line + 1 == comments[first].line {
        first -= 1;
    }
    let text: Vec<&str> = comments[first..].iter().take_while(|comment| comment.line <= line).map(|c| c.text).collect();
    let text = text.join(" ");
    let mut partners = Vec::new();
    for (at, _) in text.match_indices("airs with") {
        // The name is in the same sentence, in backticks.
        let sentence = &text[at..];
        let sentence = sentence.find(". ").map_or(sentence, |end| &sentence[..end]);
        partners.extend(sentence.split('`').skip(1).step_by(2));
    }
    if partners.is_empty() {
        return Err("has no comment that names its partner (\"pairs with … `function`\")".to_owned());
    }
    let exists = |partner: &&&str| {
        let name = partner.rsplit("::").next().unwrap_or_default();
        functions.contains(name.trim_end_matches("()").trim_start_matches('.'))
    };
    if partners.iter().any(|partner| exists(&partner)) {
        Ok(())
    } else {
        Err(format!("names `{}`, which is no function of the workspace", partners.join("`, `")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let functions = ["unlock", "publish"].map(str::to_owned).into();
        let file = SourceFile { path: "a.rs".into(), text: text.to_owned() };
        check_file(&file, &tokens(text), &functions).1
    }

    #[test]
    fn accepts_a_partner_on_the_line_or_above() {
        for text in [
            "// Acquire: pairs with the Release in `unlock`.\nx.load(Ordering::Acquire);",
            "x.load(Ordering::Acquire); // Pairs with `Lock::unlock`.",
            "// Pairs with the store in `publish`, which\n// comes first.\n\nlet a = 1;\nx.load(Ordering::Acquire);",
            "use Ordering::{Acquire, Relaxed};\n// pairs with `unlock()`\nx.load(Acquire);",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn refuses_an_ordering_without_a_partner() {
        for text in [
            "x.load(Ordering::Acquire);",
            "// Acquire: after `unlock`.\nx.load(Ordering::Acquire);",
            "// Pairs with the other side.\nx.store(1, Ordering::Release);",
            "// Pairs with `unlock`.\n\n\n\n\nx.fetch_add(1, Ordering::AcqRel);",
            "use Ordering::SeqCst;\nfence(SeqCst);",
        ] {
            assert_eq!(found(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn refuses_a_partner_that_does_not_exist() {
        let found = found("// Pairs with the Release in `gone`.\nx.load(Ordering::Acquire);");
        assert!(found.len() == 1 && found[0].1.contains("`gone`, which is no function"), "{found:?}");
    }

    #[test]
    fn passes_over_imports_patterns_and_other_names() {
        assert_eq!(
            found("use Ordering::Acquire;\nmatch o { Ordering::SeqCst => 1 }\nstruct Release;\nf(Release);"),
            []
        );
    }
}
