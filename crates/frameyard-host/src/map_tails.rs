//! The part of a memory map for ordinary memory: tails of huge pages whose structures lose their memory.
//!
//! In a private yard the host's zero page appears in place of the structures, and a write gets new memory. In a memory file the
//! pages become a hole. A file has no zero page: a read of a tail there takes memory again. Only a look-up by the number of a tail
//! and the validator read tails.
//!
//! The host may have backed the map with transparent huge pages. A part of one would stay in memory until the host is short of it, and
//! the host's `khugepaged` would fill it up again. So the advice for huge pages ends around the tails, and a huge page there is split.

use frameyard::ByteSize;
use frameyard::platform::HugePageTails;

use crate::memory::HUGE_ALIGN;
use crate::sys::mapping::{Advice, Piece, Sharing};
use crate::sys::window::{MapWindow, Rounding};

/// A window on the whole memory map of a yard.
#[derive(Debug)]
pub(crate) struct MapTails {
    window: MapWindow,
    sharing: Sharing,
}

impl MapTails {
    pub(crate) fn new(window: MapWindow, sharing: Sharing) -> Self {
        Self { window, sharing }
    }

    /// Returns the memory behind the structures of tails to the host; how much it was at most.
    pub(crate) fn release(&self, tails: &HugePageTails) -> ByteSize {
        let Some(piece) = self.window.piece(tails.address(), tails.bytes(), Rounding::In) else { return ByteSize(0) };
        if self.sharing == Sharing::Private {
            // Without the advice, and on a kernel that cannot split, less memory is returned.
            let _ = self.window.advise(self.huge_pages_around(piece), Advice::NoHugePages);
            let _ = self.window.advise(piece, Advice::Split);
        }
        match self.window.discard(piece, self.sharing) {
            Ok(()) => ByteSize(piece.len as u64),
            Err(_) => ByteSize(0),
        }
    }

    /// A piece extended to whole huge pages of the host. Large pieces keep the host's mappings few.
    fn huge_pages_around(&self, piece: Piece) -> Piece {
        let (base, whole) = (self.window.base().addr().get(), self.window.whole());
        let huge = HUGE_ALIGN as usize;
        let start = ((base + piece.offset) / huge * huge).max(base) - base;
        let end = ((base + piece.end()).next_multiple_of(huge) - base).min(whole.end());
        Piece { offset: start, len: end - start }
    }
}
