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
    /// Cycles that a kernel spends per page that a build's processes allocate, besides the page itself.
    ///
    /// Measured on Linux 6.18 as a guest on Zen 4 processors of 3.66 GHz, with gcc 12 on C files of 1000 to 24000 lines
    /// after preprocessing: 4.6 to 5.9 µs of system time per allocated page (`kmem:mm_page_alloc`), 18,800 cycles on
    /// average; less the 4,400 that simulated pages take alone, and rounded. Older kernels on bare metal probably need
    /// less.
    pub const KERNEL_WORK: u64 = 14_000;

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
        Self { pages: 1024, mappings: 8, compute: 74_000, kernel_work: Self::KERNEL_WORK }
    }
}
