//! Subject views: the operations of a yard, grouped by subject.
//!
//! A view is a copyable borrow of a yard. Making one costs nothing.

use core::fmt;

use crate::platform::Platform;
use crate::units::ZoneId;
use crate::yard::Yard;

/// Declares views: copyable borrows of a yard, with at most one further field, and the methods of [`Yard`] that make them.
macro_rules! views {
    ($($(#[$doc:meta])* $name:ident $({ $field:ident: $type:ty })? $(#[$maker_doc:meta])* fn $maker:ident;)+) => {$(
        $(#[$doc])*
        pub struct $name<'y, P: Platform> {
            pub(crate) yard: &'y Yard<P>,
            $(pub(crate) $field: $type,)?
        }

        impl<P: Platform> Clone for $name<'_, P> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P: Platform> Copy for $name<'_, P> {}

        impl<P: Platform> fmt::Debug for $name<'_, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &self.$field))?.finish_non_exhaustive()
            }
        }

        impl<P: Platform> Yard<P> {
            $(#[$maker_doc])*
            #[inline(always)]
            pub fn $maker(&self $(, $field: $type)?) -> $name<'_, P> {
                $name { yard: self $(, $field)? }
            }
        }
    )+};
}

views! {
    /// One zone: its statistics, its lists, its locks ([`Yard::zone`]).
    ///
    /// All statistics are read without a lock. A value is recent, and values read together need not agree while other
    /// CPUs allocate. The methods state how many cache lines they read where it is more than a few of the zone's own.
    YardZone { id: ZoneId }
    /// The view of a zone. A zone that does not exist has a view, too: its methods return nothing or zero, except
    /// [`statistics`](YardZone::statistics), which panics.
    fn zone;

    /// Statistics of the whole yard, and of frames ([`Yard::stats`]). No method takes a lock.
    YardStats
    /// Statistics of the yard and its frames.
    fn stats;

    /// Compaction, and the requests of a background reclaimer ([`Yard::compaction`]).
    ///
    /// Compaction calls owners and holds no lock of the yard meanwhile. It takes the zone lock once for about 32 blocks
    /// that it takes, and once for those that it frees.
    YardCompaction
    /// Compaction.
    fn compaction;

    /// Device memory: page maps for ranges of frames beside memory ([`Yard::devices`]).
    ///
    /// Mapping and unmapping hold the lock of the device table while they change its entries. Look-ups take no lock.
    YardDevices
    /// Device memory.
    fn devices;

    /// Pools of huge pages ([`Yard::huge_pages`]).
    ///
    /// Each zone has a pool of each size, with a lock of its own. All processes of a shared yard use the same pools.
    YardHugePages
    /// Pools of huge pages whose page maps take little memory.
    fn huge_pages;

    /// Initialisation of deferred memory ([`Yard::init`]).
    ///
    /// Page structures are written without a lock. The zone lock is taken once for each section and zone, to free its
    /// blocks.
    YardInit
    /// Initialisation of deferred memory.
    fn init;

    /// Blocks whose owner counts their users ([`Yard::counted`]).
    ///
    /// The methods touch the block's byte in the allocation map and the page structure of its head. Freeing also takes
    /// the caller's per-CPU list.
    CountedBlocks
    /// Blocks whose owner counts their users.
    fn counted;

    /// The per-CPU lists of all zones ([`Yard::lists`]).
    YardLists
    /// The per-CPU lists.
    fn lists;

    /// The common case of an allocation and of a free, without calls of anything else ([`Yard::at_once`]).
    ///
    /// For interfaces that catch panics or must not return large errors, such as those for C. See [`AllocAtOnce`] and
    /// [`FreeAtOnce`].
    ///
    /// [`AllocAtOnce`]: crate::alloc::AllocAtOnce
    /// [`FreeAtOnce`]: crate::alloc::FreeAtOnce
    YardAtOnce
    /// The fast paths alone, for interfaces that catch panics. All others call [`alloc`](Self::alloc) and [`free`](Self::free).
    fn at_once;

    /// Contiguous memory areas: ranges fixed at creation, which movable allocations use until a request takes them
    /// ([`Yard::cma`]).
    ///
    /// [`AllocRequest::from_area`](crate::request::AllocRequest::from_area) allocates from an area.
    CmaAreas
    /// Contiguous memory areas.
    fn cma;
}
