//! The writers of the `/proc` formats against what real kernels printed: each captured file is read into
//! plain numbers and written back, byte for byte.

use crate::captures::{MachineNumbers, number, parse_zoneinfo, zone_of_line};
use frameyard::units::ZoneKind;
use frameyard::watermarks::Watermarks;
use frameyard::{ByteSize, CpuId, Geometry, MigrateType, NodeId, Order, PageCount, Pfn, ZoneId};
use frameyard_formats::{
    GlobalStat, KernelFormat, NodeStat, NumaEvent, PcpSnapshot, VmEvent, ZoneStat, write_buddyinfo, write_pagetypeinfo,
    write_vmstat, write_zoneinfo,
};

/// The text that a writer makes.
fn written(write: impl FnOnce(&mut String) -> std::fmt::Result) -> String {
    let mut text = String::new();
    write(&mut text).unwrap();
    text
}

/// Compares line by line first, so that a difference names its line.
fn assert_same(name: &str, written: &str, captured: &str) {
    for (number, (ours, kernels)) in written.lines().zip(captured.lines()).enumerate() {
        assert_eq!(ours, kernels, "{name}, line {}", number + 1);
    }
    assert_eq!(written, captured, "{name}");
}

/// Marks the zone as populated: the text says nothing of how many pages it has.
fn populate(machine: &mut MachineNumbers, id: ZoneId) {
    machine.zone_mut(id).present = PageCount(1);
}

fn parse_buddyinfo(text: &str) -> MachineNumbers {
    let mut machine = MachineNumbers::default();
    for line in text.lines() {
        let (id, counts) = zone_of_line(line).unwrap_or_else(|| panic!("no zone: {line}"));
        populate(&mut machine, id);
        for (order, count) in counts.split_whitespace().enumerate() {
            // The text sums over the types; put each sum on two of them, so that summing is needed.
            let count = number(count);
            let order = Order(order as u8);
            machine.free_blocks.insert((id, MigrateType::Movable, order), count / 2);
            machine.free_blocks.insert((id, MigrateType::Isolate, order), count - count / 2);
        }
    }
    machine
}

fn migrate_type(name: &str) -> MigrateType {
    MigrateType::ALL.into_iter().find(|of| of.name() == name).unwrap_or_else(|| panic!("no type: {name}"))
}

fn parse_pagetypeinfo(text: &str) -> MachineNumbers {
    let mut machine = MachineNumbers::default();
    let mut columns = Vec::new();
    for line in text.lines() {
        if let Some(names) = line.strip_prefix("Number of blocks type") {
            columns = names.split_whitespace().map(migrate_type).collect();
        } else if let Some((id, rest)) = zone_of_line(line) {
            populate(&mut machine, id);
            if let Some(rest) = rest.strip_prefix(", type") {
                let (name, counts) = rest.trim_start().split_once(' ').unwrap();
                for (order, count) in counts.split_whitespace().enumerate() {
                    machine.free_blocks.insert((id, migrate_type(name), Order(order as u8)), number(count));
                }
            } else {
                for (of, count) in columns.iter().zip(rest.split_whitespace()) {
                    machine.pageblocks.insert((id, *of), number(count));
                }
            }
        }
    }
    machine
}

/// Sums over zones and nodes go to two of them, so that summing is needed.
fn parse_vmstat(text: &str) -> MachineNumbers {
    let ids = [NodeId(0), NodeId(1)].map(|node| ZoneId::new(node, ZoneKind::Normal));
    let mut machine = MachineNumbers::default();
    ids.into_iter().for_each(|id| populate(&mut machine, id));
    // Two names are a node's number in one kernel and an event in the other; nodes stand before events.
    let mut events_begun = false;
    for line in text.lines() {
        let (name, value) = line.split_once(' ').unwrap();
        let value = number(value);
        events_begun |= name == "pgpgin";
        for (id, share) in [(ids[0], value / 2), (ids[1], value - value / 2)] {
            if name == "nr_free_pages" {
                machine.zone_mut(id).free = PageCount(share);
            } else if name == "nr_free_cma" {
                machine.zone_mut(id).free_cma = PageCount(share);
            } else if let Some(stat) = ZoneStat::from_name(name) {
                machine.zone_stats.insert((id, stat), share);
            } else if let Some(event) = NumaEvent::from_name(name) {
                machine.numa_events.insert((id, event), share);
            } else if let Some(stat) = NodeStat::from_name(name).filter(|_| !events_begun) {
                machine.node_stats.insert((id.node(), stat), share);
            } else if let Some(stat) = GlobalStat::from_name(name) {
                machine.global_stats.insert(stat, value);
            } else if let Some(event) = VmEvent::from_name(name) {
                machine.events.insert(event, value);
            } else {
                assert_eq!((name, value), ("nr_unstable", 0), "unknown line in vmstat");
            }
        }
    }
    machine
}

#[test]
fn reproduces_captured_buddyinfo() {
    for capture in crate::captures::all() {
        let text = capture.text("buddyinfo");
        let machine = parse_buddyinfo(&text);
        assert_same(&capture.name, &written(|out| write_buddyinfo(&machine, out)), &text);
    }
}

#[test]
fn reproduces_captured_pagetypeinfo() {
    for capture in crate::captures::all() {
        let text = capture.text("pagetypeinfo");
        let machine = parse_pagetypeinfo(&text);
        assert_same(&capture.name, &written(|out| write_pagetypeinfo(&machine, out)), &text);
    }
}

#[test]
fn reproduces_captured_zoneinfo() {
    for capture in crate::captures::all() {
        let text = capture.text("zoneinfo");
        let machine = parse_zoneinfo(&text);
        assert_same(&capture.name, &written(|out| write_zoneinfo(&machine, capture.format, out)), &text);
    }
}

#[test]
fn reproduces_captured_vmstat() {
    for capture in crate::captures::all() {
        let text = capture.text("vmstat");
        let machine = parse_vmstat(&text);
        assert_same(&capture.name, &written(|out| write_vmstat(&machine, capture.format, out)), &text);
    }
}

/// Two nodes, of which the first has no memory; one zone with CMA; blocks up to order 12.
fn machine_with_cma() -> (MachineNumbers, ZoneId) {
    let id = ZoneId::new(NodeId(1), ZoneKind::Normal);
    let geometry = Geometry::new(ByteSize::kib(4), ByteSize::mib(128), Order(10), Order(12)).unwrap();
    let mut machine = MachineNumbers { geometry, cpus: 1, has_cma: true, ..MachineNumbers::default() };
    let marks = |min| Watermarks {
        min: PageCount(min),
        low: PageCount(min + 5),
        high: PageCount(min + 10),
        promo: PageCount(min + 15),
        boost: PageCount(100),
    };
    let zone = machine.zone_mut(id);
    zone.start = Pfn(0x40000);
    zone.spanned = PageCount(65536);
    zone.present = PageCount(65000);
    zone.managed = PageCount(64000);
    zone.free = PageCount(12345);
    zone.cma = PageCount(4096);
    zone.free_cma = PageCount(4000);
    zone.watermarks = marks(20);
    zone.protection[ZoneKind::Movable as usize] = PageCount(77);
    machine.free_blocks.insert((id, MigrateType::Cma, Order(12)), 1);
    machine.free_blocks.insert((id, MigrateType::Unmovable, Order(0)), 3);
    machine.free_blocks.insert((id, MigrateType::Movable, Order(12)), 2);
    machine.pageblocks.insert((id, MigrateType::Cma), 4);
    machine.pageblocks.insert((id, MigrateType::Movable), 60);
    machine.events.insert(VmEvent::CmaAllocSuccess, 9);
    let lists = PcpSnapshot { count: PageCount(7), high: PageCount(378), batch: PageCount(63), stat_threshold: 12 };
    machine.per_cpu.insert((id, CpuId(0)), lists);
    machine.unreclaimable.push(NodeId(1));
    (machine, id)
}

#[test]
fn orders_follow_the_geometry() {
    let (machine, _) = machine_with_cma();
    assert_eq!(
        written(|out| write_buddyinfo(&machine, out)),
        "Node 1, zone   Normal      3      0      0      0      0      0      0      0      0      0      0      0      3 \n"
    );
}

#[test]
fn cma_rows_and_columns_appear_on_a_machine_with_cma() {
    let (machine, _) = machine_with_cma();
    let expected = "\
Page block order: 10
Pages per block:  1024

Free pages count per migrate type at order       0      1      2      3      4      5      6      7      8      9     10     11     12 
Node    1, zone   Normal, type    Unmovable      3      0      0      0      0      0      0      0      0      0      0      0      0 
Node    1, zone   Normal, type      Movable      0      0      0      0      0      0      0      0      0      0      0      0      2 
Node    1, zone   Normal, type  Reclaimable      0      0      0      0      0      0      0      0      0      0      0      0      0 
Node    1, zone   Normal, type   HighAtomic      0      0      0      0      0      0      0      0      0      0      0      0      0 
Node    1, zone   Normal, type          CMA      0      0      0      0      0      0      0      0      0      0      0      0      1 
Node    1, zone   Normal, type      Isolate      0      0      0      0      0      0      0      0      0      0      0      0      0 

Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic          CMA      Isolate 
Node 1, zone   Normal            0           60            0            0            4            0 
";
    assert_same("pagetypeinfo", &written(|out| write_pagetypeinfo(&machine, out)), expected);
}

#[test]
fn caps_counts_of_long_free_lists() {
    let (mut machine, id) = machine_with_cma();
    machine.free_blocks.insert((id, MigrateType::Unmovable, Order(0)), 99_999);
    machine.free_blocks.insert((id, MigrateType::Unmovable, Order(1)), 100_000);
    machine.free_blocks.insert((id, MigrateType::Unmovable, Order(2)), 1_234_567);
    let text = written(|out| write_pagetypeinfo(&machine, out));
    assert!(text.contains("type    Unmovable  99999 >100000 >100000      0 "), "{text}");
    let text = written(|out| write_buddyinfo(&machine, out));
    assert!(text.contains("  99999 100000 1234567      0 "), "{text}");
}

#[test]
fn zoneinfo_prints_boosted_levels_and_those_above() {
    let (machine, _) = machine_with_cma();
    let text = written(|out| write_zoneinfo(&machine, KernelFormat::V6_12, out));
    let pages = "  pages free     12345
        boost    100
        min      120
        low      125
        high     130
        promo    135
        spanned  65536
        present  65000
        managed  64000
        cma      4096
        protection: (0, 0, 0, 77, 0)
      nr_free_pages 12345
";
    assert!(text.contains(pages), "{text}");
    let end = "      nr_free_cma  4000
      nr_unaccepted 0
      numa_hit     0
      numa_miss    0
      numa_foreign 0
      numa_interleave 0
      numa_local   0
      numa_other   0
  pagesets
    cpu: 0
              count: 7
              high:  378
              batch: 63
  vm stats threshold: 12
  node_unreclaimable:  1
  start_pfn:           262144
Node 1, zone  Movable
";
    assert!(text.contains(end), "{text}");
}

#[test]
fn only_zoneinfo_shows_a_node_without_memory() {
    let (machine, _) = machine_with_cma();
    let zoneinfo = written(|out| write_zoneinfo(&machine, KernelFormat::V6_1, out));
    let zones: Vec<&str> = zoneinfo.lines().filter(|line| line.starts_with("Node")).collect();
    assert_eq!(zones.len(), 2 * ZoneKind::COUNT);
    assert_eq!(zones[0], "Node 0, zone      DMA");
    assert_eq!(zoneinfo.matches("per-node stats").count(), 1);
    assert_eq!(zoneinfo.matches("pagesets").count(), 1);
    assert_eq!(zoneinfo.matches("promo ").count(), 0);
    assert!(!written(|out| write_pagetypeinfo(&machine, out)).contains("Node    0"));
    assert!(!written(|out| write_buddyinfo(&machine, out)).contains("Node 0"));
}

#[test]
fn cma_events_appear_in_vmstat_on_a_machine_with_cma_only() {
    let (mut machine, _) = machine_with_cma();
    for format in [KernelFormat::V6_1, KernelFormat::V6_12] {
        machine.has_cma = true;
        let lines = "htlb_buddy_alloc_fail 0\ncma_alloc_success 9\ncma_alloc_fail 0\nunevictable_pgs_culled 0\n";
        assert!(written(|out| write_vmstat(&machine, format, out)).contains(lines), "{format}");
        machine.has_cma = false;
        assert!(!written(|out| write_vmstat(&machine, format, out)).contains("cma_alloc"), "{format}");
    }
}

/// Accepts a number of bytes and then fails.
struct FullAfter(usize);

impl std::fmt::Write for FullAfter {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0 = self.0.checked_sub(text.len()).ok_or(std::fmt::Error)?;
        Ok(())
    }
}

#[test]
fn stops_at_the_first_write_error() {
    let (machine, _) = machine_with_cma();
    for room in [0, 10, 100, 1000] {
        assert!(write_zoneinfo(&machine, KernelFormat::V6_12, &mut FullAfter(room)).is_err());
        assert!(write_vmstat(&machine, KernelFormat::V6_12, &mut FullAfter(room)).is_err());
        assert!(write_pagetypeinfo(&machine, &mut FullAfter(room)).is_err());
    }
    assert!(write_buddyinfo(&machine, &mut FullAfter(50)).is_err());
}
