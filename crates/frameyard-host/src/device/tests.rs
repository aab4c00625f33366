use std::sync::Arc;

use frameyard::{NodeId, Pfn, PfnRange, Platform};

use super::*;
use crate::memory::{HostMemory, NodeFrames};
use crate::platform::HostPlatform;
use crate::test_tree::Tree;

fn host() -> HostTopology {
    HostTopology::current().unwrap()
}

fn memfd(size: ByteSize, alignment: DeviceAlignment) -> DeviceMemory {
    DeviceMemory::builder(size, alignment).build(&host()).unwrap()
}

fn range(start: u64, pages: u64) -> PfnRange {
    PfnRange::new(Pfn(start), PageCount(pages))
}

/// 4 MiB of memory from frame 0 on.
fn platform() -> HostPlatform {
    let frames = [NodeFrames { range: range(0, 1024), node: NodeId(0) }];
    HostPlatform::new(HostMemory::builder(Geometry::X86_64, &frames).build(&host()).unwrap(), &host())
}

#[test]
fn a_device_is_aligned_and_takes_no_memory() {
    for alignment in DeviceAlignment::ALL {
        let device = memfd(alignment.size(), alignment);
        let base = device.base().unwrap();
        assert_eq!(base.as_ptr() as u64 % alignment.size().0, 0);
        assert_eq!(device.resident().unwrap(), ByteSize(0));
        assert_eq!(
            device.address(ByteSize(device.size().0 - 1)).unwrap().as_ptr() as u64,
            base.as_ptr() as u64 + device.size().0 - 1
        );
        assert_eq!(device.address(device.size()), None);
        assert_eq!(device.frames(Geometry::X86_64), alignment.order(Geometry::X86_64).pages());
    }
}

#[test]
fn alignments_are_parsed_by_name() {
    for alignment in DeviceAlignment::ALL {
        assert_eq!(alignment.name().to_lowercase().parse::<DeviceAlignment>().unwrap(), alignment);
    }
    let error = "3M".parse::<DeviceAlignment>().unwrap_err();
    assert_eq!(error.to_string(), "\"3M\" is no alignment of a device: 4K, 2M or 1G");
}

#[test]
fn an_unaligned_size_is_refused_with_the_nearest_sizes() {
    let refusal = |bytes, alignment| {
        let backing = DeviceBacking::Phantom;
        DeviceMemory::builder(ByteSize(bytes), alignment).backing(backing).build(&host()).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(5 << 20, DeviceAlignment::Huge),
        "a device of 5M is no multiple of its alignment 2M: the nearest sizes are 4M and 6M"
    );
    assert_eq!(
        refusal(5 << 20, DeviceAlignment::Gigantic),
        "a device of 5M is no multiple of its alignment 1G: the nearest size is 1G"
    );
    assert_eq!(
        refusal(0, DeviceAlignment::Base),
        "a device of 0 is no multiple of its alignment 4K: the nearest size is 4K"
    );
    assert!(refusal(u64::MAX, DeviceAlignment::Base).contains("the nearest size is "));
}

#[test]
fn a_phantom_device_larger_than_the_host_has_no_bytes() {
    let builder = DeviceMemory::builder(ByteSize(1 << 50), DeviceAlignment::Gigantic);
    let device = builder.clone().backing(DeviceBacking::Phantom).build(&host()).unwrap();
    assert_eq!((device.base(), device.path(), device.resident().unwrap()), (None, None, ByteSize(0)));
    let error = builder.build(&host()).unwrap_err();
    assert!(matches!(error, DeviceMemoryError::Memory(MemoryError::LargerThanHost { .. })), "{error}");
}

#[test]
fn a_file_keeps_its_contents_and_is_locked_unless_shared() {
    let tree = Tree::new();
    let path = tree.path().join("device");
    let backing = |growth| DeviceBacking::File { path: path.clone(), growth };
    let builder = DeviceMemory::builder(ByteSize::mib(4), DeviceAlignment::Huge);
    let missing = builder.clone().backing(backing(FileGrowth::Refuse)).build(&host()).unwrap_err();
    assert!(matches!(missing, DeviceMemoryError::Memory(MemoryError::FileOpen { .. })), "{missing}");
    let device = builder.clone().backing(backing(FileGrowth::Grow)).build(&host()).unwrap();
    assert_eq!(device.path(), Some(path.clone()));
    device.mapping.as_ref().unwrap().words()[9].store(7, std::sync::atomic::Ordering::Relaxed);
    let second = builder.clone().backing(backing(FileGrowth::Refuse)).build(&host()).unwrap_err();
    assert!(matches!(second, DeviceMemoryError::Memory(MemoryError::FileInUse(_))), "{second}");
    drop(device);
    let shared = builder.backing(backing(FileGrowth::Refuse)).sharing(DeviceSharing::Shared);
    let devices = [(); 2].map(|()| shared.clone().build(&host()).unwrap());
    for device in &devices {
        assert_eq!(device.mapping.as_ref().unwrap().words()[9].load(std::sync::atomic::Ordering::Relaxed), 7);
    }
}

#[test]
fn a_memory_file_can_be_opened_by_its_path() {
    let device = memfd(ByteSize::mib(2), DeviceAlignment::Huge);
    let backing = DeviceBacking::File { path: device.path().unwrap(), growth: FileGrowth::Refuse };
    let other = DeviceMemory::builder(ByteSize::mib(2), DeviceAlignment::Huge).backing(backing);
    let other = other.sharing(DeviceSharing::Shared).build(&host()).unwrap();
    device.mapping.as_ref().unwrap().words()[3].store(5, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(other.mapping.as_ref().unwrap().words()[3].load(std::sync::atomic::Ordering::Relaxed), 5);
}

#[test]
fn the_platform_finds_bytes_of_a_device_until_it_is_removed() {
    let platform = platform();
    let (frames, device) = (range(0x10_0000, 1024), Arc::new(memfd(ByteSize::mib(4), DeviceAlignment::Huge)));
    assert_eq!(platform.frame_bytes(frames.start), None);
    platform.add_device(frames, Arc::clone(&device)).unwrap();
    assert_eq!(platform.frame_bytes(frames.start), device.base());
    assert_eq!(platform.frame_bytes(Pfn(0x10_03ff)), device.address(ByteSize(1023 << 12)));
    assert_eq!(platform.frame_bytes(frames.end), None);
    assert!(platform.frame_bytes(Pfn(1023)).is_some());
    assert_eq!(platform.device_of(Pfn(0x10_0001)).unwrap().0, frames);
    assert_eq!(platform.devices().len(), 1);
    platform.remove_device(frames).unwrap();
    assert_eq!(platform.frame_bytes(frames.start), None);
    assert_eq!(platform.remove_device(frames).unwrap_err(), AddDeviceError::NotThere(frames));
}

#[test]
fn frames_with_bytes_and_ranges_of_another_size_are_refused() {
    let platform = platform();
    let device = Arc::new(memfd(ByteSize::mib(4), DeviceAlignment::Huge));
    let add = |range| platform.add_device(range, Arc::clone(&device));
    add(range(0x10_0000, 1024)).unwrap();
    assert_eq!(
        add(range(512, 1024)).unwrap_err().to_string(),
        "pfn [0x200, 0x600): pfn [0x0, 0x400) has its bytes already: choose frames beyond it"
    );
    assert_eq!(
        add(range(0x10_0200, 1024)),
        Err(AddDeviceError::Taken { range: range(0x10_0200, 1024), by: range(0x10_0000, 1024) })
    );
    assert_eq!(
        add(range(0x20_0000, 1023)).unwrap_err().to_string(),
        "pfn [0x200000, 0x2003ff) has 1023 frames, and the device has 1024: both must be equal"
    );
}
