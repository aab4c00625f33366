//! What the project claims, and whether the stored results hold it.
//!
//! [`CLAIMS`] is the one list. A claim has two figures and a relation between them; a claim that is not held stays in the list
//! and is shown as such.

mod figures;

use frameyard::policy::ZonePolicy;
use serde::Serialize;

use super::results::Results;

/// A claim.
pub(super) struct Claim {
    name: &'static str,
    /// What is claimed, in a sentence.
    says: &'static str,
    unit: &'static str,
    relation: Relation,
    /// The two figures that are compared, with their names.
    left: &'static str,
    right: &'static str,
    /// Where they come from.
    figures: fn(&Results) -> Result<(f64, f64), String>,
}

/// How the first figure stands to the second.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relation {
    #[serde(rename = "<=")]
    AtMost,
    #[serde(rename = ">=")]
    AtLeast,
}

impl Relation {
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "≤",
            Self::AtLeast => "≥",
        }
    }

    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::AtMost => left <= right,
            Self::AtLeast => left >= right,
        }
    }
}

/// A claim with its figures.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct JudgedClaim {
    pub(super) claim: &'static str,
    pub(super) says: &'static str,
    pub(super) unit: &'static str,
    pub(super) left: &'static str,
    pub(super) relation: Relation,
    pub(super) right: &'static str,
    pub(super) left_value: Option<f64>,
    pub(super) right_value: Option<f64>,
    /// `None` where a figure is missing.
    pub(super) held: Option<bool>,
    /// Why a figure is missing.
    pub(super) why: Option<String>,
}

impl JudgedClaim {
    /// The word of tables.
    pub(super) fn verdict(&self) -> &'static str {
        match self.held {
            Some(true) => "held",
            Some(false) => "NOT HELD",
            None => "not measured",
        }
    }
}

/// The claims as comma-separated values.
pub(super) fn csv(claims: &[JudgedClaim]) -> String {
    let mut out = csv::Writer::from_writer(Vec::new());
    let cell = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    // Writing to memory cannot fail.
    let _ = out.write_record([
        "claim",
        "verdict",
        "left",
        "left_value",
        "relation",
        "right",
        "right_value",
        "unit",
        "says",
        "why",
    ]);
    for claim in claims {
        let _ = out.write_record([
            claim.claim,
            claim.verdict(),
            claim.left,
            &cell(claim.left_value),
            claim.relation.sign(),
            claim.right,
            &cell(claim.right_value),
            claim.unit,
            claim.says,
            claim.why.as_deref().unwrap_or_default(),
        ]);
    }
    out.into_inner().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Judges every claim.
pub(super) fn judged(results: &Results) -> Vec<JudgedClaim> {
    CLAIMS.iter().map(|claim| claim.judge(results)).collect()
}

impl Claim {
    fn judge(&self, results: &Results) -> JudgedClaim {
        let figures = (self.figures)(results);
        let round = |value: f64| (value * 1e4).round() / 1e4;
        let values = figures.as_ref().ok().map(|(left, right)| (round(*left), round(*right)));
        JudgedClaim {
            claim: self.name,
            says: self.says,
            unit: self.unit,
            left: self.left,
            relation: self.relation,
            right: self.right,
            left_value: values.map(|(left, _)| left),
            right_value: values.map(|(_, right)| right),
            held: values.map(|(left, right)| self.relation.holds(left, right)),
            why: figures.err(),
        }
    }
}

use Relation::{AtLeast, AtMost};
use figures as f;

/// The policy that the claims call the default.
const DEFAULT_POLICY: &str = ZonePolicy::Bits.name();

/// Every claim.
const CLAIMS: [Claim; 18] = [
    Claim {
        name: "metadata",
        says: "Map and control region take 1.6 % of memory or less.",
        unit: "% of memory",
        relation: AtMost,
        left: "desktop-8, 8 GiB",
        right: "goal",
        figures: f::metadata,
    },
    Claim {
        name: "pair",
        says: "The default policy allocates and frees a frame as fast as vanilla, within 10 %.",
        unit: "ns",
        relation: AtMost,
        left: DEFAULT_POLICY,
        right: "vanilla × 1.1",
        figures: f::pair,
    },
    Claim {
        name: "bulk",
        says: "Two tasks that allocate and free in bulk under the default policy take half of vanilla's time or less.",
        unit: "ns",
        relation: AtMost,
        left: DEFAULT_POLICY,
        right: "vanilla / 2",
        figures: f::bulk,
    },
    Claim {
        name: "zone-lock-faults",
        says: "Faulting processes under the default policy take the zone lock a tenth as often as under vanilla-4.16, or less.",
        unit: "acquisitions per 1000 pages",
        relation: AtMost,
        left: DEFAULT_POLICY,
        right: "vanilla-4.16 / 10",
        figures: f::zone_lock_faults,
    },
    Claim {
        name: "faults-112",
        says: "With sharded LRU lists, 112 simulated CPUs fault in pages faster under the default policy than under vanilla-4.17.",
        unit: "million pages/s",
        relation: AtLeast,
        left: DEFAULT_POLICY,
        right: "vanilla-4.17",
        figures: f::faults_112,
    },
    Claim {
        name: "zone-lock-112",
        says: "With sharded LRU lists, 112 simulated CPUs that fault in pages wait for the zone lock for 1 % of their time or less.",
        unit: "% of time",
        relation: AtMost,
        left: DEFAULT_POLICY,
        right: "goal",
        figures: f::zone_lock_112,
    },
    Claim {
        name: "prediction-40",
        says: "Simulated page faults of 40 CPUs are within 15 % of the published ones, on average.",
        unit: "% mean error",
        relation: AtMost,
        left: "simulated",
        right: "goal",
        figures: f::prediction_40,
    },
    Claim {
        name: "prediction-88",
        says: "Predictions for 88 CPUs are closer than scaling the published values of 40 CPUs.",
        unit: "% mean error",
        relation: AtMost,
        left: "simulated",
        right: "scaled",
        figures: f::prediction_88,
    },
    Claim {
        name: "prediction-init",
        says: "Simulated times of map initialisation are within 15 % of the published ones, on average.",
        unit: "% mean error",
        relation: AtMost,
        left: "simulated",
        right: "goal",
        figures: f::prediction_init,
    },
    Claim {
        name: "map-limit",
        says: "The fastest way to write a map of zeroes reaches nine tenths of the speed of memset.",
        unit: "share of limit",
        relation: AtLeast,
        left: "fastest",
        right: "goal",
        figures: f::map_limit,
    },
    Claim {
        name: "stores-per-page",
        says: "Plain stores write page structures at least as fast as the two passes of older kernels.",
        unit: "ns per page",
        relation: AtMost,
        left: "stores-per-page",
        right: "two-pass",
        figures: f::stores_per_page,
    },
    Claim {
        name: "whole-pageblocks",
        says: "With half of memory free, the default policy makes at least 40 % of memory whole pageblocks.",
        unit: "% of memory",
        relation: AtLeast,
        left: DEFAULT_POLICY,
        right: "goal",
        figures: f::whole_pageblocks,
    },
    Claim {
        name: "whole-pageblocks-vanilla",
        says: "The default policy makes more whole pageblocks than vanilla.",
        unit: "% of memory",
        relation: AtLeast,
        left: DEFAULT_POLICY,
        right: "vanilla",
        figures: f::whole_pageblocks_vanilla,
    },
    Claim {
        name: "replay-zone-lock",
        says: "In every replay, the default policy sends a tenth as many pages through the zone lock as the recorded kernel did, or fewer.",
        unit: "pages per 1000",
        relation: AtMost,
        left: DEFAULT_POLICY,
        right: "kernel / 10",
        figures: f::replay_zone_lock,
    },
    Claim {
        name: "replay-order-9",
        says: "In every replay, the default policy ends with no fewer free 2 MiB blocks than vanilla.",
        unit: "blocks",
        relation: AtLeast,
        left: DEFAULT_POLICY,
        right: "vanilla",
        figures: f::replay_order9,
    },
    Claim {
        name: "sim-replay-contention",
        says: "With several copies of a recording on a simulated machine, zone locks are found held no more often under the default policy than under vanilla.",
        unit: "acquisitions",
        relation: AtMost,
        left: DEFAULT_POLICY,
        right: "vanilla",
        figures: f::sim_replay_contention,
    },
    Claim {
        name: "replay-speed",
        says: "A replay on one thread does at least 5 million operations per second.",
        unit: "million operations/s",
        relation: AtLeast,
        left: "slowest",
        right: "goal",
        figures: f::replay_speed,
    },
    Claim {
        name: "pins",
        says: "Pinning 2 MiB pages through compound page maps, with a reference for each head, takes a tenth of the time or less.",
        unit: "µs per GiB",
        relation: AtMost,
        left: "compound, batched",
        right: "base pages / 10",
        figures: f::pins,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_about_the_default_policy_have_its_figures() {
        assert_eq!(DEFAULT_POLICY, ZonePolicy::default().name());
        let of_default = CLAIMS.iter().filter(|claim| claim.says.contains("default policy"));
        assert!(of_default.clone().count() > 0 && of_default.clone().all(|claim| claim.left == DEFAULT_POLICY));
    }
}
