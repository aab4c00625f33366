//! Uses between the modules of a crate: `crate::`, `self::` and `super::` paths, followed through `use` declarations.
//!
//! - The uses among the children of a module must have no cycle.
//! - If the order of the children is fixed, a child may use only children before it.
//! - A use of an item counts as a use of the module that declares it, even if another module re-exports the item.
//! - A module and the modules inside it may use each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::Violation;
use crate::sources::files::SourceFile;
use crate::sources::layers::Order;
use crate::sources::tokens::{Kind, Token, tokens};

/// Reports every use that breaks the order of modules in a crate, and every construct that could hide such a use.
pub(crate) fn check(crate_name: &str, files: &[SourceFile], orders: &[Order]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let parsed = without_tests(files);
    let mut tree = Tree::default();
    let mut uses = Vec::new();
    for file in &parsed {
        tree.modules.insert(file.module.clone());
    }
    for file in &parsed {
        refuse_path_attributes(file, &mut violations);
        uses.extend(paths::of_file(&file.tokens, &file.module, &tree.modules).into_iter().map(|path| (file, path)));
    }
    for (file, path) in &uses {
        match &path.last {
            Last::Named(name) => {
                tree.names.insert((file.module.clone(), name.clone()), path.segments.clone());
            }
            Last::Glob if tree.modules.contains(&path.segments) => {
                let what = format!("imports all of `{}`: name the items", shown(crate_name, &path.segments));
                violations.push(Violation { file: file.source.path.clone(), line: path.line, what });
            }
            Last::Glob | Last::Used => {}
        }
    }
    let mut graphs: BTreeMap<Vec<String>, Graph<'_>> = BTreeMap::new();
    for (file, path) in &uses {
        let used = tree.declaring_module(&path.segments);
        let shared = file.module.iter().zip(&used).take_while(|(one, other)| one == other).count();
        if let (Some(user), Some(used)) = (file.module.get(shared), used.get(shared)) {
            let graph = graphs.entry(file.module[..shared].to_vec()).or_default();
            graph.entry(user.clone()).or_default().entry(used.clone()).or_insert((file.source, path.line));
        }
    }
    for order in orders {
        check_places(crate_name, order, &parsed, &mut violations);
    }
    for (parent, graph) in &graphs {
        let name = shown(crate_name, parent);
        match orders.iter().find(|order| order.parent == name) {
            Some(order) => check_order(order, graph, &mut violations),
            None => check_cycles(&name, graph, &mut violations),
        }
    }
    violations
}

/// Reports every use of atomics that does not come from the module `sync` of the core.
pub(crate) fn check_atomics(files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in without_tests(files) {
        if file.module.first().is_some_and(|top| top == ATOMICS) {
            continue;
        }
        for line in atomic_paths(&file.tokens) {
            let what = format!("takes atomics past the core's `{ATOMICS}`, so that no model could explore them");
            violations.push(Violation { file: file.source.path.clone(), line, what });
        }
    }
    violations
}

/// The only module that may name `core::sync::atomic`.
const ATOMICS: &str = "sync";

/// The lines with a path that has a segment `atomic`.
fn atomic_paths(tokens: &[Token]) -> impl Iterator<Item = usize> + '_ {
    let separator = |at: usize| tokens.get(at).is_some_and(|token| token.kind == Kind::PathSeparator);
    let in_path = move |at: usize| separator(at + 1) || at > 0 && separator(at - 1);
    tokens.iter().enumerate().filter(move |(at, token)| token.is_word("atomic") && in_path(*at)).map(|(_, t)| t.line)
}

/// A source file without its test code.
pub(crate) struct Parsed<'a> {
    pub(crate) source: &'a SourceFile,
    /// The module of the file, as a path from the crate root.
    pub(crate) module: Vec<String>,
    pub(crate) tokens: Vec<Token>,
}

/// The files of a crate, without items, modules and files that exist only in tests.
pub(crate) fn without_tests(files: &[SourceFile]) -> Vec<Parsed<'_>> {
    let mut test_modules = Vec::new();
    let mut parsed = Vec::new();
    for source in files {
        let module = module_of(&source.path);
        let mut walk = Walk { module: module.clone(), depth: 0, inline: Vec::new(), test_modules: Vec::new() };
        let tokens = walk.without_tests(&tokens(&source.text));
        test_modules.extend(walk.test_modules);
        parsed.push(Parsed { source, module, tokens });
    }
    parsed.retain(|file| !test_modules.iter().any(|test| file.module.starts_with(test)));
    parsed
}

/// The uses among the children of one module: user, used child, and the first place of such a use.
type Graph<'a> = BTreeMap<String, BTreeMap<String, (&'a SourceFile, usize)>>;

/// The modules of a crate, and the names that `use` declarations bring into them.
#[derive(Default)]
struct Tree {
    modules: BTreeSet<Vec<String>>,
    names: BTreeMap<(Vec<String>, String), Vec<String>>,
}

impl Tree {
    /// The module that declares the item of a path from the crate root.
    fn declaring_module(&self, path: &[String]) -> Vec<String> {
        let mut path = path.to_vec();
        // A chain of re-exports is finite. The bound is for code that does not compile.
        for _ in 0..32 {
            let depth = (0..=path.len()).rev().find(|depth| self.modules.contains(&path[..*depth])).unwrap_or(0);
            let Some(name) = path.get(depth) else { return path };
            match self.names.get(&(path[..depth].to_vec(), name.clone())) {
                Some(target) if target[..] != path[..=depth] => {
                    path = target.iter().chain(&path[depth + 1..]).cloned().collect();
                }
                _ => return path[..depth].to_vec(),
            }
        }
        Vec::new()
    }
}

/// A path from the crate root.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Path {
    line: usize,
    segments: Vec<String>,
    last: Last,
}

/// The role of a path.
#[derive(Debug, PartialEq, Eq)]
enum Last {
    /// It imports an item into the module, under this name.
    Named(String),
    /// It imports all names of a module or enum into the module.
    Glob,
    /// It uses an item in code.
    Used,
}

fn shown(crate_name: &str, module: &[String]) -> String {
    [crate_name].into_iter().chain(module.iter().map(String::as_str)).collect::<Vec<_>>().join("::")
}

fn refuse_path_attributes(file: &Parsed<'_>, violations: &mut Vec<Violation>) {
    for three in file.tokens.windows(3) {
        if three[0].is('#') && three[1].is('[') && three[2].is_word("path") {
            let what = "a module with a #[path] attribute: the check does not follow it".to_owned();
            violations.push(Violation { file: file.source.path.clone(), line: three[2].line, what });
        }
    }
}

/// Reports files whose module has no place in a fixed order.
fn check_places(crate_name: &str, order: &Order, files: &[Parsed<'_>], violations: &mut Vec<Violation>) {
    for file in files {
        let Some((last, parent)) = file.module.split_last() else { continue };
        if shown(crate_name, parent) == order.parent && !order.children.contains(&last.as_str()) {
            let what = format!("module `{last}` has no place in the order of `{}`", order.parent);
            violations.push(Violation { file: file.source.path.clone(), line: 1, what });
        }
    }
}

/// Reports uses of modules that come after their users in a fixed order.
fn check_order(order: &Order, graph: &Graph<'_>, violations: &mut Vec<Violation>) {
    let position = |name: &str| order.children.iter().position(|child| *child == name);
    for (user, uses) in graph {
        for (used, (file, line)) in uses {
            if position(used) > position(user) {
                let what = format!("`{user}` uses `{used}`, which comes after it in `{}`", order.parent);
                violations.push(Violation { file: file.path.clone(), line: *line, what });
            }
        }
    }
}

/// Reports uses that are part of a cycle among the children of a module.
fn check_cycles(parent: &str, graph: &Graph<'_>, violations: &mut Vec<Violation>) {
    for (user, uses) in graph {
        for (used, (file, line)) in uses {
            if let Some(way) = shortest_path(graph, used, user) {
                let what = format!("cycle in `{parent}`: {user} → {}", way.join(" → "));
                violations.push(Violation { file: file.path.clone(), line: *line, what });
            }
        }
    }
}

/// A shortest path along uses from one module to another.
fn shortest_path(graph: &Graph<'_>, from: &str, to: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::from([from.to_owned()]);
    while let Some(way) = (!ways.is_empty()).then(|| ways.remove(0)) {
        let end = way.last()?;
        if end == to {
            return Some(way);
        }
        for next in graph.get(end).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(next.clone()) {
                ways.push(way.iter().chain([next]).cloned().collect());
            }
        }
    }
    None
}

/// The module of a source file.
fn module_of(path: &std::path::Path) -> Vec<String> {
    let mut module: Vec<String> =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.len() == 1 && module[0] == "lib" || module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}

/// A walk through a file's tokens that tracks the inline modules around the current token.
struct Walk {
    module: Vec<String>,
    depth: usize,
    /// The inline modules around the current token, each with the brace depth at which it began.
    inline: Vec<(String, usize)>,
    /// The modules of other files that exist only in tests.
    test_modules: Vec<Vec<String>>,
}

impl Walk {
    /// The module around the current token, as a path from the crate root.
    fn current(&self) -> Vec<String> {
        self.module.iter().cloned().chain(self.inline.iter().map(|(name, _)| name.clone())).collect()
    }

    /// Advances past the token at `at`, and tracks braces and `mod name {`.
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

    /// The tokens without the items that exist only in tests. Records such items that are modules of other files.
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
                    let mut module = self.current();
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
}

/// If a `#[cfg(test)]` begins at `at`: its end, and whether it is an inner attribute (`#![…]`).
///
/// `test` counts alone or in `all(…)`. In `any` or `not` the item may exist outside tests.
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
    // The words with open parentheses. `test` counts only inside `cfg` and `all`.
    let mut around = Vec::new();
    let mut needs_test = false;
    for pair in tokens[open..=open + length].windows(2) {
        if pair[0].is('(') {
            continue;
        } else if pair[0].is(')') {
            around.pop();
        } else if let Some(word) = pair[0].word() {
            needs_test |= word == "test" && around.iter().all(|outer| ["cfg", "all"].contains(outer));
            if pair[1].is('(') {
                around.push(word);
            }
        }
    }
    needs_test.then_some((open + length + 1, inner))
}

/// The end of the item, field, variant or statement that begins at `at`, with its attributes.
fn end_of_item(tokens: &[Token], at: usize) -> usize {
    const ITEMS: &[&str] =
        &["const", "enum", "extern", "fn", "impl", "let", "mod", "static", "struct", "trait", "type", "unsafe", "use"];
    let mut depth = 0usize;
    let mut item = false;
    for (at, token) in tokens.iter().enumerate().skip(at) {
        item |= depth == 0 && token.word().is_some_and(|word| ITEMS.contains(&word));
        match token.kind {
            Kind::Punctuation('{' | '(' | '[') => depth += 1,
            // The end of the surrounding block.
            Kind::Punctuation('}' | ')' | ']') if depth == 0 => return at,
            Kind::Punctuation('}') if depth == 1 => return at + 1,
            Kind::Punctuation('}' | ')' | ']') => depth -= 1,
            Kind::Punctuation(';') if depth == 0 => return at + 1,
            // A comma ends a field or variant. In an item it only separates generics.
            Kind::Punctuation(',') if depth == 0 && !item => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

mod paths;

#[cfg(test)]
mod tests;
