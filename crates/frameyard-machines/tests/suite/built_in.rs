//! Built-in machines and scaling.

use frameyard_machines::{MachineError, Problem, built_in, built_in_names};
use frameyard_units::{ByteSize, NodeId};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

/// The published figures of each machine: nodes, CPUs, GiB.
const FIGURES: [(&str, usize, usize, u64); 16] = [
    ("skylake-8167m", 2, 104, 768),
    ("broadwell-2699c", 1, 32, 192),
    ("haswell-2699v3", 2, 72, 256),
    ("zen-7551-guest16", 1, 16, 64),
    ("zen-7551-guest4", 1, 4, 16),
    ("haswell-2699v3-guest4", 1, 4, 14),
    ("epyc2-256", 2, 256, 1024),
    ("epyc-512", 2, 512, 1536),
    ("skylake-112", 2, 112, 64),
    ("skylake-4s", 4, 224, 768),
    ("broadwell-40", 2, 40, 128),
    ("broadwell-88", 2, 88, 504),
    ("desktop-8", 1, 8, 4),
    ("sparc-m7", 4, 1024, 3312),
    ("server-1t", 2, 128, 1024),
    ("server-4t", 4, 256, 4096),
];

#[test]
fn each_machine_has_its_published_nodes_cpus_and_memory() {
    assert_eq!(built_in_names().collect::<Vec<_>>(), FIGURES.map(|figures| figures.0));
    for (name, nodes, cpus, gib) in FIGURES {
        let machine = built_in(name).unwrap();
        assert_eq!((machine.name.as_str(), machine.nodes.len(), machine.cpus.len()), (name, nodes, cpus));
        assert_eq!(machine.installed_bytes(), ByteSize::gib(gib), "{name}");
        // A PC loses its first page and what lies between 639 KiB and 1 MiB.
        let lost = if name == "sparc-m7" { 0 } else { 0x1000 + 0x10_0000 - 0x9_fc00 };
        assert_eq!(machine.memory_bytes().0, gib * GIB - lost, "{name}");
        for node in 0..nodes as u16 {
            assert_eq!(machine.cpus_of(NodeId(node)).count(), cpus / nodes, "{name}");
        }
        assert!(!machine.description.is_empty() && !machine.source.is_empty());
    }
}

#[test]
fn fourteen_machines_have_costs() {
    let simulated: Vec<&str> = built_in_names().filter(|name| built_in(name).unwrap().simulation.is_some()).collect();
    let others: Vec<&str> = built_in_names().filter(|name| !simulated.contains(name)).collect();
    assert_eq!((simulated.len(), others), (14, vec!["server-1t", "server-4t"]));
    // The simulator's topology wins where a published source backs it: four cores of a Zen complex share an L3.
    let caches = |name: &str| built_in(name).unwrap().cpus.iter().map(|cpu| cpu.cache).max().unwrap() + 1;
    assert_eq!(["zen-7551-guest16", "zen-7551-guest4", "epyc2-256"].map(caches), [2, 1, 32]);
}

#[test]
fn second_threads_are_numbered_behind_all_first_threads() {
    let machine = built_in("skylake-8167m").unwrap();
    let place = |cpu: usize| {
        let cpu = machine.cpus[cpu];
        (cpu.node.0, cpu.socket, cpu.core, cpu.thread)
    };
    assert_eq!([0, 26, 52, 103].map(place), [(0, 0, 0, 0), (1, 1, 0, 0), (0, 0, 0, 1), (1, 1, 25, 1)]);
}

#[test]
fn every_machine_survives_printing_and_reading() {
    for name in built_in_names() {
        let machine = built_in(name).unwrap();
        let read = frameyard_machines::from_toml("printed.toml", &machine.to_toml());
        assert_eq!(read, Ok(machine));
    }
}

#[test]
fn a_scaled_machine_keeps_low_memory_and_shares() {
    let machine = built_in("skylake-8167m").unwrap().scaled(ByteSize::gib(64)).unwrap();
    assert_eq!(machine.installed_bytes(), ByteSize::gib(64));
    let text: Vec<String> = machine.memory_ranges().map(|(node, range)| format!("{}{range}", node.0)).collect();
    assert_eq!(
        text,
        [
            "0[mem 0x1000-0x9fbff]",
            "0[mem 0x100000-0x7fffffff]",
            "0[mem 0x100000000-0x87fffffff]",
            "1[mem 0x880000000-0x107fffffff]",
        ]
    );
    assert_eq!(machine.cpus.len(), 104);
    assert!(machine.source.ends_with("scaled from 768G to 64G"), "{}", machine.source);
}

#[test]
fn scaling_grows_a_machine_or_keeps_its_size() {
    let machine = built_in("desktop-8").unwrap();
    assert_eq!(machine.scaled(ByteSize::gib(4)), Ok(machine.clone()));
    let grown = machine.scaled(ByteSize::gib(32)).unwrap();
    assert_eq!(grown.installed_bytes(), ByteSize::gib(32));
    assert_eq!(grown.nodes[0].memory[..2], machine.nodes[0].memory[..2]);
}

#[test]
fn too_little_memory_names_the_minimum_and_too_much_overflows() {
    for name in built_in_names() {
        let machine = built_in(name).unwrap();
        let error = machine.scaled(ByteSize::mib(1)).unwrap_err();
        let MachineError::Invalid { problem: Problem::TooSmall { minimum, .. }, .. } = error else {
            panic!("{error}");
        };
        assert!(error.to_string().contains(&minimum.to_string()), "{error}");
        assert!(machine.scaled(minimum).is_ok(), "{name} at {minimum}");
        assert!(machine.scaled(ByteSize(minimum.0 - 1)).is_err());
        let error = machine.scaled(ByteSize(u64::MAX)).unwrap_err();
        assert!(matches!(error, MachineError::Invalid { problem: Problem::SizeOverflow { .. }, .. }), "{error}");
    }
}

proptest! {
    #[test]
    fn scaling_gives_the_size_asked_for_and_a_fair_share_to_each_node(
        index in 0..FIGURES.len(),
        mib in 128u64..8 << 20,
    ) {
        let (name, nodes, _, _) = FIGURES[index];
        let machine = built_in(name).unwrap();
        let scaled = machine.scaled(ByteSize::mib(mib)).unwrap();
        prop_assert_eq!(scaled.validate(), Ok(()));
        prop_assert_eq!(scaled.installed_bytes(), ByteSize::mib(mib));
        let fair = ByteSize::mib(mib).0 / nodes as u64;
        let section = scaled.geometry.section_size().0;
        for node in 0..nodes as u16 {
            let bytes = scaled.node_bytes(NodeId(node)).0;
            // A share is rounded by an eighth at most; the first MiB of a PC has holes.
            prop_assert!(bytes.abs_diff(fair) <= fair / 7 + (1 << 20), "{} has {} of {}", node, bytes, fair);
            prop_assert!(bytes.abs_diff(fair) <= section + (1 << 20), "{} has {} of {}", node, bytes, fair);
        }
        let ends = scaled.memory_ranges().filter(|(_, range)| range.start.0 >= 4 << 30);
        for (_, range) in ends {
            prop_assert!(range.start.0 % section == 0 || name == "sparc-m7");
        }
    }
}
