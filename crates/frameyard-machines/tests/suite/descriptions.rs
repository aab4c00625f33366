//! Descriptions in TOML: defaults, and errors with their lines.

use frameyard_machines::{ZoneLimits, from_toml};
use frameyard_units::{ByteSize, NodeId, Order};

const TWO_NODES: &str = "\
name = \"two\"
[[node]]
cpus = \"0-1\"
distances = [10, 30]
memory = [
  { start = 0x100000, end = 0x80000000 },
  { start = 0x100000000, size = \"2G\" },
]
[[node]]
cpus = \"2-3\"
distances = [30, 10]
memory = [{ start = 0x200000000, size = \"4G\" }]
";

#[test]
fn omitted_sections_default_to_a_pc() {
    let machine = from_toml("two.toml", TWO_NODES).unwrap();
    assert_eq!(machine.geometry, frameyard_units::Geometry::X86_64);
    assert_eq!(machine.zones, ZoneLimits::X86_64);
    assert_eq!(machine.memory_bytes().0, (8 << 30) - (1 << 20));
    let cpus: Vec<_> = machine.cpus.iter().map(|cpu| (cpu.node.0, cpu.socket, cpu.core)).collect();
    assert_eq!(cpus, [(0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1)]);
    let plain = TWO_NODES.replace("distances = [10, 30]\n", "").replace("distances = [30, 10]\n", "");
    assert_eq!(from_toml("two.toml", &plain).unwrap().distances, [[10, 20], [20, 10]]);
}

#[test]
fn geometry_and_zones_come_from_the_text() {
    let text =
        format!("[geometry]\npage_size = \"16K\"\nmax_order = 11\n[zones]\ndma32_below = \"4G\"\n{}", &TWO_NODES[13..]);
    let machine = from_toml("big.toml", &text).unwrap();
    assert_eq!(machine.name, "big");
    assert_eq!((machine.geometry.page_size(), machine.geometry.max_order()), (ByteSize::kib(16), Order(11)));
    assert_eq!((machine.zones.dma, machine.zones.dma32.map(|end| end.0)), (None, Some(4 << 30)));
}

#[test]
fn sockets_spread_over_nodes_where_no_node_lists_cpus() {
    let text = TWO_NODES.replace("cpus = \"0-1\"\n", "").replace("cpus = \"2-3\"\n", "");
    let topology = |sockets: u16| {
        let table = format!("\n[topology]\nsockets = {sockets}\ncores_per_socket = 2\nthreads_per_core = 1\n");
        from_toml("two.toml", &(text.clone() + &table))
    };
    let nodes: Vec<_> = topology(4).unwrap().cpus.iter().map(|cpu| cpu.node).collect();
    assert_eq!(nodes, [0, 0, 0, 0, 1, 1, 1, 1].map(NodeId));
    let error = topology(3).unwrap_err().to_string();
    assert!(error.starts_with("two.toml:2: 3 socket(s) do not spread over 2 nodes"), "{error}");
}

#[test]
fn wrong_costs_are_refused_with_file_and_line() {
    let good = frameyard_machines::built_in_text("broadwell-40").unwrap();
    let error = |from: &str, to: &str| from_toml("own.toml", &good.replace(from, to)).unwrap_err().to_string();
    let refused = error("node_gb_per_s = 54.6", "node_gb_per_s = 0.0");
    assert!(refused.starts_with("own.toml:") && refused.contains("node_gb_per_s must be more than 0"), "{refused}");
    let refused = error("private_kib = 256", "private_kb = 256");
    assert!(refused.starts_with("own.toml:") && refused.contains("unknown field `private_kb`"), "{refused}");
}

/// Changes to a valid description, each with the line of its error and words of its message.
const BREAKAGES: [(&str, &str, usize, &str); 29] = [
    ("name = \"two\"", "nam = \"two\"", 1, "unknown field `nam`"),
    ("name = \"two\"", "name = 2", 1, "invalid type: integer `2`, expected a string"),
    ("name = \"two\"", "name = \"two\"\nclock_mhz = -1", 2, "invalid value"),
    ("cpus = \"2-3\"", "cpus = \"1-3\"", 10, "cpu 1 is in node 0 and in node 1"),
    ("cpus = \"2-3\"", "cpus = \"2-\"", 10, "'2-' is no CPU or range of CPUs"),
    ("cpus = \"2-3\"", "cpus = \"2,3,3\"", 10, "cpu 3 is listed twice"),
    ("cpus = \"2-3\"", "cpus = \"3\"", 3, "cpu 2 is in no node"),
    ("\"4G\" }]", "\"4G\" }]\n[topology]\nsockets = 1", 13, "missing field"),
    ("distances = [30, 10]", "distances = [30]", 11, "row 1 of the distances has 1 entries"),
    ("distances = [30, 10]", "distances = [30, 11]", 11, "must be 10"),
    ("distances = [30, 10]", "distances = [3, 10]", 11, "at least 10"),
    ("distances = [30, 10]", "distances = [300, 10]", 11, "300"),
    ("start = 0x200000000", "start = 0x17ffff000", 12, "of node 0 overlaps [mem 0x17ffff000-0x27fffefff] of node 1"),
    ("end = 0x80000000", "end = 0x180000000", 7, "of node 0 overlaps"),
    ("end = 0x80000000", "end = 0x80000", 6, "its end must be behind its start"),
    ("end = 0x80000000", "last = 0x80000000", 6, "unknown field `last`"),
    ("end = 0x80000000", "end = 1, size = \"1G\"", 6, "either an end or a size"),
    ("size = \"2G\"", "size = \"2X\"", 7, "'2X': not a size"),
    ("size = \"2G\"", "size = \"99999999P\"", 7, "the size overflows"),
    ("size = \"2G\"", "size = \"16383P\"", 7, "must end at or below 0x10000000000000"),
    ("start = 0x100000000", "start = 0x7fffffffffffffff, end = 0x7fffffffffffffff", 7, "either an end or a size"),
    ("memory = [{", "memory = [{{", 12, ""),
    ("name = \"two\"", "cma = [\n{ size = \"8G\" }]", 2, "no room for a contiguous area of 8G on any node"),
    ("name = \"two\"", "cma = [\n{ size = \"0K\", node = 1 }]", 2, "no room for a contiguous area of 0 on node 1"),
    ("name = \"two\"", "cma = [\n{ size = \"8M\", node = 2 }]", 2, "the machine has 2 node(s)"),
    ("name = \"two\"", "cma = [\n{ end = 0x200000 }]", 2, "or a size alone"),
    ("name = \"two\"", "cma = [\n{ start = 0x200000, node = 0 }]", 2, "either an end or a size"),
    ("name = \"two\"", "cma = [\n{ start = 0x200000000, size = \"8M\", node = 0 }]", 2, "one memory range of one node"),
    ("name = \"two\"", "cma = [{ size = \"8M\" },\n{ start = 0x90000000, size = \"8M\" }]", 2, "must lie in one"),
];

#[test]
fn each_mistake_is_reported_with_its_line() {
    for (right, wrong, line, words) in BREAKAGES {
        assert!(TWO_NODES.contains(right), "{right}");
        let error = from_toml("two.toml", &TWO_NODES.replacen(right, wrong, 1)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("two.toml:{line}: ")), "{wrong}: {error}");
        assert!(error.contains(words), "{wrong}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn machines_without_nodes_cpus_or_memory_are_refused() {
    let error = |text: &str| from_toml("empty.toml", text).unwrap_err().to_string();
    assert_eq!(error(""), "empty.toml:1: the machine has no node: it needs at least one [[node]]");
    assert!(error("[[node]]\ncpus = \"0\"\n").contains("no memory"));
    let memory = "[[node]]\nmemory = [{ start = 0, size = \"1G\" }]\n";
    assert!(error(memory).contains("the machine has no CPU"));
    let topology = "[topology]\nsockets = 0\ncores_per_socket = 2\nthreads_per_core = 1\n";
    assert!(error(&format!("{topology}{memory}")).starts_with("empty.toml:1: the machine has no CPU"));
    let many = topology.replace("sockets = 0", "sockets = 9999");
    assert!(error(&format!("{many}{memory}")).contains("19998 CPUs: a machine has at most 8192"));
    let both = format!("cpus = [{{ socket = 0, core = 0 }}]\n{topology}{memory}");
    assert!(error(&both).starts_with("empty.toml:1: the CPUs are given twice"));
    let same = format!("cpus = [{{ socket = 0, core = 0 }},\n  {{ socket = 0, core = 0 }}]\n{memory}");
    assert!(error(&same).starts_with("empty.toml:2: cpu 0 and cpu 1 are the same thread"));
    let page = format!("{memory}[geometry]\npage_size = \"12K\"\n");
    assert!(error(&page).starts_with("empty.toml:3: page size 12K"), "{}", error(&page));
    let overflow = memory.replace("start = 0, size = \"1G\"", "start = 0x7000000000000000, size = \"16000P\"");
    assert!(error(&overflow).starts_with("empty.toml:2: 16000P from 0x7000000000000000 on overflows"));
}
