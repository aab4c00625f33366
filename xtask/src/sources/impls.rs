//! Where methods lie: those of a type in the top-level module that declares the type, so that a reader knows where to look. Modules that add
//! their own are listed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::sources::Violation;
use crate::sources::files::SourceFile;
use crate::sources::modules::without_tests;
use crate::sources::tokens::{Kind, Token};

/// Top-level modules that may have methods of types of another one.
pub(crate) struct Guests {
    /// The crate and the module that declares the types: `frameyard::yard`.
    pub(crate) host: &'static str,
    pub(crate) guests: &'static [&'static str],
}

/// Reports each `impl` block without a trait that lies in another top-level module than its type and is no guest there, and guests that have
/// no such block.
pub(crate) fn check(crate_name: &str, files: &[SourceFile], guests: &[Guests]) -> Vec<Violation> {
    let parsed = without_tests(files);
    let mut declared: BTreeMap<&str, Vec<&[String]>> = BTreeMap::new();
    for file in &parsed {
        for pair in file.tokens.windows(2) {
            if let (Some("struct" | "enum" | "union"), Some(name)) = (pair[0].word(), pair[1].word()) {
                declared.entry(name).or_default().push(&file.module);
            }
        }
    }
    let (mut violations, mut met) = (Vec::new(), vec![false; guests.len()]);
    for file in &parsed {
        for at in 0..file.tokens.len() {
            let Some(name) = inherent(&file.tokens[at..]) else { continue };
            let shared =
                |home: &&[String]| home.iter().zip(&file.module).take_while(|(one, other)| one == other).count();
            let Some(home) = declared.get(name).and_then(|homes| homes.iter().copied().max_by_key(shared)) else {
                continue;
            };
            let (Some(home), Some(here)) = (home.first(), file.module.first()) else { continue };
            if home == here {
                continue;
            }
            let host = format!("{crate_name}::{home}");
            let listed = guests.iter().position(|of| of.host == host && of.guests.contains(&here.as_str()));
            match listed {
                Some(listed) => met[listed] = true,
                None => violations.push(Violation {
                    file: file.source.path.clone(),
                    line: file.tokens[at].line,
                    what: format!("methods of `{name}`, a type of `{home}`, in `{here}`"),
                }),
            }
        }
    }
    let in_vain = |(of, met): &(&Guests, bool)| !met && of.host.starts_with(&format!("{crate_name}::"));
    for (of, _) in guests.iter().zip(met).filter(in_vain) {
        let what =
            format!("no module of {:?} has methods of `{}`, but the list of guests allows it", of.guests, of.host);
        violations.push(Violation { file: "lib.rs".into(), line: 1, what });
    }
    violations
}

/// The name of the type, if an `impl` block without a trait begins here.
fn inherent(tokens: &[Token]) -> Option<&str> {
    if !tokens.first()?.is_word("impl") {
        return None;
    }
    let (mut depth, mut name) = (0usize, None);
    let end = tokens[1..].iter().try_for_each(|token| {
        match token {
            token if token.is('<') => depth += 1,
            token if token.is('>') => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            token if token.is('{') || token.is_word("where") => return ControlFlow::Break(true),
            // A trait; or the type of a value, as in `impl Fn()`.
            token if token.is_word("for") || token.word().is_none() && !token.is('\'') && !is_separator(token) => {
                return ControlFlow::Break(false);
            }
            token => name = token.word().or(name),
        }
        ControlFlow::Continue(())
    });
    name.filter(|_| end == ControlFlow::Break(true))
}

fn is_separator(token: &Token) -> bool {
    token.kind == Kind::PathSeparator
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], guests: &[Guests]) -> Vec<String> {
        let files: Vec<SourceFile> =
            files.iter().map(|(path, text)| SourceFile { path: path.into(), text: (*text).to_owned() }).collect();
        check("core", &files, guests).into_iter().map(|violation| violation.to_string()).collect()
    }

    const ZONE: (&str, &str) = ("zone/state.rs", "pub struct Zone<'a, P>(&'a P); struct Other;");

    #[test]
    fn methods_outside_the_module_of_their_type_are_found() {
        let methods = "use x;\nimpl<'a, P: Fn(u8) -> u8> Zone<'a, P> where P: Copy { fn f() {} }";
        assert_eq!(found(&[ZONE, ("zone.rs", methods)], &[]), [""; 0]);
        let found = found(&[ZONE, ("store/bits.rs", methods)], &[]);
        assert_eq!(found, ["store/bits.rs:2: methods of `Zone`, a type of `zone`, in `store`"]);
    }

    #[test]
    fn traits_and_types_of_values_are_no_methods() {
        let others =
            "impl Drop for Zone { fn drop() {} } fn f() -> impl Fn(u8) { } fn g(x: impl Copy) { } impl Unknown { }";
        assert_eq!(found(&[ZONE, ("store.rs", others)], &[]), [""; 0]);
    }

    #[test]
    fn a_type_of_the_same_name_nearby_is_the_one_that_is_meant() {
        let own = "struct Zone; impl Zone { }";
        assert_eq!(found(&[ZONE, ("store/bits.rs", own)], &[]), [""; 0]);
    }

    #[test]
    fn guests_are_allowed_and_not_listed_in_vain() {
        let guests = || [Guests { host: "core::zone", guests: &["store"] }];
        assert_eq!(found(&[ZONE, ("store/bits.rs", "impl Other { }")], &guests()), [""; 0]);
        assert_eq!(found(&[ZONE], &guests()).len(), 1);
    }
}
