use std::path::Path;

use frameyard::PfnRange;

use super::*;
use crate::test_huge_pages::AddedHugePages;
use crate::test_tree::Tree;

fn frames(start: u64, end: u64, node: u16) -> NodeFrames {
    NodeFrames { range: PfnRange { start: Pfn(start), end: Pfn(end) }, node: NodeId(node) }
}

/// 6 MiB with a PC's hole below 1 MiB, and 2 MiB on another node above 4 GiB.
fn machine() -> Vec<NodeFrames> {
    vec![frames(0, 0x9f, 0), frames(0x100, 0x600, 0), frames(0x10_0000, 0x10_0200, 1)]
}

fn host() -> HostTopology {
    HostTopology::current().unwrap()
}

fn build(backing: Backing) -> Result<HostMemory, MemoryError> {
    HostMemory::builder(Geometry::X86_64, &machine()).backing(backing).build(&host())
}

fn address(memory: &HostMemory, pfn: u64) -> usize {
    memory.frame(Pfn(pfn)).unwrap().as_ptr() as usize
}

/// A fake host with two nodes of 1 GiB each.
fn two_nodes(tree: &Tree) -> HostTopology {
    tree.write("sys/devices/system/cpu/online", "0-1");
    tree.write("proc/cpuinfo", "");
    tree.write("proc/sys/kernel/osrelease", "6.12");
    tree.write("proc/meminfo", "MemTotal: 2097152 kB\nMemAvailable: 1024 kB\n");
    tree.write("sys/devices/system/node/online", "0-1");
    for node in 0..2 {
        let folder = format!("sys/devices/system/node/node{node}");
        tree.write(&format!("{folder}/cpulist"), &node.to_string());
        tree.write(&format!("{folder}/distance"), "10 20");
        tree.write(&format!("{folder}/meminfo"), "Node N MemTotal: 1048576 kB\n");
    }
    HostTopology::read(tree.path()).unwrap()
}

#[test]
fn frames_are_addressed_by_number_and_huge_pages_fit() {
    for backing in [Backing::Anonymous, Backing::Memfd] {
        let memory = build(backing).unwrap();
        let first = address(&memory, 0);
        assert_eq!(first as u64 % HUGE_ALIGN, 0);
        for pfn in [1, 0x9e, 0x100, 0x5ff, 0x10_0000, 0x10_01ff] {
            assert_eq!(address(&memory, pfn) - first, (pfn as usize) << 12);
        }
    }
}

#[test]
fn addresses_belong_to_the_frames_that_have_them() {
    let memory = build(Backing::Anonymous).unwrap();
    for pfn in [0, 1, 0x9e, 0x100, 0x5ff, 0x10_0000, 0x10_01ff] {
        let start = address(&memory, pfn);
        assert_eq!([start, start + 1, start + 4095].map(|byte| memory.frame_at(byte)), [Some(Pfn(pfn)); 3]);
    }
    let (first, last) = (address(&memory, 0), address(&memory, 0x10_01ff));
    for outside in [0, first - 1, first + (0x9f << 12), first + (0x700 << 12), last + 4096, usize::MAX] {
        assert_eq!(memory.frame_at(outside), None, "{outside:#x}");
    }
    assert_eq!(build(Backing::Phantom).unwrap().frame_at(first), None);
}

#[test]
fn frames_that_start_inside_a_huge_page_keep_their_alignment() {
    let ranges = [frames(0x123, 0x800, 0)];
    let memory = HostMemory::builder(Geometry::X86_64, &ranges).build(&host()).unwrap();
    assert_eq!(address(&memory, 0x400) as u64 % HUGE_ALIGN, 0);
    assert_eq!(address(&memory, 0x123) as u64 % HUGE_ALIGN, 0x123 << 12);
}

#[test]
fn frames_larger_than_host_pages_keep_their_size() {
    let geometry =
        Geometry::new(ByteSize::kib(64), ByteSize::mib(512), frameyard::Order(5), frameyard::Order(10)).unwrap();
    let memory = HostMemory::builder(geometry, &[frames(3, 40, 0)]).build(&host()).unwrap();
    assert_eq!(address(&memory, 39) - address(&memory, 3), 36 << 16);
    assert_eq!(memory.bytes(Pfn(38), PageCount(2)).unwrap().len(), 2 << 16);
}

#[test]
fn frames_in_holes_and_outside_have_no_bytes() {
    let memory = build(Backing::Anonymous).unwrap();
    for pfn in [0x9f, 0xff, 0x600, 0xf_ffff, 0x10_0200, u64::MAX] {
        assert_eq!(memory.frame(Pfn(pfn)), None, "{pfn:#x}");
    }
    assert_eq!(memory.bytes(Pfn(0x9e), PageCount(2)), Err(FrameBytesError::NotPresent(Pfn(0x9f))));
    assert_eq!(memory.bytes(Pfn(0x700), PageCount(0)), Err(FrameBytesError::NotPresent(Pfn(0x700))));
    assert_eq!(memory.bytes(Pfn(0x5ff), PageCount(u64::MAX)), Err(FrameBytesError::NotPresent(Pfn(0x600))));
    assert_eq!(memory.bytes(Pfn(0x100), PageCount(0x500)).unwrap().len(), 0x500 << 12);
    assert_eq!(memory.frames(), PageCount(0x9f + 0x500 + 0x200));
}

#[test]
fn phantom_frames_of_any_size_have_no_bytes() {
    let ranges = [frames(1, 1 << 50, 0)];
    let memory = HostMemory::builder(Geometry::X86_64, &ranges).backing(Backing::Phantom).build(&host()).unwrap();
    assert_eq!(memory.frame(Pfn(1)), None);
    assert_eq!(memory.bytes(Pfn(1), PageCount(1)), Err(FrameBytesError::Phantom));
    assert_eq!(memory.frames(), PageCount((1 << 50) - 1));
    assert_eq!(memory.resident().unwrap(), ByteSize(0));
    memory.prefault(NonZeroUsize::MIN, &host(), &mut |_| panic!("nothing to do")).unwrap();
}

#[test]
fn frames_take_no_memory_until_they_are_prefaulted() {
    for backing in [Backing::Anonymous, Backing::Memfd] {
        let memory = build(backing.clone()).unwrap();
        assert_eq!(memory.resident().unwrap(), ByteSize(0), "{}", backing.name());
        let mut reports = 0;
        memory.prefault(NonZeroUsize::new(2).unwrap(), &host(), &mut |_| reports += 1).unwrap();
        assert_eq!(memory.resident().unwrap(), ByteSize((0x9f + 0x500 + 0x200) << 12));
        assert_eq!(reports, 4);
    }
}

#[test]
fn a_machine_larger_than_the_host_is_refused_with_both_sizes() {
    let tree = Tree::new();
    let host = two_nodes(&tree);
    let text = |frames: &[NodeFrames], backing| {
        let error = HostMemory::builder(Geometry::X86_64, frames).backing(backing).build(&host).unwrap_err();
        error.to_string()
    };
    let large = [frames(0, 1 << 20, 0)];
    let expected = "the frames need 4G, and this process may use 2G of the host's memory: \
                    request less memory or phantom frames";
    assert_eq!(text(&large, Backing::Anonymous), expected);
    assert_eq!(text(&large, Backing::Memfd), expected);
    let lopsided = [frames(0, 0x5_0000, 0)];
    assert_eq!(
        text(&lopsided, Backing::Anonymous),
        "the frames bound to the host's node 0 need 1280M, and it has 1G: request less memory or leave the nodes unbound"
    );
}

#[test]
fn unbound_frames_may_be_larger_than_a_node() {
    let tree = Tree::new();
    let host = two_nodes(&tree);
    let builder = HostMemory::builder(Geometry::X86_64, &[frames(0, 0x5_0000, 0)]);
    let memory = builder.node_binding(NodeBinding::Leave).build(&host).unwrap();
    let error = memory.prefault(NonZeroUsize::MIN, &host, &mut |_| {}).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pre-faulting needs 1280M, and the host has 1M available now: request less memory or leave the frames untouched"
    );
    assert_eq!(memory.resident().unwrap(), ByteSize(0));
}

#[test]
fn a_span_longer_than_the_address_space_is_refused() {
    let ranges = [frames(0, 0x200, 0), frames(1 << 40, (1 << 40) + 0x200, 1)];
    let error = HostMemory::builder(Geometry::X86_64, &ranges).build(&host()).unwrap_err();
    assert!(matches!(error, MemoryError::AddressSpace { span } if span.0 > 1 << 52), "{error}");
}

#[test]
fn missing_huge_pages_are_counted_in_the_error() {
    let tree = Tree::new();
    let host = two_nodes(&tree);
    let pool = "sys/kernel/mm/hugepages/hugepages-2048kB";
    tree.write(&format!("{pool}/nr_hugepages"), "4");
    tree.write(&format!("{pool}/free_hugepages"), "3");
    let build = |frames: &[NodeFrames]| {
        HostMemory::builder(Geometry::X86_64, frames).backing(Backing::Hugetlb(HugetlbSize::TwoMib)).build(&host)
    };
    // The first range takes eight huge pages, and the second, which lies inside one, a ninth.
    let error = build(&[frames(0x100, 0x1000, 0), frames(0x2010, 0x2020, 0)]).unwrap_err();
    assert!(matches!(&error, MemoryError::Hugetlb(shortage) if shortage.missing() == 6), "{error}");
    // Enough in total, but not on the second node.
    for (node, free) in [(0, "2"), (1, "1")] {
        let pool = format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB");
        tree.write(&format!("{pool}/nr_hugepages"), "2");
        tree.write(&format!("{pool}/free_hugepages"), free);
    }
    let error = build(&[frames(0, 0x200, 0), frames(0x1000, 0x1400, 1)]).unwrap_err().to_string();
    assert!(error.contains("node1/hugepages") && error.contains("1 are missing"), "{error}");
}

#[test]
fn huge_pages_from_the_pool_back_frames() {
    let ranges = [frames(0x100, 0x300, 0)];
    for size in HugetlbSize::ALL.iter().copied() {
        let needed = if size == HugetlbSize::TwoMib { 2 } else { 1 };
        let _added = AddedHugePages::add(size.size(), needed);
        let free = crate::hugetlb::HugetlbPool::of_host(&host(), size).map_or(0, |pool| pool.free);
        let memory = HostMemory::builder(Geometry::X86_64, &ranges).backing(Backing::Hugetlb(size)).build(&host());
        if free < needed {
            let error = memory.unwrap_err();
            assert!(matches!(&error, MemoryError::Hugetlb(short) if short.missing() == needed - free), "{error}");
            println!("skipped: {needed} huge pages of {size} needed, {free} free");
            continue;
        }
        let memory = memory.unwrap();
        assert_eq!(address(&memory, 0x200) as u64 % HUGE_ALIGN, 0);
        memory.prefault(NonZeroUsize::MIN, &host(), &mut |_| {}).unwrap();
        assert_eq!(memory.resident().unwrap(), ByteSize(needed * size.size().0));
    }
}

fn in_file(path: &Path, growth: FileGrowth) -> Result<HostMemory, MemoryError> {
    build(Backing::File { path: path.to_owned(), growth })
}

#[test]
fn a_file_grows_only_when_it_may() {
    let tree = Tree::new();
    let path = tree.path().join("frames");
    assert!(matches!(in_file(&path, FileGrowth::Refuse), Err(MemoryError::FileOpen { .. })));
    tree.write("frames", "short");
    let error = in_file(&path, FileGrowth::Refuse).unwrap_err().to_string();
    assert!(error.ends_with("frames: the file has 5, and the frames need 8M: enlarge it or let it grow"), "{error}");
    let memory = in_file(&path, FileGrowth::Grow).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 << 20);
    memory.prefault(NonZeroUsize::MIN, &host(), &mut |_| {}).unwrap();
    drop(memory);
    // Now the file is long enough, and its contents are kept.
    in_file(&path, FileGrowth::Refuse).unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[..5], *b"short");
}

#[test]
fn other_files_than_regular_ones_are_refused() {
    let error = in_file(Path::new("/dev/null"), FileGrowth::Grow).unwrap_err().to_string();
    assert_eq!(error, "/dev/null: not a regular file: name a file, or a path where none exists");
    let tree = Tree::new();
    assert!(matches!(in_file(tree.path(), FileGrowth::Grow), Err(MemoryError::FileOpen { .. })));
}

#[test]
fn a_file_system_without_room_is_refused_and_the_file_stays_short() {
    let tree = Tree::new();
    let path = tree.path().join("frames");
    // 1 PiB.
    let ranges = [frames(0, 1 << 38, 0)];
    let backing = Backing::File { path: path.clone(), growth: FileGrowth::Grow };
    let error = HostMemory::builder(Geometry::X86_64, &ranges).backing(backing).build(&host()).unwrap_err();
    assert!(matches!(error, MemoryError::FileSystemFull { needed, .. } if needed == ByteSize(1 << 50)), "{error}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}
