//! The machine of a row: one node for each node of the host with memory, with its CPUs. The nodes share the frames evenly.

use frameyard::page::Page;
use frameyard::{ByteSize, Geometry, MemoryTable, NodeId, PageCount, Pfn, PfnRange};
use frameyard_host::{HostNode, HostTopology, MemoryError, Region};

/// Where memory begins: at 4 GiB, above the low zones.
const FIRST: Pfn = Pfn(1 << 20);

/// Frames of a section.
pub(super) fn section_frames() -> u64 {
    1 << Geometry::X86_64.section_pages_shift()
}

/// The memory and the CPUs of a machine.
#[derive(Clone, Debug)]
pub(super) struct BenchMachine {
    memory: Vec<(PfnRange, NodeId)>,
    holes: Vec<PfnRange>,
    /// The node of each CPU.
    pub(super) cpus: Vec<NodeId>,
}

/// The host's nodes that have memory; at least one.
pub(super) fn nodes(host: &HostTopology) -> Vec<&HostNode> {
    let nodes: Vec<&HostNode> = host.nodes().iter().filter(|node| node.memory.0 > 0).collect();
    if nodes.is_empty() { vec![&host.nodes()[0]] } else { nodes }
}

impl BenchMachine {
    /// A machine of `frames` frames, in whole sections on each node, with `holes` single frames left out evenly.
    pub(super) fn new(host: &HostTopology, frames: u64, holes: u64) -> Self {
        let nodes = nodes(host);
        let share = (frames / nodes.len() as u64).next_multiple_of(section_frames());
        let memory = (0..nodes.len() as u64)
            .map(|node| (PfnRange::new(Pfn(FIRST.0 + node * share), PageCount(share)), NodeId(node as u16)));
        let hole = |at: u64| {
            let offset = u128::from(at + 1) * u128::from(frames) / u128::from(holes + 1);
            PfnRange::new(Pfn(FIRST.0 + offset as u64), PageCount(1))
        };
        let highest = host.online().as_slice().last().map_or(0, |cpu| cpu.index());
        let node_of = |cpu: usize| {
            let has = |node: &&HostNode| node.cpus.as_slice().iter().any(|other| other.index() == cpu);
            NodeId(nodes.iter().position(has).unwrap_or(0) as u16)
        };
        Self {
            memory: memory.collect(),
            holes: (0..holes).map(hole).collect(),
            cpus: (0..=highest).map(node_of).collect(),
        }
    }

    pub(super) fn table(&self) -> MemoryTable<'_> {
        MemoryTable { memory: &self.memory, reserved: &self.holes, cma: &[] }
    }

    pub(super) fn nodes(&self) -> usize {
        self.memory.len()
    }

    /// Binds the map of each node to its memory, if there are several nodes.
    pub(super) fn bind(&self, region: &Region, host: &HostTopology) -> Result<(), MemoryError> {
        let bytes = |frames: u64| ByteSize(frames * size_of::<Page>() as u64);
        if self.memory.len() > 1 {
            for (range, node) in &self.memory {
                let offset = bytes(range.start.0 - FIRST.0);
                region.bind(offset, bytes(range.count().0), host.node_for(*node).id)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_its_frames_and_holes_of_one_frame_evenly_among_them() {
        let host = HostTopology::current().unwrap();
        let frames = section_frames() * nodes(&host).len() as u64 * 2;
        let machine = BenchMachine::new(&host, frames, 999);
        let table = machine.table();
        assert_eq!(table.memory.iter().map(|(range, _)| range.count().0).sum::<u64>(), frames);
        assert_eq!(table.reserved.len(), 999);
        assert!(table.reserved.iter().all(|hole| hole.count() == PageCount(1)));
        let gaps: Vec<u64> = table.reserved.windows(2).map(|pair| pair[1].start.0 - pair[0].start.0).collect();
        assert!(gaps.iter().all(|gap| gap.abs_diff(frames / 1000) <= 1), "{gaps:?}");
        assert!(machine.cpus.len() >= host.allowed().as_slice().len());
    }

    #[test]
    fn without_holes_nothing_is_reserved() {
        let host = HostTopology::current().unwrap();
        assert!(BenchMachine::new(&host, section_frames() * 4, 0).table().reserved.is_empty());
    }
}
