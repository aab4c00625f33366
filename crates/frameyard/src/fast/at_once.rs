//! The common case of an allocation and of a free, separated from everything else.
//!
//! [`Yard::alloc`] and [`Yard::free`] contain their fast paths and calls of slow ones. A slow path may panic, and its
//! error value is large. An interface that catches panics, or that must not return large errors, calls the methods of
//! [`YardAtOnce`] first. Each of them either does the whole job, on the list of the caller's CPU, or says what is left for
//! the caller to do. These methods make no calls, so their callers need not save registers.

use core::fmt;

use crate::gfp::Gfp;
use crate::lists::ListId;
use crate::platform::{Activity, Platform, Popped, Probe};
use crate::request::search::OFF_FAST_PATH;
use crate::units::{Order, PageCount, Pfn, ZoneId};
use crate::yard::{AllocError, FreeError, Yard, YardAtOnce};

/// How far [`YardAtOnce::alloc`] got.
#[derive(Debug)]
#[must_use = "an unfinished allocation must be finished"]
pub enum AllocAtOnce<'a, P: Platform> {
    /// The block is allocated.
    Done(Pfn),
    /// Nothing was done. Call [`Yard::alloc`].
    Nothing,
    /// A block has left its list, but is not marked allocated yet.
    Unfinished(UnfinishedAlloc<'a, P>),
}

/// How far [`YardAtOnce::free`] got.
#[derive(Debug)]
#[must_use = "an unfinished free must be finished"]
pub enum FreeAtOnce<'a, P: Platform> {
    /// The block is free.
    Done,
    /// Nothing was done. Call [`Yard::free`], which frees the block or returns the error.
    Nothing,
    /// The block is no longer allocated, but is not on a list yet.
    Unfinished(UnfinishedFree<'a, P>),
}

/// A block that has left its list, but is not marked allocated. Dropping this value loses the block; call
/// [`finish`](Self::finish).
///
/// The value fits in two registers: one for the yard, and one for the block's place, its order and the flags.
#[must_use = "the block is lost if the allocation is not finished"]
pub struct UnfinishedAlloc<'a, P: Platform> {
    yard: &'a Yard<P>,
    word: u64,
}

/// A block that is no longer allocated, but is not on a list. Dropping this value loses the block; call
/// [`finish`](Self::finish).
///
/// The value fits in two registers: one for the yard, and one for the block's place and order.
#[must_use = "the block is lost if the free is not finished"]
pub struct UnfinishedFree<'a, P: Platform> {
    yard: &'a Yard<P>,
    word: u64,
}

const ORDER_SHIFT: u32 = 32;
const FLAGS_SHIFT: u32 = 40;

const _: () = assert!(Gfp::from_bits_truncate(u32::MAX).bits() < 1 << (64 - FLAGS_SHIFT));

/// A place and an order in one word.
#[inline(always)]
fn pack(place: u32, order: Order) -> u64 {
    u64::from(place) | u64::from(order.0) << ORDER_SHIFT
}

fn order_in(word: u64) -> Order {
    Order((word >> ORDER_SHIFT) as u8)
}

impl<P: Platform> UnfinishedAlloc<'_, P> {
    /// Marks the block allocated. If the list turns out to be corrupt, allocates another block.
    ///
    /// # Errors
    ///
    /// As [`Yard::alloc`].
    pub fn finish(self) -> Result<Pfn, AllocError> {
        let (order, gfp) = (order_in(self.word), Gfp::from_bits_truncate((self.word >> FLAGS_SHIFT) as u32));
        let marked = gfp.migrate_type().and_then(|wanted| self.yard.mark_popped(self.word as u32, order, wanted));
        marked.map_or_else(|| self.yard.alloc(order, gfp), Ok)
    }
}

impl<P: Platform> UnfinishedFree<'_, P> {
    /// Puts the block on a list.
    ///
    /// # Errors
    ///
    /// [`FreeProblem::Lock`](crate::alloc::FreeProblem::Lock): the block may be lost.
    pub fn finish(self) -> Result<(), FreeError> {
        self.yard.free_block_at(self.word as u32 as usize, order_in(self.word))
    }
}

impl<'y, P: Platform> YardAtOnce<'y, P> {
    /// The common case of [`Yard::alloc`]: in a restartable sequence, takes a block from the list of the caller's CPU, if it
    /// is in the largest run of memory. Does nothing on a platform without sequences ([`Platform::has_sequences`]).
    ///
    /// Cost: as `Yard::alloc`.
    #[inline(always)]
    pub fn alloc(self, order: Order, gfp: Gfp) -> AllocAtOnce<'y, P> {
        let yard = self.yard;
        yard.alloc_from(order, gfp, |list| {
            let cpu = yard.platform.sequence_cpu()?;
            Some(yard.platform.pop_in_sequence(cpu, yard.home_lists(cpu, gfp)?.own_list(list)))
        })
    }

    /// As [`alloc`](Self::alloc), for platforms where CPUs lock their lists: takes a block from the list of the caller's
    /// CPU, if its lock is free. Does nothing on a platform with sequences.
    ///
    /// Cost: as `Yard::alloc`.
    #[inline(always)]
    pub fn alloc_locked(self, order: Order, gfp: Gfp) -> AllocAtOnce<'y, P> {
        let yard = self.yard;
        if yard.platform.has_sequences() {
            return AllocAtOnce::Nothing;
        }
        yard.alloc_from(order, gfp, |list| yard.pop_locked(list, gfp))
    }

    /// The common case of [`Yard::free`]: in a restartable sequence, frees a block in the largest run of memory onto the
    /// list of the caller's CPU. Does nothing on a platform without sequences ([`Platform::has_sequences`]).
    ///
    /// Cost: as `Yard::free`.
    #[inline(always)]
    pub fn free(self, pfn: Pfn, order: Order) -> FreeAtOnce<'y, P> {
        let yard = self.yard;
        yard.free_onto(pfn, order, |zone, list, place| {
            let cpu = yard.platform.sequence_cpu()?;
            let pcp = yard.tables.pcp_of(zone, cpu)?;
            yard.platform.push_in_sequence(cpu, pcp.own_list(list), place).then_some(())
        })
    }

    /// As [`free`](Self::free), for platforms where CPUs lock their lists: frees a block onto the list of the caller's CPU,
    /// if its lock is free. Does nothing on a platform with sequences.
    ///
    /// Cost: as `Yard::free`.
    #[inline(always)]
    pub fn free_locked(self, pfn: Pfn, order: Order) -> FreeAtOnce<'y, P> {
        let yard = self.yard;
        if yard.platform.has_sequences() {
            return FreeAtOnce::Nothing;
        }
        yard.free_onto(pfn, order, |zone, list, place| {
            let cpu = yard.platform.current_cpu();
            yard.tables.pcp_of(zone, cpu)?.try_lock_owner(&yard.platform, zone, cpu)?.push(list, place).then_some(())
        })
    }
}

impl<P: Platform> Yard<P> {
    /// Takes an entry of the caller's own list, if its lock is free. Not a closure, which would be a function of its own in its callers.
    #[inline(always)]
    fn pop_locked(&self, list: ListId, gfp: Gfp) -> Option<Popped> {
        let cpu = self.platform.current_cpu();
        let pcp = self.home_lists(cpu, gfp)?;
        Some(Popped::new(pcp.try_lock_owner(&self.platform, pcp.zone(), cpu)?.pop(list)?))
    }

    /// Allocates the block that `pop` takes from a list, if it is in the largest run of memory.
    #[inline(always)]
    fn alloc_from(&self, order: Order, gfp: Gfp, pop: impl FnOnce(ListId) -> Option<Popped>) -> AllocAtOnce<'_, P> {
        self.platform.probe().begin_activity(Activity::Alloc);
        let done = self.take_at_once(order, gfp, pop).unwrap_or(AllocAtOnce::Nothing);
        self.platform.probe().end_activity(Activity::Alloc, PageCount(0));
        done
    }

    #[inline(always)]
    fn take_at_once(
        &self,
        order: Order,
        gfp: Gfp,
        pop: impl FnOnce(ListId) -> Option<Popped>,
    ) -> Option<AllocAtOnce<'_, P>> {
        let migrate_type = gfp.migrate_type()?;
        let list = ListId::new(order, migrate_type, self.list_orders)?;
        if gfp.intersects(OFF_FAST_PATH) {
            return None;
        }
        let popped = pop(list)?;
        // One comparison: nothing has a place behind the end.
        let place = popped.place();
        if self.fast.largest.mark_allocated_at(&self.platform, place, order, migrate_type) {
            return Some(AllocAtOnce::Done(self.fast.largest_start + PageCount(place as u64)));
        }
        let word = pack(popped.entry()?, order) | u64::from(gfp.bits()) << FLAGS_SHIFT;
        Some(AllocAtOnce::Unfinished(UnfinishedAlloc { yard: self, word }))
    }

    /// Ends the allocation of a block of the largest run of memory, and has `push` put it on a list, if the list is all there is to it.
    /// Nothing if no such block is allocated there.
    #[inline(always)]
    fn free_onto(
        &self,
        pfn: Pfn,
        order: Order,
        push: impl FnOnce(ZoneId, ListId, u32) -> Option<()>,
    ) -> FreeAtOnce<'_, P> {
        self.platform.probe().begin_activity(Activity::Free);
        let place = pfn.0.wrapping_sub(self.fast.largest_start.0) as usize;
        let done = match self.fast.largest.clear_allocated_at(&self.platform, place, order) {
            None => FreeAtOnce::Nothing,
            Some(_) if self.put_at_once(place, order, push).is_some() => FreeAtOnce::Done,
            Some(_) => FreeAtOnce::Unfinished(UnfinishedFree { yard: self, word: pack(place as u32, order) }),
        };
        self.platform.probe().end_activity(Activity::Free, PageCount(0));
        done
    }

    #[inline(always)]
    fn put_at_once(
        &self,
        place: usize,
        order: Order,
        push: impl FnOnce(ZoneId, ListId, u32) -> Option<()>,
    ) -> Option<()> {
        self.fast.blocks.touch_at(&self.platform, place);
        let (list_type, zone) = self.fast.blocks.ordinary_at(place)?;
        push(zone, ListId::new(order, list_type, self.list_orders)?, place as u32)
    }
}

impl<P: Platform> fmt::Debug for UnfinishedAlloc<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnfinishedAlloc").field("place", &(self.word as u32)).finish_non_exhaustive()
    }
}

impl<P: Platform> fmt::Debug for UnfinishedFree<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnfinishedFree").field("place", &(self.word as u32)).finish_non_exhaustive()
    }
}
