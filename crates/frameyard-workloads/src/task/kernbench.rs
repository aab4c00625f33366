//! The loop of `kernbench`: one short process after the other, like the jobs of a build.

use std::num::NonZeroUsize;

use frameyard::{ByteSize, Platform};
use frameyard_vm::MemoryAccess;
use serde::{Deserialize, Serialize};

use crate::cpu_work::CpuWork;
use crate::mapping::{Pages, check_gone, map, pages_of};
use crate::report::{TaskProblem, TaskReport};
use crate::runtime::Runtime;
use crate::site::Site;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// One job: the process that each round of a task creates and exits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Pages that the process uses.
    pub pages: u32,
    /// Mappings that hold those pages.
    pub mappings: u32,
    /// Cycles that the program computes per page.
    pub compute: u64,
    /// Cycles per page that the kernel spends on the process besides the page itself.
    pub kernel_work: u64,
}

impl Job {
    /// Cycles that programs of a build compute per page that they allocate.
    ///
    /// Recorded with `trace record` on Linux 6.18, a guest on an Intel Xeon of 3.7 GHz: gcc 12 and the tools of a kernel's build
    /// on 137 C files, 20.46 µs of user time per page.
    pub const COMPUTE: u64 = 76_700;
    /// Cycles that a kernel spends per page that a build's processes allocate, besides the page itself.
    ///
    /// The same recording: 2.86 µs of system time per page, 10,700 cycles; less the 4,400 that simulated pages take alone. Recording
    /// takes a part of it.
    pub const KERNEL_WORK: u64 = 6300;
    /// Pages of a build's process, weighted by pages: the same recording. A compiler takes 12,700, most other processes less than 100.
    pub const PAGES: u32 = 9650;

    /// Memory that the process uses.
    pub fn memory(&self) -> ByteSize {
        ByteSize(u64::from(self.pages) * PAGE)
    }

    /// Runs jobs until told to stop. An iteration is one 4 KiB page used.
    pub(crate) fn run<P: Platform, R: Runtime>(&self, site: &Site<'_, '_, P, R>) -> Result<TaskReport, TaskProblem> {
        let begin = site.begin()?;
        let ByteSize(bytes) = self.memory();
        let (mut iterations, mut rounds, mut of_process) = (0, 0, site.runtime.first_round(bytes));
        while !site.is_over() {
            iterations += self.process(site, of_process)?;
            rounds += 1;
            site.runtime.round_ends(iterations);
            of_process = bytes;
        }
        Ok(site.runtime.report(begin, iterations, rounds))
    }

    /// Runs one process. Returns the pages that it used.
    fn process<P: Platform, R: Runtime>(&self, site: &Site<'_, '_, P, R>, bytes: u64) -> Result<u64, TaskProblem> {
        let space = site.vm.create_space()?;
        let piece = (bytes / PAGE).div_ceil(u64::from(self.mappings.max(1))).max(1) * PAGE;
        let (mut pages, mut left) = (0, bytes);
        while left > 0 && !site.is_over() {
            let range = map(&space, ByteSize(piece.min(left)), Pages::Small)?;
            for addr in pages_of(range) {
                if site.is_over() {
                    break;
                }
                space.touch(addr, MemoryAccess::Write)?;
                site.runtime.spend(CpuWork::KernelWork, self.kernel_work);
                site.runtime.spend(CpuWork::Compute, self.compute);
                pages += 1;
            }
            left -= piece.min(left);
        }
        check_gone(space.exit(NonZeroUsize::MIN))?;
        Ok(pages)
    }
}

impl Default for Job {
    fn default() -> Self {
        Self { pages: 1024, mappings: 8, compute: Self::COMPUTE, kernel_work: Self::KERNEL_WORK }
    }
}
