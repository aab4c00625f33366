//! The loop of `page-fault`: map, touch every page, unmap.

use frameyard::{ByteSize, Pfn, Platform};
use frameyard_vm::{MemoryAccess, VirtAddr};
use serde::{Deserialize, Serialize};

use crate::mapping::{Pages, map, pages_of};
use crate::report::{TaskProblem, TaskReport};
use crate::runtime::Runtime;
use crate::site::Site;
use crate::task::reuse::FreedFrames;

/// The size of a huge page.
const HUGE_PAGE: ByteSize = ByteSize::mib(2);

/// The loop of one task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Loop {
    /// Bytes mapped at a time.
    pub(crate) bytes: u64,
    /// The page size.
    pub(crate) pages: Pages,
    /// What the task records about its faults.
    pub(crate) frames: Frames,
}

/// What a task records about its faults. Which frames they get takes a look-up of every page and slows the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Frames {
    /// It does not look.
    #[default]
    Ignored,
    /// It does not look, and times the faults that want a huge page.
    HugeTimed,
    /// It counts those that it freed shortly before ([`Reuse`](crate::report::Reuse)).
    Recorded,
}

impl Loop {
    /// Runs until told to stop, for one iteration at least, as a processor may come late. An iteration is one 4 KiB page touched.
    pub(crate) fn run<P: Platform, R: Runtime>(&self, site: &Site<'_, '_, P, R>) -> Result<TaskReport, TaskProblem> {
        let space = site.space()?;
        let mut record = (self.frames == Frames::Recorded).then(Record::default);
        let mut huge_ns = Vec::new();
        let begin = site.begin()?;
        let (mut iterations, mut rounds, mut bytes) = (0, 0, site.runtime.first_round(self.bytes));
        while iterations == 0 || !site.is_over() {
            let range = map(&space, ByteSize(bytes), self.pages)?;
            for addr in pages_of(range) {
                if iterations > 0 && site.is_over() {
                    break;
                }
                let timed = self.is_timed(addr).then(|| site.runtime.now());
                space.touch(addr, MemoryAccess::Write)?;
                huge_ns.extend(timed.map(|since| site.runtime.elapsed_ns(since)));
                iterations += 1;
                if let Some(record) = &mut record {
                    record.mapped(space.translate(addr).map(|found| found.pfn));
                }
            }
            space.unmap(range)?;
            if let Some(record) = &mut record {
                record.unmapped();
            }
            rounds += 1;
            site.runtime.round_ends(iterations);
            bytes = self.bytes;
        }
        let reuse = record.map(|record| record.freed.reuse()).unwrap_or_default();
        Ok(TaskReport { reuse, huge_ns, ..site.runtime.report(begin, iterations, rounds) })
    }
}

impl Loop {
    /// Whether the task times the first touch of this page: the fault that wants a huge page.
    #[inline(always)]
    fn is_timed(&self, addr: VirtAddr) -> bool {
        self.frames == Frames::HugeTimed && self.pages == Pages::Huge && addr.0.is_multiple_of(HUGE_PAGE.0)
    }
}

/// The frames of the present mapping in the order of their faults, and those of earlier ones.
#[derive(Debug, Default)]
struct Record {
    mapped: Vec<Pfn>,
    freed: FreedFrames,
}

impl Record {
    /// A fault mapped this frame.
    fn mapped(&mut self, frame: Option<Pfn>) {
        let Some(pfn) = frame else { return };
        self.freed.got(pfn);
        self.mapped.push(pfn);
    }

    /// The mapping is gone. An unmap frees pages by their addresses.
    fn unmapped(&mut self) {
        self.mapped.drain(..).for_each(|pfn| self.freed.freed(pfn));
    }
}
