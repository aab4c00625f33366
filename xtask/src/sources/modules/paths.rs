//! The paths of a file that start at the crate root.

use std::collections::BTreeSet;

use super::{Last, Path, Walk};
use crate::sources::tokens::{Kind, Token};

/// All such paths: one for each leaf of a `use` declaration, and those in code.
pub(super) fn of_file(tokens: &[Token], module: &[String], modules: &BTreeSet<Vec<String>>) -> Vec<Path> {
    let mut walk = Walk { module: module.to_vec(), depth: 0, inline: Vec::new(), test_modules: Vec::new() };
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        walk.follow(tokens, at);
        let current = walk.current();
        let begins_path = at == 0 || tokens[at - 1].kind != Kind::PathSeparator;
        let declares = tokens[at].is_word("use") && tokens.get(at + 1).is_some_and(|next| !next.is('<'));
        if declares {
            let mut leaves = Vec::new();
            at = use_tree(tokens, at + 1, &[], &mut leaves);
            paths.extend(leaves.into_iter().filter_map(|leaf| leaf.into_path(&current, modules)));
        } else if begins_path && ["crate", "super", "self"].iter().any(|word| tokens[at].is_word(word)) {
            let line = tokens[at].line;
            let mut segments = Vec::new();
            at = plain_path(tokens, at, &mut segments);
            let leaf = Leaf { line, segments, last: Last::Used };
            paths.extend((leaf.segments.len() > 1).then(|| leaf.into_path(&current, modules)).flatten());
        } else {
            at += 1;
        }
    }
    paths
}

/// A path as the source has it.
struct Leaf {
    line: usize,
    segments: Vec<String>,
    last: Last,
}

impl Leaf {
    /// The path from the crate root. `None` if it leads to another crate.
    fn into_path(mut self, current: &[String], modules: &BTreeSet<Vec<String>>) -> Option<Path> {
        let mut base = current.to_vec();
        let mut relative = true;
        while let Some(first) = self.segments.first() {
            match first.as_str() {
                "crate" => base.clear(),
                "self" => {}
                "super" => {
                    base.pop();
                }
                _ => break,
            }
            relative = false;
            self.segments.remove(0);
        }
        if relative {
            let child: Vec<String> = base.iter().chain(self.segments.first()).cloned().collect();
            if !modules.contains(&child) {
                return None;
            }
        }
        base.extend(self.segments);
        Some(Path { line: self.line, segments: base, last: self.last })
    }
}

/// Reads a path such as `a::b::c`. Returns the place behind it.
fn plain_path(tokens: &[Token], mut at: usize, segments: &mut Vec<String>) -> usize {
    while let Some(word) = tokens.get(at).and_then(Token::word) {
        segments.push(word.to_owned());
        at += 1;
        if tokens.get(at).is_none_or(|token| token.kind != Kind::PathSeparator) {
            break;
        }
        at += 1;
    }
    at
}

/// Reads one tree of a `use` declaration. Returns the place behind it.
fn use_tree(tokens: &[Token], mut at: usize, prefix: &[String], leaves: &mut Vec<Leaf>) -> usize {
    let mut segments = prefix.to_vec();
    if tokens.get(at).is_some_and(|token| token.kind == Kind::PathSeparator) {
        at += 1;
    }
    at = plain_path(tokens, at, &mut segments);
    let Some(token) = tokens.get(at) else { return at };
    let line = token.line;
    if token.is('{') {
        at += 1;
        while tokens.get(at).is_some_and(|token| !token.is('}')) {
            at = use_tree(tokens, at, &segments, leaves);
            if tokens.get(at).is_some_and(|token| token.is(',')) {
                at += 1;
            }
        }
        return at + 1;
    }
    if token.is('*') {
        leaves.push(Leaf { line, segments, last: Last::Glob });
        return at + 1;
    }
    // `use a::{self}` names the module itself.
    if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
        segments.pop();
    }
    let mut name = segments.last().cloned().unwrap_or_default();
    let line = tokens[at - 1].line;
    if token.is_word("as") {
        name = tokens.get(at + 1).and_then(Token::word).unwrap_or_default().to_owned();
        at += 2;
    }
    leaves.push(Leaf { line, segments, last: Last::Named(name) });
    at
}
