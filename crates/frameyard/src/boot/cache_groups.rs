//! Which CPUs share a cache, as the configuration says or as is assumed where it says nothing.

use super::{BootError, MAX_NODES, YardConfig};
use crate::units::CpuId;

/// The CPUs in a cache group of a node where the configuration names no groups.
const GROUP_CPUS: u16 = 16;

/// The groups of CPUs that share a cache, and how many there are.
pub(super) struct CacheGroups<'a> {
    config: &'a YardConfig<'a>,
    /// For each node, its first group.
    first: [u16; MAX_NODES],
    count: usize,
}

impl<'a> CacheGroups<'a> {
    /// The nodes of all CPUs exist.
    pub(super) fn of(config: &'a YardConfig<'a>) -> Result<Self, BootError> {
        let cpus = config.cpus.len();
        let mut first = [0; MAX_NODES];
        if let Some(groups) = config.cache_groups {
            if groups.len() != cpus {
                return Err(BootError::WrongCacheGroups { given: groups.len(), expected: cpus });
            }
            let largest = groups.iter().max().map_or(0, |group| usize::from(*group));
            if largest >= cpus {
                return Err(BootError::BadCacheGroup { group: largest, cpus });
            }
            return Ok(Self { config, first, count: largest + 1 });
        }
        let mut of_node = [0u16; MAX_NODES];
        config.cpus.iter().for_each(|node| of_node[node.index()] = of_node[node.index()].saturating_add(1));
        let mut count = 0;
        for (first, cpus) in first.iter_mut().zip(of_node) {
            *first = count;
            count += cpus.div_ceil(GROUP_CPUS);
        }
        Ok(Self { config, first, count: usize::from(count).max(1) })
    }

    /// How many groups there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Calls `visit` with each CPU and its group.
    pub(super) fn for_each(&self, mut visit: impl FnMut(CpuId, u16)) {
        let mut seen = [0u16; MAX_NODES];
        for (cpu, node) in self.config.cpus.iter().enumerate() {
            let group = match self.config.cache_groups {
                Some(groups) => groups[cpu],
                None => self.first[node.index()] + seen[node.index()] / GROUP_CPUS,
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
    use crate::units::NodeId;

    fn groups_of(config: &YardConfig<'_>) -> Vec<u16> {
        let mut found = Vec::new();
        CacheGroups::of(config).unwrap().for_each(|_, group| found.push(group));
        found
    }

    #[test]
    fn cpus_of_a_node_are_grouped_by_sixteen() {
        let cpus: Vec<NodeId> = (0..40).map(|cpu| NodeId(cpu % 2)).collect();
        let config = YardConfig::new(&cpus);
        assert_eq!(CacheGroups::of(&config).unwrap().count(), 4);
        let groups = groups_of(&config);
        assert_eq!((groups[0], groups[1], groups[30], groups[32], groups[33]), (0, 2, 0, 1, 3));
    }

    #[test]
    fn given_groups_must_fit_the_cpus() {
        let cpus = [NodeId(0); 4];
        let given = |groups| YardConfig { cache_groups: Some(groups), ..YardConfig::new(&cpus) };
        assert_eq!(groups_of(&given(&[1, 0, 1, 0])), [1, 0, 1, 0]);
        let problem = |groups| CacheGroups::of(&given(groups)).err();
        assert_eq!(problem(&[0, 1]), Some(BootError::WrongCacheGroups { given: 2, expected: 4 }));
        assert_eq!(problem(&[0, 1, 2, 4]), Some(BootError::BadCacheGroup { group: 4, cpus: 4 }));
    }
}
