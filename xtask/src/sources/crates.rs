//! Dependencies between crates, read from the manifests.

use std::path::Path;

use crate::sources::Violation;
use crate::sources::layers::{APART, WITHOUT_DEPENDENCIES};

/// Checks the dependencies of the crate in `manifest`.
///
/// - A dependency of any kind on a crate in `order` must come before the crate in `order`.
/// - The two crates of a pair in [`APART`] must not depend on each other.
/// - A crate in [`WITHOUT_DEPENDENCIES`] must have no unconditional dependency on a crate outside `order`.
pub(crate) fn check(manifest: &Path, text: &str, order: &[&str]) -> Vec<Violation> {
    let violation = |line, what| Violation { file: manifest.to_owned(), line, what };
    let Some(name) = package_name(text) else {
        return vec![violation(1, "there is no package name".to_owned())];
    };
    let Some(own) = order.iter().position(|other| *other == name) else {
        return vec![violation(1, format!("crate `{name}` has no place in the order of the layers"))];
    };
    let mut violations = Vec::new();
    // A crate may depend on itself for its tests, with features.
    let others =
        dependencies(text).into_iter().filter(|other| other.name != name || other.section != "dev-dependencies");
    for dependency in others {
        let at = order.iter().position(|other| *other == dependency.name);
        if at.is_some_and(|at| at >= own) {
            let what = format!("crate `{name}` depends on `{}`, which is not below it", dependency.name);
            violations.push(violation(dependency.line, what));
        }
        if APART.iter().any(|(one, other)| {
            (*one, *other) == (&dependency.name, name) || (*one, *other) == (name, &dependency.name)
        }) {
            let what = format!("crate `{name}` depends on `{}`: neither may use the other", dependency.name);
            violations.push(violation(dependency.line, what));
        }
        if at.is_none() && WITHOUT_DEPENDENCIES.contains(&name) && dependency.section == "dependencies" {
            let what = format!("crate `{name}` depends on `{}`, which is outside the workspace", dependency.name);
            violations.push(violation(dependency.line, what));
        }
    }
    violations
}

pub(crate) struct Dependency {
    pub(crate) name: String,
    section: String,
    line: usize,
}

pub(crate) fn package_name(text: &str) -> Option<&str> {
    let package = &text[text.find("[package]")?..];
    let name = package.lines().find_map(|line| line.strip_prefix("name"))?;
    name.split('"').nth(1)
}

/// The dependencies of a manifest, by package name.
pub(crate) fn dependencies(text: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    let mut section = String::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
            // A section `[dependencies.name]` is itself a dependency.
            if let Some((kind, name)) = section.rsplit_once('.')
                && kind.ends_with("dependencies")
            {
                found.push(Dependency { name: name.to_owned(), section: kind.to_owned(), line: at + 1 });
            }
        } else if let Some((key, value)) = line.split_once('=')
            && !line.starts_with('#')
        {
            let renamed = value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
            if section.ends_with("dependencies") {
                let name = renamed.unwrap_or_else(|| key.trim().split('.').next().unwrap_or_default());
                let name = name.trim_matches('"').to_owned();
                found.push(Dependency { name, section: section.clone(), line: at + 1 });
            } else if section.contains("dependencies.") && key.trim() == "package" {
                let name = value.trim().trim_matches('"').to_owned();
                found.push(Dependency { name, section: section.clone(), line: at + 1 });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::layers::CRATES;

    fn check_manifest(name: &str, rest: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n{rest}");
        check(Path::new("Cargo.toml"), &text, CRATES).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn depending_on_crates_below_is_kept() {
        let rest = "[dependencies]\nframeyard.workspace = true\nlibc = \"0.2\"\n[dev-dependencies]\nproptest = \"1\"";
        assert_eq!(check_manifest("frameyard-host", rest), [""; 0]);
        let loom =
            "[dependencies]\n[dev-dependencies]\nproptest = \"1\"\n[target.'cfg(loom)'.dependencies]\nloom = \"0.7\"";
        assert_eq!(check_manifest("frameyard", loom), [""; 0]);
        let shuttle = "[dependencies]\n[target.'cfg(shuttle)'.dependencies]\nshuttle = \"0.9\"";
        assert_eq!(check_manifest("frameyard", shuttle), [""; 0]);
    }

    #[test]
    fn depending_on_crates_above_is_broken_however_it_is_written() {
        for rest in [
            "[dependencies]\nframeyard-lab.workspace = true",
            "[dev-dependencies]\nframeyard-lab = { path = \"../frameyard-lab\" }",
            "[dependencies.frameyard-lab]\npath = \"../frameyard-lab\"",
            "[dependencies]\nlab = { package = \"frameyard-lab\", version = \"1\" }",
            "[dependencies.lab]\npackage = \"frameyard-lab\"",
            "[target.'cfg(unix)'.build-dependencies]\nframeyard-lab = \"1\"",
        ] {
            let found = check_manifest("frameyard-host", rest);
            assert_eq!(found.len(), 1, "{rest}: {found:?}");
            assert!(found[0].contains("depends on `frameyard-lab`"), "{found:?}");
        }
    }

    #[test]
    fn crates_side_by_side_do_not_use_each_other() {
        let found =
            check_manifest("frameyard-sim", "[dependencies]\nframeyard-vm.workspace = true\nframeyard-host = \"1\"");
        assert!(found.len() == 1 && found[0].contains("neither may use the other"), "{found:?}");
    }

    #[test]
    fn rejects_outside_dependencies_of_the_core() {
        let found = check_manifest("frameyard", "[dependencies]\nbitflags = \"2\"");
        assert!(found.len() == 1 && found[0].contains("outside the workspace"), "{found:?}");
    }

    #[test]
    fn a_crate_without_a_place_in_the_order_is_refused() {
        let found = check_manifest("frameyard-extra", "");
        assert!(found.len() == 1 && found[0].contains("has no place"), "{found:?}");
    }
}
