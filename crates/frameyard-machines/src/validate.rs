//! Consistency of a machine's figures.

use std::collections::HashMap;

use frameyard_units::{CpuId, NodeId, PhysAddr};

use super::{
    ADDRESS_LIMIT, AddressRange, Cpu, LOCAL_DISTANCE, MAX_CPUS, MAX_NODES, Machine, MachineError, Problem, Topology,
};

impl Machine {
    /// Checks that the figures are consistent:
    ///
    /// - There are nodes, CPUs and memory, up to [`MAX_NODES`] and [`MAX_CPUS`].
    /// - Memory ranges are disjoint and end at or below [`ADDRESS_LIMIT`].
    /// - Each CPU is on a node of the machine, and no two CPUs are the same thread.
    /// - Distances are a square table with 10 on the diagonal.
    /// - Contiguous areas are disjoint and lie in memory.
    /// - Zone limits fit the geometry, and costs are possible.
    ///
    /// # Errors
    ///
    /// [`MachineError::Invalid`] with the first [`Problem`], without a place.
    pub fn validate(&self) -> Result<(), MachineError> {
        self.check_nodes()?;
        self.check_cpus()?;
        self.check_distances()?;
        self.check_areas()?;
        self.check_zones()?;
        self.check_simulation()?;
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), Problem> {
        if self.nodes.is_empty() {
            return Err(Problem::NoNodes);
        }
        if self.nodes.len() > MAX_NODES {
            return Err(Problem::TooManyNodes(self.nodes.len() as u64));
        }
        let mut ranges: Vec<_> = self.memory_ranges().collect();
        for (_, range) in &ranges {
            check_range(*range)?;
        }
        check_disjoint(&mut ranges)?;
        if !ranges.iter().any(|(_, range)| !range.whole_frames(self.geometry).is_empty()) {
            return Err(Problem::NoMemory);
        }
        Ok(())
    }

    fn check_cpus(&self) -> Result<(), Problem> {
        if self.cpus.is_empty() {
            return Err(Problem::NoCpus);
        }
        if self.cpus.len() > MAX_CPUS {
            return Err(Problem::TooManyCpus(self.cpus.len() as u64));
        }
        let mut seen = HashMap::new();
        for (id, cpu) in self.cpus.iter().enumerate() {
            let id = CpuId(id as u32);
            if cpu.node.index() >= self.nodes.len() {
                return Err(Problem::UnknownNode { cpu: id, node: cpu.node, nodes: self.nodes.len() });
            }
            if let Some(first) = seen.insert((cpu.socket, cpu.core, cpu.thread), id) {
                return Err(Problem::SameThread(first, id));
            }
        }
        Ok(())
    }

    fn check_distances(&self) -> Result<(), Problem> {
        let nodes = self.nodes.len();
        if self.distances.len() != nodes {
            return Err(Problem::DistanceShape { row: self.distances.len(), entries: 0, nodes });
        }
        for (row, distances) in self.distances.iter().enumerate() {
            if distances.len() != nodes {
                return Err(Problem::DistanceShape { row, entries: distances.len(), nodes });
            }
            let from = NodeId(row as u16);
            for (to, &distance) in distances.iter().enumerate() {
                if to == row && distance != LOCAL_DISTANCE {
                    return Err(Problem::SelfDistance(from, distance));
                }
                if distance < LOCAL_DISTANCE {
                    return Err(Problem::ShortDistance(from, NodeId(to as u16), distance));
                }
            }
        }
        Ok(())
    }

    fn check_areas(&self) -> Result<(), Problem> {
        for range in &self.reserved {
            check_range(*range)?;
        }
        let mut areas = self.cma.clone();
        areas.sort_unstable();
        for area in &areas {
            check_range(*area)?;
            if !self.memory_ranges().any(|(_, range)| range.intersection(*area) == *area) {
                return Err(Problem::CmaOutsideMemory(*area));
            }
        }
        match areas.windows(2).find(|pair| pair[0].overlaps(pair[1])) {
            Some(pair) => Err(Problem::CmaOverlap(pair[0], pair[1])),
            None => Ok(()),
        }
    }

    fn check_zones(&self) -> Result<(), Problem> {
        let page = self.geometry.page_size().0;
        let fits = |limit: PhysAddr| limit.0 != 0 && limit.0.is_multiple_of(page) && limit <= ADDRESS_LIMIT;
        let each = [self.zones.dma, self.zones.dma32].into_iter().flatten().all(fits);
        let ordered = match (self.zones.dma, self.zones.dma32) {
            (Some(dma), Some(dma32)) => dma < dma32,
            _ => true,
        };
        if each && ordered { Ok(()) } else { Err(Problem::ZoneLimits) }
    }
}

impl Machine {
    fn check_simulation(&self) -> Result<(), Problem> {
        let Some(simulation) = &self.simulation else { return Ok(()) };
        let is_on_its_node = |cpu: &Cpu| cpu.node.0 == cpu.socket;
        let topology = Topology::of(&self.cpus).filter(|_| self.cpus.iter().all(is_on_its_node));
        simulation.violated_rule(topology, self.nodes.len()).map_or(Ok(()), |rule| Err(Problem::Simulation(rule)))
    }
}

/// Checks that a range has bytes and ends at or below [`ADDRESS_LIMIT`].
pub(super) fn check_range(range: AddressRange) -> Result<(), Problem> {
    if range.is_empty() {
        return Err(Problem::EmptyRange(range));
    }
    if range.end > ADDRESS_LIMIT {
        return Err(Problem::BeyondAddresses(range));
    }
    Ok(())
}

/// Sorts the ranges by address and checks that no two overlap.
pub(super) fn check_disjoint(ranges: &mut [(NodeId, AddressRange)]) -> Result<(), Problem> {
    ranges.sort_by_key(|(_, range)| *range);
    match ranges.windows(2).find(|pair| pair[0].1.overlaps(pair[1].1)) {
        Some(pair) => Err(Problem::Overlap {
            first: pair[0].0,
            first_range: pair[0].1,
            second: pair[1].0,
            second_range: pair[1].1,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{built_in, built_in_names};
    use frameyard_units::ByteSize;

    fn broken(by: impl FnOnce(&mut Machine)) -> Problem {
        let mut machine = built_in("skylake-8167m").unwrap();
        by(&mut machine);
        match machine.validate() {
            Err(MachineError::Invalid { place: None, problem }) => problem,
            other => panic!("expected a problem, not {other:?}"),
        }
    }

    #[test]
    fn every_built_in_machine_is_valid() {
        for name in built_in_names() {
            assert_eq!(built_in(name).unwrap().validate(), Ok(()), "{name}");
        }
    }

    #[test]
    fn memory_of_two_nodes_that_overlaps_names_both() {
        let problem = broken(|machine| machine.nodes[1].memory[0].start.0 -= 0x1000);
        assert!(matches!(problem, Problem::Overlap { first: NodeId(0), second: NodeId(1), .. }), "{problem}");
        let text = problem.to_string();
        assert!(text.contains("node 0") && text.contains("node 1"), "{text}");
    }

    #[test]
    fn each_impossible_figure_is_named() {
        assert_eq!(broken(|m| m.cpus.clear()), Problem::NoCpus);
        assert_eq!(broken(|m| m.nodes.clear()), Problem::NoNodes);
        assert_eq!(broken(|m| m.nodes.iter_mut().for_each(|n| n.memory.clear())), Problem::NoMemory);
        assert!(matches!(broken(|m| m.cpus[7].node = NodeId(2)), Problem::UnknownNode { cpu: CpuId(7), .. }));
        assert_eq!(broken(|m| m.cpus[1] = m.cpus[0]), Problem::SameThread(CpuId(0), CpuId(1)));
        assert!(matches!(broken(|m| m.distances.truncate(1)), Problem::DistanceShape { row: 1, .. }));
        assert!(matches!(broken(|m| m.distances[1].truncate(1)), Problem::DistanceShape { row: 1, .. }));
        assert_eq!(broken(|m| m.distances[1][1] = 11), Problem::SelfDistance(NodeId(1), 11));
        assert_eq!(broken(|m| m.distances[0][1] = 9), Problem::ShortDistance(NodeId(0), NodeId(1), 9));
        assert_eq!(broken(|m| m.zones.dma = m.zones.dma32), Problem::ZoneLimits);
        assert!(matches!(broken(|m| m.nodes[1].memory[0].end.0 = 1 << 53), Problem::BeyondAddresses(_)));
        assert!(matches!(broken(|m| m.nodes[0].memory[0].end.0 = 0), Problem::EmptyRange(_)));
        assert_eq!(broken(|m| m.cpus = vec![m.cpus[0]; 8193]), Problem::TooManyCpus(8193));
        assert_eq!(broken(|m| m.nodes = vec![m.nodes[0].clone(); 1025]), Problem::TooManyNodes(1025));
    }

    #[test]
    fn less_than_a_page_is_no_memory() {
        let sliver = AddressRange::new(PhysAddr(0x1800), PhysAddr(0x2800));
        let problem = broken(|machine| {
            machine.nodes[0].memory = vec![sliver];
            machine.nodes[1].memory.clear();
        });
        assert_eq!(problem, Problem::NoMemory);
    }

    #[test]
    fn contiguous_areas_lie_in_memory_and_apart() {
        let area = |start: u64, size: u64| AddressRange::new(PhysAddr(start), PhysAddr(start + size));
        let mib = ByteSize::mib(1).0;
        let hole = area(0xa0000, mib);
        assert_eq!(broken(|m| m.cma.push(hole)), Problem::CmaOutsideMemory(hole));
        let (one, two) = (area(64 * mib, 16 * mib), area(72 * mib, 16 * mib));
        assert_eq!(broken(|m| m.cma.extend([two, one])), Problem::CmaOverlap(one, two));
    }
}
