//! Boot logs and resource maps of real kernels, compared with the zones that those kernels report.

use frameyard_machines::{AddressRange, Machine, from_boot_log, from_iomem, parse_cpu_list, resolve};
use frameyard_units::{NodeId, PhysAddr, ZoneKind};

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/captures");

/// The captures, with the node of each CPU as in QEMU's arguments and the boot log.
const CPU_NODES: [(&str, &[u16]); 5] = [
    ("boot-61-m4G-n4", &[0, 0, 0, 0]),
    ("boot-612-m16G-n4", &[0, 0, 0, 0]),
    ("boot-612-m64G-n8", &[0, 0, 0, 0, 0, 0, 0, 0]),
    ("numa2-612-m16G-n4", &[0, 0, 1, 1]),
    ("numa4-612-m64G-n4", &[0, 1, 2, 3]),
];

fn text(capture: &str, file: &str) -> String {
    let path = format!("{CAPTURES}/{capture}/{file}");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[derive(Debug, PartialEq, Eq)]
struct Zone {
    node: u16,
    kind: ZoneKind,
    start: u64,
    spanned: u64,
    present: u64,
}

/// The non-empty zones of a zoneinfo text.
fn captured_zones(text: &str) -> Vec<Zone> {
    let mut zones = Vec::<Zone>::new();
    for line in text.lines() {
        if let Some((node, name)) = line.strip_prefix("Node ").and_then(|rest| rest.split_once(", zone")) {
            let kind = *ZoneKind::ALL.iter().find(|kind| kind.name() == name.trim()).expect("a zone's name");
            zones.push(Zone { node: node.parse().unwrap(), kind, start: 0, spanned: 0, present: 0 });
        }
        let Some(zone) = zones.last_mut() else { continue };
        let value = |text: &str| text.trim().parse::<u64>().unwrap();
        match line.trim().split_once([' ', ':']) {
            Some(("spanned", rest)) => zone.spanned = value(rest),
            Some(("present", rest)) => zone.present = value(rest),
            Some(("start_pfn", rest)) => zone.start = value(rest.trim_start_matches(':')),
            _ => {}
        }
    }
    zones.retain(|zone| zone.spanned != 0);
    zones
}

/// The zones of a machine: its memory, cut at the zone limits.
fn machine_zones(machine: &Machine) -> Vec<Zone> {
    let (dma, dma32) = (machine.zones.dma.unwrap(), machine.zones.dma32.unwrap());
    let windows = [
        (ZoneKind::Dma, PhysAddr(0), dma),
        (ZoneKind::Dma32, dma, dma32),
        (ZoneKind::Normal, dma32, PhysAddr(u64::MAX)),
    ];
    let mut zones = Vec::new();
    for node in 0..machine.nodes.len() as u16 {
        for (kind, start, end) in windows {
            let window = AddressRange::new(start, end);
            let frames: Vec<_> = machine
                .memory_ranges()
                .filter(|(of, _)| *of == NodeId(node))
                .map(|(_, range)| range.intersection(window))
                .filter(|range| !range.is_empty())
                .map(|range| range.whole_frames(machine.geometry))
                .collect();
            let present = frames.iter().map(|frames| frames.count().0).sum();
            // The kernel's zones begin and end at their window where the node has memory on both sides of it.
            let node_frames = || machine.memory_ranges().filter(|(of, _)| *of == NodeId(node)).map(|(_, range)| range);
            let low = node_frames().map(|range| range.start).min().unwrap_or_default();
            let high = node_frames().map(|range| range.end).max().unwrap_or_default();
            let span = AddressRange::new(low, high).intersection(window).whole_frames(machine.geometry);
            if present != 0 {
                zones.push(Zone { node, kind, start: span.start.0, spanned: span.count().0, present });
            }
        }
    }
    zones
}

#[test]
fn a_boot_log_gives_the_zones_that_its_kernel_had() {
    for (capture, _) in CPU_NODES {
        let machine = from_boot_log("dmesg", &text(capture, "dmesg")).unwrap();
        assert_eq!(machine_zones(&machine), captured_zones(&text(capture, "zoneinfo")), "{capture}");
    }
}

#[test]
fn the_firmware_map_and_the_affinity_table_give_the_same_zones() {
    for (capture, _) in CPU_NODES {
        let log = text(capture, "dmesg");
        let without: Vec<&str> = log.lines().filter(|line| !line.contains("Early memory node ranges")).collect();
        assert!(without.len() < log.lines().count());
        let machine = from_boot_log("dmesg", &without.join("\n")).unwrap();
        assert_eq!(machine_zones(&machine), captured_zones(&text(capture, "zoneinfo")), "{capture}");
    }
}

#[test]
fn a_boot_log_puts_each_cpu_on_its_node() {
    for (capture, expected) in CPU_NODES {
        let machine = from_boot_log("dmesg", &text(capture, "dmesg")).unwrap();
        let nodes: Vec<u16> = machine.cpus.iter().map(|cpu| cpu.node.0).collect();
        assert_eq!(nodes, expected, "{capture}");
        let last = *parse_cpu_list(&format!("0-{}", expected.len() - 1)).unwrap().last().unwrap();
        let zoneinfo = text(capture, "zoneinfo");
        assert!(zoneinfo.contains(&format!("cpu: {last}\n")) && !zoneinfo.contains(&format!("cpu: {}\n", last + 1)));
    }
}

#[test]
fn a_boot_log_reads_the_same_without_time_stamps() {
    for (capture, _) in CPU_NODES {
        let log = text(capture, "dmesg");
        let bare: Vec<&str> =
            log.lines().map(|line| line.split_once("] ").map_or(line, |(_, message)| message)).collect();
        assert_eq!(from_boot_log("dmesg", &bare.join("\n")), from_boot_log("dmesg", &log), "{capture}");
    }
}

#[test]
fn a_log_of_two_boots_gives_the_second() {
    let both = text("boot-612-m64G-n8", "dmesg") + &text("numa2-612-m16G-n4", "dmesg");
    assert_eq!(from_boot_log("dmesg", &both), from_boot_log("dmesg", &text("numa2-612-m16G-n4", "dmesg")));
}

#[test]
fn a_resource_map_gives_the_frames_of_its_kernel() {
    for (capture, _) in CPU_NODES {
        let machine = from_iomem("iomem", &text(capture, "iomem")).unwrap();
        let frames: u64 =
            machine.memory_ranges().map(|(_, range)| range.whole_frames(machine.geometry).count().0).sum();
        let present: u64 = captured_zones(&text(capture, "zoneinfo")).iter().map(|zone| zone.present).sum();
        assert_eq!(frames, present, "{capture}");
    }
}

#[test]
fn the_contents_decide_the_kind_of_a_file() {
    let log = resolve(&format!("{CAPTURES}/numa4-612-m64G-n4/dmesg")).unwrap();
    assert_eq!((log.name.as_str(), log.nodes.len(), log.clock_mhz), ("dmesg", 4, Some(2596)));
    let map = resolve(&format!("{CAPTURES}/numa4-612-m64G-n4/iomem")).unwrap();
    assert_eq!((map.name.as_str(), map.nodes.len(), map.cpus.len()), ("iomem", 1, 1));
    let description = resolve(concat!(env!("CARGO_MANIFEST_DIR"), "/machines/desktop-8.toml")).unwrap();
    assert_eq!(Some(description), frameyard_machines::built_in("desktop-8"));
}

#[test]
fn a_broken_message_is_reported_with_file_and_line() {
    let log = text("numa2-612-m16G-n4", "dmesg");
    let breakages = [
        ("[mem 0x0000000000100000-0x00000000bffdffff] usable", "[mem 0x0000000000100000", "7"),
        ("usable ==> reserved", "usable", "18"),
        ("Node 1 PXM 1 [mem 0x240000000", "Node 1 PXM 1 [mem 240000000", "48"),
        ("  node   1: [mem", "  node   x: [mem", "63"),
        ("  node   1: [mem 0x0000000240000000", "  node   1: [mem 0x000000023ffff000", "63"),
        ("#1, CPUs:   #2 #3", "#1, CPUs:   #2 #1", "175"),
    ];
    for (right, wrong, line) in breakages {
        assert!(log.contains(right), "{right}");
        let error = from_boot_log("boot.log", &log.replacen(right, wrong, 1)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("boot.log:{line}: ")), "{error}");
        assert!(!error.contains('\n'));
    }
    let error = from_boot_log("boot.log", "Linux version 6.12\n").unwrap_err().to_string();
    assert!(error.starts_with("boot.log: says nothing about memory"), "{error}");
}

#[test]
fn contiguous_areas_and_sockets_are_taken_from_the_log() {
    let log = text("numa2-612-m16G-n4", "dmesg") + "cma: Reserved 16 MiB at 0x0000000100000000\n";
    let machine = from_boot_log("dmesg", &log).unwrap();
    assert_eq!(machine.cma, [AddressRange::new(PhysAddr(1 << 32), PhysAddr((1 << 32) + (16 << 20)))]);
    let two = log.clone() + "cma: Reserved 1 MiB at 0x0000000010000000\n";
    let starts: Vec<_> = from_boot_log("dmesg", &two).unwrap().cma.iter().map(|area| area.start.0).collect();
    assert_eq!(starts, [0x1000_0000, 1 << 32], "areas are lowest first");
    let outside = log.replace("at 0x0000000100000000", "at 0x00000000c0000000");
    let line = log.lines().count();
    let error = from_boot_log("dmesg", &outside).unwrap_err().to_string();
    assert!(error.starts_with(&format!("dmesg:{line}: contiguous area")), "{error}");
}
