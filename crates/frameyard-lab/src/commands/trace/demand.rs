//! The demand of a program for pages, from the tracepoints of page faults and system calls.
//!
//! The first write to a page of a process is an allocation of order 0: of a synthetic frame, the lowest that is free. Reads get no frame:
//! the kernel maps its zero page, or a page of the page cache. The frame is freed when the page is unmapped, dropped with
//! `MADV_DONTNEED` or mapped anew, and when its process executes a program or ends.
//!
//! # Times
//!
//! | event | counts | because |
//! |---|---|---|
//! | `munmap`, `madvise` | when the call begins | another thread may map and touch the same addresses before it returns |
//! | `mmap`, `mremap`, `brk` | when it returns | the return value is the address |
//!
//! # What differs from the kernel
//!
//! A child has no frames after `fork`, and gets one for each page that it writes. The kernel also gives a page to a parent that writes to
//! what its child still shares; here the parent keeps its frame. Pages that only system calls write without a fault, as direct I/O does,
//! are missing. Shared mappings of files and mappings of hugetlb have no frames here.

mod calls;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::ops::Range;

use frameyard::{MigrateType, Order, Pfn};
use frameyard_traces::{GfpFlags, PageEvent, TraceEvent, TracedBlock};

pub(super) use calls::{Call, CallEvent};

/// Bytes of a page, as a shift.
const PAGE_SHIFT: u32 = 12;
/// The first synthetic frame. Frame 0 stands for a failed request in recordings.
const FIRST_FRAME: u64 = 1 << 10;

/// Flags and advice of the kernel's interface.
const MAP_TYPE: u64 = 3;
const MAP_PRIVATE: u64 = 2;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_LOCKED: u64 = 0x2000;
const MAP_POPULATE: u64 = 0x8000;
const MAP_HUGETLB: u64 = 0x4_0000;
const PROT_WRITE: u64 = 2;
const MADV_DONTNEED: u64 = 4;
const MADV_DONTNEED_LOCKED: u64 = 24;
const MADV_POPULATE_WRITE: u64 = 23;
const CLONE_VM: u64 = 0x100;

/// Processes and their pages.
#[derive(Debug)]
pub(super) struct Demand {
    /// The space of each task, by the task's number.
    space_of: HashMap<u32, u32>,
    spaces: HashMap<u32, Space>,
    next_space: u32,
    /// The arguments of a call that has not returned, by task.
    pending: HashMap<u32, Call>,
    frames: Frames,
    gfp: GfpFlags,
}

/// An address space.
#[derive(Debug, Default)]
struct Space {
    /// Tasks that run in it.
    tasks: u32,
    /// Pages that were written, and their frames.
    pages: BTreeMap<u64, Pfn>,
    /// Pages of mappings without frames here: first page and end.
    foreign: BTreeMap<u64, u64>,
    /// The end of the heap, as `brk` last returned it.
    heap_end: Option<u64>,
}

/// Synthetic frames.
#[derive(Debug, Default)]
struct Frames {
    free: BinaryHeap<Reverse<u64>>,
    used: u64,
}

impl Frames {
    fn take(&mut self) -> Pfn {
        let new = self.used;
        Pfn(FIRST_FRAME
            + self.free.pop().map_or_else(
                || {
                    self.used += 1;
                    new
                },
                |Reverse(frame)| frame,
            ))
    }

    fn give_back(&mut self, pfn: Pfn) {
        self.free.push(Reverse(pfn.0 - FIRST_FRAME));
    }
}

/// Where and when an event happened, and the events that come of it.
struct Out<'a> {
    event: &'a CallEvent,
    events: &'a mut Vec<TraceEvent>,
}

impl Out<'_> {
    fn push(&mut self, what: PageEvent) {
        let CallEvent { time_us, task, cpu, .. } = *self.event;
        self.events.push(TraceEvent { time_us, pid: task, cpu, what });
    }

    fn free(&mut self, pfn: Pfn, frames: &mut Frames) {
        self.push(PageEvent::Free(TracedBlock { pfn, order: Order(0) }));
        frames.give_back(pfn);
    }
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            space_of: HashMap::new(),
            spaces: HashMap::new(),
            next_space: 0,
            pending: HashMap::new(),
            frames: Frames::default(),
            gfp: GfpFlags::parse("GFP_HIGHUSER_MOVABLE|__GFP_ZERO"),
        }
    }
}

impl Demand {
    /// Adds the allocations and frees of an event.
    pub(super) fn add(&mut self, event: &CallEvent, events: &mut Vec<TraceEvent>) {
        let mut out = Out { event, events };
        let task = event.task;
        match event.call {
            Call::Lost(lost) => out.push(PageEvent::Lost(lost)),
            Call::Fault { address, is_write } if is_write => self.touch(task, address >> PAGE_SHIFT, &mut out),
            Call::Fault { .. } => {}
            Call::Munmap { address, length } => self.unmap(task, whole_pages(address, length), &mut out),
            Call::Madvise { address, length, advice } => match advice {
                MADV_DONTNEED | MADV_DONTNEED_LOCKED => self.drop_pages(task, &whole_pages(address, length), &mut out),
                MADV_POPULATE_WRITE => {
                    whole_pages(address, length).for_each(|page| self.touch(task, page, &mut out));
                }
                _ => {}
            },
            Call::Mmap { .. } | Call::Mremap { .. } | Call::Brk => drop(self.pending.insert(task, event.call)),
            Call::Returned(value) => self.returned(task, value, &mut out),
            Call::Clone { child, flags } => self.clone_task(task, child, flags, &mut out),
            Call::Exec => {
                self.leave(task, &mut out);
                self.enter(task);
            }
            Call::Exit => self.leave(task, &mut out),
        }
    }

    fn returned(&mut self, task: u32, value: u64, out: &mut Out<'_>) {
        let Some(call) = self.pending.remove(&task) else { return };
        // The last 4095 values are errors.
        if value > u64::MAX - 4095 {
            return;
        }
        match call {
            Call::Mmap { length, protection, flags } => {
                let pages = whole_pages(value, length);
                self.unmap(task, pages.clone(), out);
                let is_private = flags & MAP_TYPE == MAP_PRIVATE || flags & MAP_ANONYMOUS != 0;
                if !is_private || flags & MAP_HUGETLB != 0 {
                    self.space(task).foreign.insert(pages.start, pages.end);
                } else if flags & (MAP_POPULATE | MAP_LOCKED) != 0 && protection & PROT_WRITE != 0 {
                    pages.for_each(|page| self.touch(task, page, out));
                }
            }
            Call::Mremap { address, old_length, new_length } => {
                let (old, new) = (whole_pages(address, old_length), whole_pages(value, new_length));
                self.remap(task, &old, &new, out);
            }
            Call::Brk => {
                let before = self.space(task).heap_end.replace(value).unwrap_or(value);
                let [value, before] = [value, before].map(|end| end.div_ceil(1 << PAGE_SHIFT));
                self.drop_pages(task, &(value..before), out);
            }
            _ => {}
        }
    }

    /// The space of a task; a new one for a task from before the recording.
    fn space(&mut self, task: u32) -> &mut Space {
        let id = match self.space_of.get(&task) {
            Some(id) => *id,
            None => self.enter(task),
        };
        self.spaces.entry(id).or_default()
    }

    /// Gives a task a space of its own.
    fn enter(&mut self, task: u32) -> u32 {
        let id = self.next_space;
        self.next_space += 1;
        self.space_of.insert(task, id);
        self.spaces.insert(id, Space { tasks: 1, ..Space::default() });
        id
    }

    /// Ends a task's use of its space. The last one frees it.
    fn leave(&mut self, task: u32, out: &mut Out<'_>) {
        self.pending.remove(&task);
        let Some(id) = self.space_of.remove(&task) else { return };
        let Some(space) = self.spaces.get_mut(&id) else { return };
        space.tasks -= 1;
        if space.tasks == 0 {
            let pages = self.spaces.remove(&id).unwrap_or_default().pages;
            pages.into_values().for_each(|pfn| out.free(pfn, &mut self.frames));
        }
    }

    /// Starts a task: in the space of its parent, or in a copy without frames.
    fn clone_task(&mut self, parent: u32, child: u32, flags: u64, out: &mut Out<'_>) {
        // Events of the child may come first, from another CPU at the same time.
        let early = self.space_of.contains_key(&child);
        let (foreign, heap_end) = {
            let space = self.space(parent);
            (space.foreign.clone(), space.heap_end)
        };
        if flags & CLONE_VM == 0 {
            let space = self.space(child);
            (space.foreign, space.heap_end) = (foreign, heap_end);
            return;
        }
        let pages = if early { self.space(child).pages.clone() } else { BTreeMap::new() };
        if early {
            self.space(child).pages.clear();
            self.leave(child, out);
        }
        let id = self.space_of[&parent];
        self.space_of.insert(child, id);
        let space = self.space(parent);
        space.tasks += 1;
        let doubled: Vec<Pfn> = pages.into_iter().filter_map(|(page, pfn)| space.pages.insert(page, pfn)).collect();
        doubled.into_iter().for_each(|pfn| out.free(pfn, &mut self.frames));
    }

    fn touch(&mut self, task: u32, page: u64, out: &mut Out<'_>) {
        let space = self.space(task);
        let is_foreign = space.foreign.range(..=page).next_back().is_some_and(|(_, end)| page < *end);
        if is_foreign || space.pages.contains_key(&page) {
            return;
        }
        let pfn = self.frames.take();
        self.space(task).pages.insert(page, pfn);
        let (order, migrate_type) = (Order(0), MigrateType::Movable);
        out.push(PageEvent::Alloc { pfn: Some(pfn), order, migrate_type, gfp: self.gfp });
    }

    /// Frees the frames of pages that stay mapped.
    fn drop_pages(&mut self, task: u32, pages: &Range<u64>, out: &mut Out<'_>) {
        if pages.is_empty() {
            return;
        }
        let space = self.space(task);
        let gone: Vec<u64> = space.pages.range(pages.clone()).map(|(page, _)| *page).collect();
        let gone: Vec<Pfn> = gone.into_iter().filter_map(|page| space.pages.remove(&page)).collect();
        gone.into_iter().for_each(|pfn| out.free(pfn, &mut self.frames));
    }

    fn unmap(&mut self, task: u32, pages: Range<u64>, out: &mut Out<'_>) {
        self.drop_pages(task, &pages, out);
        cut(&mut self.space(task).foreign, pages);
    }

    /// Moves pages to other addresses, and frees those that have none there.
    fn remap(&mut self, task: u32, old: &Range<u64>, new: &Range<u64>, out: &mut Out<'_>) {
        let kept = old.start..old.end.min(old.start + (new.end - new.start));
        self.drop_pages(task, &(kept.end..old.end), out);
        if old.start == new.start {
            return;
        }
        self.unmap(task, new.clone(), out);
        let space = self.space(task);
        let moved: Vec<u64> = space.pages.range(kept).map(|(page, _)| *page).collect();
        for page in moved {
            if let Some(pfn) = space.pages.remove(&page) {
                space.pages.insert(page - old.start + new.start, pfn);
            }
        }
        let is_foreign = space.foreign.range(..=old.start).next_back().is_some_and(|(_, end)| old.start < *end);
        cut(&mut space.foreign, old.clone());
        if is_foreign {
            space.foreign.insert(new.start, new.end);
        }
    }
}

/// The pages of a mapping: to the end of the last page. None where the call fails for its arguments.
fn whole_pages(address: u64, length: u64) -> Range<u64> {
    let start = address >> PAGE_SHIFT;
    if address & ((1 << PAGE_SHIFT) - 1) != 0 {
        return start..start;
    }
    start..start.saturating_add(length.div_ceil(1 << PAGE_SHIFT))
}

/// Takes pages out of ranges that do not overlap.
fn cut(ranges: &mut BTreeMap<u64, u64>, pages: Range<u64>) {
    let hit: Vec<(u64, u64)> =
        ranges.range(..pages.end).filter(|(_, end)| **end > pages.start).map(|(start, end)| (*start, *end)).collect();
    for (start, end) in hit {
        ranges.remove(&start);
        if start < pages.start {
            ranges.insert(start, pages.start);
        }
        if end > pages.end {
            ranges.insert(pages.end, end);
        }
    }
}

#[cfg(test)]
mod tests;
