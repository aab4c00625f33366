//! The task of `parallel-free`: fills memory that then goes with its address space.

use std::num::NonZeroUsize;

use frameyard::{ByteSize, Platform};
use frameyard_vm::MemoryAccess;
use serde::{Deserialize, Serialize};

use crate::mapping::{Pages, check_gone, map, pages_of};
use crate::report::{TaskProblem, TaskReport};
use crate::runtime::Runtime;
use crate::site::{Site, TaskSpace};

/// What a task fills.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fill {
    /// Bytes.
    pub(crate) bytes: u64,
    /// The page size.
    pub(crate) pages: Pages,
}

impl Fill {
    /// Fills the common space and returns; or fills a space of its own and exits it when work begins.
    pub(crate) fn run<P: Platform, R: Runtime>(&self, site: &Site<'_, '_, P, R>) -> Result<TaskReport, TaskProblem> {
        let space = site.space()?;
        let range = map(&space, ByteSize(self.bytes), self.pages)?;
        let mut iterations = 0;
        for addr in pages_of(range) {
            space.touch(addr, MemoryAccess::Write)?;
            iterations += 1;
        }
        let TaskSpace::Own(space) = space else {
            return Ok(TaskReport { iterations, ..TaskReport::default() });
        };
        let begin = site.begin()?;
        let outcome = space.exit(NonZeroUsize::MIN);
        let elapsed_ns = site.runtime.elapsed_ns(begin);
        check_gone(outcome)?;
        Ok(TaskReport { iterations, elapsed_ns, ..TaskReport::default() })
    }
}
