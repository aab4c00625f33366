//! Many references at once, and pins: references that say that their owner works on the bytes, so the block must stay where
//! it is.
//!
//! After the kernel's `try_get_folio` and `gup_put_folio`. Counting equations, of a block whose owner lets it be pinned:
//!
//! - a single page: each pin is [`PIN_BIAS`] references (`GUP_PIN_COUNTING_BIAS`), so that one addition counts any number of
//!   them. As many references that are no pins look like one, hence [`maybe_pinned`](CountedPage::maybe_pinned);
//! - a block of an order above 0: each pin is one reference, and one of its counter, the second spare word (the kernel's
//!   `_pincount`). The counter changes while its references are there, so it is never more than those.
//!
//! Whatever the number, a single page takes one atomic operation, a larger block two on the same cache line.

use core::fmt;

use super::counted::{CountedPage, Counts, ReferenceUnderflow};
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{Order, Pfn};

/// How many references a pin of a single page is.
pub const PIN_BIAS: u32 = 1024;

/// The most references that are given out by number. As many more can be had one by one before the count of mappings were
/// reached, so those need no look at it.
const MOST_REFERENCES: u32 = i32::MAX as u32;

/// The spare word that counts the pins of a block of an order above 0.
const PINS: usize = 1;

/// More references or pins were asked for than a page can count. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReferenceOverflow {
    /// The frame.
    pub pfn: Pfn,
    /// Its users.
    pub counts: Counts,
}

impl fmt::Display for ReferenceOverflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { references, .. } = self.counts;
        write!(f, "{} has {references} references: no more than {MOST_REFERENCES} are counted", self.pfn)
    }
}

impl core::error::Error for ReferenceOverflow {}

/// How many references so many pins of a block of that order are; `None` beyond what can be counted.
#[inline(always)]
#[must_use]
pub const fn references_of_pins(order: Order, pins: u32) -> Option<u32> {
    if order.0 == 0 { pins.checked_mul(PIN_BIAS) } else { Some(pins) }
}

impl Counts {
    /// The same users and so many references more, unless that is beyond what can be counted.
    #[inline(always)]
    fn more(self, references: u32) -> Option<Self> {
        let references = self.references.checked_add(references).filter(|sum| *sum <= MOST_REFERENCES)?;
        Some(Self { references, ..self })
    }

    /// The references that are of no mapping.
    #[inline(always)]
    const fn unmapped(self) -> u32 {
        self.references.saturating_sub(self.mappings)
    }
}

impl<P: Platform> CountedPage<'_, P> {
    /// Gets `n` references where there is one already. Any initialised page may be asked; one without references is not
    /// written to. `false` also where there would be too many.
    #[inline(always)]
    #[must_use]
    pub fn try_get_many(&self, n: u32) -> bool {
        let more = |counts: Counts| if counts.references > 0 { counts.more(n) } else { None };
        // The count is read first, because an exchange on a read-only line faults even if it fails.
        // Acquire: pairs with the Release in `CountedPage::set_counts`.
        self.counts().references > 0 && self.change(Ordering::Acquire, more).is_ok()
    }

    /// Gets `n` further references; the caller has one, or keeps the one of an entry that maps the block from being put.
    ///
    /// # Errors
    ///
    /// [`ReferenceOverflow`]; nothing has changed then.
    #[inline(always)]
    pub fn get_many(&self, n: u32) -> Result<(), ReferenceOverflow> {
        let got = self.change(Ordering::Relaxed, |counts| counts.more(n));
        got.map(drop).map_err(|counts| ReferenceOverflow { pfn: self.pfn(), counts })
    }

    /// Puts `n` references; how many are left. At 0 the caller has the block alone, and is to free it.
    ///
    /// # Errors
    ///
    /// [`ReferenceUnderflow`] where there are fewer; nothing has changed then.
    #[inline(always)]
    pub fn put_many(&self, n: u32) -> Result<u32, ReferenceUnderflow> {
        self.give_back(|counts| Some(Counts { references: counts.references.checked_sub(n)?, ..counts }))
    }

    /// As [`put_many`](Self::put_many), of references that are of no mapping: for who cannot be sure that he has so many.
    ///
    /// # Errors
    ///
    /// [`ReferenceUnderflow`] where fewer than `n + kept` are of no mapping; nothing has changed then.
    #[inline(always)]
    pub fn put_unmapped(&self, n: u32, kept: u32) -> Result<u32, ReferenceUnderflow> {
        self.give_back(|counts| {
            let left = counts.unmapped().checked_sub(n).filter(|left| *left >= kept);
            left.map(|_| Counts { references: counts.references - n, ..counts })
        })
    }

    /// Pins `n` times; the caller has a reference, or keeps the one of an entry that maps the block from being put. Its
    /// owner lets it be pinned: else the second spare word may be something else.
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

    /// Counts references that the caller has got as `n` pins of a block of that order: for who got them before he could
    /// know whose block it is, and knows now.
    #[inline(always)]
    pub fn pins_were_got(&self, order: Order, n: u32) {
        if order > Order::ZERO {
            // Relaxed: what happens to the block is ordered by the references.
            self.spare_word(PINS).fetch_add(u64::from(n), Ordering::Relaxed);
        }
    }

    /// Puts `n` pins; how many references are left. At 0 the caller has the block alone, and is to free it. The caller has
    /// those pins, or a reference besides.
    ///
    /// # Errors
    ///
    /// [`ReferenceUnderflow`] where there are fewer; nothing has changed then.
    #[inline(always)]
    pub fn unpin_many(&self, n: u32) -> Result<u32, ReferenceUnderflow> {
        self.unpin_and_put(n, 0)
    }

    /// As [`unpin_many`](Self::unpin_many), with `more` references of the caller's that are no pins.
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
        let fewer = |pins: u64| pins.checked_sub(u64::from(n));
        // Relaxed: as when they were counted.
        pins.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).map_err(|_| underflow())?;
        self.put_unmapped(references, 0).inspect_err(|_| {
            pins.fetch_add(u64::from(n), Ordering::Relaxed);
        })
    }

    /// How many pins there seem to be, a moment ago: of a single page, how often [`PIN_BIAS`] goes into its references that
    /// are of no mapping. The caller has a reference, or the block is at rest; its owner lets it be pinned.
    #[inline(always)]
    #[must_use]
    pub fn pins(&self) -> u64 {
        match self.tag().order() {
            Order::ZERO => u64::from(self.counts().unmapped() / PIN_BIAS),
            _ => self.spare(PINS),
        }
    }

    /// Whether it may be pinned, a moment ago (`folio_maybe_dma_pinned`): certainly not where this is `false`. As
    /// [`pins`](Self::pins).
    #[inline(always)]
    #[must_use]
    pub fn maybe_pinned(&self) -> bool {
        self.pins() > 0
    }
}
