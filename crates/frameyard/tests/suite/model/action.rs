//! What can be done to a yard, and how bytes become actions.

use frameyard::Gfp;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::{HighFraction, HugePageMinimum, MovableMinimum, PcpSizing, WatermarkOptions};

/// Where an allocation prefers its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// On the node of the CPU that asks.
    Here,
    /// On that node; it may not exist.
    Node(u16),
}

/// Which frame a misuse is about. Numbers are taken modulo what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// A frame of an allocated block.
    Block { pick: u16, offset: u16 },
    /// A free frame.
    Free(u16),
    /// A frame that the yard was never given.
    Reserved(u16),
    /// Any frame of the memory map, holes included, or a little outside it.
    Anywhere(u16),
    /// The highest frame number.
    Highest,
}

/// What is done wrongly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Misuse {
    Free,
    Split,
}

/// Through which view of the yard a thread works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    Creator,
    Attached,
}

/// One thing that is done to a yard. Picks and sizes are taken modulo what there is, so every action can be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Allocate {
        order: u8,
        gfp: Gfp,
        place: Place,
    },
    Free {
        pick: u16,
    },
    Misuse {
        how: Misuse,
        target: Target,
        order: u8,
    },
    Bulk {
        count: u16,
        gfp: Gfp,
    },
    Exact {
        count: u16,
        gfp: Gfp,
    },
    Range {
        start: u16,
        count: u16,
        gfp: Gfp,
    },
    FreeRange {
        pick: u16,
        count: u16,
    },
    Split {
        pick: u16,
    },
    /// Allocates ever smaller blocks until about this number of frames is free.
    Fill {
        left: u16,
    },
    DrainList {
        zone: u8,
        cpu: u8,
    },
    DrainCpu {
        cpu: u8,
    },
    DrainZone {
        zone: u8,
    },
    DrainAll,
    Resize {
        sizing: PcpSizing,
    },
    Retune {
        options: WatermarkOptions,
        sizing: PcpSizing,
    },
    RunOn {
        cpu: u8,
        view: View,
    },
    /// Writes to a free frame, where frames have memory and are poisoned.
    Damage {
        pick: u16,
        offset: u16,
    },
    /// Initialises one more section of a node. The node may not exist.
    InitialiseNext {
        node: u8,
    },
    /// Initialises the rest of the memory map.
    FinishInit,
    /// Changes how frames move between lists and zones.
    SetPolicy {
        policy: ZonePolicy,
    },
    /// Moves what can be moved, which is nothing, and so collects what CPUs keep.
    Compact {
        zone: u8,
    },
    /// Allocates a range after isolating its pageblocks.
    Contiguous {
        start: u16,
        count: u16,
        gfp: Gfp,
    },
    Validate,
}

/// How many bytes make one action.
pub(crate) const BYTES_PER_ACTION: usize = 8;

impl Action {
    /// Every eight bytes are an action; zeroes are the simplest one.
    pub(crate) fn from_bytes(bytes: [u8; BYTES_PER_ACTION]) -> Self {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (pick, extent, small) = (half(1), half(3), bytes[5]);
        let gfp = gfp(bytes[6], bytes[7]);
        match bytes[0] {
            0..=79 => Self::Allocate { order: order(bytes[1]), gfp, place: place(small) },
            80 => Self::Fill { left: extent % 2000 },
            81..=139 => Self::Free { pick },
            140..=159 => Self::Misuse { how: misuse(bytes[6]), target: target(bytes[7], pick, extent), order: small },
            160..=169 => Self::Bulk { count: extent % 400, gfp },
            170..=179 => Self::Exact { count: exact(extent, small), gfp },
            180..=193 => Self::Range { start: pick, count: range(extent, small), gfp },
            194..=207 => Self::FreeRange { pick, count: range(extent, small) },
            208..=215 => Self::Split { pick },
            216..=219 => Self::DrainList { zone: bytes[1], cpu: small },
            220..=222 => Self::DrainCpu { cpu: small },
            223..=225 => Self::DrainZone { zone: bytes[1] },
            226 => Self::DrainAll,
            227..=232 => Self::Resize { sizing: sizing(bytes[6], extent) },
            233..=235 => Self::Retune { options: options(pick, small, bytes[7]), sizing: sizing(bytes[6], extent) },
            236..=246 => Self::RunOn { cpu: small, view: view(bytes[6]) },
            247..=250 => Self::Damage { pick, offset: extent },
            251 => Self::InitialiseNext { node: small % 6 },
            // Rarely: it ends all differences of deferred and lazy yards.
            252 if small.is_multiple_of(8) => Self::FinishInit,
            252 => Self::InitialiseNext { node: 0 },
            253 => Self::SetPolicy { policy: ZonePolicy::ALL[usize::from(small) % ZonePolicy::ALL.len()] },
            254 if small < 64 => Self::Compact { zone: bytes[1] },
            254 => Self::Contiguous { start: pick, count: range(extent, small), gfp },
            255 => Self::Validate,
        }
    }

    /// Any number of bytes are a sequence of actions; what is left over at the end is not used.
    pub(crate) fn sequence(bytes: &[u8]) -> Vec<Self> {
        bytes.as_chunks().0.iter().copied().map(Self::from_bytes).collect()
    }
}

/// Mostly small orders, now and then one above every maximum.
fn order(byte: u8) -> u8 {
    match byte {
        0..=99 => byte % 2,
        100..=179 => byte % 5,
        180..=247 => byte % 14,
        248..=254 => byte % 17,
        255 => 255,
    }
}

fn place(byte: u8) -> Place {
    if byte < 192 { Place::Here } else { Place::Node(u16::from(byte % 8)) }
}

fn gfp(kind: u8, extra: u8) -> Gfp {
    const KINDS: [Gfp; 8] = [
        Gfp::KERNEL,
        Gfp::HIGHUSER_MOVABLE,
        Gfp::ATOMIC,
        Gfp::NOWAIT,
        Gfp::HIGHUSER_MOVABLE,
        Gfp::DIRECT_RECLAIM,
        Gfp::KERNEL,
        Gfp::ATOMIC,
    ];
    const MOBILITY: [Gfp; 4] = [Gfp::NOWAIT, Gfp::MOVABLE, Gfp::RECLAIMABLE, Gfp::NOWAIT];
    let mut gfp = KINDS[usize::from(kind % 8)];
    // Now and then both, which is an error.
    if !gfp.contains(Gfp::MOVABLE) || kind >= 250 {
        gfp |= MOBILITY[usize::from(kind >> 3) % 4];
    }
    for (bits, flag) in
        [(0xe0, Gfp::THISNODE), (0x18, Gfp::NORETRY), (0x1c, Gfp::DMA32), (0x1e, Gfp::DMA), (0x07, Gfp::NOWARN)]
    {
        if extra & bits == bits {
            gfp |= flag;
        }
    }
    if extra & 0x43 == 0x42 { gfp | Gfp::ZERO } else { gfp }
}

fn misuse(byte: u8) -> Misuse {
    if byte.is_multiple_of(4) { Misuse::Split } else { Misuse::Free }
}

fn target(byte: u8, pick: u16, offset: u16) -> Target {
    match byte % 16 {
        0..=5 => Target::Block { pick, offset },
        6..=9 => Target::Free(pick),
        10..=11 => Target::Reserved(pick),
        12..=14 => Target::Anywhere(pick),
        _ => Target::Highest,
    }
}

fn exact(extent: u16, small: u8) -> u16 {
    if small < 224 { extent % 70 } else { extent % 5000 }
}

fn range(extent: u16, small: u8) -> u16 {
    match small {
        0..=159 => 1 + extent % 40,
        160..=239 => extent % 700,
        _ => extent % 9000,
    }
}

fn sizing(byte: u8, number: u16) -> PcpSizing {
    match byte % 6 {
        0 => PcpSizing::Scaled,
        1 => PcpSizing::Classic,
        2 => PcpSizing::Fraction(HighFraction::new(8 + u32::from(number)).unwrap_or(HighFraction::LARGEST_SHARE)),
        3 => PcpSizing::Fixed(u32::from(number % 32)),
        4 => PcpSizing::Fixed(u32::from(number)),
        _ => PcpSizing::Fixed(u32::MAX - u32::from(number)),
    }
}

fn options(number: u16, small: u8, flags: u8) -> WatermarkOptions {
    let min_free_kbytes = match small {
        0..=127 => None,
        128..=223 => Some(u64::from(number % 1024)),
        224..=250 => Some(u64::from(number) * 64),
        _ => Some(u64::MAX),
    };
    // 0 and values above 3000 are refused.
    let watermark_scale_factor = if flags & 3 == 0 { u32::from(number % 3100) } else { 10 };
    let huge_page_minimum = if flags & 4 == 0 { HugePageMinimum::default() } else { HugePageMinimum::Recommended };
    let movable_minimum = if flags & 8 == 0 { MovableMinimum::default() } else { MovableMinimum::Proportional };
    WatermarkOptions {
        min_free_kbytes,
        huge_page_minimum,
        watermark_scale_factor,
        movable_minimum,
        ..WatermarkOptions::default()
    }
}

fn view(byte: u8) -> View {
    if byte.is_multiple_of(2) { View::Creator } else { View::Attached }
}
