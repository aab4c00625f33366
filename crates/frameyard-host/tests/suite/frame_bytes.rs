//! Frames of each kind of memory keep their contents.

use crate::own_process::own_file;
use frameyard::{Geometry, NodeId, PageCount, Pfn, PfnRange, Platform};
use frameyard_host::{Backing, FileGrowth, HostMemory, HostPlatform, HostTopology, HugePages, NodeFrames};

fn machine() -> Vec<NodeFrames> {
    let range = |start, end| PfnRange { start: Pfn(start), end: Pfn(end) };
    vec![
        NodeFrames { range: range(1, 0x9f), node: NodeId(0) },
        NodeFrames { range: range(0x100, 0x800), node: NodeId(0) },
        NodeFrames { range: range(0x10_0000, 0x10_0400), node: NodeId(1) },
    ]
}

fn build(backing: Backing, huge_pages: HugePages) -> HostMemory {
    let host = HostTopology::current().unwrap();
    let builder = HostMemory::builder(Geometry::X86_64, &machine()).backing(backing).huge_pages(huge_pages);
    builder.build(&host).unwrap()
}

fn frames(memory: &HostMemory) -> impl Iterator<Item = Pfn> {
    memory.ranges().iter().flat_map(|frames| (frames.range.start.0..frames.range.end.0).map(Pfn))
}

/// Writes the number of each frame to its first and its last word.
fn write_numbers(memory: &HostMemory) {
    for pfn in frames(memory) {
        let words = memory.frame(pfn).unwrap().cast::<u64>();
        // SAFETY: the frame is present, 512 words long and aligned to a page, and no other thread uses it.
        unsafe {
            assert_eq!((words.read(), words.add(511).read()), (0, 0), "a new frame is zero");
            words.write(pfn.0);
            words.add(511).write(!pfn.0);
        }
    }
}

fn check_numbers(memory: &HostMemory) {
    for pfn in frames(memory) {
        let bytes = memory.bytes(pfn, PageCount(1)).unwrap();
        // SAFETY: the frame is present and no other thread uses it while the slice lives.
        let bytes = unsafe { bytes.as_ref() };
        let word = |index: usize| u64::from_le_bytes(bytes[index * 8..][..8].try_into().unwrap());
        assert_eq!((word(0), word(511)), (pfn.0.to_le(), (!pfn.0).to_le()), "{pfn}");
    }
}

#[test]
fn private_frames_keep_their_contents() {
    for advice in [HugePages::Advise, HugePages::Never, HugePages::Default] {
        let memory = build(Backing::Anonymous, advice);
        write_numbers(&memory);
        check_numbers(&memory);
    }
}

#[test]
fn frames_in_a_memory_file_keep_their_contents() {
    let memory = build(Backing::Memfd, HugePages::Advise);
    write_numbers(&memory);
    check_numbers(&memory);
}

#[test]
fn frames_in_a_file_keep_their_contents_when_it_is_mapped_again() {
    let path = own_file("frames");
    let _ = std::fs::remove_file(&path);
    write_numbers(&build(Backing::File { path: path.clone(), growth: FileGrowth::Grow }, HugePages::Default));
    check_numbers(&build(Backing::File { path: path.clone(), growth: FileGrowth::Refuse }, HugePages::Default));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn the_platform_finds_the_same_bytes() {
    let memory = build(Backing::Anonymous, HugePages::Never);
    let host = HostTopology::current().unwrap();
    let expected = memory.frame(Pfn(0x9e));
    let platform = HostPlatform::new(memory, &host);
    assert!(expected.is_some());
    assert_eq!(platform.frame_bytes(Pfn(0x9e)), expected);
    assert_eq!(platform.frame_bytes(Pfn(0x9f)), None);
}
