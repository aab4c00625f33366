//! The check is shown to pass on code that keeps the layers, and to fail on each way of breaking them.

use super::*;

const ORDER: &[&str] = &["units", "page", "zone", "yard"];
const LIB: &str = "//! Docs with crate::nothing.\n\
    mod page; mod units; mod zone; pub mod yard;\n\
    pub use units::{Pfn, geometry::{Geometry as Shape}};\n\
    pub use yard::Yard;\n\
    pub use core::fmt;\n";

/// What the check says of `lib.rs` and one more file, as `line: text`.
fn check_file(path: &str, text: &str) -> Vec<String> {
    let files =
        [SourceFile { path: "lib.rs".into(), text: LIB.into() }, SourceFile { path: path.into(), text: text.into() }];
    check(&files, ORDER).iter().map(|violation| format!("{}: {}", violation.line, violation.what)).collect()
}

fn assert_kept(path: &str, text: &str) {
    assert_eq!(check_file(path, text), [""; 0], "{text}");
}

fn assert_broken(path: &str, text: &str, line: usize, says: &str) {
    let found = check_file(path, text);
    assert!(
        found.len() == 1 && found[0].starts_with(&format!("{line}: ")) && found[0].contains(says),
        "{text}\ngave {found:?}"
    );
}

#[test]
fn looking_down_is_kept() {
    assert_kept("zone.rs", "use crate::{page::{Page, State}, units::Pfn};\nuse crate::Pfn;\nuse super::page::Page;");
    assert_kept("zone/pcp.rs", "use super::super::page::Page;\nuse super::Zone;\nuse crate::zone::stats;");
    assert_kept("yard.rs", "fn f() { crate::zone::drain(); let x: &crate::Shape; }");
    assert_kept("units.rs", "pub(crate) fn f() {}\npub(super) fn g(self) -> Self { self::f() }");
}

#[test]
fn looking_up_is_broken_however_it_is_written() {
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
    ] {
        let line = text.lines().position(|line| line.contains("zone")).unwrap() + 1;
        assert_broken("page.rs", text, line, "module `page` uses `zone`");
    }
    assert_broken("page/state.rs", "\nuse super::super::zone::Zone;", 2, "module `page` uses `zone`");
    assert_broken("page/mod.rs", "use super::zone::Zone;", 1, "module `page` uses `zone`");
}

#[test]
fn an_export_of_the_root_counts_as_its_module() {
    assert_broken("page.rs", "use crate::Yard;", 1, "module `page` uses `yard` (as `Yard`)");
    assert_broken("page.rs", "use super::Yard;", 1, "module `page` uses `yard` (as `Yard`)");
}

#[test]
fn what_the_check_could_not_follow_is_refused() {
    assert_broken("page.rs", "use crate::*;", 1, "name the items");
    assert_broken("page.rs", "use super::*;", 1, "name the items");
    assert_broken("page.rs", "use crate as root;", 1, "renames the crate root");
    assert_broken("page.rs", "use crate::{self as root};", 1, "renames the crate root");
    assert_broken("page.rs", "use crate::Unknown;", 1, "neither a layer nor exported");
    assert_broken("page.rs", "use super::super::zone;", 1, "more `super` than modules");
    assert_broken("page.rs", "#[path = \"../zone.rs\"]\nmod other;", 1, "#[path]");
}

#[test]
fn a_module_without_a_place_in_the_order_is_refused() {
    let files = [SourceFile { path: "lib.rs".into(), text: "mod units;\nmod helper;".into() }];
    let found = check(&files, ORDER);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].line, found[0].what.contains("`helper` has no place")), (2, true));
}

#[test]
fn code_for_tests_may_look_up_but_not_beyond() {
    assert_kept("page.rs", "#[cfg(test)]\nmod tests { use super::*; use crate::yard::Yard; fn f() { {} } }");
    assert_kept("page.rs", "#[cfg(all(loom, test))]\n#[expect(x)]\nfn f() -> [u8; 2] { crate::zone::drain() }");
    assert_kept("page.rs", "#[cfg(test)]\nuse crate::yard::Yard;\nuse crate::units::Pfn;");
    assert_kept(
        "page.rs",
        "struct S {\n#[cfg(test)]\nyard: crate::yard::Yard,\nx: u8 }\nmod m { use super::super::units; }",
    );
    let field = "struct S { #[cfg(test)] x: (u8, u8), y: crate::zone::Zone }";
    assert_broken("page.rs", field, 1, "uses `zone`");
    let last_field = "struct S { #[cfg(test)] x: u8 }\nuse super::zone::Zone;";
    assert_broken("page.rs", last_field, 2, "uses `zone`");
    let after = "#[cfg(test)]\nmod tests { fn f() { {} } }\nuse crate::zone::Zone;";
    assert_broken("page.rs", after, 3, "uses `zone`");
    assert_broken("page.rs", "#[cfg(not(test))]\nuse crate::zone::Zone;", 2, "uses `zone`");
    assert_broken("page.rs", "#[cfg(any(test, feature = \"x\"))]\nuse crate::zone::Zone;", 2, "uses `zone`");
}

#[test]
fn a_file_of_tests_is_left_out_with_all_below_it() {
    let files = [
        ("lib.rs", LIB),
        ("page.rs", "#[cfg(test)]\nmod tests;\nmod state;"),
        ("page/tests.rs", "use crate::yard::Yard;"),
        ("page/tests/fixture.rs", "use crate::yard::Yard;"),
        ("page/state.rs", "use crate::yard::Yard;"),
    ];
    let files = files.map(|(path, text)| SourceFile { path: path.into(), text: text.into() });
    let found = check(&files, ORDER);
    assert_eq!(found.iter().map(|violation| violation.file.to_str().unwrap()).collect::<Vec<_>>(), ["page/state.rs"]);
}

#[test]
fn words_in_comments_and_strings_are_not_uses() {
    assert_kept("page.rs", "//! See `crate::zone`.\n/* crate::zone */ const X: &str = \"crate::zone::Zone\";");
}

#[test]
fn atomics_come_from_sync_alone() {
    for text in [
        "use core::sync::atomic::AtomicU32;",
        "use core::sync::{atomic::{AtomicU32, Ordering}};",
        "fn f() { core::sync::atomic::fence(order); }",
        "use core::sync::atomic;",
    ] {
        assert_broken("page.rs", text, 1, "takes atomics past `crate::sync`");
    }
    assert_kept("page.rs", "fn f(atomic: u32) -> u32 { atomic }");
    assert_kept("page.rs", "#[cfg(test)]\nmod tests { use core::sync::atomic::AtomicU32; }");
    assert_kept("sync.rs", "pub use core::sync::atomic::AtomicU32;");
}

#[test]
fn other_modelled_crates_take_atomics_from_the_core() {
    let file = |text: &str| SourceFile { path: "words.rs".into(), text: text.to_owned() };
    let broken = check_atomics(&[file("use frameyard::Pfn;\nuse core::sync::atomic::AtomicU32;")]);
    assert_eq!(broken.iter().map(|violation| violation.line).collect::<Vec<_>>(), [2]);
    assert!(check_atomics(&[file("use frameyard::sync::AtomicU32;")]).is_empty());
    assert!(check_atomics(&[file("#[cfg(test)]\nmod tests { use core::sync::atomic::AtomicU32; }")]).is_empty());
    let declares = SourceFile { path: "space.rs".into(), text: "#[cfg(test)]\nmod tests;".to_owned() };
    let tests = SourceFile { path: "space/tests.rs".into(), text: "use core::sync::atomic::AtomicU32;".to_owned() };
    assert!(check_atomics(&[declares, tests]).is_empty());
}
