//! The committed headers are those that cbindgen generates from the sources.
//!
//! `FRAMEYARD_WRITE_HEADER=1 cargo test -p frameyard-c --test headers` writes them.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{env, fs};

use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, Language, Style};

/// A header, and what it is made of.
struct Header {
    /// The module of the interface, and the folder of the header's own parts.
    module: &'static str,
    file: &'static str,
    guard: &'static str,
    /// The sources of the module, in the order of the header.
    sources: &'static [&'static str],
    /// The number of functions, at least.
    functions: usize,
}

const HEADERS: [Header; 2] = [
    Header {
        module: "hosted",
        file: "include/frameyard.h",
        guard: "FRAMEYARD_H",
        sources: &["log", "handle", "create", "device_memory", "space", "pin"],
        functions: 59,
    },
    Header {
        module: "kernel",
        file: "include/frameyard_core.h",
        guard: "FRAMEYARD_CORE_H",
        sources: &["platform", "handle", "source", "create"],
        functions: 42,
    },
];

/// The text of each header, made once: the tests run at the same time, and the functions pass through files.
static GENERATED: LazyLock<[String; 2]> = LazyLock::new(|| HEADERS.map(|header| header.generate()));

/// The shared sources whose items are in all headers, in the order of the headers.
const SHARED: [&str; 10] = [
    "version",
    "status",
    "error",
    "handle",
    "calls/alloc",
    "calls/request",
    "calls/frames",
    "calls/devices",
    "calls/statistics",
    "calls/text",
];

/// The shared sources whose macros declare functions.
const FUNCTIONS: [&str; 2] = ["functions", "device_functions"];

/// What stands in front of and behind the functions in the macro that declares them.
const BEGIN: &str = "// functions: begin";
const END: &str = "// functions: end";

impl Header {
    fn part(&self, name: &str) -> String {
        let own = fs::read_to_string(folder("header").join(self.module).join(name)).expect("each header has its parts");
        own.trim_end().to_owned()
    }

    /// The header of the sources.
    fn generate(&self) -> String {
        let config = Config {
            language: Language::C,
            cpp_compat: true,
            include_guard: Some(self.guard.to_owned()),
            header: Some(self.part("introduction.h")),
            trailer: Some(format!(
                "{}\n\n{}",
                include_str!("../header/shared/defaults.h").trim_end(),
                self.part("defaults.h")
            )),
            no_includes: true,
            usize_is_size_t: true,
            sys_includes: ["stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
            style: Style::Both,
            documentation_style: DocumentationStyle::C99,
            line_length: 120,
            enumeration: EnumConfig { prefix_with_name: false, ..EnumConfig::default() },
            ..Config::default()
        };
        let shared = folder("src/shared");
        let own = folder("src").join(self.module);
        let functions = FUNCTIONS.map(|name| functions_of(&shared, name, self.module));
        let mut builder = Builder::new().with_config(config);
        let shared = SHARED.map(|name| shared.join(name).with_extension("rs"));
        let own = self.sources.iter().map(|name| exported(&own, name, self.module));
        let upkeep = folder("src/shared/calls/upkeep.rs");
        for source in shared.into_iter().chain(own).chain(functions).chain([upkeep]) {
            builder = builder.with_src(source);
        }
        let mut bytes = Vec::new();
        builder.generate().expect("cbindgen reads the sources").write(&mut bytes);
        let text = without_safety(&String::from_utf8(bytes).expect("a header is text"));
        // cbindgen ends the guard in front of the functions that it does not generate.
        let end = format!("#endif  /* {} */\n", self.guard);
        let (front, back) = text.split_once(&end).expect("the header has a guard");
        format!("{}\n{}\n\n{end}", front.trim_end(), back.trim_end())
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// How functions of a kernel get their names in C. cbindgen knows only the attribute inside.
const UNLESS_HOSTED: &str = r#"cfg_attr(not(feature = "hosted"), unsafe(no_mangle))"#;

/// Writes a source to a file in which cbindgen sees all functions.
fn exported(sources: &Path, name: &str, header: &str) -> PathBuf {
    let text = fs::read_to_string(sources.join(name).with_extension("rs")).expect("the source is here");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{header}-{name}.rs"));
    fs::write(&path, text.replace(UNLESS_HOSTED, "unsafe(no_mangle)")).expect("the folder can be written");
    path
}

/// Writes the functions of the macro to a file that cbindgen can read: it does not expand macros.
fn functions_of(sources: &Path, name: &str, header: &str) -> PathBuf {
    let text = fs::read_to_string(sources.join(name).with_extension("rs")).expect("the source is here");
    let (_, text) = text.split_once(BEGIN).expect("the functions begin");
    let (text, _) = text.split_once(END).expect("the functions end");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{header}-{name}.rs"));
    let text = text.replace("$yard", "fy_yard").replace("$export", "unsafe(no_mangle)").replace("$crate::shared::", "");
    fs::write(&path, text).expect("the folder can be written");
    path
}

/// The header without the sections on safety, which are for Rust: the introduction says the same for all functions.
fn without_safety(header: &str) -> String {
    let mut text = String::new();
    let mut skips = false;
    for line in header.lines() {
        let comment = line.strip_prefix("//").map(str::trim);
        match comment {
            Some("# Safety") => {
                skips = true;
                // The empty line in front of it.
                if text.ends_with("//\n") {
                    text.truncate(text.len() - 3);
                }
            }
            None => skips = false,
            Some(_) => {}
        }
        if !skips {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

#[test]
fn the_committed_headers_are_the_generated_ones() {
    for (header, generated) in HEADERS.iter().zip(&*GENERATED) {
        let path = folder(header.file);
        if env::var_os("FRAMEYARD_WRITE_HEADER").is_some() {
            fs::write(&path, generated).expect("the header can be written");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        let differs = committed.lines().zip(generated.lines()).position(|(old, new)| old != new);
        assert!(
            committed == *generated,
            "{} differs from the sources, first in line {}. Renew it with\n\
             FRAMEYARD_WRITE_HEADER=1 cargo test -p frameyard-c --test headers",
            header.file,
            differs.unwrap_or(committed.lines().count().min(generated.lines().count())) + 1
        );
    }
}

/// The comment in front of a line, as one line; empty if there is none.
fn comment_before(lines: &[&str], at: usize) -> String {
    let comments = lines[..at].iter().rev().map(|line| line.trim()).take_while(|line| line.starts_with("//"));
    let mut comments: Vec<&str> = comments.map(|line| line.trim_start_matches('/').trim()).collect();
    comments.reverse();
    comments.join(" ")
}

#[test]
fn every_function_says_what_it_does_and_which_threads_may_call_it() {
    for (header, text) in HEADERS.iter().zip(&*GENERATED) {
        let lines: Vec<&str> = text.lines().collect();
        let mut functions = 0;
        for (at, line) in lines.iter().enumerate() {
            let is_function = (line.contains(" fy_") || line.contains(" *fy_")) && line.contains('(');
            if line.starts_with(['/', ' ', '#', '}', 't']) || !is_function || line.starts_with("static") {
                continue;
            }
            functions += 1;
            let comment = comment_before(&lines, at);
            assert!(comment.contains("Thread safety"), "{line}: {comment}");
            // A call that can fail returns a status, and lists its errors.
            assert!(!line.contains("fy_status fy_") || comment.contains("Errors:"), "{line}: {comment}");
        }
        assert_eq!(functions, header.functions, "{}", header.file);
    }
}

#[test]
fn every_constant_structure_and_member_has_a_description() {
    for (header, text) in HEADERS.iter().zip(&*GENERATED) {
        let lines: Vec<&str> = text.lines().collect();
        let (mut constants, mut types, mut members, mut depth) = (0, 0, 0, 0);
        for (at, line) in lines.iter().enumerate() {
            let is_type = line.starts_with("typedef ");
            let is_constant = line.starts_with("#define ") && !line.contains(header.guard);
            // Inside a type that is written out; `extern "C"` has its own braces.
            let is_member = depth > 0 && line.starts_with("  ") && line.trim_end().ends_with([';', ',']);
            if is_type || is_constant || is_member {
                let comment = comment_before(&lines, at);
                assert!(comment.len() > 5, "{}: {line} has no description", header.file);
                constants += usize::from(is_constant);
                types += usize::from(is_type);
                members += usize::from(is_member);
            }
            match line {
                line if (is_type || line.starts_with("enum ")) && line.ends_with('{') => depth = 1,
                line if line.starts_with('}') => depth = 0,
                _ => {}
            }
        }
        assert!(constants >= 50 && types >= 10 && members >= 100, "{}: {constants}, {types}, {members}", header.file);
    }
}

#[test]
fn the_program_everything_uses_every_function() {
    let program = fs::read_to_string(folder("tests/hosted/everything.c")).expect("the program is here");
    let header = &GENERATED[0];
    let names = header.split(|symbol: char| !symbol.is_alphanumeric() && symbol != '_');
    let mut names: Vec<&str> =
        names.filter(|name| header.contains(&format!("{name}(")) && name.starts_with("fy_")).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() > HEADERS[0].functions, "the defaults are functions, too");
    let unused: Vec<&str> = names.into_iter().filter(|name| !program.contains(&format!("{name}("))).collect();
    // The library's own: it is part of the defaults.
    assert_eq!(unused, ["fy_zero"]);
}
