//! What writing the memory map costs, and how large it is.

use serde::Deserialize;

/// What writing the memory map costs as it comes up, and how much memory a machine has.
///
/// A line of the map that is written takes `page_cycles` of the core, the latency of memory divided by `lines_in_flight`, and its
/// part of the node's bandwidth.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BringUpCosts {
    /// Cycles that initialising a page structure and freeing its page take a kernel, beside the line's way.
    pub page_cycles: f64,
    /// How many lines of a long run a core has under way at once, both threads together.
    pub lines_in_flight: f64,
    /// The part of [`node_gb_per_s`](crate::Memory::node_gb_per_s) that fetching and writing back lines by turns gets.
    pub channel_share: f64,
    /// Memory of each node, in GiB.
    pub node_gib: u64,
    /// Memory of the first node that lies in the zones below 4 GiB, which come up before others, in GiB.
    pub low_gib: u64,
}

impl Default for BringUpCosts {
    /// The calibrated cycles and share (see `docs/simulation.md`), the line fill buffers of Intel's cores up to Broadwell, and a node of
    /// 64 GiB.
    fn default() -> Self {
        Self { page_cycles: 24.7, lines_in_flight: 10.0, channel_share: 0.9, node_gib: 64, low_gib: 3 }
    }
}
