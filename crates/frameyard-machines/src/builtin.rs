//! The built-in machines.

use super::{Machine, from_toml};

macro_rules! described {
    ($($name:literal),+ $(,)?) => {
        /// Names and TOML texts, in the order of listings.
        const DESCRIPTIONS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/machines/", $name, ".toml")))),+];
    };
}

described!(
    "skylake-8167m",
    "broadwell-2699c",
    "haswell-2699v3",
    "zen-7551-guest16",
    "zen-7551-guest4",
    "haswell-2699v3-guest4",
    "epyc2-256",
    "epyc-512",
    "skylake-112",
    "skylake-4s",
    "broadwell-40",
    "broadwell-88",
    "desktop-8",
    "sparc-m7",
    "server-1t",
    "server-4t",
);

/// The names of the built-in machines, in the order of listings.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    DESCRIPTIONS.iter().map(|(name, _)| *name)
}

/// The built-in machine with this name, if there is one.
///
/// Cost: parses the description on each call.
#[must_use]
pub fn built_in(name: &str) -> Option<Machine> {
    let text = built_in_text(name)?;
    // The texts are part of the program, and a test parses each.
    Some(from_toml(&format!("machines/{name}.toml"), text).expect("a built-in description is valid"))
}

/// The TOML text of a built-in machine, with the sources of its numbers as comments.
#[must_use]
pub fn built_in_text(name: &str) -> Option<&'static str> {
    DESCRIPTIONS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
