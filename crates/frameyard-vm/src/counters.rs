//! Event counters per CPU, under the names of /proc/vmstat.

/// An event counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum VmCounter {
    /// Page faults.
    Pgfault,
    /// Pages moved to an active list.
    Pgactivate,
    /// Pages moved to an inactive list.
    Pgdeactivate,
    /// Pages that ageing took from active lists.
    Pgrefill,
    /// Pages scanned by background reclaim.
    PgscanKswapd,
    /// Pages scanned by direct reclaim.
    PgscanDirect,
    /// Pages of spaces scanned by either kind of reclaim, which ages and keeps them.
    PgscanAnon,
    /// Pages of files scanned by either kind of reclaim.
    PgscanFile,
    /// Pages dropped by background reclaim.
    PgstealKswapd,
    /// Pages dropped by direct reclaim.
    PgstealDirect,
    /// Starts of direct reclaim.
    Allocstall,
    /// Starts of background reclaim of a node.
    Pageoutrun,
    /// Pages that reclaim kept because they were dirty.
    ReclaimDirty,
    /// Pages that reclaim kept because they were anonymous and have no backing store.
    ReclaimAnonymous,
    /// Pages that reclaim kept because they were in use or pinned.
    ReclaimBusy,
    /// Pages that were migrated.
    PgmigrateSuccess,
    /// Pages whose migration failed.
    PgmigrateFail,
    /// Huge pages mapped by a fault.
    ThpFaultAlloc,
    /// Faults that wanted a huge page and mapped a small one.
    ThpFaultFallback,
    /// Huge mappings split into small ones.
    ThpSplitPmd,
    /// Huge pages split into small ones.
    ThpSplitPage,
    /// Huge pages that could not be split.
    ThpSplitPageFailed,
    /// Pages added to the page cache.
    PgcacheAdd,
    /// Page cache hits.
    PgcacheHit,
    /// Page cache misses.
    PgcacheMiss,
    /// Pages read ahead.
    PgcacheReadahead,
    /// Pages written back.
    Pgwriteback,
    /// Waits of faults for a migration.
    MigrationWait,
}

impl VmCounter {
    /// The number of counters.
    pub const COUNT: usize = Self::ALL.len();

    /// All counters, by number.
    pub const ALL: [Self; 28] = [
        Self::Pgfault,
        Self::Pgactivate,
        Self::Pgdeactivate,
        Self::Pgrefill,
        Self::PgscanKswapd,
        Self::PgscanDirect,
        Self::PgscanAnon,
        Self::PgscanFile,
        Self::PgstealKswapd,
        Self::PgstealDirect,
        Self::Allocstall,
        Self::Pageoutrun,
        Self::ReclaimDirty,
        Self::ReclaimAnonymous,
        Self::ReclaimBusy,
        Self::PgmigrateSuccess,
        Self::PgmigrateFail,
        Self::ThpFaultAlloc,
        Self::ThpFaultFallback,
        Self::ThpSplitPmd,
        Self::ThpSplitPage,
        Self::ThpSplitPageFailed,
        Self::PgcacheAdd,
        Self::PgcacheHit,
        Self::PgcacheMiss,
        Self::PgcacheReadahead,
        Self::Pgwriteback,
        Self::MigrationWait,
    ];

    /// The name in /proc/vmstat, or a name in the same style if the kernel has no such counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pgfault => "pgfault",
            Self::Pgactivate => "pgactivate",
            Self::Pgdeactivate => "pgdeactivate",
            Self::Pgrefill => "pgrefill",
            Self::PgscanKswapd => "pgscan_kswapd",
            Self::PgscanDirect => "pgscan_direct",
            Self::PgscanAnon => "pgscan_anon",
            Self::PgscanFile => "pgscan_file",
            Self::PgstealKswapd => "pgsteal_kswapd",
            Self::PgstealDirect => "pgsteal_direct",
            Self::Allocstall => "allocstall",
            Self::Pageoutrun => "pageoutrun",
            Self::ReclaimDirty => "reclaim_dirty",
            Self::ReclaimAnonymous => "reclaim_anonymous",
            Self::ReclaimBusy => "reclaim_busy",
            Self::PgmigrateSuccess => "pgmigrate_success",
            Self::PgmigrateFail => "pgmigrate_fail",
            Self::ThpFaultAlloc => "thp_fault_alloc",
            Self::ThpFaultFallback => "thp_fault_fallback",
            Self::ThpSplitPmd => "thp_split_pmd",
            Self::ThpSplitPage => "thp_split_page",
            Self::ThpSplitPageFailed => "thp_split_page_failed",
            Self::PgcacheAdd => "pgcache_add",
            Self::PgcacheHit => "pgcache_hit",
            Self::PgcacheMiss => "pgcache_miss",
            Self::PgcacheReadahead => "pgcache_readahead",
            Self::Pgwriteback => "pgwriteback",
            Self::MigrationWait => "migration_wait",
        }
    }
}
