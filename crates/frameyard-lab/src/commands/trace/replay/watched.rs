//! Memory of a replay's yard that `frameyard top` can read: a memory file without frames, as of other yards that processes share.

use frameyard::RawRegion;
use frameyard_host::{
    HostTopology, HugePages, NodeFrames, Region, SharedFrames, SharedLayout, SharedMemoryFile, SharedPlace,
};
use frameyard_traces::replay::{YardMemory, YardParts};

/// The memory map and the control region in a memory file. `top` finds the file among the descriptors of this process.
#[derive(Debug)]
struct WatchedMemory {
    map: Region,
    control: Region,
    _place: SharedPlace,
    _file: SharedMemoryFile,
}

// SAFETY: the file is new, so its bytes are zero, and its parts begin at multiples of 2 MiB. The regions stay mapped until the value is
// dropped. A process that watches the yard maps the file for reading.
unsafe impl YardMemory for WatchedMemory {
    fn map(&self) -> RawRegion {
        RawRegion { base: self.map.base(), size: self.map.size() }
    }

    fn control(&self) -> RawRegion {
        RawRegion { base: self.control.base(), size: self.control.size() }
    }
}

/// Makes the memory; `None` if the host has no memory files, or not as much.
pub(super) fn memory(parts: &YardParts) -> Option<Box<dyn YardMemory>> {
    let host = HostTopology::current().ok()?;
    let ranges: Vec<NodeFrames> =
        parts.memory.iter().map(|(range, node)| NodeFrames { range: *range, node: *node }).collect();
    let wanted = SharedLayout {
        geometry: parts.geometry,
        ranges: &ranges,
        frames: SharedFrames::Phantom,
        memory_map: parts.map,
        control: parts.control,
        devices: None,
    };
    let file = SharedMemoryFile::create(&wanted, &host).ok()?;
    let map = file.map_memory_map(HugePages::Default).ok()?;
    let control = file.map_control(HugePages::Default).ok()?;
    Some(Box::new(WatchedMemory { map, control, _place: file.attend().ok()?, _file: file }))
}
