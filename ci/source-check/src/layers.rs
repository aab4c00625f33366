//! The layers of Frameyard, bottom-up, and the check that the sources keep them.

use std::path::Path;

use crate::sources::{entries, read, rust_files};
use crate::{Findings, crates, modules};

/// Modules whose children have a fixed order, bottom-up. The children of every other module may stand in any order that
/// has no cycle.
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
            "devices",
            "boot",
            "compaction",
            "yard",
            "views",
            "alloc",
            "contig",
            "policy",
            "reporting",
            "stats",
            "validate",
            "watermarks",
        ],
    },
    Order {
        parent: "frameyard::zone",
        children: &[
            "request",
            "exclusive",
            "fixed_vec",
            "policy",
            "watermark",
            "pcp_sizing",
            "pageblock",
            "allocation_map",
            "batch",
            "mechanisms",
            "counters",
            "block_list",
            "compact_state",
            "deferred",
            "state",
            "view",
            "boost",
            "free_area",
            "range",
            "buddy",
            "fallback",
            "highatomic",
            "isolate",
            "compacting",
            "reporting",
            "growth",
            "poison",
            "transfer",
            "pcp",
        ],
    },
];

/// The children of one module, bottom-up.
pub(crate) struct Order {
    /// The crate, then the modules: `frameyard::zone`.
    pub(crate) parent: &'static str,
    pub(crate) children: &'static [&'static str],
}

/// The crates, bottom-up.
pub(crate) const CRATES: &[&str] = &[
    "frameyard-models",
    "frameyard-units",
    "frameyard-memblock",
    "frameyard",
    "frameyard-counting",
    "frameyard-formats",
    "frameyard-vm",
    "frameyard-host",
    "frameyard-machines",
    "frameyard-sim",
    "frameyard-workloads",
    "frameyard-lab",
];

/// Crates that depend on nothing outside the workspace.
pub(crate) const WITHOUT_DEPENDENCIES: &[&str] = &["frameyard-units", "frameyard-memblock", "frameyard"];

/// Crates that stand side by side: neither may use the other.
pub(crate) const APART: &[(&str, &str)] = &[("frameyard-host", "frameyard-sim")];

/// The crates that models explore. Their atomics come from the core's `sync` alone.
const MODELLED: &[&str] = &["frameyard", "frameyard-counting", "frameyard-vm"];

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
        if MODELLED.contains(&name.as_str()) {
            found.extend(modules::check_atomics(&sources));
        }
        violations.extend(found.into_iter().map(|mut violation| {
            violation.file = source.strip_prefix(root).unwrap_or(&source).join(violation.file);
            violation
        }));
    }
    Ok(Findings { read: format!("{files} files and every manifest keep the layers"), violations })
}
