//! Which CPUs share a cache: as the configuration says or, by default, sixteen neighbouring CPUs of a node.

use crate::boot::{BootError, MAX_NODES, YardConfig};
use crate::units::{CpuId, NodeId};

/// The CPUs of a group where the configuration names none.
const GROUP_CPUS: usize = 16;
/// The number of each CPU's group.
#[derive(Clone, Copy)]
pub(super) struct CacheGroups<'a> {
    /// The node of each CPU.
    cpus: &'a [NodeId],
    given: Option<&'a [u16]>,
}

impl<'a> CacheGroups<'a> {
    pub(super) fn of(config: &YardConfig<'a>) -> Self {
        Self { cpus: config.cpus, given: config.cache_groups }
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
                return Err(BootError::WrongCacheGroups { given: given.len(), expected: cpus });
            }
            let largest = given.iter().max().map_or(0, |group| usize::from(*group));
            if largest >= cpus {
                return Err(BootError::BadCacheGroup { group: largest, cpus });
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
            let groups = usize::from(*of_node).div_ceil(GROUP_CPUS);
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
                None => first[node.index()] + seen[node.index()] / GROUP_CPUS as u16,
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

    fn numbers(groups: CacheGroups<'_>) -> Vec<u16> {
        let mut found = Vec::new();
        groups.count().unwrap();
        groups.for_each(|_, group| found.push(group));
        found
    }

    #[test]
    fn sixteen_cpus_of_a_node_share_a_cache_by_default() {
        let cpus: Vec<NodeId> = (0..40).map(|cpu| NodeId(cpu % 2)).collect();
        let groups = CacheGroups::of(&YardConfig::new(&cpus));
        assert_eq!(groups.count(), Ok(4));
        let groups = numbers(groups);
        assert_eq!((groups[0], groups[1], groups[30], groups[32], groups[33]), (0, 2, 0, 1, 3));
    }

    #[test]
    fn given_groups_must_fit_the_cpus() {
        let cpus = [NodeId(0); 4];
        let caches = |groups| CacheGroups::of(&YardConfig { cache_groups: Some(groups), ..YardConfig::new(&cpus) });
        assert_eq!(numbers(caches(&[1, 0, 1, 0])), [1, 0, 1, 0]);
        assert_eq!(caches(&[0, 1]).count(), Err(BootError::WrongCacheGroups { given: 2, expected: 4 }));
        assert_eq!(caches(&[0, 1, 2, 4]).count(), Err(BootError::BadCacheGroup { group: 4, cpus: 4 }));
    }
}
