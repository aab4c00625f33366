//! Counting: each CPU keeps its own count of the frames that it takes and frees
//! ([`Total`](crate::store::bits::bitmap::Total)).

use crate::platform::{Access, Platform};
use crate::store::bits::{CpuBits, State};
use crate::sync::Ordering;
use crate::units::{CpuId, Order, PageCount, ZoneKind};
use crate::zone::view::ZoneView;
use crate::zone::watermark::WatermarkLevel;

/// How far a CPU's count may be off before it is added to the zone's, at most.
const CHANGE: u64 = 2048;

/// All CPUs together leave this part of a zone uncounted, at most.
const UNCOUNTED: u64 = 16;

/// A block, in [`CpuBits::direct`].
const BLOCK: u64 = 1 << 32;

impl<P: Platform> ZoneView<'_, P> {
    /// Counts frames that became free, or with a wrapped number were taken.
    #[inline(always)]
    pub(crate) fn count_bits(&self, cpu: CpuId, pages: u64) {
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
        self.add_to_total(state, of_cpu.change.fetch_and(0, Ordering::Relaxed));
    }

    fn add_to_total(&self, state: &State, frames: u64) {
        self.touch_bits(state.total.frames(), Access::ReadModifyWrite);
        // All parts are added again only when that many frames have moved.
        state.total.add(frames, self.most_off());
        if !state.total.is_exact() && self.bits_pages_racy() < self.kept() + PageCount(self.most_off()) {
            self.count_exactly(state);
        }
    }

    /// The frames that no CPU takes without a look at the count: those below the watermarks, and those kept for requests that need this zone.
    pub(super) fn kept(&self) -> PageCount {
        self.zone.watermark(WatermarkLevel::High) + self.zone.protection(ZoneKind::Movable)
    }

    /// Whether a CPU may take frames of its line without a look at the count of all: it is not near the watermarks, and the count becomes exact
    /// before it is.
    #[inline(always)]
    pub(crate) fn may_take_own_racy(&self) -> bool {
        self.bits_of_zone().is_some_and(|state| !state.total.is_exact() || self.bits_pages_racy() >= self.kept())
    }

    /// Counts a block that was freed past the lists.
    #[inline(always)]
    pub(super) fn count_direct(&self, cpu: CpuId, order: Order) {
        let (Some(state), Some(of_cpu)) = (self.bits_of_zone(), self.bits_of_cpu(cpu)) else { return };
        self.touch_bits(&of_cpu.direct, Access::ReadModifyWrite);
        let limit = of_cpu.limit.load(Ordering::Relaxed);
        if state.total.count(&of_cpu.direct, BLOCK | order.pages().0, |direct| direct % BLOCK > limit) {
            self.add_direct(of_cpu);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_direct(&self, of_cpu: &CpuBits) {
        let Some(state) = self.bits_of_zone() else { return };
        of_cpu.limit.store(self.limit(), Ordering::Relaxed);
        let direct = of_cpu.direct.fetch_and(0, Ordering::Relaxed);
        of_cpu.direct_sum[0].fetch_add(direct % BLOCK, Ordering::Relaxed);
        of_cpu.direct_sum[1].fetch_add(direct / BLOCK, Ordering::Relaxed);
        self.add_to_total(state, direct % BLOCK);
    }

    /// How far each count of a CPU may be off.
    fn limit(&self) -> u64 {
        (self.zone.managed().0 / (2 * UNCOUNTED * self.yard_cpus() as u64)).min(CHANGE)
    }

    /// The CPUs that the yard knows.
    pub(super) fn yard_cpus(&self) -> usize {
        (self.all_counters.0.len() / self.all_counters.1.max(1)).max(1)
    }

    /// The free frames of the zone's lines, off by what CPUs have not added yet.
    pub(crate) fn bits_pages_racy(&self) -> PageCount {
        let pages = self.bits_of_zone().map_or(0, |state| state.total.frames_racy());
        PageCount(pages.cast_signed().max(0).cast_unsigned())
    }

    /// By how many frames [`bits_pages_racy`](Self::bits_pages_racy) may be off.
    pub(super) fn most_off(&self) -> u64 {
        2 * self.limit() * self.yard_cpus() as u64
    }

    /// Whether the free frames of the zone's lines are `enough`, which more frames are, too.
    ///
    /// Where the uncounted ones matter, adds up what all CPUs have counted, once.
    pub(in crate::store) fn has_enough_bits(&self, enough: impl Fn(PageCount) -> bool) -> bool {
        let Some(state) = self.bits_of_zone() else { return false };
        let (racy, off) = (self.bits_pages_racy(), PageCount(self.most_off()));
        if state.total.is_exact() {
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
            self.add_direct(cpu);
        }
    }

    /// The free frames of the zone's lines. Adds up what all CPUs have counted.
    pub(in crate::store) fn bits_pages(&self) -> PageCount {
        let zones = self.all_counters.1;
        let cpus = self.tables.mechanisms.bits.cpus.iter().skip(self.id.index()).step_by(zones.max(1));
        let change =
            |cpu: &CpuBits| cpu.change.load(Ordering::Relaxed).wrapping_add(cpu.direct.load(Ordering::Relaxed) % BLOCK);
        let changes = cpus.map(change).fold(0, u64::wrapping_add);
        let pages = self.bits_of_zone().map_or(0, |state| state.total.frames_racy()).wrapping_add(changes);
        PageCount(pages.cast_signed().max(0).cast_unsigned())
    }
}

/// The blocks freed past the lists of a CPU, and their frames. Possibly stale.
pub(in crate::store) fn direct_frees_racy<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId) -> [u64; 2] {
    let Some(of_cpu) = view.bits_of_cpu(cpu).filter(|_| view.keeps_bits()) else { return [0; 2] };
    let direct = of_cpu.direct.load(Ordering::Relaxed);
    let [pages, blocks] = of_cpu.direct_sum.each_ref().map(|sum| sum.load(Ordering::Relaxed));
    [blocks.wrapping_add(direct / BLOCK), pages.wrapping_add(direct % BLOCK)]
}
