//! Counts of what happened, one row for each CPU, by the names of /proc/vmstat.

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum VmCounter {
    /// Faults.
    Pgfault,
    /// Pages moved to an active list.
    Pgactivate,
    /// Pages moved to an inactive list.
    Pgdeactivate,
    /// Pages that active lists were aged by.
    Pgrefill,
    /// Pages looked at by background reclaim.
    PgscanKswapd,
    /// Pages looked at by direct reclaim.
    PgscanDirect,
    /// Pages of spaces looked at by either: they are aged, and stay.
    PgscanAnon,
    /// Pages of files looked at by either.
    PgscanFile,
    /// Pages dropped by background reclaim.
    PgstealKswapd,
    /// Pages dropped by direct reclaim.
    PgstealDirect,
    /// Times direct reclaim began.
    Allocstall,
    /// Times a background reclaimer began to balance its node.
    Pageoutrun,
    /// Pages that reclaim came upon and could not drop: dirty.
    ReclaimDirty,
    /// Pages that reclaim came upon and could not drop: anonymous, with nowhere to go.
    ReclaimAnonymous,
    /// Pages that reclaim came upon and could not drop: in use by somebody just now, or pinned.
    ReclaimBusy,
    /// Pages moved.
    PgmigrateSuccess,
    /// Pages that could not be moved.
    PgmigrateFail,
    /// Huge pages mapped by a fault.
    ThpFaultAlloc,
    /// Faults that wanted a huge page and got a small one.
    ThpFaultFallback,
    /// Huge mappings split into small ones.
    ThpSplitPmd,
    /// Huge pages split into small ones.
    ThpSplitPage,
    /// Huge pages that could not be split.
    ThpSplitPageFailed,
    /// Pages added to the page cache.
    PgcacheAdd,
    /// Pages of the page cache found where they were asked for.
    PgcacheHit,
    /// Pages of the page cache that were not there.
    PgcacheMiss,
    /// Pages that readahead brought.
    PgcacheReadahead,
    /// Pages written back.
    Pgwriteback,
    /// Times a fault waited for a page that was being moved.
    MigrationWait,
}

impl VmCounter {
    /// How many counters there are.
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

    /// The name in /proc/vmstat, or in its style where the kernel has no such counter.
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
