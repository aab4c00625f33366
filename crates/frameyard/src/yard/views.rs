//! Subject views: the operations of a yard, grouped by subject.
//!
//! A view is a copyable borrow of a yard. Making one costs nothing.

use core::fmt;

use super::Yard;
use crate::platform::Platform;
use crate::units::ZoneId;

/// Declares a view: a copyable borrow of a yard, with further copyable fields.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* }) => {
        $(#[$doc])*
        pub struct $name<'y, P: Platform> {
            pub(super) yard: &'y Yard<P>,
            $(pub(super) $field: $type,)*
        }

        impl<P: Platform> Clone for $name<'_, P> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P: Platform> Copy for $name<'_, P> {}

        impl<P: Platform> fmt::Debug for $name<'_, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    };
}

view! {
    /// One zone: its statistics, its lists, its locks ([`Yard::zone`]).
    ///
    /// All statistics are read without a lock. A value is recent, and values read together need not agree while other CPUs
    /// allocate. The methods state how many cache lines they read where it is more than a few of the zone's own.
    YardZone { id: ZoneId }
}

view! {
    /// Statistics of the whole yard, and of frames ([`Yard::stats`]). No method takes a lock.
    YardStats {}
}

view! {
    /// Compaction, and the wishes of a background reclaimer ([`Yard::compaction`]).
    ///
    /// Compaction calls owners and holds no lock of the yard meanwhile. It takes the zone lock once for about 32 blocks that
    /// it takes, and once for those that it frees.
    YardCompaction {}
}

view! {
    /// Device memory: page maps for ranges of frames beside memory ([`YardDevices::list`](crate::views::YardDevices::list)).
    ///
    /// Mapping and unmapping hold the lock of the device table while they change its rows. Look-ups take no lock.
    YardDevices {}
}

view! {
    /// Initialisation of deferred memory ([`Yard::init`]).
    ///
    /// Page structures are written without a lock. The zone lock is taken once for each section and zone, to free its blocks.
    YardInit {}
}

view! {
    /// Blocks whose owner counts their users ([`Yard::counted`]).
    ///
    /// The methods touch the block's byte in the allocation map and the page structure of its head. Freeing also takes the
    /// caller's per-CPU list.
    CountedBlocks {}
}

view! {
    /// The per-CPU lists of all zones ([`Yard::lists`]).
    YardLists {}
}

view! {
    /// Contiguous memory areas: ranges fixed at creation, which movable allocations use until a request takes them
    /// ([`Yard::cma`]).
    ///
    /// [`AllocRequest::from_area`](super::AllocRequest::from_area) allocates from an area.
    CmaAreas {}
}

impl<P: Platform> Yard<P> {
    /// The view of a zone. A zone that does not exist has a view, too: its methods return nothing or zero, except
    /// [`statistics`](YardZone::statistics), [`lock_telemetry`](YardZone::lock_telemetry) and
    /// [`transfers`](YardZone::transfers), which panic.
    #[inline]
    pub fn zone(&self, id: ZoneId) -> YardZone<'_, P> {
        YardZone { yard: self, id }
    }

    /// Statistics of the yard and its frames.
    #[inline]
    pub fn stats(&self) -> YardStats<'_, P> {
        YardStats { yard: self }
    }

    /// Compaction.
    #[inline]
    pub fn compaction(&self) -> YardCompaction<'_, P> {
        YardCompaction { yard: self }
    }

    /// Device memory.
    #[inline]
    pub fn devices(&self) -> YardDevices<'_, P> {
        YardDevices { yard: self }
    }

    /// Initialisation of deferred memory.
    #[inline]
    pub fn init(&self) -> YardInit<'_, P> {
        YardInit { yard: self }
    }

    /// Blocks whose owner counts their users.
    #[inline(always)]
    pub fn counted(&self) -> CountedBlocks<'_, P> {
        CountedBlocks { yard: self }
    }

    /// The per-CPU lists.
    #[inline]
    pub fn lists(&self) -> YardLists<'_, P> {
        YardLists { yard: self }
    }

    /// Contiguous memory areas.
    #[inline]
    pub fn cma(&self) -> CmaAreas<'_, P> {
        CmaAreas { yard: self }
    }
}
