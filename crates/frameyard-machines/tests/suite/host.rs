//! The host, read from fake trees of `/proc` and `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

use frameyard_machines::{MachineError, MemorySource, host};
use frameyard_units::{ByteSize, NodeId};

/// A directory that is removed at the end of the test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("frameyard-host-{}-{name}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Two sockets, each a node with two cores of two threads, in Linux's numbering.
    fn two_nodes(&self) -> &Self {
        self.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU\ncpu MHz\t\t: 2100.123\n");
        self.file("sys/devices/system/cpu/present", "0-7\n").file("sys/devices/system/node/online", "0-1\n");
        self.file("sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
        self.file("sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
        self.file("sys/devices/system/node/node0/distance", "10 21\n");
        self.file("sys/devices/system/node/node1/distance", "21 10\n");
        self.file("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  3145728 kB\n");
        self.file("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:  5242880 kB\n");
        for cpu in 0..8 {
            let of = |file: &str| format!("sys/devices/system/cpu/cpu{cpu}/{file}");
            let socket = cpu % 4 / 2;
            self.file(&of("topology/physical_package_id"), &socket.to_string());
            self.file(&of("topology/thread_siblings_list"), &format!("{},{}", cpu % 4, cpu % 4 + 4));
            self.file(&of("cache/index0/level"), "1").file(&of("cache/index0/shared_cpu_list"), "0");
            let shared = ["0-1,4-5", "2-3,6-7"][socket];
            self.file(&of("cache/index3/level"), "3").file(&of("cache/index3/shared_cpu_list"), shared);
        }
        self
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

const IOMEM: &str = "\
00001000-0009fbff : System RAM
00100000-bfffffff : System RAM
100000000-23fffffff : System RAM
";

#[test]
fn topology_and_distances_come_from_sys() {
    let tree = Tree::new("topology");
    tree.two_nodes().file("proc/iomem", IOMEM);
    let machine = host(&tree.0).unwrap().machine;
    let cpus: Vec<_> =
        machine.cpus.iter().map(|cpu| (cpu.node.0, cpu.socket, cpu.core, cpu.thread, cpu.cache)).collect();
    assert_eq!(cpus[..4], [(0, 0, 0, 0, 0), (0, 0, 1, 0, 0), (1, 1, 0, 0, 1), (1, 1, 1, 0, 1)]);
    assert_eq!(cpus[4..], [(0, 0, 0, 1, 0), (0, 0, 1, 1, 0), (1, 1, 0, 1, 1), (1, 1, 1, 1, 1)]);
    assert_eq!(machine.distances, [[10, 21], [21, 10]]);
    assert_eq!((machine.description.as_str(), machine.clock_mhz), ("Some CPU", Some(2100)));
}

#[test]
fn real_addresses_are_divided_by_memory_blocks() {
    let tree = Tree::new("blocks");
    tree.two_nodes().file("proc/iomem", IOMEM).file("sys/devices/system/memory/block_size_bytes", "40000000\n");
    for (node, blocks) in [(0, 0..4), (1, 4..9)] {
        for block in blocks {
            tree.file(&format!("sys/devices/system/node/node{node}/memory{block}/online"), "1");
        }
    }
    let host = host(&tree.0).unwrap();
    assert_eq!((host.memory_source, host.notes), (MemorySource::ResourceMap, vec![]));
    assert_eq!(host.machine.node_bytes(NodeId(1)), ByteSize::gib(5));
    assert_eq!(host.machine.installed_bytes(), ByteSize::gib(8));
}

#[test]
fn real_addresses_are_divided_by_size_where_no_blocks_are_named() {
    let tree = Tree::new("sizes");
    tree.two_nodes().file("proc/iomem", IOMEM);
    let host = host(&tree.0).unwrap();
    assert_eq!(host.memory_source, MemorySource::ResourceMap);
    assert_eq!(host.notes.len(), 1, "{:?}", host.notes);
    let (one, other) = (host.machine.node_bytes(NodeId(0)).0, host.machine.node_bytes(NodeId(1)).0);
    assert_eq!(one + other, host.machine.memory_bytes().0);
    assert!(one.abs_diff(3 << 30) < 1 << 20, "{one}");
}

#[test]
fn hidden_addresses_fall_back_to_the_total_with_a_reason() {
    let tree = Tree::new("hidden");
    tree.two_nodes().file("proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");
    tree.file("proc/iomem", "00000000-00000000 : Reserved\n00000000-00000000 : System RAM\n");
    let host = host(&tree.0).unwrap();
    let MemorySource::MemTotal { why } = &host.memory_source else { panic!("{:?}", host.memory_source) };
    assert!(why.contains("privileged"), "{why}");
    assert!(host.memory_source.to_string().contains(why.as_str()));
    assert_eq!(host.machine.installed_bytes(), ByteSize::gib(8));
    assert_eq!(host.machine.node_bytes(NodeId(1)), ByteSize::gib(5));
}

#[test]
fn a_host_without_topology_has_one_node_and_a_core_per_cpu() {
    let tree = Tree::new("little");
    tree.file("proc/meminfo", "MemTotal: 2097152 kB\n").file("proc/cpuinfo", "processor : 0\nprocessor : 1\n");
    let host = host(&tree.0).unwrap();
    assert!(matches!(&host.memory_source, MemorySource::MemTotal { why } if why.contains("cannot be read")));
    assert_eq!((host.machine.nodes.len(), host.machine.cpus.len()), (1, 2));
    assert_eq!(host.machine.cpus[1].core, 1);
    assert!(!host.notes.is_empty());
}

#[test]
fn gaps_in_the_hosts_numbers_are_renumbered_with_a_note() {
    let tree = Tree::new("gaps");
    tree.file("proc/meminfo", "MemTotal: 2097152 kB\n").file("sys/devices/system/cpu/present", "0,2,5");
    tree.file("sys/devices/system/node/online", "0,8").file("sys/devices/system/node/node8/cpulist", "5");
    tree.file("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 2097152 kB");
    let host = host(&tree.0).unwrap();
    let nodes: Vec<_> = host.machine.cpus.iter().map(|cpu| cpu.node.0).collect();
    assert_eq!(nodes, [0, 0, 1]);
    assert_eq!(host.notes.iter().filter(|note| note.contains("renumbered") || note.contains("gaps")).count(), 2);
}

#[test]
fn a_host_without_a_memory_size_is_an_error() {
    let tree = Tree::new("nothing");
    assert!(matches!(host(&tree.0), Err(MachineError::NoMemoryMap { .. })));
}

#[test]
fn the_machine_of_this_test_is_valid() {
    let host = host(Path::new("/")).unwrap();
    assert_eq!(host.machine.validate(), Ok(()));
    assert!(host.machine.memory_bytes() > ByteSize::mib(16));
}
