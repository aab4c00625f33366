//! Descriptions of machines: topology, caches, what accesses cost, clocks, bandwidth and locks, as TOML.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

mod bring_up;
mod outside;
mod parameter;
mod place;

pub use bring_up::BringUpCosts;
pub(crate) use outside::OutsideCost;
pub use outside::OutsideCosts;
pub(crate) use parameter::clock_step;
pub(crate) use place::{Distance, Place};

/// A machine to be simulated. Every number has its source beside it in the built-in descriptions.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The name used on command lines.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Sockets, cores, threads, groups.
    pub topology: Topology,
    /// How much caches hold.
    pub caches: Caches,
    /// What accesses cost.
    pub costs: AccessCosts,
    /// Memory channels.
    pub memory: Memory,
    /// How fast cores run.
    pub clock: Clock,
    /// How locks are handed over.
    pub lock: Lock,
    /// Bringing up the memory map, and how much memory there is.
    #[serde(default)]
    pub bring_up: BringUpCosts,
    /// What is done outside of the allocator.
    #[serde(default)]
    pub outside: OutsideCosts,
    /// What was fitted, and on what.
    #[serde(default)]
    pub calibration: Calibration,
}

/// Sockets, cores and threads, all alike. A socket is a node. CPUs are numbered core by core, the first threads of all
/// sockets before the second ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// How many sockets there are.
    pub sockets: u16,
    /// How many cores a socket has.
    pub cores_per_socket: u16,
    /// How many threads a core has: 1 or 2.
    pub threads_per_core: u16,
    /// How many cores share a last-level cache.
    pub cores_per_group: u16,
}

/// What caches hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caches {
    /// The private caches of a core together, in KiB.
    pub private_kib: u64,
    /// What a group of cores shares, in KiB.
    pub shared_kib: u64,
}

/// What accesses cost.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessCosts {
    /// Cycles for an access to the private cache and the instructions around it.
    pub access_cycles: f64,
    /// Cycles that an atomic read-modify-write takes on top.
    pub atomic_cycles: f64,
    /// From the cache that the group shares, in ns.
    pub shared_hit_ns: f64,
    /// From the private cache of a core of the group, in ns.
    pub same_group_ns: f64,
    /// From another group of the socket, in ns.
    pub same_socket_ns: f64,
    /// From another socket, in ns.
    pub other_socket_ns: f64,
    /// From memory of the own node, in ns.
    pub local_memory_ns: f64,
    /// From memory of another node, in ns.
    pub remote_memory_ns: f64,
    /// How many stores that miss page structures are under way at once.
    pub store_overlap: f64,
    /// How many loads ahead of their use, and prefetches, are.
    pub read_overlap: f64,
}

/// Memory channels.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Bandwidth of a node, in GB/s (bytes a nanosecond).
    pub node_gb_per_s: f64,
    /// How much of the wait in the channel's queue a core feels, from 0 to 1: the rest is hidden behind what it does meanwhile.
    pub queueing: f64,
}

/// How fast cores run.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// The clock in MHz with 1, 2, … cores of the socket busy; the last stands for all more.
    pub mhz: Vec<u32>,
    /// What the socket's power lets the clock come to with ever more CPUs that have tasks, in MHz.
    #[serde(default)]
    pub power_mhz: f64,
    /// With how many more of them the distance to that becomes 2.7 times smaller; as good as never, where it is not said.
    #[serde(default = "never")]
    pub power_cpus: f64,
    /// By how much cycles of a thread take longer while the other thread of its core is busy.
    pub smt_slowdown: f64,
    /// The same while that one spins, waiting for a lock: it pauses more than it computes. Where it is not said, spinning is
    /// as good as work.
    #[serde(default)]
    pub spin_slowdown: Option<f64>,
}

/// So many CPUs that power is never what is short.
fn never() -> f64 {
    1e9
}

impl Clock {
    /// The clock in MHz of a socket with so many busy cores, and so many CPUs that have tasks: what turbo allows, or what
    /// power allows, if that is less.
    pub(crate) fn mhz_with(&self, cores: usize, cpus: usize) -> f64 {
        let step = cores.max(1).min(self.mhz.len()) - 1;
        let turbo = f64::from(self.mhz[step]);
        let more = cpus.max(1) as f64 - 1.0;
        let highest = f64::from(self.mhz[0]);
        turbo.min(self.power_mhz + (highest - self.power_mhz) * (-more / self.power_cpus).exp())
    }
}

/// How locks are handed over.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Which kind the locks are of.
    pub kind: LockMethod,
    /// How many transfers from the last holder to the next a hand-over takes.
    pub handover_transfers: f64,
    /// What each other waiter that reads the word again adds, in ns.
    pub per_waiter_ns: f64,
}

/// Kinds of spinning locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockMethod {
    /// Whoever's exchange comes first: the nearest waiter.
    TestAndSet,
    /// In order of arrival; all waiters look at one word.
    Ticket,
    /// In order of arrival; each waiter looks at a word of its own, as the kernel's `qspinlock` has it.
    Queued,
}

/// What was fitted to published measurements.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The paths of the free parameters ([`Machine::parameter`]): start values before a fit, fitted ones after it.
    #[serde(default)]
    pub calibrated: Vec<String>,
    /// The rows that they were fitted on ([`Selection`](crate::Selection)); none before a fit.
    #[serde(default)]
    pub rows: Vec<String>,
    /// The published table that the rows are of.
    #[serde(default)]
    pub table: Option<String>,
    /// The root of the mean square of relative errors that the fit left on its rows.
    #[serde(default)]
    pub error: Option<f64>,
}

/// What is wrong with a description.
#[derive(Clone, PartialEq, Debug)]
pub enum MachineError {
    /// There is no built-in machine of that name.
    Unknown(String),
    /// The text is no TOML, or has wrong keys.
    Malformed(String),
    /// A number cannot be: which, and what would be right.
    Impossible(&'static str),
    /// The machine has no such parameter.
    NoParameter(String),
    /// A parameter was to become what it cannot be.
    OutOfBounds {
        /// Its path.
        path: String,
        /// The least that it can be.
        least: f64,
        /// The most that it can be.
        most: f64,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                write!(f, "no simulated machine is called '{name}': there are {}", Machine::NAMES.join(", "))
            }
            Self::Malformed(message) => write!(f, "not a description of a simulated machine: {message}"),
            Self::Impossible(what) => f.write_str(what),
            Self::NoParameter(path) => {
                write!(f, "'{path}' is no parameter of the machine: write table.key, or clock.mhz[N] from 0 on")
            }
            Self::OutOfBounds { path, least, most } => write!(f, "{path} is from {least} to {most}"),
        }
    }
}

impl std::error::Error for MachineError {}

const BUILT_IN: [(&str, &str); 11] = [
    ("broadwell-40", include_str!("../machines/broadwell-40.toml")),
    ("skylake-112", include_str!("../machines/skylake-112.toml")),
    ("skylake-4s", include_str!("../machines/skylake-4s.toml")),
    ("epyc-512", include_str!("../machines/epyc-512.toml")),
    ("epyc2-256", include_str!("../machines/epyc2-256.toml")),
    ("skylake-8167m", include_str!("../machines/skylake-8167m.toml")),
    ("broadwell-2699c", include_str!("../machines/broadwell-2699c.toml")),
    ("haswell-2699v3", include_str!("../machines/haswell-2699v3.toml")),
    ("zen-7551-guest16", include_str!("../machines/zen-7551-guest16.toml")),
    ("zen-7551-guest4", include_str!("../machines/zen-7551-guest4.toml")),
    ("haswell-2699v3-guest4", include_str!("../machines/haswell-2699v3-guest4.toml")),
];

impl Machine {
    /// The built-in machines.
    pub const NAMES: [&'static str; BUILT_IN.len()] = {
        let mut names = [""; BUILT_IN.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = BUILT_IN[at].0;
            at += 1;
        }
        names
    };

    /// A built-in machine.
    ///
    /// # Errors
    ///
    /// [`MachineError::Unknown`] where there is none of that name.
    pub fn built_in(name: &str) -> Result<Self, MachineError> {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        found.ok_or_else(|| MachineError::Unknown(name.to_owned()))?.1.parse()
    }

    /// The description of a built-in machine, with its comments.
    #[must_use]
    pub fn built_in_text(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// How many CPUs there are.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cores() * usize::from(self.topology.threads_per_core)
    }

    pub(crate) fn cores(&self) -> usize {
        usize::from(self.topology.sockets) * usize::from(self.topology.cores_per_socket)
    }

    pub(crate) fn groups(&self) -> usize {
        self.cores().div_ceil(usize::from(self.topology.cores_per_group))
    }

    fn checked(self) -> Result<Self, MachineError> {
        let Topology { sockets, cores_per_socket, threads_per_core, cores_per_group } = self.topology;
        let AccessCosts { store_overlap, read_overlap, .. } = self.costs;
        let rules = [
            (sockets > 0 && cores_per_socket > 0, "a machine has at least one socket and one core"),
            ((1..=2).contains(&threads_per_core), "a core has 1 or 2 threads"),
            (self.cores() <= 1023 && self.cpus() <= 1024, "at most 1023 cores and 1024 CPUs can be simulated"),
            (
                cores_per_group > 0 && cores_per_socket.is_multiple_of(cores_per_group.max(1)),
                "groups divide a socket evenly",
            ),
            (store_overlap >= 1.0 && read_overlap >= 1.0, "overlaps are 1 or more"),
            (self.memory.node_gb_per_s > 0.0, "a node has some bandwidth"),
            ((0.0..=1.0).contains(&self.memory.queueing), "queueing is from 0 to 1"),
            (!self.clock.mhz.is_empty() && self.clock.mhz.iter().all(|mhz| *mhz > 0), "a clock is some MHz"),
            (
                self.clock.power_mhz >= 0.0 && self.clock.power_cpus > 0.0,
                "a clock that power limits falls towards some MHz, over some CPUs",
            ),
            (
                self.bring_up.lines_in_flight > 0.0 && self.bring_up.channel_share > 0.0,
                "a core has lines in flight, and a part of the bandwidth",
            ),
            (self.bring_up.node_gib > self.bring_up.low_gib, "the first node has memory above its low zones"),
            (self.outside.are_possible(), "costs outside of the allocator are cycles, none below 0"),
            (self.clock.smt_slowdown >= 1.0, "a second thread makes nothing faster: smt_slowdown is 1 or more"),
            (
                self.clock.spin_slowdown.is_none_or(|slowdown| (1.0..=self.clock.smt_slowdown).contains(&slowdown)),
                "spinning is in the way of the other thread no more than work: spin_slowdown is from 1 to smt_slowdown",
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(MachineError::Impossible(rule)),
            None => match self.calibration.calibrated.iter().find(|path| self.parameter(path).is_none()) {
                Some(path) => Err(MachineError::NoParameter(path.clone())),
                None => Ok(self),
            },
        }
    }
}

impl FromStr for Machine {
    type Err = MachineError;

    fn from_str(text: &str) -> Result<Self, MachineError> {
        let machine: Self = toml::from_str(text).map_err(|error| MachineError::Malformed(error.to_string()))?;
        machine.checked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_machines_are_sound_and_called_as_their_files() {
        for name in Machine::NAMES {
            let machine = Machine::built_in(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(machine.name, name);
        }
        let cpus = Machine::NAMES.map(|name| Machine::built_in(name).unwrap().cpus());
        assert_eq!(cpus, [40, 112, 224, 512, 256, 104, 32, 72, 16, 4, 4]);
    }

    #[test]
    fn costs_outside_that_are_not_said_have_their_start_values() {
        let text =
            format!("{}\n[outside]\nfault_path_cycles = 1.5\n", Machine::built_in_text("haswell-2699v3").unwrap());
        let outside = text.parse::<Machine>().unwrap().outside;
        assert_eq!(outside, OutsideCosts { fault_path_cycles: 1.5, ..OutsideCosts::default() });
    }

    #[test]
    fn power_lowers_the_clock_below_what_turbo_allows() {
        let clock =
            Clock { mhz: vec![3000, 2900], power_mhz: 2000.0, power_cpus: 4.0, smt_slowdown: 1.5, spin_slowdown: None };
        assert_eq!(clock.mhz_with(1, 1), 3000.0);
        assert_eq!(clock.mhz_with(2, 2), 2000.0 + 1000.0 * (-0.25_f64).exp());
        assert!((clock.mhz_with(2, 100) - 2000.0).abs() < 1e-6);
        assert_eq!(Clock { power_cpus: never(), ..clock }.mhz_with(7, 7).round(), 2900.0);
    }

    #[test]
    fn the_clock_of_a_machine_that_says_nothing_of_power_is_what_turbo_allows_with_any_number_of_cpus() {
        let clock = Machine::built_in("epyc-512").unwrap().clock;
        for (cores, cpus) in [(1, 1), (128, 128), (128, 256)] {
            assert_eq!(clock.mhz_with(cores, cpus).round(), 3100.0, "{cores} cores, {cpus} CPUs");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_rule() {
        let text = BUILT_IN[0].1.replace("sockets = 2", "sockets = 0");
        assert_eq!(
            text.parse::<Machine>(),
            Err(MachineError::Impossible("a machine has at least one socket and one core"))
        );
        assert!(matches!("nonsense = 1".parse::<Machine>(), Err(MachineError::Malformed(_))));
        assert!(matches!(Machine::built_in("vax"), Err(MachineError::Unknown(_))));
    }
}
