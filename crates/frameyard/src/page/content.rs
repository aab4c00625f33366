//! The content of a fresh page structure.

use crate::page::PAYLOAD_WORDS;
use crate::units::{ZoneId, named};

/// The content of a fresh page structure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MapContent {
    /// Zero: node and zone come from the section, and all counts begin at zero.
    #[default]
    Zero,
    /// As in the kernel: every page structure contains its node, zone and section, and its counts do not all begin at
    /// zero.
    Kernel,
}

impl MapContent {
    /// The words, in memory order, of a fresh page in a section and zone.
    #[must_use]
    pub fn words(self, section: u64, zone: ZoneId) -> [u64; 8] {
        PageTemplate::of(self, section, Some(zone)).in_memory()
    }
}

impl MapContent {
    /// The word of counts without references and mappings.
    #[inline(always)]
    pub(crate) const fn no_users(self) -> u64 {
        match self {
            Self::Zero => 0,
            Self::Kernel => NO_MAPPINGS,
        }
    }
}

/// A map count as the kernel keeps it begins at -1.
const NO_MAPPINGS: u64 = (u32::MAX as u64) << 32;

named!(MapContent: Zero => "zero", Kernel => "kernel");

/// 8-byte words of a page.
pub(crate) const WORDS: usize = 2 + PAYLOAD_WORDS;
/// The word that names zone and section of a page of kernel-like content.
///
/// Both non-zero words are in the first half of the line. On an AMD EPYC of the Zen 4 family, streaming stores write 56 GB/s of
/// lines whose second half is zero, and 28 GB/s of other lines.
pub(crate) const IDENTITY: usize = WORDS - PAYLOAD_WORDS + super::IDENTITY;
/// The word that holds the counts of a page of kernel-like content.
pub(crate) const COUNTS: usize = WORDS - PAYLOAD_WORDS + super::COUNTS;

/// The eight words of a fresh page; constant over a range of frames.
///
/// Word 0 is the tag. Word 1 holds `next` in its low half and `prev` in its high half. The rest is the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageTemplate(pub(crate) [u64; WORDS]);

impl PageTemplate {
    /// A zero page.
    pub(crate) const ZERO: Self = Self([0; WORDS]);

    /// The fresh page of a frame in that section and zone; a hole has no zone.
    ///
    /// Kernel content is what `__init_single_page` writes: zone, node and section from the page's flags, and counts. It is
    /// equal for all free frames of a range. A section number is cut to its low 32 bits.
    pub(crate) fn of(content: MapContent, section: u64, zone: Option<ZoneId>) -> Self {
        let mut words = [0; WORDS];
        match content {
            MapContent::Zero => {}
            MapContent::Kernel => {
                words[IDENTITY] = zone.map_or(0, |zone| u64::from(zone.0) + 1) | section << 32;
                words[COUNTS] = NO_MAPPINGS;
            }
        }
        Self(words)
    }

    /// The words in memory order: the two links are words of 4 bytes.
    pub(crate) fn in_memory(self) -> [u64; WORDS] {
        let mut words = self.0;
        if cfg!(target_endian = "big") {
            words[1] = words[1].rotate_left(32);
        }
        words
    }

    /// The words behind tag and links.
    #[inline]
    pub(crate) fn payload(self) -> [u64; PAYLOAD_WORDS] {
        core::array::from_fn(|word| self.0[WORDS - PAYLOAD_WORDS + word])
    }

    /// The words that are not zero, one bit each.
    pub(crate) fn used(self) -> u8 {
        self.0.iter().rev().fold(0, |mask, word| mask << 1 | u8::from(*word != 0))
    }
}
