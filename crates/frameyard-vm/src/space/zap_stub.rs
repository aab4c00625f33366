//! Until unmapping is there.
use super::*;
use crate::address::*;
use crate::area::Area;
use crate::error::VmError;
use core::num::NonZeroUsize;

#[derive(Default, Clone, Copy)]
pub(crate) struct Zapped {
    pub(crate) pages: u64,
    pub(crate) huge: u64,
}
impl<P: Platform> SpaceRef<'_, P> {
    pub(crate) fn zap(&self, _range: VirtRange) -> Zapped {
        Zapped::default()
    }
    pub(crate) fn free_tables(&self, _range: VirtRange, _floor: VirtAddr, _ceiling: VirtAddr) -> u64 {
        0
    }
    pub(crate) fn zap_parallel(&self, _workers: NonZeroUsize) -> Zapped {
        Zapped::default()
    }
    pub(crate) fn map_device(&self, _area: &Area) -> Result<(), VmError> {
        Ok(())
    }
}
