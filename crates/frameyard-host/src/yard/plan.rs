//! The machine of a yard that is requested by size alone: frames and CPUs like those of the host.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use frameyard::boot::BootError;
use frameyard::policy::ZonePolicy;
use frameyard::units::PhysAddr;
use frameyard::watermarks::{HighFraction, PcpSizing};
use frameyard::{ByteSize, Geometry, MemoryTable, NodeId, PageCount, Pfn, PfnRange, YardConfig};

use super::error::HostYardError;
use crate::topology::{HostNode, HostTopology};

/// The first frame of a process's first yard starts at this address, above the zones for old devices, or at the section behind it.
const FIRST: PhysAddr = PhysAddr(4 << 30);
/// Where physical addresses end on x86-64, also for page tables.
const END: PhysAddr = PhysAddr(1 << 52);
/// Shared yards begin at one of that many addresses, a TiB apart.
const SLOTS: u64 = 1 << 11;
const SLOT_SHIFT: u32 = 40;
/// Frame numbers below this have been given to yards of this process.
static USED: AtomicU64 = AtomicU64::new(0);
/// Sizes are rounded up to this, or to frames if these are larger: to the largest block of frames of 4 KiB.
const UNIT: ByteSize = ByteSize::mib(4);
/// The lists of all CPUs hold a 32nd of a zone's frames if the kernel's formula is not for frames of that size. They hold as much in
/// pageblocks of small frames.
const LARGE_FRAMES: PcpSizing = match HighFraction::new(32) {
    Ok(fraction) => PcpSizing::Fraction(fraction),
    Err(_) => panic!("the fraction is small enough"),
};

/// Frames and CPUs by node.
#[derive(Debug)]
pub(super) struct HostPlan {
    geometry: Geometry,
    memory: Vec<(PfnRange, NodeId)>,
    cpu_nodes: Vec<NodeId>,
    device_space: Option<PfnRange>,
    policy: ZonePolicy,
}

impl HostPlan {
    /// The plan that `make` makes for yards that begin at a frame number or behind it, with numbers that no other yard of this process has: a block
    /// freed to the wrong yard is an error there. Once all numbers are used, they repeat.
    pub(super) fn with_numbers_of_its_own(
        geometry: Geometry,
        make: &dyn Fn(Pfn) -> Result<Self, HostYardError>,
    ) -> Result<Self, HostYardError> {
        let first = geometry.frame_of(FIRST);
        let fits = |plan: &Self| geometry.address_of(plan.end()) <= END;
        let mut used = USED.load(Ordering::Relaxed);
        loop {
            let plan = match make(first.max(Pfn(used))) {
                Ok(plan) if fits(&plan) => plan,
                _ => make(first)?,
            };
            // A yard that does not fit is refused later. It takes no numbers.
            let end = if fits(&plan) { plan.end().0 } else { used };
            match USED.compare_exchange(used, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(plan),
                Err(now) => used = now,
            }
        }
    }

    /// The plan that `make` makes for yards that begin at a frame number or behind it, with numbers that yards of other
    /// processes are unlikely to have: a process may use several shared yards.
    pub(super) fn with_random_numbers(
        geometry: Geometry,
        make: &dyn Fn(Pfn) -> Result<Self, HostYardError>,
    ) -> Result<Self, HostYardError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let slot = 1 + RandomState::new().hash_one((std::process::id(), now)) % SLOTS;
        make(geometry.frame_of(PhysAddr(slot << SLOT_SHIFT)))
    }

    /// Plans at least `size` of memory from the frame `first` on, spread over the nodes of the host in proportion to their memory. The yard has a CPU
    /// for each CPU number of the host.
    pub(super) fn new(
        host: &HostTopology,
        geometry: Geometry,
        size: ByteSize,
        first: Pfn,
    ) -> Result<Self, HostYardError> {
        let least = UNIT.max(geometry.page_size());
        if size < least {
            return Err(HostYardError::TooSmall { size, least });
        }
        let nodes = sharing_nodes(host, geometry, size);
        let memory = memory_of(&nodes, size, geometry, first).ok_or(BootError::TooLarge)?;
        let cpu_nodes = cpu_nodes(host, &nodes);
        Ok(Self { geometry, memory, cpu_nodes, device_space: None, policy: ZonePolicy::default() })
    }

    /// At most that many CPUs.
    pub(super) fn with_cpus(mut self, cpus: Option<NonZeroU32>) -> Self {
        self.cpu_nodes.truncate(cpus.map_or(usize::MAX, |cpus| cpus.get() as usize));
        self
    }

    /// With that policy instead of the default one.
    pub(super) fn with_policy(mut self, policy: ZonePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Room for devices of that size behind the memory, in whole sections, from a multiple of 1 GiB on.
    pub(super) fn with_device_space(mut self, size: ByteSize) -> Result<Self, HostYardError> {
        let section = self.geometry.section_pages();
        let unit = section.0.max(self.geometry.pages_in(ByteSize::gib(1)).0);
        let start = self.memory.last().map_or(0, |(range, _)| range.end.0).next_multiple_of(unit);
        let frames = size.0.div_ceil(self.geometry.page_size().0).checked_next_multiple_of(section.0);
        let end = frames.and_then(|frames| start.checked_add(frames));
        let end = end.filter(|end| *end <= u64::MAX / self.geometry.page_size().0).ok_or(BootError::TooLarge)?;
        self.device_space = (start < end).then_some(PfnRange { start: Pfn(start), end: Pfn(end) });
        Ok(self)
    }

    /// The end of its frames.
    fn end(&self) -> Pfn {
        let memory = self.memory.last().map_or(Pfn(0), |(range, _)| range.end);
        self.device_space.map_or(memory, |space| space.end)
    }

    pub(super) fn table(&self) -> MemoryTable<'_> {
        MemoryTable { memory: &self.memory, ..MemoryTable::default() }
    }

    pub(super) fn config(&self) -> YardConfig<'_> {
        let Self { geometry, device_space, policy, .. } = *self;
        let config = YardConfig { geometry, device_space, policy, ..YardConfig::new(&self.cpu_nodes) };
        // The kernel moves up to 1 MiB at once, a quarter of it in a batch: for larger frames its formula gives single ones.
        if self.geometry.pages_in(ByteSize::mib(1)).0 < 4 {
            return YardConfig { pcp_sizing: LARGE_FRAMES, ..config };
        }
        config
    }
}

/// The nodes of the host with memory that get a share of a yard, half a section at least; at least one. Smaller yards have fewer
/// nodes than the host.
fn sharing_nodes(host: &HostTopology, geometry: Geometry, size: ByteSize) -> Vec<&HostNode> {
    let most = usize::try_from(size.0 / (geometry.section_size().0 / 2)).unwrap_or(usize::MAX).max(1);
    let nodes: Vec<&HostNode> = host.nodes().iter().filter(|node| node.memory.0 > 0).take(most).collect();
    if nodes.is_empty() { vec![&host.nodes()[0]] } else { nodes }
}

/// A range of whole units for each node, from `first` on, the first one at a multiple of 1 GiB. Each starts with a section, since a section belongs
/// to one node. `None` if there are not that many frames.
fn memory_of(nodes: &[&HostNode], size: ByteSize, geometry: Geometry, first: Pfn) -> Option<Vec<(PfnRange, NodeId)>> {
    let block = geometry.pages_in(UNIT).0.max(1);
    let blocks = u128::from(size.0.div_ceil(geometry.size_of(PageCount(block)).0));
    let section_after = |pfn: Pfn| pfn.0.checked_next_multiple_of(geometry.section_pages().0).map(Pfn);
    let aligned = first.0.checked_next_multiple_of(geometry.pages_in(ByteSize::gib(1)).0.max(1)).map(Pfn)?;
    let total: u128 = nodes.iter().map(|node| u128::from(node.memory.0)).sum::<u128>().max(1);
    let (mut start, mut given, mut weight) = (section_after(aligned)?, 0, 0);
    let mut memory = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        weight += u128::from(node.memory.0);
        let end = if index + 1 == nodes.len() { blocks } else { blocks * weight / total };
        let share = (end - given) as u64;
        given = end;
        if share > 0 {
            let end = start.0.checked_add(share * block)?;
            end.checked_mul(geometry.page_size().0)?;
            memory.push((PfnRange { start, end: Pfn(end) }, NodeId(index as u16)));
            start = section_after(Pfn(end))?;
        }
    }
    Some(memory)
}

/// The node of each CPU number of the host. CPUs of a node without a share belong to the nearest node with one.
fn cpu_nodes(host: &HostTopology, nodes: &[&HostNode]) -> Vec<NodeId> {
    let count = host.online().as_slice().last().map_or(1, |cpu| cpu.index() + 1);
    let mut cpu_nodes = vec![NodeId(0); count];
    for node in host.nodes() {
        let position = |other: &HostNode| host.nodes().iter().position(|node| node.id == other.id);
        let distance = |other: &HostNode| position(other).and_then(|at| node.distances.get(at).copied());
        let nearest = (0..nodes.len()).min_by_key(|index| distance(nodes[*index]).unwrap_or(u16::MAX));
        for cpu in node.cpus.as_slice().iter().filter(|cpu| cpu.index() < count) {
            cpu_nodes[cpu.index()] = NodeId(nearest.unwrap_or(0) as u16);
        }
    }
    cpu_nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::Tree;

    const FIRST_PFN: Pfn = Pfn(1 << 20);

    /// A host with two CPUs on each of `memory.len()` nodes. Memory is in MiB.
    fn host(tree: &Tree, memory: &[u64]) -> HostTopology {
        let last = |count: usize| if count == 1 { "0".to_owned() } else { format!("0-{}", count - 1) };
        tree.write("sys/devices/system/cpu/online", &last(2 * memory.len()));
        tree.write("sys/devices/system/node/online", &last(memory.len()));
        tree.write("proc/cpuinfo", "");
        tree.write("proc/sys/kernel/osrelease", "6.12");
        tree.write("proc/meminfo", &format!("MemTotal: {} kB\n", memory.iter().sum::<u64>() << 10));
        for (node, mib) in memory.iter().enumerate() {
            let folder = format!("sys/devices/system/node/node{node}");
            tree.write(&format!("{folder}/cpulist"), &format!("{}-{}", 2 * node, 2 * node + 1));
            let distance = |other: usize| (10 + 5 * node.abs_diff(other)).to_string();
            let distances: Vec<String> = (0..memory.len()).map(distance).collect();
            tree.write(&format!("{folder}/distance"), &distances.join(" "));
            tree.write(&format!("{folder}/meminfo"), &format!("Node {node} MemTotal: {} kB\n", mib << 10));
        }
        HostTopology::read(tree.path()).unwrap()
    }

    fn frames(plan: &HostPlan) -> Vec<(u64, u16)> {
        plan.memory.iter().map(|(range, node)| (range.count().0, node.0)).collect()
    }

    #[test]
    fn sizes_are_rounded_up_to_whole_blocks() {
        let tree = Tree::new();
        let host = host(&tree, &[1 << 10]);
        for (size, blocks) in [(4 << 20, 1), ((4 << 20) + 1, 2), (100 << 20, 25), ((1 << 30) - 1, 256)] {
            let plan = HostPlan::new(&host, Geometry::X86_64, ByteSize(size), FIRST_PFN).unwrap();
            assert_eq!(frames(&plan), [(blocks * 1024, 0)], "{size}");
        }
    }

    #[test]
    fn yards_of_a_process_have_no_frame_number_in_common() {
        let tree = Tree::new();
        let host = host(&tree, &[1 << 10]);
        let large = Geometry::of_frames(ByteSize::gib(1)).unwrap();
        let mut ends = Vec::new();
        for (geometry, size) in
            [(Geometry::X86_64, 4 << 20), (large, 1 << 30), (Geometry::X86_64, 2 << 30), (large, 1 << 30)]
        {
            let make =
                |first| HostPlan::new(&host, geometry, ByteSize(size), first)?.with_device_space(ByteSize::gib(1));
            let plan = HostPlan::with_numbers_of_its_own(geometry, &make).unwrap();
            assert!(ends.iter().all(|end| *end <= plan.memory[0].0.start), "{plan:?}");
            assert!((plan.memory[0].0.start.0 * geometry.page_size().0).is_multiple_of(1 << 30), "{plan:?}");
            ends.push(plan.end());
        }
        // A yard too large for any process uses up no numbers.
        let make = |first| HostPlan::new(&host, Geometry::X86_64, ByteSize(1 << 62), first);
        HostPlan::with_numbers_of_its_own(Geometry::X86_64, &make).unwrap();
        let make = |first| HostPlan::new(&host, Geometry::X86_64, ByteSize::mib(4), first);
        let last = HostPlan::with_numbers_of_its_own(Geometry::X86_64, &make).unwrap();
        assert!(Geometry::X86_64.address_of(last.end()) <= END, "{last:?}");
        assert!(ends.iter().all(|end| *end <= last.memory[0].0.start), "{last:?}");
        // Behind the last number there are none.
        let end = Pfn(u64::MAX / 4096);
        assert!(matches!(
            HostPlan::new(&host, Geometry::X86_64, ByteSize::mib(4), end),
            Err(HostYardError::Boot(BootError::TooLarge))
        ));
    }

    #[test]
    fn sizes_below_a_block_are_refused() {
        let tree = Tree::new();
        let host = host(&tree, &[1 << 10]);
        let text = |size| HostPlan::new(&host, Geometry::X86_64, ByteSize(size), FIRST_PFN).unwrap_err().to_string();
        assert_eq!(text(1), "1 byte of memory is too little for a yard: request at least 4M");
        assert_eq!(text((4 << 20) - 1), "4194303 bytes of memory is too little for a yard: request at least 4M");
    }

    #[test]
    fn memory_is_spread_over_the_nodes_in_proportion() {
        let tree = Tree::new();
        let host = host(&tree, &[3 << 10, 1 << 10]);
        let plan = HostPlan::new(&host, Geometry::X86_64, ByteSize::gib(1), FIRST_PFN).unwrap();
        assert_eq!(frames(&plan), [(3 << 16, 0), (1 << 16, 1)]);
        assert_eq!(plan.cpu_nodes, [0, 0, 1, 1].map(NodeId));
        let starts_with_section = |range: &PfnRange| range.start.0.is_multiple_of(Geometry::X86_64.section_pages().0);
        assert!(plan.memory.iter().all(|(range, _)| starts_with_section(range)));
    }

    #[test]
    fn a_number_of_cpus_takes_the_first_ones() {
        let tree = Tree::new();
        let host = host(&tree, &[1 << 10, 1 << 10]);
        let plan = |cpus| {
            let plan = HostPlan::new(&host, Geometry::X86_64, ByteSize::gib(1), FIRST_PFN).unwrap();
            plan.with_cpus(NonZeroU32::new(cpus)).cpu_nodes
        };
        assert_eq!(plan(3), [0, 0, 1].map(NodeId));
        assert_eq!(plan(0), plan(9));
    }

    #[test]
    fn devices_have_room_in_whole_sections_behind_the_memory() {
        let tree = Tree::new();
        let host = host(&tree, &[1 << 10]);
        let plan = |size| {
            HostPlan::new(&host, Geometry::X86_64, ByteSize::mib(100), FIRST_PFN).unwrap().with_device_space(size)
        };
        assert_eq!(plan(ByteSize(0)).unwrap().config().device_space, None);
        let gib = ByteSize::gib(1).0 / 4096;
        let space = plan(ByteSize(1)).unwrap().config().device_space.unwrap();
        assert_eq!(space, PfnRange::new(Pfn(5 * gib), Geometry::X86_64.section_pages()));
        assert!(matches!(plan(ByteSize(u64::MAX)), Err(HostYardError::Boot(BootError::TooLarge))));
    }

    #[test]
    fn small_yards_have_one_node() {
        let tree = Tree::new();
        let host = host(&tree, &[1 << 10, 1 << 10]);
        let plan = HostPlan::new(&host, Geometry::X86_64, ByteSize::mib(100), FIRST_PFN).unwrap();
        assert_eq!(frames(&plan), [(25 * 1024, 0)]);
        assert_eq!(plan.cpu_nodes, [NodeId(0); 4]);
    }

    #[test]
    fn large_frames_are_rounded_up_to_and_their_nodes_start_with_sections() {
        let tree = Tree::new();
        let host = host(&tree, &[1 << 10, 1 << 10]);
        let geometry = Geometry::of_frames(ByteSize::mib(16)).unwrap();
        for (size, expected) in
            [(16 << 20, vec![(1, 0)]), ((16 << 20) + 1, vec![(2, 0)]), (8 << 30, vec![(256, 0), (256, 1)])]
        {
            let plan = HostPlan::new(&host, geometry, ByteSize(size), Pfn(256)).unwrap();
            assert_eq!(frames(&plan), expected, "{size}");
            // 4 GiB lies inside the first section, of 8 GiB.
            assert_eq!(plan.memory[0].0.start, Pfn(512));
            assert!(plan.memory.iter().all(|(range, _)| range.start.0.is_multiple_of(512)));
        }
        let refused = HostPlan::new(&host, geometry, ByteSize::mib(15), Pfn(256)).unwrap_err().to_string();
        assert_eq!(refused, "15728640 bytes of memory is too little for a yard: request at least 16M");
    }

    #[test]
    fn cpus_of_a_node_without_memory_belong_to_the_nearest_with_some() {
        let tree = Tree::new();
        let host = host(&tree, &[1 << 10, 1 << 10, 0]);
        let plan = HostPlan::new(&host, Geometry::X86_64, ByteSize::gib(1), FIRST_PFN).unwrap();
        assert_eq!(plan.cpu_nodes, [0, 0, 1, 1, 1, 1].map(NodeId));
    }
}
