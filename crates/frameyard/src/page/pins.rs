//! Many references at once, and pins: references whose holder accesses the bytes, so the block must not move.
//!
//! After the kernel's `try_get_folio` and `gup_put_folio`. Counting equations, for blocks whose owner allows pins:
//!
//! - A single page: each pin is [`PIN_BIAS`] references (`GUP_PIN_COUNTING_BIAS`), so one addition counts any number of pins.
//!   `PIN_BIAS` ordinary references look like a pin, hence [`maybe_pinned`](CountedPage::maybe_pinned).
//! - A block of an order above 0: each pin is one reference and one count of the second spare word (the kernel's `_pincount`).
//!   The counter changes while the references exist, so it never exceeds them.
//!
//! Any number of pins costs one atomic operation on a single page, and two on the same cache line on a larger block.

use crate::page::counted::{CountedPage, Counts, ReferenceUnderflow};
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{Order, Pfn, messages};

/// References per pin of a single page.
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

/// The references of `pins` pins of a block of that order; `None` if they cannot be counted.
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
    /// Gets `n` references if there is one already. Works on any initialised page; a page without references is not written.
    /// Returns false also if there would be too many.
    #[inline(always)]
    #[must_use]
    pub fn try_get_many(&self, n: u32) -> bool {
        let more = move |counts: Counts| if counts.references > 0 { counts.more(n) } else { None };
        // The count is read first, because an exchange on a read-only line faults even if it fails.
        // Acquire: pairs with the Release in `CountedPage::set_counts`.
        self.counts().references > 0 && self.change(Ordering::Acquire, more).is_ok()
    }

    /// Gets `n` further references. The caller has one, or prevents the put of the one of an entry that maps the block.
    ///
    /// # Errors
    ///
    /// [`ReferenceOverflow`]; nothing has changed then.
    #[inline(always)]
    pub fn get_many(&self, n: u32) -> Result<(), ReferenceOverflow> {
        let got = self.change(Ordering::Relaxed, move |counts| counts.more(n));
        got.map(drop).map_err(|counts| ReferenceOverflow { pfn: self.pfn(), counts })
    }

    /// Puts `n` references; the number left. At 0 the caller owns the block and must free it.
    ///
    /// # Errors
    ///
    /// [`ReferenceUnderflow`] where there are fewer; nothing has changed then.
    #[inline(always)]
    pub fn put_many(&self, n: u32) -> Result<u32, ReferenceUnderflow> {
        self.give_back(move |counts| Some(Counts { references: counts.references.checked_sub(n)?, ..counts }))
    }

    /// As [`put_many`](Self::put_many), for references that belong to no mapping: for callers that may have fewer than `n`.
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

    /// Pins `n` times. The caller has a reference, or prevents the put of the one of an entry that maps the block. The
    /// block's owner must allow pins: the second spare word may have another use otherwise.
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

    /// Counts references that the caller has got as `n` pins of a block of that order. For callers that get references before
    /// they can check the block's owner.
    #[inline(always)]
    pub fn pins_were_got(&self, order: Order, n: u32) {
        if order > Order::ZERO {
            // Relaxed: the references order accesses to the block.
            self.spare_word(PINS).fetch_add(u64::from(n), Ordering::Relaxed);
        }
    }

    /// Puts `n` pins; the number of references left. At 0 the caller owns the block and must free it. The caller has those
    /// pins, or a further reference.
    ///
    /// # Errors
    ///
    /// [`ReferenceUnderflow`] where there are fewer; nothing has changed then.
    #[inline(always)]
    pub fn unpin_many(&self, n: u32) -> Result<u32, ReferenceUnderflow> {
        self.unpin_and_put(n, 0)
    }

    /// As [`unpin_many`](Self::unpin_many), and puts `more` ordinary references of the caller.
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

    /// An estimate of the pins, possibly stale. For a single page: its references that belong to no mapping, divided by
    /// [`PIN_BIAS`]. The caller has a reference, or the block is at rest; its owner allows pins.
    #[inline(always)]
    #[must_use]
    pub fn pins(&self) -> u64 {
        match self.tag().order() {
            Order::ZERO => u64::from(self.counts().unmapped() / PIN_BIAS),
            _ => self.spare(PINS),
        }
    }

    /// Whether the block may be pinned (`folio_maybe_dma_pinned`). If false, it was not. Otherwise as [`pins`](Self::pins).
    #[inline(always)]
    #[must_use]
    pub fn maybe_pinned(&self) -> bool {
        self.pins() > 0
    }
}
