//! Which module of the core uses which, found by following `crate::` and `super::` paths; and that atomics
//! come from `sync` alone.

use std::collections::BTreeMap;
use std::path::Path;

use crate::tokens::{Kind, Token, tokens};
use crate::{SourceFile, Violation};

/// Reports every use of a module by one that stands before it in `order`, and whatever hides such a use.
pub(crate) fn check(files: &[SourceFile], order: &[&str]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let parsed: Vec<Parsed<'_>> = files.iter().map(|file| parse(file, &mut violations)).collect();
    let Some(root) = parsed.iter().find(|file| file.module.is_empty()) else {
        violations.push(Violation { file: "lib.rs".into(), line: 1, what: "there is no lib.rs".into() });
        return violations;
    };
    let exports = exports(root, order, &mut violations);
    let test_only: Vec<&Vec<String>> = parsed.iter().flat_map(|file| &file.test_modules).collect();
    for file in &parsed {
        if file.module.is_empty() || test_only.iter().any(|test| file.module.starts_with(test)) {
            continue;
        }
        for path in &file.paths {
            if let Some(what) = judge(&file.module[0], path, &exports, order) {
                violations.push(Violation { file: file.path.to_owned(), line: path.line, what });
            }
        }
    }
    violations
}

/// Reports every use of atomics, but in tests, in a crate that has to take them from the core's `sync`.
pub(crate) fn check_atomics(files: &[SourceFile]) -> Vec<Violation> {
    let parsed: Vec<Parsed<'_>> = files.iter().map(|file| parse(file, &mut Vec::new())).collect();
    let test_only: Vec<&Vec<String>> = parsed.iter().flat_map(|file| &file.test_modules).collect();
    let mut violations = Vec::new();
    for file in parsed.iter().filter(|file| !test_only.iter().any(|test| file.module.starts_with(test))) {
        for line in atomic_paths(&file.tokens) {
            let what = format!("takes atomics past `frameyard::{ATOMICS}`, so that no model could explore them");
            violations.push(Violation { file: file.path.to_owned(), line, what });
        }
    }
    violations
}

/// The module that alone names `core::sync::atomic`.
const ATOMICS: &str = "sync";

/// The lines in which a path goes through a module `atomic`.
fn atomic_paths(tokens: &[Token]) -> impl Iterator<Item = usize> + '_ {
    let separator = |at: usize| tokens.get(at).is_some_and(|token| token.kind == Kind::PathSeparator);
    let in_path = move |at: usize| separator(at + 1) || at > 0 && separator(at - 1);
    tokens.iter().enumerate().filter(move |(at, token)| token.is_word("atomic") && in_path(*at)).map(|(_, t)| t.line)
}

/// What the check needs of a source file.
struct Parsed<'a> {
    path: &'a Path,
    /// The module the file holds, as a path from the crate root.
    module: Vec<String>,
    /// Modules declared for tests only.
    test_modules: Vec<Vec<String>>,
    /// Paths that begin at the crate root.
    paths: Vec<RootPath>,
    /// `use` declarations with a visibility, and `mod` declarations: kept for lib.rs.
    tokens: Vec<Token>,
}

/// A path that reaches the crate root: `crate::first…`, or `super::first…` from a top-level module.
struct RootPath {
    line: usize,
    first: First,
}

/// What follows the crate root in a path.
enum First {
    Name(String),
    Glob,
    /// The root itself is given another name.
    Renamed,
    /// More `super` than there are modules.
    AboveRoot,
}

fn judge(user: &str, path: &RootPath, exports: &BTreeMap<String, String>, order: &[&str]) -> Option<String> {
    let name = match &path.first {
        First::Name(name) => name,
        First::Glob => return Some(format!("module `{user}` imports all of the crate root: name the items")),
        First::Renamed => return Some(format!("module `{user}` renames the crate root: write `crate::` instead")),
        First::AboveRoot => return Some(format!("module `{user}`: more `super` than modules")),
    };
    let position = |name: &str| order.iter().position(|module| *module == name);
    let used = exports.get(name).map_or(name.as_str(), String::as_str);
    let (Some(user_at), Some(used_at)) = (position(user), position(used)) else {
        return Some(format!("module `{user}` uses `crate::{name}`, which is neither a layer nor exported from one"));
    };
    (used_at > user_at).then(|| format!("module `{user}` uses `{used}` (as `{name}`), which comes after it"))
}

fn parse<'a>(file: &'a SourceFile, violations: &mut Vec<Violation>) -> Parsed<'a> {
    let module = module_of(&file.path);
    let mut walk = Walk { module: module.clone(), depth: 0, inline: Vec::new(), test_modules: Vec::new() };
    let tokens = walk.without_tests(&tokens(&file.text));
    let mut paths = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.is_word("path") && at >= 2 && tokens[at - 1].is('[') && tokens[at - 2].is('#') {
            let what = "a module with a #[path] of its own: the check does not follow it".to_owned();
            violations.push(Violation { file: file.path.clone(), line: token.line, what });
        }
    }
    if module.first().is_some_and(|top| top != ATOMICS) {
        for line in atomic_paths(&tokens) {
            let what = format!("takes atomics past `crate::{ATOMICS}`, so that no model could explore them");
            violations.push(Violation { file: file.path.clone(), line, what });
        }
    }
    walk.inline.clear();
    walk.depth = 0;
    walk.root_paths(&tokens, &mut paths);
    Parsed { path: &file.path, module, test_modules: walk.test_modules, paths, tokens }
}

/// The module that a source file holds.
fn module_of(path: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.len() == 1 && module[0] == "lib" || module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}

/// A walk through a file's tokens that knows which inline module it is in.
struct Walk {
    module: Vec<String>,
    depth: usize,
    /// Inline modules around the present place, with the brace depth each began at.
    inline: Vec<(String, usize)>,
    test_modules: Vec<Vec<String>>,
}

impl Walk {
    fn present(&self) -> Vec<String> {
        self.module.iter().cloned().chain(self.inline.iter().map(|(name, _)| name.clone())).collect()
    }

    /// Keeps track of braces and of `mod name {`.
    fn follow(&mut self, tokens: &[Token], at: usize) {
        let token = &tokens[at];
        if token.is('{') {
            if at >= 2 && tokens[at - 2].is_word("mod") {
                let name = tokens[at - 1].word().unwrap_or_default().to_owned();
                self.inline.push((name, self.depth));
            }
            self.depth += 1;
        } else if token.is('}') {
            self.depth = self.depth.saturating_sub(1);
            if self.inline.last().is_some_and(|(_, depth)| *depth == self.depth) {
                self.inline.pop();
            }
        }
    }

    /// The tokens without the items that exist in tests only; notes the files such modules stand in.
    fn without_tests(&mut self, tokens: &[Token]) -> Vec<Token> {
        let mut kept = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            if let Some((end, inner)) = test_attribute(tokens, at) {
                if inner {
                    return Vec::new();
                }
                let item_end = end_of_item(tokens, end);
                let declared = tokens[end..item_end].windows(3).find(|w| w[0].is_word("mod") && w[2].is(';'));
                if let Some(name) = declared.and_then(|w| w[1].word()) {
                    let mut module = self.present();
                    module.push(name.to_owned());
                    self.test_modules.push(module);
                }
                at = item_end;
            } else {
                self.follow(tokens, at);
                kept.push(tokens[at].clone());
                at += 1;
            }
        }
        kept
    }

    fn root_paths(&mut self, tokens: &[Token], paths: &mut Vec<RootPath>) {
        let mut at = 0;
        while at < tokens.len() {
            self.follow(tokens, at);
            let begins_path = at == 0 || tokens[at - 1].kind != Kind::PathSeparator;
            if begins_path && ["crate", "super", "self"].iter().any(|word| tokens[at].is_word(word)) {
                let next = self.leading(tokens, at, paths);
                at = next.max(at + 1);
            } else {
                at += 1;
            }
        }
    }

    /// Resolves the leading `crate`, `self` and `super` words of the path at `at`; returns where it goes on.
    fn leading(&self, tokens: &[Token], mut at: usize, paths: &mut Vec<RootPath>) -> usize {
        let line = tokens[at].line;
        let mut base = if tokens[at].is_word("crate") { Vec::new() } else { self.present() };
        loop {
            if tokens[at].is_word("super") && base.pop().is_none() {
                paths.push(RootPath { line, first: First::AboveRoot });
                return at + 1;
            }
            at += 1;
            let separator = tokens.get(at).is_some_and(|token| token.kind == Kind::PathSeparator);
            if !separator {
                let renamed = tokens.get(at).is_some_and(|token| token.is_word("as"));
                if base.is_empty() && renamed {
                    paths.push(RootPath { line, first: First::Renamed });
                }
                return at;
            }
            at += 1;
            if !tokens.get(at).is_some_and(|token| token.is_word("super")) {
                break;
            }
        }
        if base.is_empty() {
            first_names(tokens, at, paths);
        }
        at
    }
}

/// The names that follow the crate root: one, or those of a group.
fn first_names(tokens: &[Token], at: usize, paths: &mut Vec<RootPath>) {
    let Some(token) = tokens.get(at) else { return };
    if !token.is('{') {
        paths.push(RootPath { line: token.line, first: first_of(tokens, at) });
        return;
    }
    let mut depth = 0usize;
    let mut element_begins = false;
    for (at, token) in tokens.iter().enumerate().skip(at) {
        if token.is('{') {
            depth += 1;
            element_begins = depth == 1;
        } else if token.is('}') {
            depth -= 1;
            if depth == 0 {
                return;
            }
        } else if token.is(',') {
            element_begins = depth == 1;
        } else if element_begins {
            paths.push(RootPath { line: token.line, first: first_of(tokens, at) });
            element_begins = false;
        }
    }
}

fn first_of(tokens: &[Token], at: usize) -> First {
    match tokens[at].word() {
        Some("self") => First::Renamed,
        Some(word) => First::Name(word.to_owned()),
        None => First::Glob,
    }
}

/// If a `#[cfg(test)]` begins at `at`: where it ends, and whether it is an inner one (`#![…]`).
///
/// `cfg(all(…))` with `test` counts; with `any` or `not` in it, the item may exist outside tests.
fn test_attribute(tokens: &[Token], at: usize) -> Option<(usize, bool)> {
    if !tokens[at].is('#') {
        return None;
    }
    let inner = tokens.get(at + 1)?.is('!');
    let open = at + 1 + usize::from(inner);
    if !tokens.get(open)?.is('[') || !tokens.get(open + 1)?.is_word("cfg") {
        return None;
    }
    let length = tokens[open..].iter().position(|token| token.is(']'))?;
    let predicate = &tokens[open..open + length];
    let has = |word: &str| predicate.iter().any(|token| token.is_word(word));
    (has("test") && !has("any") && !has("not")).then_some((open + length + 1, inner))
}

/// Where the item, field, variant or statement that begins at `at`, attributes included, ends.
fn end_of_item(tokens: &[Token], at: usize) -> usize {
    const ITEMS: &[&str] =
        &["const", "enum", "extern", "fn", "impl", "let", "mod", "static", "struct", "trait", "type", "unsafe", "use"];
    let mut depth = 0usize;
    let mut item = false;
    for (at, token) in tokens.iter().enumerate().skip(at) {
        item |= depth == 0 && token.word().is_some_and(|word| ITEMS.contains(&word));
        match token.kind {
            Kind::Punctuation('{' | '(' | '[') => depth += 1,
            // The end of what stands around it.
            Kind::Punctuation('}' | ')' | ']') if depth == 0 => return at,
            Kind::Punctuation('}') if depth == 1 => return at + 1,
            Kind::Punctuation('}' | ')' | ']') => depth -= 1,
            Kind::Punctuation(';') if depth == 0 => return at + 1,
            // Of an item it only parts the generics.
            Kind::Punctuation(',') if depth == 0 && !item => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// What lib.rs exports, by name, with the layer it comes from; reports modules that are no layer.
fn exports(root: &Parsed<'_>, order: &[&str], violations: &mut Vec<Violation>) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    let mut report = |line, what| violations.push(Violation { file: root.path.to_owned(), line, what });
    let tokens = &root.tokens;
    for at in 0..tokens.len() {
        if tokens[at].is_word("mod") {
            let name = tokens.get(at + 1).and_then(Token::word).unwrap_or_default();
            if !order.contains(&name) {
                report(tokens[at].line, format!("module `{name}` has no place in the order of the layers"));
            }
        } else if tokens[at].is_word("use") {
            let end = at + tokens[at..].iter().position(|token| token.is(';')).unwrap_or(0);
            let mut first = at + 1;
            while first + 1 < end && matches!(tokens[first].word(), Some("crate" | "self")) {
                first += 2;
            }
            let Some(module) = tokens[first].word().filter(|module| order.contains(module)) else { continue };
            for last in first..end {
                if tokens[last].is('*') {
                    report(tokens[last].line, format!("lib.rs exports all of `{module}`: name the items"));
                }
                let ends_path = matches!(tokens[last + 1].kind, Kind::Punctuation(',' | '}' | ';'));
                if let (true, Some(name)) = (ends_path, tokens[last].word()) {
                    exports.insert(name.to_owned(), module.to_owned());
                }
            }
        } else if tokens[at].is_word("extern") && tokens.get(at + 2).is_some_and(|token| token.is_word("self")) {
            report(tokens[at].line, "the crate is given another name: the check would not follow it".to_owned());
        }
    }
    exports
}

#[cfg(test)]
mod tests;
