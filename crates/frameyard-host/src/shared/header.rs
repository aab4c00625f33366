//! The header of a memory file: 64-bit little-endian words.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use frameyard::{ByteSize, Geometry, NodeId, Order, Pfn, PfnRange};

use super::layout::{SharedFrames, SharedLayout};
use super::process::WORDS as PROCESS_WORDS;
use super::view_words::BYTES as VIEW_BYTES;
use crate::device_part::DevicePart;
use crate::memory::{HUGE_ALIGN, NodeFrames};
use crate::sys::mapping::Piece;

const MAGIC: u64 = u64::from_le_bytes(*b"frmyard\0");
const VERSION: u64 = 4;

/// The number of words before those of the ranges. [`Header::to_bytes`] lists them in order.
const FIXED_WORDS: usize = 22;
const RANGE_WORDS: usize = 3;
/// The size of the table of processes.
const PROCESS_BYTES: u64 = (PROCESS_WORDS * size_of::<u64>()) as u64;

/// A bound on the number of ranges, above that of any machine.
const MAX_RANGES: u64 = 1 << 16;

/// A part of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// The header of a memory file. The parts follow it in the order of the fields and do not overlap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) geometry: Geometry,
    pub(super) frames: SharedFrames,
    pub(super) ranges: Vec<NodeFrames>,
    pub(super) memory_map: Part,
    pub(super) control: Part,
    pub(super) view_words: Part,
    /// A word for each process that may attach the file.
    pub(super) processes: Part,
    pub(super) frame_bytes: Part,
    /// The part of the memory map for devices.
    pub(super) devices: Option<DevicePart>,
    host_page_size: ByteSize,
}

/// Why this program cannot attach a file as a memory file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HeaderError {
    /// The file does not start like a memory file.
    NotAMemoryFile,
    /// The file starts like a memory file but is too short.
    Truncated {
        /// Its length.
        len: ByteSize,
        /// The length that its header requires.
        needed: ByteSize,
    },
    /// The file was made by a version of this crate whose header is different.
    Version {
        /// The version of the header.
        found: u64,
    },
    /// The file was made by a host with another page size.
    HostPageSize {
        /// The page size of that host.
        made: ByteSize,
        /// The page size of this one.
        here: ByteSize,
    },
    /// The file is not sealed against changes of its size, so a process that maps it could lose pages.
    NotSealed,
    /// A word of the header contradicts another one, or the length of the file.
    Malformed(&'static str),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAMemoryFile => f.write_str("not a memory file of a yard: the first word is wrong"),
            Self::Truncated { len, needed } => {
                write!(f, "truncated memory file: it has {} bytes and needs at least {}", len.0, needed.0)
            }
            Self::Version { found } => {
                write!(f, "memory file of version {found}: this program attaches version {VERSION}")
            }
            Self::HostPageSize { made, here } => {
                write!(f, "memory file made with host pages of {made}: this host has pages of {here}")
            }
            Self::NotSealed => f.write_str("not a memory file of a yard: its size is not sealed"),
            Self::Malformed(what) => write!(f, "malformed memory file: {what}"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl Header {
    /// The header of a file with these parts; `None` if the length overflows.
    pub(super) fn new(wanted: &SharedLayout<'_>, frame_bytes: u64, host_page_size: ByteSize) -> Option<Self> {
        let words = FIXED_WORDS + RANGE_WORDS * wanted.ranges.len();
        let after = |part: Part| aligned(part.offset.checked_add(part.len)?);
        let memory_map = Part { offset: aligned(words as u64 * 8)?, len: aligned(wanted.memory_map.0)? };
        let control = Part { offset: after(memory_map)?, len: aligned(wanted.control.0)? };
        let view_words = Part { offset: after(control)?, len: aligned(VIEW_BYTES)? };
        let processes = Part { offset: after(view_words)?, len: aligned(PROCESS_BYTES)? };
        let frame_bytes = Part { offset: after(processes)?, len: frame_bytes };
        // File offsets are signed.
        i64::try_from(frame_bytes.offset.checked_add(frame_bytes.len)?).ok()?;
        let (geometry, frames, ranges) = (wanted.geometry, wanted.frames, wanted.ranges.to_vec());
        let devices = wanted.devices.and_then(|(space, offset)| DevicePart::of(space, offset));
        Some(Self {
            geometry,
            frames,
            ranges,
            memory_map,
            control,
            view_words,
            processes,
            frame_bytes,
            devices,
            host_page_size,
        })
    }

    pub(super) fn file_len(&self) -> u64 {
        self.frame_bytes.offset + self.frame_bytes.len
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let frames = match self.frames {
            SharedFrames::Memory => 1,
            SharedFrames::Phantom => 2,
        };
        let [offset, len, first] = self.devices.map_or([0; 3], |part| {
            let Piece { offset, len } = part.piece;
            [offset as u64, len as u64, part.first.0]
        });
        let fixed: [u64; FIXED_WORDS] = [
            MAGIC,
            VERSION,
            self.host_page_size.0,
            self.geometry.page_size().0,
            self.geometry.section_size().0,
            u64::from(self.geometry.pageblock_order().0),
            u64::from(self.geometry.max_order().0),
            frames,
            self.memory_map.offset,
            self.memory_map.len,
            self.control.offset,
            self.control.len,
            self.frame_bytes.offset,
            self.frame_bytes.len,
            self.ranges.len() as u64,
            self.view_words.offset,
            self.view_words.len,
            offset,
            len,
            first,
            self.processes.offset,
            self.processes.len,
        ];
        let words = |frames: &NodeFrames| [frames.range.start.0, frames.range.end.0, u64::from(frames.node.0)];
        fixed.into_iter().chain(self.ranges.iter().flat_map(words)).flat_map(u64::to_le_bytes).collect()
    }

    /// Reads and checks the header of a file.
    pub(super) fn read(file: &File) -> io::Result<Result<Self, HeaderError>> {
        let file_len = file.metadata()?.len();
        let needed = FIXED_WORDS as u64 * 8;
        if file_len < needed {
            let is_ours = file_len >= 8 && read_words(file, 0, 1)? == [MAGIC];
            let truncated = HeaderError::Truncated { len: ByteSize(file_len), needed: ByteSize(needed) };
            return Ok(Err(if is_ours { truncated } else { HeaderError::NotAMemoryFile }));
        }
        let fixed = read_words(file, 0, FIXED_WORDS)?;
        let count = match Self::check_fixed(&fixed, file_len) {
            Ok(count) => count,
            Err(error) => return Ok(Err(error)),
        };
        let ranges = read_words(file, FIXED_WORDS, count * RANGE_WORDS)?;
        Ok(Self::from_words(&fixed, &ranges, file_len))
    }

    /// Checks the words that are needed to read the ranges. Returns the number of ranges.
    fn check_fixed(fixed: &[u64], file_len: u64) -> Result<usize, HeaderError> {
        if fixed[0] != MAGIC {
            return Err(HeaderError::NotAMemoryFile);
        }
        if fixed[1] != VERSION {
            return Err(HeaderError::Version { found: fixed[1] });
        }
        let count = fixed[14];
        let end = (FIXED_WORDS as u64 + RANGE_WORDS as u64 * count.min(MAX_RANGES)) * 8;
        if count == 0 || count > MAX_RANGES || end > file_len.min(fixed[8]) {
            return Err(HeaderError::Malformed("the number of ranges does not fit the header"));
        }
        Ok(count as usize)
    }

    fn from_words(fixed: &[u64], ranges: &[u64], file_len: u64) -> Result<Self, HeaderError> {
        let malformed = HeaderError::Malformed;
        let host_page_size = ByteSize(fixed[2]);
        let order = |word: u64| u8::try_from(word).map(Order).map_err(|_| malformed("an order is above 255"));
        let (page, section) = (ByteSize(fixed[3]), ByteSize(fixed[4]));
        let geometry = Geometry::new(page, section, order(fixed[5])?, order(fixed[6])?)
            .map_err(|_| malformed("the geometry is impossible"))?;
        let frames = match fixed[7] {
            1 => SharedFrames::Memory,
            2 => SharedFrames::Phantom,
            _ => return Err(malformed("the kind of frames is unknown")),
        };
        let part = |index: usize| Part { offset: fixed[index], len: fixed[index + 1] };
        let (memory_map, control, frame_bytes, view_words) = (part(8), part(10), part(12), part(15));
        let processes = part(20);
        let mut end = 0;
        for part in [memory_map, control, view_words, processes, frame_bytes] {
            if part.offset < end || aligned(part.offset) != Some(part.offset) {
                return Err(malformed("a part is misaligned or overlaps the part before it"));
            }
            end = part.offset.checked_add(part.len).ok_or(malformed("the end of a part overflows"))?;
        }
        if end > file_len {
            return Err(HeaderError::Truncated { len: ByteSize(file_len), needed: ByteSize(end) });
        }
        if memory_map.len == 0 || control.len == 0 {
            return Err(malformed("the memory map or the control region is empty"));
        }
        if view_words.len < VIEW_BYTES {
            return Err(malformed("the part for views is too short"));
        }
        if processes.len < PROCESS_BYTES {
            return Err(malformed("the table of processes is too short"));
        }
        let devices = device_part(&fixed[17..20], host_page_size, memory_map.len)?;
        let mut frame_ranges = Vec::new();
        for range in ranges.chunks_exact(RANGE_WORDS) {
            let node = u16::try_from(range[2]).map_err(|_| malformed("a node number is above 65535"))?;
            let pfns = PfnRange { start: Pfn(range[0]), end: Pfn(range[1]) };
            frame_ranges.push(NodeFrames { range: pfns, node: NodeId(node) });
        }
        let ranges = frame_ranges;
        Ok(Self {
            geometry,
            frames,
            ranges,
            memory_map,
            control,
            view_words,
            processes,
            frame_bytes,
            devices,
            host_page_size,
        })
    }

    pub(super) fn check_page_size(&self, here: ByteSize) -> Result<(), HeaderError> {
        if self.host_page_size == here {
            return Ok(());
        }
        Err(HeaderError::HostPageSize { made: self.host_page_size, here })
    }

    /// Checks that the part for frames is as long as the ranges need.
    pub(super) fn check_frames(&self, expected: u64) -> Result<(), HeaderError> {
        if self.frame_bytes.len == expected {
            return Ok(());
        }
        Err(HeaderError::Malformed("the part for frames does not have the length of its ranges"))
    }
}

/// The part for devices of a memory map of `map` bytes, in whole pages of the host. Zero words mean that there is none.
fn device_part(words: &[u64], page: ByteSize, map: u64) -> Result<Option<DevicePart>, HeaderError> {
    let &[offset, len, first] = words else { return Ok(None) };
    if len == 0 {
        return Ok(None);
    }
    let pages = page.0.max(1);
    let fits = offset.checked_add(len).is_some_and(|end| end <= map);
    let (Ok(start), Ok(bytes), true) = (usize::try_from(offset), usize::try_from(len), fits) else {
        return Err(HeaderError::Malformed("the part of the memory map for devices ends past the map"));
    };
    if !offset.is_multiple_of(pages) || !len.is_multiple_of(pages) {
        return Err(HeaderError::Malformed("the part of the memory map for devices is not whole pages of the host"));
    }
    Ok(Some(DevicePart { piece: Piece { offset: start, len: bytes }, first: Pfn(first) }))
}

fn read_words(file: &File, first: usize, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    file.read_exact_at(&mut bytes, first as u64 * 8)?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Rounds up to the alignment of a part of the file.
fn aligned(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(HUGE_ALIGN)
}
