//! The committed header is the one that cbindgen generates from the sources.
//!
//! `FRAMEYARD_WRITE_HEADER=1 cargo test -p frameyard-capi --test header` writes it.

use std::path::Path;
use std::{env, fs};

use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, Language, Style};

/// The sources, in the order of the header.
const SOURCES: [&str; 12] = [
    "version",
    "status",
    "error",
    "log",
    "handle",
    "create",
    "alloc",
    "request",
    "frames",
    "statistics",
    "upkeep",
    "text",
];

const INTRODUCTION: &str = include_str!("../header/introduction.h");
const DEFAULTS: &str = include_str!("../header/defaults.h");

/// The header of the sources of this crate.
fn generated() -> String {
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        include_guard: Some("FRAMEYARD_H".to_owned()),
        header: Some(INTRODUCTION.trim_end().to_owned()),
        trailer: Some(DEFAULTS.trim_end().to_owned()),
        no_includes: true,
        usize_is_size_t: true,
        sys_includes: ["stddef.h", "stdint.h", "string.h"].map(str::to_owned).to_vec(),
        style: Style::Both,
        documentation_style: DocumentationStyle::C99,
        line_length: 120,
        enumeration: EnumConfig { prefix_with_name: false, ..EnumConfig::default() },
        ..Config::default()
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut builder = Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(source.join(name).with_extension("rs"));
    }
    let mut bytes = Vec::new();
    builder.generate().expect("cbindgen reads the sources").write(&mut bytes);
    without_safety(&String::from_utf8(bytes).expect("a header is text"))
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
fn the_committed_header_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/frameyard.h");
    let generated = generated();
    if env::var_os("FRAMEYARD_WRITE_HEADER").is_some() {
        fs::write(&path, &generated).expect("the header can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(generated.lines()).position(|(old, new)| old != new);
    assert!(
        committed == generated,
        "include/frameyard.h differs from the sources, first in line {}. Renew it with\n\
         FRAMEYARD_WRITE_HEADER=1 cargo test -p frameyard-capi --test header",
        differs.unwrap_or(committed.lines().count().min(generated.lines().count())) + 1
    );
}

#[test]
fn every_function_has_a_description_in_the_header() {
    let header = generated();
    let lines: Vec<&str> = header.lines().collect();
    let mut functions = 0;
    for (at, line) in lines.iter().enumerate() {
        let is_function = line.contains(" fy_") || line.contains(" *fy_");
        if line.starts_with(['/', ' ', '#', '}', 't'])
            || !is_function
            || !line.contains('(')
            || line.starts_with("static")
        {
            continue;
        }
        functions += 1;
        let comment = lines[..at].iter().rev().take_while(|line| line.starts_with("//")).count();
        assert!(comment > 0, "{line}");
        let text = lines[at - comment..at].join("\n");
        assert!(text.contains("Thread safety"), "{line}");
    }
    assert!(functions >= 30, "{functions}");
}
