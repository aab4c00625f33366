//! Which CPUs share a cache, and which share a shelf of the depots: as the configuration says, or neighbouring CPUs of a node where it
//! says nothing.

use super::{BootError, MAX_NODES, YardConfig};
use crate::units::{CpuId, NodeId};

/// The CPUs of a cache group where the configuration names none.
const CACHE_GROUP_CPUS: usize = 16;
/// About the most shelves of a depot where the configuration names none: a few more if the CPUs of nodes do not divide evenly. A CPU that
/// finds its own shelf empty looks at each of them.
const SHELVES: usize = 64;

/// A number for each CPU, the same for all CPUs of a group.
#[derive(Clone, Copy)]
pub(super) struct CpuGroups<'a> {
    /// The node of each CPU.
    cpus: &'a [NodeId],
    given: Option<&'a [u16]>,
    /// The CPUs of a group, where no groups are given.
    each: usize,
}

impl<'a> CpuGroups<'a> {
    /// The groups of CPUs that share a cache.
    pub(super) fn of_caches(config: &YardConfig<'a>) -> Self {
        Self { cpus: config.cpus, given: config.cache_groups, each: CACHE_GROUP_CPUS }
    }

    /// The groups of CPUs that share a shelf of a depot.
    pub(super) fn of_shelves(config: &YardConfig<'a>) -> Self {
        let each = config.cpus.len().div_ceil(SHELVES).max(1);
        Self { cpus: config.cpus, given: config.depot_shelves, each }
    }

    /// How many groups there are.
    ///
    /// # Errors
    ///
    /// [`BootError`] if there is not one given number for each CPU, or if a number is larger than it need be.
    pub(super) fn count(self) -> Result<usize, BootError> {
        let cpus = self.cpus.len();
        if let Some(given) = self.given {
            if given.len() != cpus {
                return Err(BootError::WrongCpuGroups { given: given.len(), expected: cpus });
            }
            let largest = given.iter().max().map_or(0, |group| usize::from(*group));
            if largest >= cpus {
                return Err(BootError::BadCpuGroup { group: largest, cpus });
            }
            return Ok(largest + 1);
        }
        Ok(self.first_of_nodes().1.max(1))
    }

    /// For each node, its first group, where no groups are given; and how many there are.
    fn first_of_nodes(self) -> ([u16; MAX_NODES], usize) {
        // Small: boot has a small stack.
        let mut first = [0u16; MAX_NODES];
        self.cpus.iter().for_each(|node| first[node.index()] = first[node.index()].saturating_add(1));
        let mut count = 0;
        for of_node in &mut first {
            let groups = usize::from(*of_node).div_ceil(self.each);
            *of_node = count as u16;
            count += groups;
        }
        (first, count)
    }

    /// Calls `visit` with each CPU and its group.
    pub(super) fn for_each(self, mut visit: impl FnMut(CpuId, u16)) {
        let (first, _) = self.first_of_nodes();
        let mut seen = [0u16; MAX_NODES];
        for (cpu, node) in self.cpus.iter().enumerate() {
            let group = match self.given {
                Some(given) => given[cpu],
                None => first[node.index()] + seen[node.index()] / self.each as u16,
            };
            seen[node.index()] = seen[node.index()].saturating_add(1);
            visit(CpuId(cpu as u32), group);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn numbers(groups: CpuGroups<'_>) -> Vec<u16> {
        let mut found = Vec::new();
        groups.count().unwrap();
        groups.for_each(|_, group| found.push(group));
        found
    }

    #[test]
    fn sixteen_cpus_of_a_node_share_a_cache_by_default() {
        let cpus: Vec<NodeId> = (0..40).map(|cpu| NodeId(cpu % 2)).collect();
        let groups = CpuGroups::of_caches(&YardConfig::new(&cpus));
        assert_eq!(groups.count(), Ok(4));
        let groups = numbers(groups);
        assert_eq!((groups[0], groups[1], groups[30], groups[32], groups[33]), (0, 2, 0, 1, 3));
    }

    #[test]
    fn each_cpu_has_a_shelf_unless_there_are_many() {
        let shelves = |cpus: u16, nodes| {
            let cpus: Vec<NodeId> = (0..cpus).map(|cpu| NodeId(cpu % nodes)).collect();
            numbers(CpuGroups::of_shelves(&YardConfig::new(&cpus)))
        };
        assert_eq!(shelves(4, 2), [0, 2, 1, 3]);
        assert_eq!(shelves(64, 1), (0..64).collect::<Vec<_>>());
        assert_eq!(shelves(65, 1), (0..65).map(|cpu| cpu / 2).collect::<Vec<_>>());
        assert_eq!(shelves(512, 2)[510..], [31, 63]);
    }

    #[test]
    fn given_groups_must_fit_the_cpus() {
        let cpus = [NodeId(0); 4];
        let caches =
            |groups| CpuGroups::of_caches(&YardConfig { cache_groups: Some(groups), ..YardConfig::new(&cpus) });
        let shelves =
            |groups| CpuGroups::of_shelves(&YardConfig { depot_shelves: Some(groups), ..YardConfig::new(&cpus) });
        assert_eq!(numbers(caches(&[1, 0, 1, 0])), [1, 0, 1, 0]);
        assert_eq!(numbers(shelves(&[1, 0, 1, 0])), [1, 0, 1, 0]);
        assert_eq!(caches(&[0, 1]).count(), Err(BootError::WrongCpuGroups { given: 2, expected: 4 }));
        assert_eq!(shelves(&[0, 1, 2, 4]).count(), Err(BootError::BadCpuGroup { group: 4, cpus: 4 }));
    }
}
