//! The loop of `page-fault`: map, touch every page, unmap.

use frameyard::{ByteSize, Platform};
use frameyard_vm::MemoryAccess;
use serde::{Deserialize, Serialize};

use crate::mapping::{Pages, map, pages_of};
use crate::report::{TaskProblem, TaskReport};
use crate::runtime::Runtime;
use crate::site::Site;

/// The loop of one task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Loop {
    /// Bytes mapped at a time.
    pub(crate) bytes: u64,
    /// The page size.
    pub(crate) pages: Pages,
}

impl Loop {
    /// Runs until told to stop. An iteration is one 4 KiB page touched.
    pub(crate) fn run<P: Platform, R: Runtime>(&self, site: &Site<'_, '_, P, R>) -> Result<TaskReport, TaskProblem> {
        let space = site.space()?;
        let begin = site.begin()?;
        let (mut iterations, mut rounds, mut bytes) = (0, 0, site.runtime.first_round(self.bytes));
        while !site.is_over() {
            let range = map(&space, ByteSize(bytes), self.pages)?;
            for addr in pages_of(range) {
                if site.is_over() {
                    break;
                }
                space.touch(addr, MemoryAccess::Write)?;
                iterations += 1;
            }
            space.unmap(range)?;
            rounds += 1;
            site.runtime.round_ends(iterations);
            bytes = self.bytes;
        }
        Ok(site.runtime.report(begin, iterations, rounds))
    }
}
