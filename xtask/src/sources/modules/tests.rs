//! The check accepts code that respects the layers, and finds each way to break them.

use super::*;

const ORDERS: &[Order] = &[Order { parent: "core", children: &["units", "page", "zone", "yard"] }];
const LIB: &str = "//! Docs with crate::nothing.\n\
    mod page; mod units; mod zone; pub mod yard;\n\
    pub use units::{Pfn, geometry::{Geometry as Shape}};\n\
    pub use yard::Yard;\n\
    pub use core::fmt;\n";

fn file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.into(), text: text.into() }
}

/// The violations in a crate with modules for the fixed order and some more files, as `file:line: text`.
fn check_files(files: &[(&str, &str)]) -> Vec<String> {
    let mut all = vec![file("lib.rs", LIB)];
    for name in ["page.rs", "units.rs", "zone.rs", "yard.rs"] {
        if files.iter().all(|(path, _)| *path != name) {
            all.push(file(name, ""));
        }
    }
    all.extend(files.iter().map(|(path, text)| file(path, text)));
    check("core", &all, ORDERS).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_kept(path: &str, text: &str) {
    assert_eq!(check_files(&[(path, text)]), [""; 0], "{text}");
}

#[track_caller]
fn assert_broken(path: &str, text: &str, line: usize, says: &str) {
    let found = check_files(&[(path, text)]);
    assert!(
        found.len() == 1 && found[0].starts_with(&format!("{path}:{line}: ")) && found[0].contains(says),
        "{text}\ngave {found:?}"
    );
}

#[test]
fn accepts_uses_of_lower_modules() {
    assert_kept("zone.rs", "use crate::{page::{Page, State}, units::Pfn};\nuse crate::Pfn;\nuse super::page::Page;");
    assert_kept("zone/pcp.rs", "use super::super::page::Page;\nuse super::Zone;\nuse crate::zone::stats;");
    assert_kept("yard.rs", "fn f() { crate::zone::drain(); let x: &crate::Shape; }");
    assert_kept("units.rs", "pub(crate) fn f() {}\npub(super) fn g(self) -> Self { self::f() }");
    assert_kept("page.rs", "fn f() -> impl Iterator<Item = u8> + use<'_> {}");
}

#[test]
fn refuses_uses_of_higher_modules_however_they_are_written() {
    for text in [
        "use crate::zone::Zone;",
        "use super::zone::Zone;",
        "use crate::{units::Pfn, zone::{self}};",
        "use crate::{\n    units::{Pfn, Order},\n    zone::Zone,\n};",
        "fn f() { crate::zone::drain(); }",
        "fn f(zone: &super::zone::Zone) {}",
        "macro_rules! m { () => { $crate::zone::drain() } }",
        "mod inner { use super::super::zone::Zone; }",
        "mod inner { fn f() { if true { } } }\nuse super::zone::Zone;",
        "use crate :: /* a comment */ zone::Zone;",
        "use crate::zone as other;",
    ] {
        let line = text.lines().position(|line| line.contains("zone")).unwrap() + 1;
        assert_broken("page.rs", text, line, "`page` uses `zone`");
    }
    assert_broken("page/state.rs", "\nuse super::super::zone::Zone;", 2, "`page` uses `zone`");
}

#[test]
fn follows_re_exports_to_the_declaring_module() {
    assert_broken("page.rs", "use crate::Yard;", 1, "`page` uses `yard`");
    assert_broken("page.rs", "use super::Yard as Other;", 1, "`page` uses `yard`");
    let chain = [("yard.rs", "pub use crate::zone::Zone;"), ("page.rs", "use crate::yard::Zone;")];
    assert_eq!(check_files(&chain), ["page.rs:1: `page` uses `zone`, which comes after it in `core`"]);
}

#[test]
fn refuses_cycles_among_the_children_of_a_module() {
    let parent = ("zone.rs", "mod a; mod b; mod c;\npub(crate) use b::B;");
    let kept = [parent, ("zone/a.rs", "use super::B;"), ("zone/b.rs", "use super::c::C;"), ("zone/c.rs", "")];
    assert_eq!(check_files(&kept), [""; 0]);
    let cycle = [
        parent,
        ("zone/a.rs", "use super::B;"),
        ("zone/b.rs", "use super::c::C;"),
        ("zone/c.rs", "\nuse crate::zone::a::A;"),
    ];
    assert_eq!(
        check_files(&cycle),
        [
            "zone/a.rs:1: cycle in `core::zone`: a → b → c → a",
            "zone/b.rs:1: cycle in `core::zone`: b → c → a → b",
            "zone/c.rs:2: cycle in `core::zone`: c → a → b → c"
        ]
    );
}

#[test]
fn leaves_a_module_and_those_inside_it_free() {
    let both = [("zone.rs", "mod pcp;\nuse pcp::Lists;\nstruct Zone;"), ("zone/pcp.rs", "use super::Zone;")];
    assert_eq!(check_files(&both), [""; 0]);
}

#[test]
fn refuses_what_it_could_not_follow() {
    assert_broken("page.rs", "use crate::*;", 1, "name the items");
    assert_broken("page.rs", "use super::*;", 1, "name the items");
    assert_broken("page.rs", "#[path = \"../zone.rs\"]\nmod other;", 1, "#[path]");
}

#[test]
fn refuses_a_module_without_a_place_in_the_order() {
    assert_broken("helper.rs", "", 1, "`helper` has no place");
}

#[test]
fn lets_code_for_tests_look_up_but_no_further() {
    assert_kept("page.rs", "#[cfg(test)]\nmod tests { use super::*; use crate::yard::Yard; fn f() { {} } }");
    assert_kept("page.rs", "#[cfg(all(loom, test))]\n#[expect(x)]\nfn f() -> [u8; 2] { crate::zone::drain() }");
    assert_kept("page.rs", "#[cfg(test)]\nuse crate::yard::Yard;\nuse crate::units::Pfn;");
    assert_kept("page.rs", "#[cfg(all(test, not(any(loom, shuttle))))]\nuse crate::yard::Yard;");
    let field = "struct S {\n#[cfg(test)]\nyard: crate::yard::Yard,\nx: u8 }\nmod m { use super::super::units; }";
    assert_kept("page.rs", field);
    assert_broken("page.rs", "struct S { #[cfg(test)] x: (u8, u8), y: crate::zone::Zone }", 1, "uses `zone`");
    assert_broken("page.rs", "struct S { #[cfg(test)] x: u8 }\nuse super::zone::Zone;", 2, "uses `zone`");
    assert_broken("page.rs", "#[cfg(test)]\nmod tests { fn f() { {} } }\nuse crate::zone::Zone;", 3, "uses `zone`");
    assert_broken("page.rs", "#[cfg(not(test))]\nuse crate::zone::Zone;", 2, "uses `zone`");
    assert_broken("page.rs", "#[cfg(any(test, feature = \"x\"))]\nuse crate::zone::Zone;", 2, "uses `zone`");
}

#[test]
fn leaves_out_a_file_of_tests_with_all_below_it() {
    let found = check_files(&[
        ("page.rs", "#[cfg(test)]\nmod tests;\nmod state;"),
        ("page/tests.rs", "use crate::yard::Yard;"),
        ("page/tests/fixture.rs", "use crate::yard::Yard;"),
        ("page/state.rs", "use crate::yard::Yard;"),
    ]);
    assert!(found.len() == 1 && found[0].starts_with("page/state.rs"), "{found:?}");
}

#[test]
fn passes_over_comments_and_strings() {
    assert_kept("page.rs", "//! See `crate::zone`.\n/* crate::zone */ const X: &str = \"crate::zone::Zone\";");
}

#[test]
fn takes_atomics_from_sync_alone() {
    for text in [
        "use core::sync::atomic::AtomicU32;",
        "use core::sync::{atomic::{AtomicU32, Ordering}};",
        "fn f() { core::sync::atomic::fence(order); }",
        "use core::sync::atomic;",
    ] {
        assert_eq!(check_atomics(&[file("page.rs", text)]).len(), 1, "{text}");
    }
    for (path, text) in [
        ("page.rs", "fn f(atomic: u32) -> u32 { atomic }"),
        ("page.rs", "#[cfg(test)]\nmod tests { use core::sync::atomic::AtomicU32; }"),
        ("page.rs", "use frameyard::sync::AtomicU32;"),
        ("sync.rs", "pub use core::sync::atomic::AtomicU32;"),
    ] {
        assert_eq!(check_atomics(&[file(path, text)]), [], "{text}");
    }
    let declares = file("space.rs", "#[cfg(test)]\nmod tests;");
    let tests = file("space/tests.rs", "use core::sync::atomic::AtomicU32;");
    assert_eq!(check_atomics(&[declares, tests]), []);
}
