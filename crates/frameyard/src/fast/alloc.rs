//! Allocation: the fast path through the caller's per-CPU lists, and the slow path over the zonelist.
//!
//! The fast path takes a frame from the array of its CPU's list in a restartable sequence, or under the lists' lock
//! (one exchange). It touches three cache lines of the lists, and stores the frame's byte in the allocation map. It
//! does not check watermarks: to them, a frame on a per-CPU list has left the zone, so they are checked once per batch,
//! by the refill. (The kernel checks them on every allocation.)
//!
//! The slow path [searches](crate::request::search) the zones.

use crate::boot::{HeaderWord, PageChecks, Poisoning, home_slot};
use crate::gfp::Gfp;
use crate::lists::{CpuLists, ListId};
use crate::platform::{Activity, LockError, LockId, Platform, Popped, Probe};
use crate::request::search::{OFF_FAST_PATH, Request};
use crate::store::{self, page_check};
use crate::sync::Ordering;
use crate::transfer;
use crate::units::{CpuId, MigrateType, NodeId, Order, PageCount, Pfn, ZoneId, ZoneKind};
use crate::yard::{AllocError, Yard, ZoneShortage};
use crate::zone::{Effort, poison};

/// The most blocks with bad pages that a request meets before it gives up.
const MOST_BAD: u32 = 1 << 20;

impl<P: Platform> Yard<P> {
    /// Allocates a block of `2^order` frames, preferably from the node that the caller runs on.
    ///
    /// Orders above the yard's maximum are allowed up to [1 GiB](crate::Geometry::largest_order): such a request
    /// searches for an aligned place all of whose frames are free, in address order. The result is one block:
    /// [`free`](Self::free) frees it as a whole, and [`split_at`](Self::split_at) divides it.
    ///
    /// Modelled on the kernel's `alloc_pages`. In the common case this costs a restartable sequence
    /// ([`Platform::has_sequences`]) or a try of the CPU's own lock, and a store to the frame's byte in the allocation
    /// map. A refill takes the zone lock at most once per batch.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    #[inline(always)]
    pub fn alloc(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        self.platform.probe().begin_activity(Activity::Alloc);
        // Single frames get code of their own, in which the order is a constant.
        let pfn = if order == Order::ZERO { self.alloc_fast(Order::ZERO, gfp) } else { self.alloc_fast(order, gfp) };
        let pfn = match pfn {
            Some(pfn) => Ok(pfn),
            None => self.alloc_special(order, gfp),
        };
        self.platform.probe().end_activity(Activity::Alloc, PageCount(0));
        pfn
    }

    /// The home lists of a CPU for a request. `None` for a CPU that the yard does not know, and where all requests take slow paths.
    #[inline(always)]
    pub(crate) fn home_lists(&self, cpu: CpuId, gfp: Gfp) -> Option<CpuLists<'static>> {
        let home = self.fast.homes.get(home_slot(cpu, gfp))?.load(Ordering::Relaxed);
        self.tables.pcp_at(home as usize)
    }

    /// Takes a block from the array of the caller's home list, if there is nothing else to do.
    ///
    /// A CPU that the yard does not know falls off the table's end, and so to the slow path, which folds it in.
    #[inline(always)]
    fn alloc_fast(&self, order: Order, gfp: Gfp) -> Option<Pfn> {
        let migrate_type = gfp.migrate_type()?;
        let list = ListId::new(order, migrate_type, self.list_orders)?;
        if gfp.intersects(OFF_FAST_PATH) {
            return None;
        }
        let popped = if let Some(cpu) = self.platform.sequence_cpu() {
            self.platform.pop_in_sequence(cpu, self.home_lists(cpu, gfp)?.own_list(list))
        } else {
            let cpu = self.platform.current_cpu();
            let pcp = self.home_lists(cpu, gfp)?;
            Popped::new(pcp.try_lock(&self.platform, pcp.zone(), cpu)?.pop(list)?)
        };
        if !self.mark_in_largest_run(popped.place(), order, migrate_type) {
            return match order {
                Order::ZERO => self.mark_frame_in_other_run(popped, migrate_type),
                _ => self.mark_in_other_run(popped, order, migrate_type),
            };
        }
        Some(self.fast.largest_start + PageCount(popped.place() as u64))
    }

    /// Marks a block of the largest run of memory as allocated. `false` if the place is elsewhere, or no block of that order begins there.
    #[inline(always)]
    fn mark_in_largest_run(&self, place: usize, order: Order, migrate_type: MigrateType) -> bool {
        self.fast.largest.mark_allocated_at(&self.platform, place, order, migrate_type)
    }

    /// Marks a block as allocated that was popped from one of the caller's lists. `None` if the list is corrupt.
    #[cold]
    #[inline(never)]
    pub(crate) fn mark_popped(&self, place: u32, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        if self.mark_in_largest_run(place as usize, order, migrate_type) {
            return Some(self.fast.largest_start + PageCount(place.into()));
        }
        self.mark_outside(Popped::new(place), order, migrate_type)
    }

    #[cold]
    #[inline(never)]
    fn mark_in_other_run(&self, popped: Popped, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        self.mark_outside(popped, order, migrate_type)
    }

    /// As [`mark_in_other_run`](Self::mark_in_other_run). A constant order here and in `clear_frame_in_other_run` saves 17
    /// instructions per pair.
    #[cold]
    #[inline(never)]
    fn mark_frame_in_other_run(&self, popped: Popped, migrate_type: MigrateType) -> Option<Pfn> {
        self.mark_outside(popped, Order::ZERO, migrate_type)
    }

    /// Marks a block as allocated that lies in another run than the largest one. `None` if nothing was popped, or if a list of this CPU
    /// has an entry where no block begins.
    #[inline(always)]
    fn mark_outside(&self, popped: Popped, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        let index = popped.entry()?;
        let pfn = self.pfn_in_other_run(index);
        let mark = || self.allocation_map().mark_allocated_at(&self.platform, index as usize, order, migrate_type);
        if pfn.is_some() && mark() { pfn } else { self.note_corrupt_list() }
    }

    /// The frame at a place outside the largest run.
    #[inline(always)]
    fn pfn_in_other_run(&self, index: u32) -> Option<Pfn> {
        self.fast.other_runs.pfn(index).filter(|pfn| self.map.range().contains(*pfn))
    }

    /// Notes that a list of this CPU has an entry where no block begins.
    #[cold]
    #[inline(never)]
    fn note_corrupt_list(&self) -> Option<Pfn> {
        let cpu = self.cpu();
        self.platform.note_corrupt(LockId::PerCpu(ZoneId::new(self.node_of_cpu(cpu), ZoneKind::Normal), cpu));
        None
    }

    /// Marks a block allocated that the caller has taken off a list. `false` if no block of that order begins there: the list is
    /// corrupt.
    #[inline(always)]
    pub(crate) fn mark_allocated_at(&self, place: usize, order: Order, migrate_type: MigrateType) -> bool {
        self.allocation_map().mark_allocated_at(&self.platform, place, order, migrate_type)
    }

    /// Marks a block allocated that the caller has taken off a list.
    ///
    /// # Errors
    ///
    /// The damage of the yard if the list is corrupt: see [`mark_allocated_at`](Self::mark_allocated_at).
    pub(crate) fn mark_allocated(&self, pfn: Pfn, order: Order, migrate_type: MigrateType) -> Result<(), LockError> {
        if self.mark_allocated_at(self.map.place(pfn), order, migrate_type) {
            return Ok(());
        }
        let lock = LockId::Zone(self.zone_of(pfn).unwrap_or(ZoneId(0)));
        self.platform.note_corrupt(lock);
        Err(LockError::Corrupt { lock })
    }

    /// As [`alloc`](Self::alloc), preferring a node. Walks the zonelist at once, without a look at the home list.
    pub(crate) fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        if node.0 >= self.nodes() {
            return Err(AllocError::NoSuchNode(node));
        }
        self.alloc_good(order, || self.alloc_slow(node, self.cpu(), order, gfp, None))
    }

    /// Pops a block, by its place in the map, from one of the caller's lists. The caller marks it allocated.
    #[inline(always)]
    pub(crate) fn pop_held(&self, pcp: CpuLists<'_>, cpu: CpuId, list: ListId) -> Option<u32> {
        if self.platform.has_sequences() {
            return self.platform.pop_in_sequence(cpu, pcp.own_list(list)).entry();
        }
        pcp.try_lock(&self.platform, pcp.zone(), cpu)?.pop(list)
    }

    /// What the fast path leaves: zeroing, poisoning, checks, one node alone, empty arrays.
    #[cold]
    #[inline(never)]
    fn alloc_special(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        let cpu = self.cpu();
        self.alloc_good(order, || {
            let home = if gfp.contains(Gfp::THISNODE) { None } else { self.tables.home_pcps.get(home_slot(cpu, gfp)) };
            let home = home.map(|home| home.load(Ordering::Relaxed));
            if let Some(migrate_type) = gfp.migrate_type()
                && let Some(index) = home.and_then(|home| self.pop_home(home, cpu, (order, migrate_type), gfp))
            {
                return self.finish_allocation(self.map.pfn(index), order, migrate_type, gfp);
            }
            self.alloc_slow(self.tables.node_of_cpu(cpu.index()), cpu, order, gfp, home)
        })
    }

    /// Takes a block of the caller's home list, packed batches included. Fills an empty one without a search only from the nearest zone: a nearer
    /// one may have frames again.
    #[inline(always)]
    fn pop_home(&self, home: u32, cpu: CpuId, (order, migrate_type): (Order, MigrateType), gfp: Gfp) -> Option<u32> {
        let list = ListId::new(order, migrate_type, self.list_orders)?;
        let pcp = self.tables.pcp_at(home as usize)?;
        let view = self.zone_view(pcp.zone());
        let is_nearest = || self.zones_for(self.tables.node_of_cpu(cpu.index()), gfp).next() == Some(view.id);
        if pcp.is_list_empty_racy(list) && !(transfer::has_ready_racy(view, cpu, (order, migrate_type)) && is_nearest())
        {
            return None;
        }
        self.try_lock_lists_from(view, cpu)?.pop_slow(view, list, None)
    }

    /// Allocates a block on a slow path, and checks it if the yard checks page structures. Blocks with a bad page are out of use
    /// afterwards.
    #[inline(always)]
    pub(crate) fn alloc_good<A>(&self, order: Order, alloc: A) -> Result<Pfn, AllocError>
    where
        A: Fn() -> Result<Pfn, AllocError>,
    {
        // A block that does not pass is never allocated again, unless another process undoes that all the time.
        for _ in 0..MOST_BAD {
            let pfn = alloc()?;
            if self.passes_checks(pfn, order) {
                return Ok(pfn);
            }
        }
        Err(AllocError::Taken)
    }

    /// Whether no page of a block that was just allocated is bad, if the yard checks pages. Otherwise the block is out of use now.
    #[inline(always)]
    pub(crate) fn passes_checks(&self, pfn: Pfn, order: Order) -> bool {
        self.checks == PageChecks::None || self.is_good_or_retired(pfn, order)
    }

    /// Whether no page of a block that was just allocated is bad. Otherwise the block is out of use now.
    #[inline(never)]
    pub(crate) fn is_good_or_retired(&self, pfn: Pfn, order: Order) -> bool {
        let (view, block) = (self.zone_view(self.zone_of_block(pfn)), self.map.checked(self.map.index(pfn)));
        let Some(bad) = page_check::problem_of_block(view, block, order) else { return true };
        if order > self.geometry.max_order() {
            self.retire_parts(pfn, order);
            return false;
        }
        // A bad free may have taken the block meanwhile.
        if self.allocation_map().clear_allocated_at(&self.platform, self.map.place(pfn), order).is_some() {
            page_check::retire(view, block, order, bad);
        }
        false
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_slow(
        &self,
        node: NodeId,
        cpu: CpuId,
        order: Order,
        gfp: Gfp,
        home: Option<u32>,
    ) -> Result<Pfn, AllocError> {
        if order > self.geometry.max_order() {
            return self.alloc_large(node, order, gfp);
        }
        let migrate_type = gfp.migrate_type().ok_or(AllocError::BadFlags(gfp))?;
        self.refuse_damaged()?;
        let list = ListId::new(order, migrate_type, self.list_orders);
        let effort = Effort::of(gfp);
        let request = Request { order, gfp, migrate_type, node, cpu, home, list, effort: &effort };
        match self.search(request) {
            Some(pfn) => self.finish_allocation(pfn, order, migrate_type, gfp),
            None => {
                self.platform.lock_error().map_or(Ok(()), |error| Err(AllocError::Lock(error)))?;
                self.wake_compaction(self.zones_for(request.node, request.gfp), order, gfp.highest_zone());
                if !gfp.contains(Gfp::NOWARN) {
                    self.tables.count(HeaderWord::Failures);
                }
                Err(self.out_of_memory(order, gfp, node))
            }
        }
    }

    /// Refuses all requests in a yard that a dead process has damaged, also those that a fast path would serve. Forgets the
    /// error of an earlier call.
    pub(crate) fn refuse_damaged(&self) -> Result<(), AllocError> {
        let Some(error @ (LockError::OwnerDied { .. } | LockError::Corrupt { .. })) = self.platform.lock_error() else {
            return Ok(());
        };
        self.tables.home_pcps.iter().for_each(|home| home.store(u32::MAX, Ordering::Relaxed));
        Err(AllocError::Lock(error))
    }

    /// The error of a request that found no block, with facts about the zone that it tried first.
    #[cold]
    pub(crate) fn out_of_memory(&self, order: Order, gfp: Gfp, node: NodeId) -> AllocError {
        let mut zones = self.zones_for(node, gfp);
        let first = zones.next().unwrap_or(ZoneId::new(node, gfp.highest_zone()));
        let has_memory = |id: &ZoneId| self.tables.zones[id.index()].managed().0 > 0;
        let id = if has_memory(&first) { first } else { zones.find(has_memory).unwrap_or(first) };
        let zone = &self.tables.zones[id.index()];
        let page_shift = self.geometry.page_shift();
        let (as_bits, largest_as_bits) = store::free_as_bits_racy(self.zone_view(id));
        let free = zone.free_pages_racy() + as_bits;
        let largest = zone.largest_free_order_racy().max(largest_as_bits);
        AllocError::OutOfMemory { order, gfp, node, zone: ZoneShortage { id, free, largest, page_shift } }
    }

    /// Checks a block for damage, zeroes it if requested, and marks it allocated.
    pub(crate) fn finish_allocation(
        &self,
        pfn: Pfn,
        order: Order,
        migrate_type: MigrateType,
        gfp: Gfp,
    ) -> Result<Pfn, AllocError> {
        if self.poisoning == Poisoning::On
            && self.map.may_begin(self.map.index(pfn), order)
            // SAFETY: the block has left its list and is not allocated yet: it is the caller's.
            && let Some(damaged) = unsafe { poison::damaged(&self.platform, self.geometry, pfn, order) }
        {
            self.retire_damaged(pfn, order);
            return Err(AllocError::Poisoned { pfn: damaged, block: pfn, order });
        }
        // SAFETY: as above.
        let zeroed = !gfp.contains(Gfp::ZERO) || unsafe { poison::zero(&self.platform, self.geometry, pfn, order) };
        self.mark_allocated(pfn, order, migrate_type).map_err(AllocError::Lock)?;
        if zeroed {
            return Ok(pfn);
        }
        self.release(pfn, order);
        Err(AllocError::NoFrameBytes(pfn))
    }
}
