//! The contents of a memory file.

use frameyard::{ByteSize, Geometry, PfnRange};

use crate::memory::NodeFrames;

/// Whether a memory file contains the bytes of the frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SharedFrames {
    /// Yes.
    Memory,
    /// No: the frames have no memory.
    Phantom,
}

/// What a new memory file is to contain.
#[derive(Clone, Debug)]
pub struct SharedLayout<'a> {
    /// The geometry of the yard.
    pub geometry: Geometry,
    /// The frames of the machine.
    pub ranges: &'a [NodeFrames],
    /// Whether the file contains their bytes.
    pub frames: SharedFrames,
    /// The size of the memory map.
    pub memory_map: ByteSize,
    /// The size of the control region.
    pub control: ByteSize,
    /// The frames for devices ([`YardConfig::device_space`](frameyard::YardConfig::device_space)), and the offset of
    /// their page structures in the memory map ([`Layout::device_map_offset`](frameyard::Layout::device_map_offset)).
    pub devices: Option<(PfnRange, ByteSize)>,
}
