//! The first task of `order0-thp`: fills memory with small pages and frees them, which fragments it.

use frameyard::{ByteSize, Platform};
use frameyard_vm::MemoryAccess;
use serde::{Deserialize, Serialize};

use crate::mapping::{Pages, map, pages_of};
use crate::report::{TaskProblem, TaskReport};
use crate::runtime::Runtime;
use crate::site::Site;

/// What a task fills and frees.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fragment {
    /// Bytes.
    pub(crate) bytes: u64,
}

impl Fragment {
    /// Fills its share and waits until all tasks have filled theirs. The pages go with the space.
    pub(crate) fn run<P: Platform, R: Runtime>(&self, site: &Site<'_, '_, P, R>) -> Result<TaskReport, TaskProblem> {
        let space = site.space()?;
        let range = map(&space, ByteSize(self.bytes), Pages::Small)?;
        let mut iterations = 0;
        for addr in pages_of(range) {
            space.touch(addr, MemoryAccess::Write)?;
            iterations += 1;
        }
        site.begin()?;
        Ok(TaskReport { iterations, ..TaskReport::default() })
    }
}
