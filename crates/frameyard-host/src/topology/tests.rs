use super::*;
use crate::test_tree::Tree;

fn two_nodes() -> Tree {
    let tree = Tree::new();
    tree.write("sys/devices/system/cpu/online", "0-3\n");
    tree.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Test CPU 9000\nflags\t\t: fpu\n");
    tree.write("proc/sys/kernel/osrelease", "6.12.1-test\n");
    tree.write("proc/meminfo", "MemTotal:        8388608 kB\nMemAvailable:    4194304 kB\n");
    tree.write("sys/devices/system/node/online", "0,2\n");
    for (node, cpus, distance) in [(0, "0-1", "10 21"), (2, "2-3", "21 10")] {
        let folder = format!("sys/devices/system/node/node{node}");
        tree.write(&format!("{folder}/cpulist"), cpus);
        tree.write(&format!("{folder}/distance"), distance);
        tree.write(&format!("{folder}/meminfo"), &format!("\nNode {node} MemTotal:        4194304 kB\n"));
    }
    tree
}

#[test]
fn a_machine_with_two_nodes_is_read() {
    let tree = two_nodes();
    let host = HostTopology::read(tree.path()).unwrap();
    assert_eq!(host.cpu_model(), Some("Test CPU 9000"));
    assert_eq!(host.kernel(), "6.12.1-test");
    assert_eq!(host.memory(), ByteSize::gib(8));
    assert_eq!(host.available_memory().unwrap(), ByteSize::gib(4));
    assert_eq!(host.online().count(), 4);
    let nodes = host.nodes();
    assert_eq!(nodes.len(), 2);
    assert_eq!((nodes[1].id, nodes[1].memory), (NodeId(2), ByteSize::gib(4)));
    assert_eq!(nodes[1].cpus.to_string(), "2-3");
    assert_eq!(nodes[1].distances, [21, 10]);
}

#[test]
fn nodes_of_a_yard_map_to_nodes_with_memory_in_rotation() {
    let tree = two_nodes();
    tree.write("sys/devices/system/node/online", "0-2\n");
    tree.write("sys/devices/system/node/node1/cpulist", "\n");
    tree.write("sys/devices/system/node/node1/distance", "21 10 21");
    tree.write("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 0 kB\n");
    let host = HostTopology::read(tree.path()).unwrap();
    let order: Vec<u16> = (0..4).map(|node| host.node_for(NodeId(node)).id.0).collect();
    assert_eq!(order, [0, 2, 0, 2]);
}

#[test]
fn a_tree_without_nodes_is_a_machine_with_one_node() {
    let tree = two_nodes();
    tree.remove("sys/devices/system/node/online");
    let host = HostTopology::read(tree.path()).unwrap();
    assert_eq!(host.nodes().len(), 1);
    assert_eq!(host.nodes()[0].cpus.count(), 4);
    assert_eq!(host.nodes()[0].memory, ByteSize::gib(8));
}

#[test]
fn malformed_and_missing_files_are_named() {
    let tree = two_nodes();
    tree.write("proc/meminfo", "MemTotal: lots\n");
    let error = HostTopology::read(tree.path()).unwrap_err().to_string();
    assert!(error.ends_with("proc/meminfo: expected a line MemTotal: N kB"), "{error}");

    let tree = two_nodes();
    tree.write("sys/devices/system/node/node2/distance", "21 near");
    let error = HostTopology::read(tree.path()).unwrap_err().to_string();
    assert!(error.ends_with("node2/distance: expected distances, as 10 21"), "{error}");

    let tree = two_nodes();
    tree.remove("sys/devices/system/cpu/online");
    let error = HostTopology::read(tree.path()).unwrap_err().to_string();
    assert!(error.contains("cpu/online: cannot read the host's topology: No such file"), "{error}");
}

#[test]
fn the_smallest_limit_of_the_control_groups_applies() {
    let tree = two_nodes();
    tree.write("proc/self/cgroup", "0::/outer/inner\n");
    tree.write("sys/fs/cgroup/outer/memory.max", "1073741824\n");
    tree.write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
    assert_eq!(HostTopology::read(tree.path()).unwrap().usable_memory(), ByteSize::gib(1));

    tree.write("proc/self/cgroup", "4:cpu,memory:/jobs\n3:cpuset:/\n0::/\n");
    tree.write("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "2147483648\n");
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    let host = HostTopology::read(tree.path()).unwrap();
    assert_eq!(host.usable_memory(), ByteSize::gib(2));
    assert_eq!(host.available_memory().unwrap(), ByteSize::gib(2));
    assert_eq!(host.memory(), ByteSize::gib(8));
}

#[test]
fn the_active_setting_is_the_one_in_brackets() {
    let tree = two_nodes();
    tree.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    let host = HostTopology::read(tree.path()).unwrap();
    assert_eq!(host.huge_page_mode().as_deref(), Some("madvise"));
    assert_eq!(host.shared_huge_page_mode(), None);
}

#[test]
fn the_running_machine_is_read() {
    let host = HostTopology::current().unwrap();
    assert!(host.memory() > ByteSize::mib(64));
    assert!(!host.allowed().is_empty());
    assert_eq!(host.allowed(), &host.allowed().intersection(host.online()));
    assert!(host.page_size().0.is_power_of_two());
    assert!(host.nodes().iter().any(|node| !node.cpus.is_empty()));
}
