//! Stands in for modules that are built at the same time.
use frameyard::{Block, CountedPage, MigrateMode, MigrateProblem, Pfn, Platform};

use crate::vm::Vm;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropProblem {
    Gone,
    Dirty,
    Busy,
}

impl<'y, P: Platform> Vm<'y, P> {
    pub(crate) fn migrate_anonymous(&self, _: Block, _: Pfn, _: MigrateMode) -> Result<(), MigrateProblem> {
        Err(MigrateProblem::Unmovable)
    }

    pub(crate) fn migrate_cache(&self, _: Block, _: Pfn, _: MigrateMode) -> Result<(), MigrateProblem> {
        Err(MigrateProblem::Unmovable)
    }

    pub(crate) fn drop_cache_page(&self, _: CountedPage<'y, P>) -> Result<(), DropProblem> {
        Err(DropProblem::Gone)
    }
}
