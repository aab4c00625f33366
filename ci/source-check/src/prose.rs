//! The constructions that comments and documents avoid.
//!
//! Name the actor (the refill, the draining CPU, the caller), use the field's terms, and give numbers. The check skips text in
//! backticks and in code blocks. There is no exception: rewrite the sentence.

use std::path::Path;

use crate::sources::{entries, read, walk};
use crate::tokens::comments;
use crate::{Findings, Violation};

/// The refused phrases, in lower case, each with advice.
const REFUSED: &[(&str, &str)] = &[
    ("who", "name the actor"),
    ("whoever", "name the actor"),
    ("he", "name the actor"),
    ("his", "name the actor"),
    ("him", "name the actor"),
    ("himself", "name the actor"),
    ("somebody", "name the actor"),
    ("nobody", "name the actor"),
    ("others", "name the actors"),
    ("so many", "give the number or name the count"),
    ("so much", "give the amount or name it"),
    ("as many as", "give the number or name the count"),
    ("is said", "name what says it, or say it"),
    ("are said", "name what says it, or say it"),
    ("is looked at", "use the active voice: X reads, checks or visits"),
    ("are looked at", "use the active voice: X reads, checks or visits"),
    ("is waited for", "use the active voice: X waits for"),
    ("are waited for", "use the active voice: X waits for"),
    ("was waited for", "use the active voice: X waited for"),
    ("what it holds", "name the contents"),
    ("all in all", "leave it out"),
    ("crossing", "transfer, refill or drain"),
    ("crossings", "transfers, refills or drains"),
    ("what is handed out", "the allocation map, or allocated frames"),
    ("lists of used pages", "LRU lists"),
    ("list of used pages", "LRU list"),
    ("set aside", "isolate, or reserve"),
    ("sets aside", "isolates, or reserves"),
    ("brought up", "initialised"),
];

/// Checks every source file, script, manifest and document of the repository at `root`, except recorded runs.
pub(crate) fn check(root: &Path) -> Result<Findings, String> {
    let mut files = Vec::new();
    for entry in entries(root)? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() {
            let left_out = name == "runs" || name == "target" || name.starts_with('.') && name != ".ci";
            if !left_out {
                files.extend(walk(&entry)?);
            }
        } else {
            files.push(entry);
        }
    }
    let (mut read_files, mut violations) = (0, Vec::new());
    for file in files {
        let Some(prose) = kind_of(&file, root) else { continue };
        let text = read(&file)?;
        read_files += 1;
        for (line, what) in check_text(&text, prose) {
            let file = file.strip_prefix(root).unwrap_or(&file).to_owned();
            violations.push(Violation { file, line, what });
        }
    }
    Ok(Findings { read: format!("{read_files} files read"), violations })
}

/// The location of the prose in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Prose {
    /// In comments that begin with slashes.
    Rust,
    /// In comments that begin with a hash mark.
    Hash,
    /// Everywhere except in code.
    Document,
}

fn kind_of(file: &Path, root: &Path) -> Option<Prose> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => Some(Prose::Rust),
        Some("toml") => Some(Prose::Hash),
        Some("md") => Some(Prose::Document),
        None if [".ci", "ci"].iter().any(|scripts| file.parent() == Some(root.join(scripts).as_path())) => {
            Some(Prose::Hash)
        }
        _ => None,
    }
}

/// The violations in a text: line and message.
fn check_text(text: &str, prose: Prose) -> Vec<(usize, String)> {
    let lines: Vec<(usize, &str)> = match prose {
        Prose::Rust => comments(text).into_iter().map(|comment| (comment.line, comment.text)).collect(),
        Prose::Hash => numbered(text).filter_map(|(line, text)| Some((line, text.trim().strip_prefix('#')?))).collect(),
        Prose::Document => numbered(text).collect(),
    };
    // A phrase may continue on the next line, so all words form one sequence. Empty lines, and gaps between lines, separate
    // phrases.
    let mut words: Vec<(usize, String)> = Vec::new();
    let (mut fenced, mut last) = (false, 0);
    for (line, text) in lines {
        if line > last + 1 || text.trim().is_empty() {
            words.push((line, String::new()));
        }
        last = line;
        if text.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let plain = text.split('`').step_by(2).collect::<Vec<_>>().join(" \u{2400} ");
            let split =
                plain.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '’' && c != '-' && c != '\u{2400}');
            words.extend(split.filter(|word| !word.is_empty()).map(|word| (line, word.to_lowercase())));
        }
    }
    let mut found = Vec::new();
    for at in 0..words.len() {
        for (phrase, instead) in REFUSED.iter().filter(|(phrase, _)| phrase.starts_with(words[at].1.as_str())) {
            let own = words[at..].iter().map(|(_, word)| word.as_str());
            let matches =
                phrase.split(' ').count() <= words.len() - at && phrase.split(' ').zip(own).all(|(a, b)| a == b);
            if matches {
                found.push((words[at].0, format!("\"{phrase}\": {instead}")));
            }
        }
    }
    found
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, prose: Prose) -> Vec<usize> {
        check_text(text, prose).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn refuses_each_construction_in_comments_and_documents() {
        for (phrase, _) in REFUSED {
            assert_eq!(lines(&format!("fn f() {{}}\n/// It is {phrase} there."), Prose::Rust).len(), 1, "{phrase}");
            assert_eq!(lines(&format!("A\n\n{}", phrase.to_uppercase()), Prose::Document), [3], "{phrase}");
            assert_eq!(lines(&format!("key = 1\n# {phrase}"), Prose::Hash), [2], "{phrase}");
        }
    }

    #[test]
    fn finds_a_phrase_across_a_line_break() {
        assert_eq!(lines("// There are so\n// many of them.", Prose::Rust), [1]);
        assert_eq!(lines("// There are so\n\n// many of them.", Prose::Rust), [0; 0]);
    }

    #[test]
    fn leaves_code_and_parts_of_words_alone() {
        assert_eq!(lines("let who = \"he\"; // the whole history", Prose::Rust), [0; 0]);
        assert_eq!(lines("Call `who` here.\n```text\nso many\n```\n", Prose::Document), [0; 0]);
        assert_eq!(lines("is `x` said", Prose::Document), [0; 0]);
        assert_eq!(lines("he = 1", Prose::Hash), [0; 0]);
    }
}
