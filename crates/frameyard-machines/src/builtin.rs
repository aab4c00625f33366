//! The machines that the program knows by name.

use super::{Machine, from_toml};

macro_rules! described {
    ($($name:literal),+ $(,)?) => {
        /// Name and description of each, as listed.
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
    "skylake-112",
    "skylake-4s",
    "broadwell-40",
    "desktop-8",
    "sparc-m7",
    "server-1t",
    "server-4t",
);

/// The names of the built-in machines, in the order in which they are listed.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    DESCRIPTIONS.iter().map(|(name, _)| *name)
}

/// The built-in machine of that name; `None` where there is none.
///
/// Cost: reads the machine's description each time.
#[must_use]
pub fn built_in(name: &str) -> Option<Machine> {
    let (name, text) = DESCRIPTIONS.iter().find(|(known, _)| *known == name)?;
    // The descriptions are part of the program, and a test reads each.
    Some(from_toml(&format!("machines/{name}.toml"), text).expect("a built-in description is valid"))
}
