//! The committed header is the one that cbindgen generates from the sources.
//!
//! `FRAMEYARD_WRITE_HEADER=1 cargo test -p frameyard-c --test memblock_header` writes it.

use std::path::Path;
use std::{env, fs};

use cbindgen::{Builder, Config, DocumentationStyle, ExportConfig, Language, Style};

/// The sources, in the order of the header.
const SOURCES: [&str; 7] = ["state", "environment", "edit", "allocate", "limits", "query", "iterate"];

const INTRODUCTION: &str = include_str!("../header/memblock/introduction.h");
const TYPES: &str = include_str!("../header/memblock/types.h");
const INLINE: &str = include_str!("../header/memblock/inline.h");

/// The header of the sources.
fn generated() -> String {
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        include_guard: Some("FRAMEYARD_MEMBLOCK_H".to_owned()),
        header: Some(INTRODUCTION.trim_end().to_owned()),
        after_includes: Some(TYPES.trim_end().to_owned()),
        trailer: Some(INLINE.trim_end().to_owned()),
        no_includes: true,
        usize_is_size_t: true,
        style: Style::Tag,
        documentation_style: DocumentationStyle::C99,
        line_length: 120,
        export: ExportConfig { exclude: vec!["phys_addr_t".to_owned()], ..ExportConfig::default() },
        ..Config::default()
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/memblock");
    let mut builder = Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(source.join(name).with_extension("rs"));
    }
    let mut bytes = Vec::new();
    builder.generate().expect("cbindgen reads the sources").write(&mut bytes);
    let header = without_safety(&String::from_utf8(bytes).expect("a header is text"));
    // The types that the kernel uses and Rust cannot express: an enumeration in C may have any value.
    header
        .replace("unsigned int flags", "enum memblock_flags flags")
        .replace("uint64_t *", "u64 *")
        .replace("#ifdef __cplusplus\nextern \"C\"", "\n#ifdef __cplusplus\nextern \"C\"")
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/memblock.h");
    let generated = generated();
    if env::var_os("FRAMEYARD_WRITE_HEADER").is_some() {
        fs::write(&path, &generated).expect("the header can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(generated.lines()).position(|(old, new)| old != new);
    assert!(
        committed == generated,
        "include/memblock.h differs from the sources, first in line {}. Renew it with\n\
         FRAMEYARD_WRITE_HEADER=1 cargo test -p frameyard-c --test memblock_header",
        differs.unwrap_or(committed.lines().count().min(generated.lines().count())) + 1
    );
}

#[test]
fn every_function_and_macro_has_a_description_in_the_header() {
    let header = generated();
    let lines: Vec<&str> = header.lines().collect();
    let mut described = 0;
    for (at, line) in lines.iter().enumerate() {
        let function = !line.starts_with(['/', ' ', '#', '}']) && line.contains('(');
        let macro_or_constant = line.starts_with("#define ") && !line.contains("_H");
        if !function && !macro_or_constant {
            continue;
        }
        described += 1;
        let before = if lines[at - 1].starts_with("#ifndef") { at - 1 } else { at };
        assert!(lines[before - 1].starts_with("//"), "{line}");
    }
    assert!(described >= 80, "{described}");
}

#[test]
fn every_structure_member_and_enumerator_has_a_description_in_the_header() {
    let header = generated();
    let lines: Vec<&str> = header.lines().collect();
    let (mut types, mut members, mut inside) = (0, 0, false);
    for (at, line) in lines.iter().enumerate() {
        let opens = (line.starts_with("struct ") || line.starts_with("enum ")) && line.ends_with('{');
        let is_member =
            inside && line.starts_with("  ") && line.ends_with([';', ',']) && !line.trim().starts_with("//");
        if opens || is_member {
            let described = lines[at - 1].trim().starts_with("//") || line.contains("//");
            assert!(described, "{line}");
            types += usize::from(opens);
            members += usize::from(is_member);
        }
        inside = (inside || opens) && !line.starts_with('}');
    }
    assert!(types >= 5 && members >= 20, "{types} {members}");
}
