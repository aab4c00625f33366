//! Stands in for a module that is built at the same time.
use frameyard::{Block, MigrateMode, MigrateProblem, Pfn, Platform};

use crate::vm::Vm;

impl<P: Platform> Vm<'_, P> {
    pub(crate) fn migrate_anonymous(&self, _: Block, _: Pfn, _: MigrateMode) -> Result<(), MigrateProblem> {
        Err(MigrateProblem::Unmovable)
    }
}
