//! Getting and putting many references at once, and pins: references whose holder accesses the bytes, so that the block
//! must not move.
//!
//! Modelled on the kernel's `try_get_folio` and `gup_put_folio`. Counting equations for blocks whose owner allows pins:
//!
//! - A single page: each pin is [`PIN_BIAS`] references (`GUP_PIN_COUNTING_BIAS`), so one addition counts any number of pins.
//!   `PIN_BIAS` ordinary references look like a pin, hence [`maybe_pinned`](CountedPage::maybe_pinned).
//! - A block of an order above 0: each pin is one reference, and adds one to the second spare word (the kernel's
//!   `_pincount`). The word changes only while the references exist, so it never exceeds their number.
//!
//! Taking any number of pins costs one atomic operation on a single page, and two on the same cache line on a larger
//! block.

use crate::page::counted::{CountedPage, Counts, ReferenceUnderflow};
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{Order, Pfn, messages};

/// The number of references that one pin of a single page counts as.
pub const PIN_BIAS: u32 = 1024;

/// The most references of a page after a call that gets several. Single gets do not check: they could add as many again before the
/// count overflows into that of mappings.
const MOST_REFERENCES: u32 = i32::MAX as u32;

/// The spare word that counts the pins of a block of an order above 0.
const PINS: usize = 1;

/// More references or pins were requested than a page can count. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReferenceOverflow {
    /// The frame.
    pub pfn: Pfn,
    /// Its users.
    pub counts: Counts,
}

messages!(ReferenceOverflow {
    Self { pfn, counts: Counts { references, .. } } =>
        "{pfn} has {references} references: no more than {MOST_REFERENCES} are counted"
});

/// The number of references that `pins` pins of a block of that order count as; `None` if that is too many.
#[inline(always)]
#[must_use]
pub const fn references_of_pins(order: Order, pins: u32) -> Option<u32> {
    if order.0 == 0 { pins.checked_mul(PIN_BIAS) } else { Some(pins) }
}

impl Counts {
    /// The same users with more references; `None` if they cannot be counted.
    #[inline(always)]
    fn more(self, references: u32) -> Option<Self> {
        let references = self.references.checked_add(references).filter(|sum| *sum <= MOST_REFERENCES)?;
        Some(Self { references, ..self })
    }

    /// The references that belong to no mapping.
    #[inline(always)]
    const fn unmapped(self) -> u32 {
        self.references.saturating_sub(self.mappings)
    }
}

impl<P: Platform> CountedPage<'_, P> {
    /// Gets `n` references if there is at least one already. Works on any initialised page, and does not write to a
    /// page without references. Also returns `false` if there would be too many references.
    #[inline(always)]
    #[must_use]
    pub fn try_get_many(&self, n: u32) -> bool {
        let more = move |counts: Counts| if counts.references > 0 { counts.more(n) } else { None };
        // The count is read first, because an exchange on a read-only line faults even if it fails.
        // Acquire: pairs with the Release in `CountedPage::set_counts`.
        self.counts().references > 0 && self.change(Ordering::Acquire, more).is_ok()
    }

    /// Gets `n` more references. The caller has one already, or keeps a page-table entry that maps the block from being
    /// removed.
    ///
    /// # Errors
    ///
    /// [`ReferenceOverflow`]; nothing has changed then.
    #[inline(always)]
    pub fn get_many(&self, n: u32) -> Result<(), ReferenceOverflow> {
        let got = self.change(Ordering::Relaxed, move |counts| counts.more(n));
        got.map(drop).map_err(|counts| ReferenceOverflow { pfn: self.pfn(), counts })
    }

    /// Puts `n` references; returns the number left. At 0 the caller owns the block and must free it.
    ///
    /// # Errors
    ///
    /// [`ReferenceUnderflow`] where there are fewer; nothing has changed then.
    #[inline(always)]
    pub fn put_many(&self, n: u32) -> Result<u32, ReferenceUnderflow> {
        self.give_back(move |counts| Some(Counts { references: counts.references.checked_sub(n)?, ..counts }))
    }

    /// As [`put_many`](Self::put_many), for references that belong to no mapping. For callers that may have fewer than
    /// `n`.
    ///
    /// # Errors
    ///
    /// [`ReferenceUnderflow`] if fewer than `n + kept` belong to no mapping; nothing has changed then.
    #[inline(always)]
    pub fn put_unmapped(&self, n: u32, kept: u32) -> Result<u32, ReferenceUnderflow> {
        self.give_back(move |counts| {
            let left = counts.unmapped().checked_sub(n).filter(|left| *left >= kept);
            left.map(|_| Counts { references: counts.references - n, ..counts })
        })
    }

    /// Pins `n` times. The caller has a reference already, or keeps a page-table entry that maps the block from being
    /// removed. The block's owner must allow pins, because an owner that does not may use the second spare word for
    /// something else.
    ///
    /// # Errors
    ///
    /// [`ReferenceOverflow`]; nothing has changed then.
    #[inline(always)]
    pub fn try_pin_many(&self, n: u32) -> Result<(), ReferenceOverflow> {
        let overflow = || ReferenceOverflow { pfn: self.pfn(), counts: self.counts() };
        let order = self.tag().order();
        self.get_many(references_of_pins(order, n).ok_or_else(overflow)?)?;
        self.pins_were_got(order, n);
        Ok(())
    }

    /// Turns references that the caller has got already into `n` pins of a block of that order. For callers that have
    /// to get references before they can check the block's owner.
    #[inline(always)]
    pub fn pins_were_got(&self, order: Order, n: u32) {
        if order > Order::ZERO {
            // Relaxed: the references order accesses to the block.
            self.spare_word(PINS).fetch_add(u64::from(n), Ordering::Relaxed);
        }
    }

    /// Puts `n` pins; returns the number of references left. At 0 the caller owns the block and must free it. The
    /// caller has those pins, or another reference.
    ///
    /// # Errors
    ///
    /// [`ReferenceUnderflow`] where there are fewer; nothing has changed then.
    #[inline(always)]
    pub fn unpin_many(&self, n: u32) -> Result<u32, ReferenceUnderflow> {
        self.unpin_and_put(n, 0)
    }

    /// As [`unpin_many`](Self::unpin_many), and also puts `more` ordinary references of the caller.
    ///
    /// # Errors
    ///
    /// As there.
    #[inline(always)]
    pub fn unpin_and_put(&self, n: u32, more: u32) -> Result<u32, ReferenceUnderflow> {
        let underflow = || ReferenceUnderflow { pfn: self.pfn(), counts: self.counts() };
        let order = self.tag().order();
        let references = references_of_pins(order, n).and_then(|pins| pins.checked_add(more)).ok_or_else(underflow)?;
        if order == Order::ZERO {
            return self.put_unmapped(references, 0);
        }
        let pins = self.spare_word(PINS);
        // Relaxed, twice: as in `pins_were_got`. One subtraction, which is taken back if there are fewer: an exchange might fail for ever.
        if pins.fetch_sub(u64::from(n), Ordering::Relaxed) < u64::from(n) {
            pins.fetch_add(u64::from(n), Ordering::Relaxed);
            return Err(underflow());
        }
        self.put_unmapped(references, 0).inspect_err(|_| {
            pins.fetch_add(u64::from(n), Ordering::Relaxed);
        })
    }

    /// An estimate of the number of pins, possibly stale. For a single page, this is the number of references that
    /// belong to no mapping, divided by [`PIN_BIAS`]. The block's owner must allow pins, and the caller has a reference
    /// or the block is at rest.
    #[inline(always)]
    #[must_use]
    pub fn pins(&self) -> u64 {
        match self.tag().order() {
            Order::ZERO => u64::from(self.counts().unmapped() / PIN_BIAS),
            _ => self.spare(PINS),
        }
    }

    /// Whether the block may be pinned (`folio_maybe_dma_pinned`). If this returns `false`, the block was not pinned.
    /// The conditions are those of [`pins`](Self::pins).
    #[inline(always)]
    #[must_use]
    pub fn maybe_pinned(&self) -> bool {
        self.pins() > 0
    }
}
