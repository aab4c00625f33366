//! Counting: each CPU counts what it takes and frees for itself ([`Total`](crate::store::bits::Total)).

use super::{CpuBits, DIRECT, State};
use crate::platform::{Access, Platform};
use crate::sync::Ordering;
use crate::units::{CpuId, Order, PageCount};
use crate::zone::view::ZoneView;

/// How far a CPU's count may be off before it is added to the zone's, at most.
const CHANGE: u64 = 256;

/// All CPUs together leave this part of a zone uncounted, at most.
const UNCOUNTED: u64 = 64;

/// A block taken, in [`CpuBits::direct`].
pub(super) const TAKEN: u64 = 1;

/// A block freed.
pub(super) const FREED: u64 = 1 << 32;

/// The blocks taken and freed in a word of [`CpuBits::direct`].
#[inline(always)]
const fn parts(word: u64) -> [u64; 2] {
    [word & (FREED - 1), word >> 32]
}

impl CpuBits {
    /// Frames freed less frames taken that are not in the zone's count.
    fn change(&self) -> u64 {
        let direct = self.direct.iter().zip(0..).map(|(word, order)| {
            let [taken, freed] = parts(word.load(Ordering::Relaxed));
            freed.wrapping_sub(taken) << order
        });
        direct.fold(self.change.load(Ordering::Relaxed), u64::wrapping_add)
    }
}

impl<P: Platform> ZoneView<'_, P> {
    /// Counts frames that became free, or with a wrapped number were taken.
    #[inline(always)]
    pub(super) fn count_bits(&self, cpu: CpuId, pages: u64) {
        let (Some(state), Some(of_cpu)) = (self.bits_of_zone(), self.bits_of_cpu(cpu)) else { return };
        self.touch_bits(&of_cpu.change, Access::ReadModifyWrite);
        let limit = of_cpu.limit.load(Ordering::Relaxed);
        if state.total.count(&of_cpu.change, pages, |change| change.wrapping_add(limit) > limit.wrapping_mul(2)) {
            self.add_change(of_cpu);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_change(&self, of_cpu: &CpuBits) {
        let Some(state) = self.bits_of_zone() else { return };
        of_cpu.limit.store(self.limit(), Ordering::Relaxed);
        self.touch_bits(state.total.frames(), Access::ReadModifyWrite);
        state.total.add(of_cpu.change.fetch_and(0, Ordering::Relaxed));
    }

    /// How far each count of a CPU may be off.
    fn limit(&self) -> u64 {
        (self.zone.managed().0 / (UNCOUNTED * (DIRECT as u64 + 1) * self.yard_cpus() as u64)).min(CHANGE)
    }

    /// The CPUs that the yard knows.
    pub(super) fn yard_cpus(&self) -> usize {
        (self.all_counters.0.len() / self.all_counters.1.max(1)).max(1)
    }

    /// Counts a block that was taken or freed without a list: [`TAKEN`] or [`FREED`].
    #[inline(always)]
    pub(super) fn count_direct(&self, cpu: CpuId, order: Order, what: u64) {
        let at = order.index();
        let of_cpu = self.bits_of_cpu(cpu).and_then(|cpu| Some((cpu, cpu.direct.get(at)?)));
        let (Some(state), Some((of_cpu, word))) = (self.bits_of_zone(), of_cpu) else { return };
        self.touch_bits(word, Access::ReadModifyWrite);
        let limit = of_cpu.limit.load(Ordering::Relaxed);
        let exceeds = |word| {
            let [taken, freed] = parts(word);
            taken.abs_diff(freed) << order.0 > limit || (taken | freed) >> 30 != 0
        };
        if state.total.count(word, what, exceeds) {
            self.add_direct(of_cpu, order);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_direct(&self, of_cpu: &CpuBits, order: Order) {
        let at = order.index();
        of_cpu.limit.store(self.limit(), Ordering::Relaxed);
        let [taken, freed] = parts(of_cpu.direct[at].fetch_and(0, Ordering::Relaxed));
        of_cpu.direct_sum[at][0].fetch_add(taken, Ordering::Relaxed);
        of_cpu.direct_sum[at][1].fetch_add(freed, Ordering::Relaxed);
        let Some(state) = self.bits_of_zone() else { return };
        self.touch_bits(state.total.frames(), Access::ReadModifyWrite);
        state.total.add(freed.wrapping_sub(taken) << order.0);
    }

    /// The free frames of the zone's lines, off by what CPUs have not added yet.
    pub(in crate::zone::transfer) fn bits_pages_racy(&self) -> PageCount {
        let pages = self.bits_of_zone().map_or(0, |state| state.total.frames_racy());
        PageCount(pages.cast_signed().max(0).cast_unsigned())
    }

    /// By how many frames [`bits_pages_racy`](Self::bits_pages_racy) may be off.
    pub(super) fn most_off(&self) -> u64 {
        (DIRECT as u64 + 1) * self.limit() * self.yard_cpus() as u64
    }

    /// Whether the free frames of the zone's lines are `enough`, which more frames are, too.
    ///
    /// Where the uncounted ones matter, adds up what all CPUs have counted, once.
    pub(in crate::zone::transfer) fn has_enough_bits(&self, enough: impl Fn(PageCount) -> bool) -> bool {
        let Some(state) = self.bits_of_zone() else { return false };
        let (racy, off) = (self.bits_pages_racy(), PageCount(self.most_off()));
        if state.total.is_exact(4 * off.0) {
            return enough(racy);
        }
        enough(PageCount(racy.0.saturating_sub(off.0)))
            || (enough(racy + off) && {
                self.count_exactly(state);
                enough(self.bits_pages_racy())
            })
    }

    /// From now on each CPU adds at once what it counts. Adds what CPUs have counted until now.
    #[cold]
    fn count_exactly(&self, state: &State) {
        state.total.make_exact();
        let cpus = self.tables.mechanisms.bits.cpus.iter().skip(self.id.index()).step_by(self.all_counters.1.max(1));
        for cpu in cpus {
            self.add_change(cpu);
            (0..DIRECT as u8).for_each(|order| self.add_direct(cpu, Order(order)));
        }
    }

    /// The free frames of the zone's lines. Adds up what all CPUs have counted.
    pub(in crate::zone::transfer) fn bits_pages(&self) -> PageCount {
        let zones = self.all_counters.1;
        let cpus = self.tables.mechanisms.bits.cpus.iter().skip(self.id.index()).step_by(zones.max(1));
        let changes = cpus.map(CpuBits::change).fold(0, u64::wrapping_add);
        let pages = self.bits_of_zone().map_or(0, |state| state.total.frames_racy()).wrapping_add(changes);
        PageCount(pages.cast_signed().max(0).cast_unsigned())
    }
}

/// The blocks that a CPU took and freed past its lists, with their order. Possibly stale.
pub(in crate::zone::transfer) fn direct_flow_racy<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
) -> impl Iterator<Item = (Order, [u64; 2])> {
    let orders = (0u8..).map(Order);
    view.bits_of_cpu(cpu)
        .into_iter()
        .flat_map(move |cpu| {
            cpu.direct.iter().zip(&cpu.direct_sum).map(|(word, sum)| {
                let [taken, freed] = parts(word.load(Ordering::Relaxed));
                [taken.wrapping_add(sum[0].load(Ordering::Relaxed)), freed.wrapping_add(sum[1].load(Ordering::Relaxed))]
            })
        })
        .zip(orders)
        .map(|(counts, order)| (order, counts))
}
