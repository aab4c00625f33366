use std::sync::atomic::Ordering;

use frameyard::{NodeId, PageCount, Pfn, PfnRange};

use super::*;

fn ranges() -> Vec<NodeFrames> {
    let range =
        |start, end, node| NodeFrames { range: PfnRange { start: Pfn(start), end: Pfn(end) }, node: NodeId(node) };
    vec![range(1, 0x9f, 0), range(0x100, 0x400, 0), range(0x1000, 0x1200, 1)]
}

/// The frames that the memory map covers, and those for devices: 2 MiB of page structures.
const SPACE: PfnRange = PfnRange { start: Pfn(0x2000), end: Pfn(0x4000) };

fn created(frames: SharedFrames) -> (SharedMemoryFile, HostTopology) {
    let host = HostTopology::current().unwrap();
    let ranges = ranges();
    let (memory_map, control) = (ByteSize::kib(100), ByteSize(1));
    let wanted = SharedLayout {
        geometry: Geometry::X86_64,
        ranges: &ranges,
        frames,
        memory_map,
        control,
        devices: Some((SPACE, ByteSize(64 * SPACE.start.0))),
    };
    (SharedMemoryFile::create(&wanted, &host).unwrap(), host)
}

/// A copy of a file whose header has one word changed.
fn with_word(file: &SharedMemoryFile, index: u64, word: u64) -> File {
    let copy = descriptor::memory_file(c"copy").unwrap();
    copy.set_len(file.header.file_len()).unwrap();
    copy.write_all_at(&file.header.to_bytes(), 0).unwrap();
    copy.write_all_at(&word.to_le_bytes(), index * 8).unwrap();
    descriptor::seal_size(&copy).unwrap();
    copy
}

#[test]
fn an_attached_file_has_the_same_parts_and_the_same_bytes() {
    let (file, host) = created(SharedFrames::Memory);
    let attached = SharedMemoryFile::attach(&file, &host).unwrap();
    assert_eq!(attached.header, file.header);
    assert_eq!(attached.ranges(), ranges());
    assert_eq!(attached.geometry(), Geometry::X86_64);

    let map = file.map_memory_map(HugePages::Default).unwrap();
    assert!(map.size() >= ByteSize::kib(100));
    map.atomics()[0].store(11, Ordering::Relaxed);
    file.map_control(HugePages::Default).unwrap().atomics()[0].store(12, Ordering::Relaxed);
    assert_eq!(attached.map_memory_map(HugePages::Never).unwrap().atomics()[0].load(Ordering::Relaxed), 11);
    assert_eq!(attached.map_control(HugePages::Default).unwrap().atomics()[0].load(Ordering::Relaxed), 12);
}

#[test]
fn frames_of_a_file_are_reached_by_frame_number() {
    let (file, host) = created(SharedFrames::Memory);
    let memory = file.map_frames(HugePages::Default, &host).unwrap();
    let first = memory.frame(Pfn(1)).unwrap().as_ptr() as usize;
    let last = memory.frame(Pfn(0x11ff)).unwrap().as_ptr() as usize;
    assert_eq!(last - first, 0x11fe << 12);
    assert_eq!(memory.frame(Pfn(0xa0)), None);
    assert_eq!(memory.frames(), PageCount(0x9e + 0x300 + 0x200));
    assert_eq!(memory.resident().unwrap(), ByteSize(0));
}

#[test]
fn phantom_frames_take_no_space_in_the_file() {
    let (file, host) = created(SharedFrames::Phantom);
    let attached = SharedMemoryFile::attach(&file, &host).unwrap();
    let memory = attached.map_frames(HugePages::Default, &host).unwrap();
    assert_eq!(memory.frame(Pfn(1)), None);
    assert_eq!(memory.ranges(), ranges());
    assert_eq!(file.header.frame_bytes.len, 0);
}

#[test]
fn an_inherited_descriptor_is_announced_in_the_environment() {
    let (file, _) = created(SharedFrames::Phantom);
    let inherited = file.inherit().unwrap();
    let mut command = Command::new("true");
    inherited.announce(&mut command);
    let announced: Vec<_> = command.get_envs().collect();
    let number = inherited.as_raw_fd().to_string();
    assert_eq!(announced, [(VARIABLE.as_ref(), Some(number.as_ref()))]);
}

#[test]
fn a_file_with_a_wrong_header_is_refused_with_the_reason() {
    let (file, host) = created(SharedFrames::Memory);
    let refusal = |index, word| {
        let copy = with_word(&file, index, word);
        SharedMemoryFile::attach(&copy, &host).unwrap_err().to_string()
    };
    assert_eq!(refusal(0, 1), "not a memory file of a yard: the first word is wrong");
    assert_eq!(refusal(1, 7), "memory file of version 7: this program attaches version 4");
    assert_eq!(refusal(1, 2), "memory file of version 2: this program attaches version 4");
    assert!(refusal(2, 1 << 14).starts_with("memory file made with host pages of 16K: this host has pages of"));
    assert_eq!(refusal(3, 5000), "malformed memory file: the geometry is impossible");
    assert_eq!(refusal(6, 300), "malformed memory file: an order is above 255");
    assert_eq!(refusal(7, 0), "malformed memory file: the kind of frames is unknown");
    let misplaced = "malformed memory file: a part is misaligned or overlaps the part before it";
    assert_eq!(refusal(8, (2 << 20) + 4096), misplaced);
    assert_eq!(refusal(10, 2 << 20), misplaced);
    assert!(refusal(13, 1 << 40).starts_with("truncated memory file: it has "), "{}", refusal(13, 1 << 40));
    assert_eq!(refusal(13, u64::MAX), "malformed memory file: the end of a part overflows");
    assert!(refusal(13, 4096).starts_with("malformed memory file: the part for frames does not have the length"));
    assert_eq!(refusal(15, 1 << 21), misplaced);
    assert_eq!(refusal(16, 8), "malformed memory file: the part for views is too short");
    assert_eq!(refusal(17, 1 << 60), "malformed memory file: the part of the memory map for devices ends past the map");
    let odd = "malformed memory file: the part of the memory map for devices is not whole pages of the host";
    assert_eq!([refusal(17, 1), refusal(18, 1)], [odd, odd]);
    assert_eq!(refusal(20, 1 << 21), misplaced);
    assert_eq!(refusal(21, 8), "malformed memory file: the table of processes is too short");
    let number = "malformed memory file: the number of ranges does not fit the header";
    assert_eq!([refusal(14, 0), refusal(14, u64::MAX)], [number, number]);
    assert_eq!(refusal(24, 1 << 16), "malformed memory file: a node number is above 65535");
    // The end of the first range lies past the start of the second.
    assert!(refusal(23, 0x200).ends_with("overlap: each frame belongs to one range"));
}

#[test]
fn a_file_whose_size_is_not_sealed_is_refused() {
    let (file, host) = created(SharedFrames::Phantom);
    let copy = descriptor::memory_file(c"unsealed").unwrap();
    copy.set_len(file.header.file_len()).unwrap();
    copy.write_all_at(&file.header.to_bytes(), 0).unwrap();
    let refusal = |copy: &File| SharedMemoryFile::attach(copy, &host).map(|_| ());
    assert!(matches!(refusal(&copy), Err(SharedFileError::Header(HeaderError::NotSealed))));
    descriptor::seal_size(&copy).unwrap();
    refusal(&copy).unwrap();
}

#[test]
fn other_files_are_refused() {
    let host = HostTopology::current().unwrap();
    let short = descriptor::memory_file(c"short").unwrap();
    let error = SharedMemoryFile::attach(&short, &host).unwrap_err();
    assert!(matches!(error, SharedFileError::Header(HeaderError::NotAMemoryFile)));
    let (file, _) = created(SharedFrames::Phantom);
    for len in [100, file.header.file_len() - 1] {
        let truncated = descriptor::memory_file(c"truncated").unwrap();
        truncated.write_all_at(&file.header.to_bytes(), 0).unwrap();
        truncated.set_len(len).unwrap();
        let error = SharedMemoryFile::attach(&truncated, &host).unwrap_err();
        let is_truncated =
            matches!(error, SharedFileError::Header(HeaderError::Truncated { len: found, .. }) if found.0 == len);
        assert!(is_truncated, "{error}");
    }
}

#[test]
fn random_files_are_refused() {
    let (file, host) = created(SharedFrames::Memory);
    let sound = file.header.to_bytes();
    let copy = descriptor::memory_file(c"random").unwrap();
    copy.set_len(file.header.file_len()).unwrap();
    descriptor::seal_size(&copy).unwrap();
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state >> 16
    };
    // Words behind a kept part of the header: nothing of it, its magic, its version, its first parts.
    for kept in [0, 1, 2, 3, 8, 14] {
        for _ in 0..300 {
            let mut bytes = sound.clone();
            for word in bytes[kept * 8..].chunks_mut(8) {
                // Small numbers, large ones, and numbers of whole parts.
                let number = [random() % 64, random(), (random() % 64) << 21, random() << 16][random() as usize % 4];
                word.copy_from_slice(&number.to_le_bytes());
            }
            copy.write_all_at(&bytes, 0).unwrap();
            let refused = SharedMemoryFile::attach(&copy, &host).expect_err("random words");
            assert!(!refused.to_string().is_empty());
        }
    }
    copy.write_all_at(&sound, 0).unwrap();
    SharedMemoryFile::attach(&copy, &host).unwrap();
}

#[test]
fn frames_larger_than_the_host_are_refused() {
    let host = HostTopology::current().unwrap();
    let range = PfnRange { start: Pfn(0), end: Pfn(1 << 34) };
    let ranges = [NodeFrames { range, node: NodeId(0) }];
    let (memory_map, control) = (ByteSize::mib(1), ByteSize::mib(1));
    let wanted = SharedLayout {
        geometry: Geometry::X86_64,
        ranges: &ranges,
        frames: SharedFrames::Memory,
        memory_map,
        control,
        devices: None,
    };
    let error = SharedMemoryFile::create(&wanted, &host).unwrap_err();
    assert!(matches!(error, SharedFileError::Memory(MemoryError::LargerThanHost { .. })), "{error}");
}
