use frameyard::CpuId;

use super::*;

const PAGE: u64 = 4096;

/// A program's events, and what came of them.
#[derive(Default)]
struct Program {
    demand: Demand,
    events: Vec<TraceEvent>,
    time_us: u64,
}

impl Program {
    fn does(&mut self, task: u32, call: Call) {
        self.time_us += 1;
        let event = CallEvent { time_us: self.time_us, task, cpu: CpuId(1), call };
        self.demand.add(&event, &mut self.events);
    }

    fn write(&mut self, task: u32, page: u64) {
        self.does(task, Call::Fault { address: page * PAGE + 5, is_write: true });
    }

    fn mmap(&mut self, task: u32, pages: Range<u64>, flags: u64) {
        self.does(task, Call::Mmap { length: (pages.end - pages.start) * PAGE, protection: 3, flags });
        self.does(task, Call::Returned(pages.start * PAGE));
    }

    fn brk(&mut self, task: u32, end: u64) {
        self.does(task, Call::Brk);
        self.does(task, Call::Returned(end));
    }

    /// Allocations and frees so far.
    fn counts(&self) -> (usize, usize) {
        let of = |is: fn(&PageEvent) -> bool| self.events.iter().filter(|event| is(&event.what)).count();
        (of(|what| matches!(what, PageEvent::Alloc { .. })), of(|what| matches!(what, PageEvent::Free(_))))
    }
}

#[test]
fn the_first_write_to_a_page_takes_a_frame_and_unmapping_frees_it() {
    let mut program = Program::default();
    program.mmap(7, 100..110, MAP_PRIVATE | MAP_ANONYMOUS);
    program.does(7, Call::Fault { address: 100 * PAGE, is_write: false });
    assert_eq!(program.counts(), (0, 0), "a read maps the zero page");
    for page in [100, 100, 105, 109] {
        program.write(7, page);
    }
    assert_eq!(program.counts(), (3, 0));
    program.does(7, Call::Munmap { address: 105 * PAGE, length: 4 * PAGE + 1 });
    assert_eq!(program.counts(), (3, 2), "to the end of the last page");
    program.does(7, Call::Munmap { address: 100 * PAGE + 1, length: PAGE });
    assert_eq!(program.counts(), (3, 2), "a call that fails");
    program.write(7, 105);
    let frames = |what| match what {
        PageEvent::Alloc { pfn: Some(pfn), order: Order(0), migrate_type: MigrateType::Movable, .. } => Some(pfn.0),
        _ => None,
    };
    let frames: Vec<u64> = program.events.iter().filter_map(|event| frames(event.what)).collect();
    assert_eq!(frames, [1024, 1025, 1026, 1025], "the lowest free frame");
    assert_eq!((program.events[0].cpu, program.events[0].pid), (CpuId(1), 7));
}

#[test]
fn dropped_pages_can_be_touched_again() {
    let mut program = Program::default();
    let advise = |advice| Call::Madvise { address: 100 * PAGE, length: 4 * PAGE, advice };
    program.does(7, advise(MADV_POPULATE_WRITE));
    assert_eq!(program.counts(), (4, 0));
    program.does(7, advise(8));
    assert_eq!(program.counts(), (4, 0), "MADV_FREE keeps pages while memory suffices");
    program.does(7, advise(MADV_DONTNEED));
    program.write(7, 101);
    assert_eq!(program.counts(), (5, 4));
}

#[test]
fn a_new_mapping_replaces_pages_and_may_be_populated() {
    let mut program = Program::default();
    program.write(7, 100);
    program.mmap(7, 99..103, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE);
    assert_eq!(program.counts(), (5, 1));
    program.does(7, Call::Mmap { length: 9 * PAGE, protection: 3, flags: MAP_PRIVATE });
    program.does(7, Call::Returned((-12_i64).cast_unsigned()));
    assert_eq!(program.counts(), (5, 1), "a call that failed");
}

#[test]
fn shared_files_and_hugetlb_have_no_frames() {
    let mut program = Program::default();
    program.mmap(7, 100..110, 1);
    program.mmap(7, 200..210, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
    program.write(7, 105);
    program.write(7, 205);
    assert_eq!(program.counts(), (0, 0));
    program.does(7, Call::Munmap { address: 104 * PAGE, length: 2 * PAGE });
    for page in [103, 104, 105, 106] {
        program.write(7, page);
    }
    assert_eq!(program.counts(), (2, 0), "the rest of the file is still mapped");
}

#[test]
fn the_heap_shrinks_from_its_end() {
    let mut program = Program::default();
    program.brk(7, 100 * PAGE);
    program.brk(7, 110 * PAGE);
    (100..110).for_each(|page| program.write(7, page));
    program.brk(7, 104 * PAGE + 1);
    assert_eq!(program.counts(), (10, 5));
}

#[test]
fn moved_pages_keep_their_frames() {
    let mut program = Program::default();
    (100..110).for_each(|page| program.write(7, page));
    program.does(7, Call::Mremap { address: 100 * PAGE, old_length: 10 * PAGE, new_length: 6 * PAGE });
    program.does(7, Call::Returned(300 * PAGE));
    assert_eq!(program.counts(), (10, 4));
    program.write(7, 305);
    program.write(7, 100);
    assert_eq!(program.counts(), (11, 4));
}

#[test]
fn threads_share_pages_and_processes_do_not() {
    let mut program = Program::default();
    program.write(7, 100);
    program.does(7, Call::Clone { child: 8, flags: CLONE_VM });
    program.write(8, 100);
    assert_eq!(program.counts(), (1, 0), "a thread");
    program.does(7, Call::Clone { child: 9, flags: 0 });
    program.write(9, 100);
    assert_eq!(program.counts(), (2, 0), "a child writes to a copy");
    program.does(7, Call::Exit);
    assert_eq!(program.counts(), (2, 0), "a thread is left");
    program.does(8, Call::Exit);
    assert_eq!(program.counts(), (2, 1));
    program.does(9, Call::Exec);
    assert_eq!(program.counts(), (2, 2));
    program.write(9, 100);
    program.does(9, Call::Exit);
    assert_eq!(program.counts(), (3, 3));
}

#[test]
fn a_thread_whose_events_come_before_its_start_joins_its_process() {
    let mut program = Program::default();
    program.write(7, 100);
    program.write(8, 100);
    program.write(8, 101);
    program.does(7, Call::Clone { child: 8, flags: CLONE_VM });
    assert_eq!(program.counts(), (3, 1), "both wrote to one page");
    program.does(7, Call::Exit);
    program.does(8, Call::Exit);
    assert_eq!(program.counts(), (3, 3));
    program.does(8, Call::Lost(12));
    assert_eq!(program.events.last().unwrap().what, PageEvent::Lost(12));
}
