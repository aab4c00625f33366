//! Huge-page advice, measured by the resident size of the whole process.

use std::num::NonZeroUsize;

use frameyard::policy::ZonePolicy;
use frameyard::{ByteSize, Geometry, Gfp, NodeId, Order, Pfn, PfnRange};
use frameyard_host::{HostMemory, HostTopology, HostYard, HugePages, NodeFrames, ResidentSize};

#[test]
fn frames_are_huge_pages_only_when_advised() {
    if !crate::own_process::is_own_process(module_path!(), "frames_are_huge_pages_only_when_advised") {
        return;
    }
    let host = HostTopology::current().unwrap();
    if !matches!(host.huge_page_mode().as_deref(), Some("always" | "madvise")) {
        println!("skipped: the host has no transparent huge pages");
        return;
    }
    let range = PfnRange { start: Pfn(0x80), end: Pfn(0x4000) };
    let frames = [NodeFrames { range, node: NodeId(0) }];
    let huge = |advice| {
        let before = ResidentSize::of_this_process().unwrap().anonymous_huge.unwrap();
        let memory = HostMemory::builder(Geometry::X86_64, &frames).huge_pages(advice).build(&host).unwrap();
        memory.prefault(NonZeroUsize::new(2).unwrap(), &host, &mut |_| {}).unwrap();
        ByteSize(ResidentSize::of_this_process().unwrap().anonymous_huge.unwrap().0 - before.0)
    };
    assert_eq!(huge(HugePages::Never), ByteSize(0));
    let advised = huge(HugePages::Advise);
    assert!(advised >= ByteSize::mib(2), "{advised}");
}

#[test]
fn a_map_of_small_pages_becomes_resident_where_it_is_used() {
    if !crate::own_process::is_own_process(module_path!(), "a_map_of_small_pages_becomes_resident_where_it_is_used") {
        return;
    }
    let host = HostTopology::current().unwrap();
    if !matches!(host.huge_page_mode().as_deref(), Some("always" | "madvise")) {
        println!("skipped: the host has no transparent huge pages");
        return;
    }
    let (memory, map) = (ByteSize::gib(1), ByteSize::mib(16));
    let resident = |advice| {
        let before = ResidentSize::of_this_process().unwrap().resident;
        // Free lists have a tag in each of their blocks.
        let yard = HostYard::builder().policy(ZonePolicy::Vanilla).map_huge_pages(advice).size(memory).build().unwrap();
        yard.frames(Order(0), Gfp::KERNEL).unwrap();
        ResidentSize::of_this_process().unwrap().resident.0 - before.0
    };
    let small = resident(HugePages::Never);
    assert!(small < map.0 / 2, "{small} bytes");
    let huge = resident(HugePages::Advise);
    assert!(huge > small + map.0 / 2, "{huge} bytes with huge pages, {small} without");
}
