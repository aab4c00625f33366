//! The sizing formulas against real kernels: from the managed pages and CPUs of each capture follow the
//! watermarks, reserves, batch, high and statistics thresholds that the kernel printed.
//!
//! The kernel computes watermarks and reserves early: `init_per_zone_wmark_min` is a postcore initcall, the
//! huge-page daemon starts in a subsys initcall, and nothing computes them again on these machines. The
//! initial RAM disk and the kernel's own initialisation memory are freed later. zoneinfo shows the managed
//! pages after that, so the pages that the log says were freed in between are taken off first. The
//! hugetlb lines of the log come from a subsys initcall too and mark the moment.

use crate::captures::{Capture, MachineNumbers, number, parse_zoneinfo};
use frameyard::units::{PhysAddr, ZoneKind};
use frameyard::watermarks::{
    HighFraction, HugePageMinimum, MovableMinimum, PcpSizing, PcpZone, WatermarkOptions, Watermarks, ZoneSizing,
    size_zones, stat_threshold,
};
use frameyard::{ByteSize, CpuId, Geometry, NodeId, PageCount, ZoneId};
use frameyard_formats::{KernelFormat, ReportSource};

const GEOMETRY: Geometry = Geometry::X86_64;

/// Memory that was freed behind the sizing: how much, and the zone that it lies in.
fn freed_after_sizing(capture: &Capture) -> Vec<(ZoneId, PageCount)> {
    let log = capture.text("dmesg");
    let sizing_ends = log.rfind("HugeTLB: ").expect("the log has hugetlb lines");
    let mut freed = Vec::new();
    for line in log[sizing_ends..].lines() {
        let Some((_, what)) = line.split_once("] Freeing ") else { continue };
        let (what, size) = what.split_once(" memory: ").expect("a line says what is freed");
        let size: ByteSize = size.parse().expect("a line ends with a size");
        let start = match what {
            "initrd" => ram_disk_start(&log),
            // The kernel's image, its padding included.
            "unused decrypted" | "unused kernel image (initmem)" => image_start(capture),
            "unused kernel image (text/rodata gap)" | "unused kernel image (rodata/data gap)" => image_start(capture),
            _ => panic!("{}: unknown memory is freed: {line}", capture.name),
        };
        freed.push((low_zone_of(start), GEOMETRY.pages_in(size)));
    }
    assert!(!freed.is_empty(), "{}: the log shows nothing freed", capture.name);
    freed
}

fn ram_disk_start(log: &str) -> PhysAddr {
    let (_, range) = log.split_once("RAMDISK: [mem 0x").expect("the log names the RAM disk");
    let (start, _) = range.split_once('-').unwrap();
    PhysAddr(u64::from_str_radix(start, 16).unwrap())
}

fn image_start(capture: &Capture) -> PhysAddr {
    let iomem = capture.text("iomem");
    let line = iomem.lines().find(|line| line.ends_with(": Kernel code")).expect("iomem names the kernel's code");
    let (start, _) = line.trim().split_once('-').unwrap();
    PhysAddr(u64::from_str_radix(start, 16).unwrap())
}

/// Both lie below 4 GiB, on the node that memory begins with.
fn low_zone_of(address: PhysAddr) -> ZoneId {
    assert!(address.0 >> 32 == 0, "{address} is above DMA32");
    let kind = if address.0 >> 24 == 0 { ZoneKind::Dma } else { ZoneKind::Dma32 };
    ZoneId::new(NodeId(0), kind)
}

fn options_of(format: KernelFormat) -> WatermarkOptions {
    WatermarkOptions {
        huge_page_minimum: HugePageMinimum::Recommended,
        movable_minimum: match format {
            KernelFormat::V6_1 => MovableMinimum::Proportional,
            KernelFormat::V6_12 => MovableMinimum::Clamped,
        },
        ..WatermarkOptions::default()
    }
}

/// All zones as they come out of the sizing, from what was managed at that time.
fn sized(capture: &Capture, machine: &MachineNumbers) -> Vec<ZoneSizing> {
    let freed = freed_after_sizing(capture);
    let early = |id: ZoneId, managed: PageCount| {
        managed - freed.iter().filter(|(zone, _)| *zone == id).map(|(_, pages)| *pages).sum()
    };
    let zones = machine.zones.iter().map(|(id, zone)| ZoneSizing::new(*id, zone.present, early(*id, zone.managed)));
    let mut zones: Vec<ZoneSizing> = zones.collect();
    size_zones(GEOMETRY, &options_of(capture.format), &mut zones).unwrap();
    zones
}

/// Online CPUs of a node, from the boot messages: on a machine of several nodes those name the CPUs that
/// each node got besides CPU 0, which is on node 0.
fn local_cpus(capture: &Capture, node: NodeId) -> u32 {
    let log = capture.text("dmesg");
    let mut of_node = u32::from(node == NodeId(0));
    let mut booting = false;
    for line in log.lines() {
        let Some((_, text)) = line.split_once("] ") else { continue };
        if let Some(rest) = text.strip_prefix(".... node") {
            let (name, cpus) = rest.split_once(", CPUs:").expect("CPUs follow the node");
            booting = number(name.trim().trim_start_matches('#')) == u64::from(node.0);
            of_node += if booting { named_cpus(cpus) } else { 0 };
        } else if booting && text.trim_start().starts_with('#') {
            of_node += named_cpus(text);
        } else if text.starts_with("smp: Brought up") {
            return of_node;
        }
    }
    panic!("{}: the log does not state the number of CPUs", capture.name);
}

fn named_cpus(text: &str) -> u32 {
    text.split_whitespace().filter(|word| word.starts_with('#')).count().try_into().unwrap()
}

fn pcp_inputs(capture: &Capture, machine: &MachineNumbers, zone: &ZoneSizing) -> PcpZone {
    PcpZone {
        managed: zone.managed,
        low: zone.watermarks.low,
        local_cpus: local_cpus(capture, zone.id.node()),
        online_cpus: machine.cpus,
    }
}

#[test]
fn watermarks_follow_from_managed_pages() {
    for capture in crate::captures::all() {
        let machine = parse_zoneinfo(&capture.text("zoneinfo"));
        for zone in sized(&capture, &machine) {
            let levels = |marks: Watermarks| [marks.min, marks.low, marks.high, marks.promo].map(|pages| pages.0);
            let (computed, mut printed) = (levels(zone.watermarks), levels(machine.zone(zone.id).watermarks));
            if capture.format == KernelFormat::V6_1 {
                // 6.1 has the promotion watermark and does not print it.
                assert_eq!(printed[3], 0);
                printed[3] = computed[3];
            }
            assert_eq!(computed, printed, "{} {}: min, low, high, promo", capture.name, zone.id);
        }
    }
}

#[test]
fn reserves_follow_from_managed_pages() {
    for capture in crate::captures::all() {
        let machine = parse_zoneinfo(&capture.text("zoneinfo"));
        for zone in sized(&capture, &machine) {
            assert_eq!(zone.protection, machine.zone(zone.id).protection, "{} {}", capture.name, zone.id);
        }
    }
}

#[test]
fn per_cpu_sizes_follow_from_managed_pages_and_local_cpus() {
    for capture in crate::captures::all() {
        let machine = parse_zoneinfo(&capture.text("zoneinfo"));
        for zone in sized(&capture, &machine).into_iter().filter(|zone| zone.present.0 > 0) {
            let inputs = pcp_inputs(&capture, &machine, &zone);
            let computed = PcpSizing::Scaled.sizes(GEOMETRY, inputs);
            // Since 6.7 the kernel moves high at run time, up to what the largest fraction gives.
            let most = PcpSizing::Fraction(HighFraction::LARGEST_SHARE).sizes(GEOMETRY, inputs);
            for cpu in (0..machine.cpus).map(CpuId) {
                let printed = machine.per_cpu(zone.id, cpu);
                let place = format!("{} {} {cpu}", capture.name, zone.id);
                assert_eq!(computed.batch, printed.batch, "{place}: batch");
                match capture.format {
                    KernelFormat::V6_1 => assert_eq!(computed.high, printed.high, "{place}: high"),
                    KernelFormat::V6_12 => assert!(printed.high <= most.high, "{place}: high"),
                }
            }
        }
    }
}

/// 6.12 lets high move between the scaled size and a bound, one batch at a time, and it falls back when the
/// list is quiet. So at the end of a boot the quietest CPU of a zone that is used stands at the scaled size,
/// or a batch above it. That tells the CPUs of the node from those of the machine.
#[test]
fn tuned_highs_start_from_the_scaled_size() {
    for capture in crate::captures::all().into_iter().filter(|capture| capture.format == KernelFormat::V6_12) {
        let machine = parse_zoneinfo(&capture.text("zoneinfo"));
        let zones = sized(&capture, &machine);
        for zone in zones.iter().filter(|zone| zone.id.kind() == ZoneKind::Normal) {
            let scaled = PcpSizing::Scaled.sizes(GEOMETRY, pcp_inputs(&capture, &machine, zone));
            let quietest = (0..machine.cpus).map(|cpu| machine.per_cpu(zone.id, CpuId(cpu)).high).min().unwrap();
            let place = format!("{} {}: high {quietest}", capture.name, zone.id);
            assert!(quietest == scaled.high || quietest == scaled.high + scaled.batch, "{place}");
        }
    }
}

#[test]
fn statistics_thresholds_follow_from_managed_pages_and_cpus() {
    for capture in crate::captures::all() {
        let machine = parse_zoneinfo(&capture.text("zoneinfo"));
        for zone in sized(&capture, &machine).into_iter().filter(|zone| zone.present.0 > 0) {
            for cpu in (0..machine.cpus).map(CpuId) {
                let printed = machine.per_cpu(zone.id, cpu).stat_threshold;
                let computed = stat_threshold(GEOMETRY, zone.managed, machine.cpus);
                assert_eq!(computed, printed, "{} {} {cpu}", capture.name, zone.id);
            }
        }
    }
}

#[test]
fn memory_freed_after_sizing_changes_watermarks() {
    for capture in crate::captures::all() {
        let machine = parse_zoneinfo(&capture.text("zoneinfo"));
        let fresh = machine.zones.iter().map(|(id, zone)| ZoneSizing::new(*id, zone.present, zone.managed));
        let mut late: Vec<ZoneSizing> = fresh.collect();
        size_zones(GEOMETRY, &options_of(capture.format), &mut late).unwrap();
        let dma32 = late.iter().find(|zone| zone.id.kind() == ZoneKind::Dma32).unwrap();
        let printed = machine.zone(dma32.id).watermarks;
        assert_ne!(dma32.watermarks.min, printed.min, "{}: freed memory makes no difference", capture.name);
    }
}
