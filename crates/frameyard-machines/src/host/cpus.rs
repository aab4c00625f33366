//! The host's CPUs, from the topology under `/sys`.

use std::collections::HashMap;
use std::hash::Hash;

use frameyard_units::NodeId;

use super::super::{Cpu, parse_cpu_list};
use super::files::Files;

/// The CPUs with these host numbers. `nodes` are the host's node numbers.
///
/// Sockets, cores and threads are numbered in order of first appearance, so no two CPUs are the same thread even if the
/// host reports that. A CPU without data is a core of socket 0.
pub(super) fn cpus(files: &Files, numbers: &[u32], nodes: &[u32]) -> Vec<Cpu> {
    let homes = homes(files, nodes);
    let mut sockets = Dense::default();
    let mut cores: HashMap<u16, Dense<CoreKey>> = HashMap::new();
    let mut threads: HashMap<(u16, u16), u8> = HashMap::new();
    let mut caches = Dense::default();
    let mut found = Vec::with_capacity(numbers.len());
    for &number in numbers {
        let socket = sockets.index(files.number(&topology(number, "physical_package_id")).unwrap_or(0));
        let core = cores.entry(socket).or_default().index(CoreKey::of(files, number));
        let thread = threads.entry((socket, core)).or_default();
        let cache = caches.index(last_level_cache(files, number).ok_or(socket));
        let node = homes.get(&number).copied().unwrap_or_default();
        found.push(Cpu { node, socket, core, thread: *thread, cache });
        *thread = thread.saturating_add(1);
    }
    found
}

/// The identity of a core within its socket.
#[derive(PartialEq, Eq, Hash)]
enum CoreKey {
    /// The kernel's list of the core's CPUs.
    Siblings(String),
    /// The CPU itself, if the kernel has no valid list.
    Alone(u32),
}

impl CoreKey {
    fn of(files: &Files, cpu: u32) -> Self {
        let list = files.text(&topology(cpu, "thread_siblings_list")).ok();
        // A list without the CPU itself is not valid.
        let holds = |list: &String| parse_cpu_list(list).is_ok_and(|siblings| siblings.contains(&cpu));
        list.filter(holds).map_or(Self::Alone(cpu), Self::Siblings)
    }
}

/// The node of each CPU, for CPUs that a node lists.
fn homes(files: &Files, nodes: &[u32]) -> HashMap<u32, NodeId> {
    let list = |number: &u32| {
        let text = files.text(&format!("sys/devices/system/node/node{number}/cpulist")).unwrap_or_default();
        parse_cpu_list(&text).unwrap_or_default()
    };
    let of_node = |(id, number)| list(number).into_iter().map(move |cpu| (cpu, NodeId(id as u16)));
    nodes.iter().enumerate().flat_map(of_node).collect()
}

/// The kernel's list of the CPUs that share a CPU's last-level cache.
fn last_level_cache(files: &Files, cpu: u32) -> Option<String> {
    let directory = format!("sys/devices/system/cpu/cpu{cpu}/cache");
    let levels = files.numbered(&directory, "index").into_iter().filter_map(|index| {
        let level = files.number(&format!("{directory}/index{index}/level"))?;
        Some((level, index))
    });
    let (_, index) = levels.max()?;
    files.text(&format!("{directory}/index{index}/shared_cpu_list")).ok().filter(|list| !list.is_empty())
}

fn topology(cpu: u32, file: &str) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/topology/{file}")
}

/// Numbers keys from 0 in order of first appearance.
struct Dense<K> {
    seen: HashMap<K, u16>,
}

impl<K> Default for Dense<K> {
    fn default() -> Self {
        Self { seen: HashMap::new() }
    }
}

impl<K: Eq + Hash> Dense<K> {
    fn index(&mut self, key: K) -> u16 {
        let next = self.seen.len() as u16;
        *self.seen.entry(key).or_insert(next)
    }
}
