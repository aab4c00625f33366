//! Accesses to lines: where each is found, what it costs, and which core has it afterwards.

use frameyard::platform::{Access, LineKind};
use frameyard::{PageCount, Pfn, PfnRange};

use super::speed::AccessKind;
use super::{Engine, STRETCH};
use crate::account::{Accessed, Cause, Spent};
use crate::cache::LINE_BYTES;
use crate::lines::{Found, FrameLine, PageLine, Use};
use crate::machine::Distance;
use crate::region::prefetch;
use crate::time::Picos;

impl Use {
    #[inline(always)]
    const fn of(access: Access) -> Self {
        match access {
            Access::Read | Access::ReadAhead | Access::Prefetch => Self::Read,
            Access::Write | Access::ReadModifyWrite => Self::Write,
        }
    }
}

/// The part of a line's use that must wait until all earlier CPUs have run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InOrder {
    /// Check again whether the CPU has the line of this number.
    Recheck(usize),
    /// Fetch the line of this number.
    Fetch(usize),
}

/// A line with a compact state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Compact {
    /// The page structure of a frame, by its index in the memory map.
    Page(usize),
    /// Entries of a page table of the lowest level, and their byte offset from the first frame.
    Entry(FrameLine, usize),
    /// Entries of the allocation map, by the index of their line in the control region.
    AllocationMap(usize),
}

impl Compact {
    #[inline(always)]
    const fn accessed(self) -> Accessed {
        match self {
            Self::Page(_) => Accessed::Pages,
            Self::Entry(..) => Accessed::Line(LineKind::PageTable),
            Self::AllocationMap(_) => Accessed::Line(LineKind::AllocationMap),
        }
    }

    const fn kind(self, access: Access) -> AccessKind {
        match self {
            Self::Page(_) | Self::Entry(..) => AccessKind::of_page(access),
            Self::AllocationMap(_) => AccessKind::of_line(access),
        }
    }

    /// The frame that contains the line or that the line describes; `None` for lines outside of frames.
    const fn frame(self) -> Option<PageCount> {
        match self {
            Self::Page(index) => Some(PageCount(index as u64)),
            Self::Entry(_, offset) => Some(PageCount((offset >> 12) as u64)),
            Self::AllocationMap(_) => None,
        }
    }
}

/// Whether a lock orders all uses of the line.
#[inline(always)]
const fn is_of_lock(accessed: Accessed) -> bool {
    matches!(accessed, Accessed::Line(LineKind::FreeLists | LineKind::PerCpuLists | LineKind::LruLists))
}

impl Engine {
    /// The running CPU uses the page structure of a frame.
    #[inline(always)]
    pub(crate) fn touch_page(&mut self, pfn: Pfn, access: Access) {
        let index = pfn.0.wrapping_sub(self.regions.frames.start.0) as usize;
        if self.context.recent_pages.has(index, Use::of(access)) {
            self.hit(Accessed::Pages, AccessKind::of_page(access));
        } else {
            self.touch_other_page(index, access);
        }
    }

    /// The running CPU reads the page structures of a block that it allocates, as far as the machine's kernel does.
    pub(crate) fn check_block(&mut self, block: PfnRange) {
        let checked = (block.count().0 as f64 * self.machine.kernel_overhead.block_checks) as u64;
        for index in 0..checked {
            self.touch_page(block.start + PageCount(index), Access::ReadAhead);
        }
    }

    /// [`touch_page`](Self::touch_page) for a page structure that the CPU has not just used.
    #[inline(never)]
    fn touch_other_page(&mut self, index: usize, access: Access) {
        let usage = Use::of(access);
        let Some(word) = self.pages.get_mut(index) else { return };
        // The line's state and the page structure lie in two places of the host's memory. The prefetch overlaps both
        // misses.
        prefetch(self.regions.map.wrapping_add(index * LINE_BYTES as usize));
        let line = PageLine(*word);
        self.context.recent_pages.note(index, usage);
        if line.is_at_hand(self.context.place.core, &self.context.private, usage) {
            *word = line.used(self.context.stamps, usage).0;
            self.hit(Accessed::Pages, AccessKind::of_page(access));
        } else {
            self.fetch_compact(Compact::Page(index), line, access);
        }
    }

    /// The running CPU uses an entry of a page table. Returns `false` for a line with full state.
    #[inline]
    pub(crate) fn touch_entry(&mut self, address: usize, access: Access) -> bool {
        let offset = address.wrapping_sub(self.regions.bytes.0);
        let (usage, kind) = (Use::of(access), AccessKind::of_page(access));
        let accessed = Accessed::Line(LineKind::PageTable);
        if self.is_recent(address, usage) {
            self.hit(accessed, kind);
        } else if offset < self.regions.bytes.1 {
            let at = self.frame_lines.at(offset);
            if self.frame_lines.number(at).is_some() {
                return false;
            }
            self.note_recent(address, usage);
            let line = self.frame_lines.compact(at);
            if line.is_at_hand(self.context.place.core, &self.context.private, usage) {
                self.frame_lines.set_compact(at, line.used(self.context.stamps, usage));
                self.hit(accessed, kind);
            } else {
                self.fetch_compact(Compact::Entry(at, offset), line, access);
            }
        }
        true
    }

    /// The running CPU uses an entry of the allocation map.
    #[inline]
    pub(crate) fn touch_allocation_map(&mut self, address: usize, access: Access) {
        let (usage, kind) = (Use::of(access), AccessKind::of_line(access));
        let accessed = Accessed::Line(LineKind::AllocationMap);
        if self.is_recent(address, usage) {
            return self.hit(accessed, kind);
        }
        let index = address.wrapping_sub(self.regions.control.0) / LINE_BYTES as usize;
        let Some(word) = self.allocation_map.get_mut(index) else { return };
        let line = PageLine(*word);
        self.context.recent_lines.note(address / LINE_BYTES as usize, usage);
        if line.is_at_hand(self.context.place.core, &self.context.private, usage) {
            *word = line.used(self.context.stamps, usage).0;
            self.hit(accessed, kind);
        } else {
            self.fetch_compact(Compact::AllocationMap(index), line, access);
        }
    }

    /// The running CPU hits a line in its private cache.
    #[inline(always)]
    fn hit(&mut self, accessed: Accessed, kind: AccessKind) {
        self.charge(Spent::Access(accessed, Cause::PrivateHit).slot(), self.context.hits[kind as usize]);
    }

    #[inline(always)]
    fn is_recent(&self, address: usize, usage: Use) -> bool {
        self.context.recent_lines.has(address / LINE_BYTES as usize, usage)
    }

    #[inline(always)]
    fn note_recent(&mut self, address: usize, usage: Use) {
        self.context.recent_lines.note(address / LINE_BYTES as usize, usage);
    }

    /// The running CPU uses a line with full state. Returns the part that must wait for earlier CPUs, if another CPU
    /// could observe the order.
    #[inline(always)]
    pub(crate) fn use_line(&mut self, address: usize, accessed: Accessed, access: Access) -> Option<InOrder> {
        let is_exchange = access == Access::ReadModifyWrite;
        // The line's state says whether other cores exchange it.
        if !is_exchange && self.is_recent(address, Use::of(access)) {
            self.hit(accessed, AccessKind::of_line(access));
            return None;
        }
        let line = self.line_at(address)?;
        if is_exchange && self.is_wanted(line) && self.is_ahead() {
            // Another core may exchange the line before this CPU's time.
            return Some(InOrder::Recheck(line));
        }
        if self.use_at_hand(line, address, accessed, access) {
            return None;
        }
        if !is_of_lock(accessed) {
            return Some(InOrder::Fetch(line));
        }
        self.fetch_line(line, accessed, access);
        None
    }

    #[inline(always)]
    fn set_compact(&mut self, at: Compact, state: PageLine) {
        match at {
            Compact::Page(index) => self.pages[index] = state.0,
            Compact::Entry(line, _) => self.frame_lines.set_compact(line, state),
            Compact::AllocationMap(index) => self.allocation_map[index] = state.0,
        }
    }

    /// The running CPU fetches a line with a compact state.
    #[inline(never)]
    fn fetch_compact(&mut self, at: Compact, line: PageLine, access: Access) {
        let me = self.context.place;
        let holder = self.places[usize::from(line.core())];
        let distance = me.distance(holder);
        let holder_has = line.is_known() && self.privates[usize::from(holder.core)].has(line.private_stamp());
        let group_has = line.is_known() && self.groups[usize::from(holder.group)].has(line.group_stamp());
        let is_in_group = distance <= Distance::Group;
        let (now, mut wait) = (self.now(), Picos(0));
        let cause = if distance == Distance::Same && holder_has {
            Cause::Upgrade
        } else if (holder_has || group_has) && line.is_dirty() && (holder_has || !is_in_group) {
            Self::transfer(distance)
        } else if (holder_has || group_has) && is_in_group {
            Cause::SharedHit
        } else {
            let home = self.home_of(at);
            // A dirty line that no cache has any more was written back earlier.
            let is_gone = line.is_dirty() && !holder_has && !group_has;
            wait = self.channels[home].move_lines(now, 1 + u64::from(is_gone));
            if home == usize::from(me.socket) { Cause::LocalMemory } else { Cause::RemoteMemory }
        };
        let served = if cause == Cause::Upgrade {
            Self::transfer(me.distance(self.places[usize::from(line.other())]))
        } else {
            self.fill(1, u64::from(!(is_in_group && group_has)));
            cause
        };
        let is_next = cause != Cause::Upgrade && self.is_next(at, me.core);
        let kind = at.kind(access);
        let kind = if is_next && kind == AccessKind::Blocking { AccessKind::Ahead } else { kind };
        let usage = Use::of(access);
        let stays = usage == Use::Read && distance != Distance::Same && (holder_has || group_has);
        let stays_dirty = line.is_dirty() && (holder_has || group_has);
        let usage = if stays_dirty { Use::Write } else { usage };
        let state = PageLine::held(me.core, stays.then_some(holder.core), usage, self.context.stamps);
        self.set_compact(at, state);
        let cost = self.speeds.get(self.context.speed).cost(kind, served);
        self.charge(Spent::Access(at.accessed(), cause).slot(), cost);
        if wait > Picos(0) {
            self.charge(Spent::Access(at.accessed(), Cause::Bandwidth).slot(), wait);
        }
    }

    /// The node whose memory holds the line: the frame's node, or the running CPU's.
    fn home_of(&self, at: Compact) -> usize {
        match at.frame() {
            Some(frame) => self.node_of(self.regions.frames.start + frame),
            None => self.context.place.socket.into(),
        }
    }

    /// Whether a page structure follows the one that the core missed last: hardware prefetches it.
    fn is_next(&mut self, at: Compact, core: u16) -> bool {
        let Compact::Page(index) = at else { return false };
        let last = std::mem::replace(&mut self.last_fetched[usize::from(core)], index);
        index.abs_diff(last) == 1
    }

    /// The number of the line at an address of the control region or of frames' bytes.
    #[inline(always)]
    pub(crate) fn line_at(&mut self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.regions.control.0);
        if offset < self.regions.control.1 {
            let first = &mut self.control_lines[offset / STRETCH];
            if *first == 0 {
                *first = self.lines.add(STRETCH / LINE_BYTES as usize) as u32 + 1;
            }
            return Some(*first as usize - 1 + offset % STRETCH / LINE_BYTES as usize);
        }
        let offset = address.wrapping_sub(self.regions.bytes.0);
        (offset < self.regions.bytes.1).then(|| self.line_in_frame(offset))
    }

    fn line_in_frame(&mut self, offset: usize) -> usize {
        let line = self.frame_lines.at(offset);
        match self.frame_lines.number(line) {
            Some(number) => number,
            None => {
                let number = self.lines.add(1);
                self.frame_lines.set_number(line, number);
                number
            }
        }
    }

    /// Whether other cores exchanged the line lately, so that one may want it before the running CPU's time.
    #[inline(always)]
    pub(crate) fn is_wanted(&mut self, line: usize) -> bool {
        let state = self.lines.state(line);
        state.wanted = state.wanted.saturating_sub(1);
        state.wanted > 0
    }

    /// Uses a line that the core has in the required state, which no other CPU can observe. Returns whether the core
    /// has it.
    #[inline(always)]
    pub(crate) fn use_at_hand(&mut self, line: usize, address: usize, accessed: Accessed, access: Access) -> bool {
        let usage = Use::of(access);
        let is_at_hand =
            self.lines.use_at_hand(line, self.context.place, &self.context.private, self.context.stamps, usage);
        if is_at_hand {
            self.note_recent(address, usage);
            self.hit(accessed, AccessKind::of_line(access));
        }
        is_at_hand
    }

    /// Uses a line wherever it is. All earlier CPUs have run.
    pub(crate) fn fetch_line(&mut self, line: usize, accessed: Accessed, access: Access) {
        let queued = self.lines.state(line).busy.0.saturating_sub(self.now().0);
        if queued > 0 {
            self.charge(Spent::Access(accessed, Cause::LineQueue).slot(), Picos(queued));
        }
        let me = self.context.place;
        let usage = Use::of(access);
        let found = self.lines.find(line, me, &self.privates, &self.groups, &self.places);
        let to = |core: u16| Self::transfer(me.distance(self.places[usize::from(core)]));
        let (cause, served) = match (found, usage) {
            (Found::Alone, _) | (Found::Beside(_), Use::Read) => (Cause::PrivateHit, Cause::PrivateHit),
            (Found::Beside(other), Use::Write) => (Cause::Upgrade, to(other)),
            (Found::Dirty(core) | Found::InOther(core), _) => (to(core), to(core)),
            (Found::InGroup, Use::Read) => (Cause::SharedHit, Cause::SharedHit),
            (Found::InGroup, Use::Write) => {
                // The group's cache has the line; every other holder must give it up.
                let farthest = self.lines.farthest(line, me, &self.privates, &self.places);
                let cause = farthest.map_or(Cause::SharedHit, to);
                (cause, cause)
            }
            (Found::Nowhere, _) => (Cause::LocalMemory, Cause::LocalMemory),
        };
        let (now, mut wait) = (self.now(), Picos(0));
        if found == Found::Nowhere {
            let lines = 1 + u64::from(self.lines.state(line).dirty);
            wait = self.channels[usize::from(me.socket)].move_lines(now, lines);
        }
        if !matches!(found, Found::Alone | Found::Beside(_)) {
            self.fill(1, u64::from(matches!(found, Found::InOther(_) | Found::Nowhere)));
        }
        self.lines.take(line, me, self.context.stamps, usage);
        let cost = self.speeds.get(self.context.speed).cost(AccessKind::of_line(access), served);
        self.charge(Spent::Access(accessed, cause).slot(), cost);
        if wait > Picos(0) {
            self.charge(Spent::Access(accessed, Cause::Bandwidth).slot(), wait);
        }
        if cause != Cause::PrivateHit {
            self.lines.state(line).busy = self.now();
        }
    }
}
