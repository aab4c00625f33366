//! The layers of Frameyard, bottom-up, and the check that the sources respect them.

use std::path::Path;

use crate::sources::files::{entries, read, rust_files};
use crate::sources::impls::{self, Guests};
use crate::sources::{Findings, crates, modules};

/// The modules whose children have a fixed order, bottom-up. Uses among the children of any other module must only be free of
/// cycles.
const ORDERS: &[Order] = &[
    Order {
        parent: "frameyard",
        children: &[
            "gfp",
            "sync",
            "platform",
            "locks",
            "job",
            "page",
            "owners",
            "memmap",
            "control",
            "zone",
            "store",
            "placement",
            "transfer",
            "lists",
            "devices",
            "huge_pool",
            "boot",
            "compaction",
            "yard",
            "request",
            "fast",
            "alloc",
            "counting",
        ],
    },
    Order {
        parent: "frameyard::zone",
        children: &[
            "request",
            "effort",
            "exclusive",
            "fixed_vec",
            "policy",
            "checks",
            "watermark",
            "pcp_sizing",
            "section",
            "pageblock",
            "allocation_map",
            "mechanisms",
            "counters",
            "block_list",
            "compact_state",
            "deferred",
            "huge_pool",
            "region_state",
            "state",
            "view",
            "untagged",
            "poison",
        ],
    },
];

/// The crate whose methods lie in the module of their type.
const CORE: &str = "frameyard";

/// Modules of the core that have methods of types of other modules.
const GUESTS: &[Guests] = &[
    // The calls of a yard and of its views are where their path begins.
    Guests { host: "frameyard::yard", guests: &["request", "fast"] },
    // How a refill goes on once its type has nothing left is up to the placement.
    Guests { host: "frameyard::store", guests: &["placement"] },
    // What works on a zone gets a view of it, locked or not.
    Guests { host: "frameyard::zone", guests: &["store", "placement"] },
];

/// The children of one module, bottom-up.
pub(crate) struct Order {
    /// The path of the module, crate first: `frameyard::zone`.
    pub(crate) parent: &'static str,
    pub(crate) children: &'static [&'static str],
}

/// The crates, bottom-up.
pub(crate) const CRATES: &[&str] = &[
    "frameyard-units",
    "frameyard-memblock",
    "frameyard",
    "frameyard-formats",
    "frameyard-traces",
    "frameyard-vm",
    "frameyard-host",
    "frameyard-c",
    "frameyard-machines",
    "frameyard-sim",
    "frameyard-workloads",
    "frameyard-heap",
    "frameyard-lab",
];

/// Crates that must not depend on crates outside the workspace.
pub(crate) const WITHOUT_DEPENDENCIES: &[&str] = &["frameyard-units", "frameyard-memblock", "frameyard"];

/// Pairs of crates of which neither may use the other.
pub(crate) const APART: &[(&str, &str)] = &[("frameyard-host", "frameyard-sim")];

/// The crates that models explore. They must take atomics only from the core's `sync`.
const MODELLED: &[&str] = &["frameyard", "frameyard-vm"];

/// Checks the repository at `root`.
pub(crate) fn check(root: &Path) -> Result<Findings, String> {
    let (mut files, mut violations) = (0, Vec::new());
    for folder in entries(&root.join("crates"))? {
        let manifest = folder.join("Cargo.toml");
        if !manifest.is_file() {
            continue;
        }
        violations.extend(crates::check(&manifest, &read(&manifest)?, CRATES));
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let source = folder.join("src");
        let sources = rust_files(&source)?;
        files += sources.len();
        let mut found = modules::check(&name.replace('-', "_"), &sources, ORDERS);
        if name == CORE {
            found.extend(impls::check(&name, &sources, GUESTS));
        }
        if MODELLED.contains(&name.as_str()) {
            found.extend(modules::check_atomics(&sources));
        }
        violations.extend(found.into_iter().map(|mut violation| {
            violation.file = source.strip_prefix(root).unwrap_or(&source).join(violation.file);
            violation
        }));
    }
    Ok(Findings { read: format!("{files} files and all manifests respect the layers"), violations })
}
