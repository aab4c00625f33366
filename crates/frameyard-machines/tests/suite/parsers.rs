//! Properties of the readers: no text makes them panic, they read printed machines back, and they find overlaps.

use frameyard_machines::{
    AddressRange, Cpu, Machine, MachineError, MachineNode, Numbering, Problem, Topology, ZoneLimits, from_boot_log,
    from_iomem, from_toml, parse_cpu_list,
};
use frameyard_units::{ByteSize, Geometry, NodeId, Order, PhysAddr};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

type Parser = fn(&str, &str) -> Result<Machine, MachineError>;

const PARSERS: [Parser; 3] = [from_toml, from_iomem, from_boot_log];

/// Pieces of text that pass the readers' first checks.
const PIECES: [&str; 44] = [
    "[[node]]\n",
    "cpus = ",
    "\"0-3\"",
    "\"0-8191\"",
    "memory = [",
    "{ start = ",
    "0x100000",
    "end = ",
    "size = ",
    "\"8G\"",
    "\"16383P\"",
    " }",
    "]",
    "\n",
    ", ",
    "[topology]\n",
    "sockets = 2\n",
    "cores_per_socket = 4\n",
    "threads_per_core = 2\n",
    "[geometry]\n",
    "max_order = 11\n",
    "distances = [10]\n",
    "[zones]\n",
    "00100000-bfffffff",
    " : ",
    "System RAM",
    "  ",
    "ffffffffffffffff",
    "-",
    "BIOS-e820: ",
    "[mem 0x0-0x9ffff]",
    "[mem 0x100000-0xffffffffffffffff]",
    " usable",
    "e820: update ",
    "e820: remove ",
    " ==> reserved",
    "Early memory node ranges\n",
    "node   1: ",
    "ACPI: SRAT: Node 1 PXM 1 ",
    ".... node  #1, CPUs: ",
    "#1 #2",
    "smpboot: Allowing 8 CPUs, 4 hotplug CPUs\n",
    "cma: Reserved 16 MiB at 0x100000\n",
    "[    0.000000] ",
];

/// Random text, and text of known pieces.
fn any_text() -> impl Strategy<Value = String> {
    let pieces = vec(prop_oneof![8 => select(&PIECES[..]).prop_map(str::to_owned), 1 => "\\PC{0,8}"], 0..60);
    prop_oneof!["(?s).{0,200}", "(\\PC{0,60}\n){0,10}", pieces.prop_map(|pieces| pieces.concat())]
}

/// Disjoint ranges with gaps between them, lowest first.
fn ranges(count: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<AddressRange>> {
    vec((1u64..1 << 40, 0x2000u64..1 << 42), count).prop_map(|steps| {
        let mut address = 0u64;
        let place = |(gap, size): (u64, u64)| {
            let start = address + gap;
            address = start + size;
            AddressRange::new(PhysAddr(start), PhysAddr(address))
        };
        steps.into_iter().map(place).collect()
    })
}

fn topology() -> impl Strategy<Value = Topology> {
    let numbering = select(&[Numbering::CoresFirst, Numbering::ThreadsFirst][..]);
    (1u16..5, 1u16..9, 1u8..4, 1u16..5, numbering).prop_map(|(sockets, cores, threads, cache, numbering)| Topology {
        sockets,
        cores_per_socket: cores,
        threads_per_core: threads,
        cores_per_cache: cache.min(cores),
        numbering,
    })
}

/// The CPUs of a regular topology, or a part of them.
fn cpus() -> impl Strategy<Value = Vec<Cpu>> {
    topology().prop_flat_map(|topology| {
        let all = topology.cpus().expect("the strategy's topologies are small");
        let count = all.len();
        prop_oneof![Just(all.clone()), subsequence(all, 1..=count)]
    })
}

fn geometry() -> impl Strategy<Value = Geometry> {
    (12u32..15, 27u32..31, 1u8..10, 10u8..13).prop_map(|(page, section, pageblock, max)| {
        let (page, section) = (ByteSize(1 << page), ByteSize(1 << section));
        Geometry::new(page, section, Order(pageblock), Order(max)).expect("the strategy's numbers fit")
    })
}

fn zones() -> impl Strategy<Value = ZoneLimits> {
    let limit = |address: u64| Some(PhysAddr(address));
    select(vec![
        ZoneLimits::X86_64,
        ZoneLimits::default(),
        ZoneLimits { dma: None, dma32: limit(1 << 32) },
        ZoneLimits { dma: limit(1 << 30), dma32: None },
    ])
}

/// Any valid machine.
fn machine() -> impl Strategy<Value = Machine> {
    let texts = ("\\PC{1,12}", "(?s).{0,30}", "(?s).{0,30}");
    let figures = (geometry(), zones(), cpus(), proptest::option::of(1u32..10_000));
    let memory = ranges(1..12).prop_flat_map(|ranges| {
        let count = ranges.len();
        (Just(ranges), vec(0usize..4, count))
    });
    let layout = (memory, 1usize..5, vec(any::<u8>(), 16), ranges(0..3), any::<prop::sample::Index>());
    (texts, figures, layout, vec(0usize..4, 256)).prop_map(|(texts, figures, layout, homes)| {
        let ((ranges, owners), count, distances, reserved, cma) = layout;
        let mut nodes = vec![MachineNode::default(); count];
        for (range, owner) in ranges.iter().zip(owners) {
            nodes[owner % count].memory.push(*range);
        }
        let mut cpus = figures.2;
        for (cpu, home) in cpus.iter_mut().zip(homes) {
            cpu.node = NodeId((home % count) as u16);
        }
        let distance = |from: usize, to: usize| if from == to { 10 } else { distances[from * 4 + to].max(10) };
        Machine {
            name: texts.0,
            description: texts.1,
            source: texts.2,
            geometry: figures.0,
            zones: figures.1,
            cpus,
            distances: (0..count).map(|from| (0..count).map(|to| distance(from, to)).collect()).collect(),
            nodes,
            reserved,
            cma: vec![*cma.get(&ranges)],
            clock_mhz: figures.3,
            simulation: None,
        }
    })
}

/// Two ranges of different nodes, the second next behind the first.
fn neighbours(machine: &Machine) -> Option<[(NodeId, AddressRange); 2]> {
    let mut all: Vec<_> = machine.memory_ranges().collect();
    all.sort_by_key(|(_, range)| *range);
    all.windows(2).map(|pair| [pair[0], pair[1]]).find(|[low, high]| low.0 != high.0)
}

fn place_of(error: &MachineError) -> Option<usize> {
    match error {
        MachineError::Malformed { place, .. } | MachineError::Invalid { place: Some(place), .. } => Some(place.line),
        _ => None,
    }
}

proptest! {
    #[test]
    fn any_text_gives_a_valid_machine_or_one_line_within_it(text in any_text()) {
        for parser in PARSERS {
            match parser("file", &text) {
                Ok(machine) => {
                    prop_assert_eq!(machine.validate(), Ok(()));
                    prop_assert_eq!(from_toml("printed", &machine.to_toml()), Ok(machine));
                }
                Err(error) => {
                    let said = error.to_string();
                    prop_assert!(said.starts_with("file:") && !said.contains('\n'), "{}", said);
                    if let Some(line) = place_of(&error) {
                        prop_assert!((1..=text.lines().count().max(1) + 1).contains(&line), "{}", said);
                    }
                }
            }
        }
    }

    #[test]
    fn any_machine_is_read_from_what_it_prints(machine in machine()) {
        prop_assert_eq!(machine.validate(), Ok(()));
        let text = machine.to_toml();
        prop_assert_eq!(from_toml("machine.toml", &text), Ok(machine), "{}", text);
    }

    #[test]
    fn overlapping_nodes_are_found_and_named(
        mut machine in machine().prop_filter("memory on two nodes", |machine| neighbours(machine).is_some()),
        by in 1u64..0x1000,
    ) {
        let [(first, low), (second, high)] = neighbours(&machine).unwrap();
        machine.cma.clear();
        let range = machine.nodes[second.index()].memory.iter_mut().find(|range| **range == high).unwrap();
        range.start = PhysAddr(low.end.0 - by);
        let moved = *range;
        let text = machine.to_toml();
        let error = from_toml("machine.toml", &text).unwrap_err();
        let named = matches!(&error, MachineError::Invalid {
            problem: Problem::Overlap { first: one, second: other, .. }, ..
        } if (*one, *other) == (first, second));
        prop_assert!(named, "{}", error);
        let line = text.lines().nth(place_of(&error).unwrap() - 1).unwrap();
        prop_assert!(line.contains(&format!("start = {:#x}", moved.start.0)), "{}: {}", error, line);
    }

    #[test]
    fn a_resource_map_is_read_as_it_was_written(ranges in ranges(1..10)) {
        let line = |range: &AddressRange| format!("{:08x}-{:08x} : System RAM\n", range.start.0, range.end.0 - 1);
        let text: String = ranges.iter().map(line).collect();
        let machine = from_iomem("iomem", &text).unwrap();
        prop_assert_eq!(&machine.nodes[0].memory, &ranges);
        let again = text.clone() + &line(&ranges[0]);
        let overlaps = matches!(
            from_iomem("iomem", &again),
            Err(MachineError::Invalid { place: Some(_), problem: Problem::Overlap { .. } })
        );
        prop_assert!(overlaps);
    }

    #[test]
    fn a_boot_log_is_read_as_it_was_written(machine in machine()) {
        let mut log = String::from("[    0.000000] Early memory node ranges\n");
        for (node, range) in machine.memory_ranges() {
            let (first, last) = (range.start.0, range.end.0 - 1);
            log += &format!("[    0.000000]   node {:3}: [mem {first:#018x}-{last:#018x}]\n", node.0);
        }
        log += &format!("[    0.0] CPU topo: Allowing {} present CPUs plus 3 hotplug CPUs\n", machine.cpus.len());
        for (id, cpu) in machine.cpus.iter().enumerate().skip(1) {
            log += &format!("[    0.1] .... node  #{}, CPUs:   #{id}\n", cpu.node.0);
        }
        log += &format!("[    0.0] ACPI: SRAT: PXM 7 -> APIC 0x0000 -> Node {}\n", machine.cpus[0].node.0);
        let read = from_boot_log("dmesg", &log).unwrap();
        let memory: Vec<_> = read.memory_ranges().collect();
        prop_assert_eq!(memory, machine.memory_ranges().collect::<Vec<_>>());
        let nodes = |machine: &Machine| machine.cpus.iter().map(|cpu| cpu.node).collect::<Vec<_>>();
        prop_assert_eq!(nodes(&read), nodes(&machine));
    }

    #[test]
    fn removed_memory_is_gone_and_nothing_else(ranges in ranges(1..8), cut in ranges(1..2)) {
        let (mut log, cut) = (String::new(), cut[0]);
        for range in &ranges {
            log += &format!("BIOS-e820: [mem {:#x}-{:#x}] usable\n", range.start.0, range.end.0 - 1);
        }
        log += &format!("e820: remove [mem {:#x}-{:#x}] usable\n", cut.start.0, cut.end.0 - 1);
        let before: u64 = ranges.iter().map(|range| range.bytes().0).sum();
        let gone: u64 = ranges.iter().map(|range| range.intersection(cut).bytes().0).sum();
        match from_boot_log("dmesg", &log) {
            Ok(machine) => {
                prop_assert_eq!(machine.memory_bytes().0, before - gone);
                prop_assert!(machine.memory_ranges().all(|(_, range)| !range.overlaps(cut)));
            }
            // Less than a whole page was left.
            Err(error) => prop_assert!(before - gone < 0x4000 * ranges.len() as u64, "{}", error),
        }
    }

    #[test]
    fn cpu_lists_are_read_as_they_were_written(cpus in subsequence((0u32..400).collect::<Vec<_>>(), 0..100)) {
        let text = frameyard_machines::format_cpu_list(&cpus);
        prop_assert_eq!(parse_cpu_list(&text), Ok(cpus));
    }

    #[test]
    fn no_text_makes_the_cpu_list_reader_panic(text in "[0-9,\\- x]{0,40}") {
        if let Ok(cpus) = parse_cpu_list(&text) {
            prop_assert_eq!(parse_cpu_list(&frameyard_machines::format_cpu_list(&cpus)), Ok(cpus));
        }
    }
}
