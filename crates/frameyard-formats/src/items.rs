//! The named numbers of zoneinfo and vmstat, in the order in which the kernel prints them, and which of
//! them each kernel has.

use frameyard::units::ZoneKind;

use super::KernelFormat;

/// Where a line appears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lines {
    Always,
    UpToV6_1,
    FromV6_12,
    WithCma,
}

impl Lines {
    const fn appear(self, format: KernelFormat, has_cma: bool) -> bool {
        match self {
            Self::Always => true,
            Self::UpToV6_1 => matches!(format, KernelFormat::V6_1),
            Self::FromV6_12 => matches!(format, KernelFormat::V6_12),
            Self::WithCma => has_cma,
        }
    }
}

macro_rules! stat_items {
    ($(#[$doc:meta])* $type:ident { $($item:ident $name:literal $(($lines:ident))?,)+ }) => {
        $(#[$doc])*
        ///
        /// Each is named after the kernel's line. Values are in the unit that the kernel prints.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $type {
            $(#[doc = concat!("`", $name, "`")] $item,)+
        }

        impl $type {
            /// All items, in output order.
            pub const ALL: &'static [Self] = &[$(Self::$item),+];

            /// The number of items.
            pub const COUNT: usize = Self::ALL.len();

            const LINES: &'static [(&'static str, Lines)] = &[$(($name, stat_items!(@lines $($lines)?))),+];

            /// The kernel's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                Self::LINES[self as usize].0
            }

            /// The item with that kernel name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|item| item.name() == name)
            }

            /// The items that a kernel prints; some only on a machine with contiguous memory areas.
            pub(super) fn printed(format: KernelFormat, has_cma: bool) -> impl Iterator<Item = Self> {
                let appear = move |item: &Self| Self::LINES[*item as usize].1.appear(format, has_cma);
                Self::ALL.iter().copied().filter(appear)
            }
        }
    };
    (@lines) => { Lines::Always };
    (@lines $lines:ident) => { Lines::$lines };
}

stat_items! {
    /// A value of a zone, which zoneinfo prints, and which vmstat sums over all zones.
    ZoneStat {
        NrFreePages "nr_free_pages",
        NrZoneInactiveAnon "nr_zone_inactive_anon",
        NrZoneActiveAnon "nr_zone_active_anon",
        NrZoneInactiveFile "nr_zone_inactive_file",
        NrZoneActiveFile "nr_zone_active_file",
        NrZoneUnevictable "nr_zone_unevictable",
        NrZoneWritePending "nr_zone_write_pending",
        NrMlock "nr_mlock",
        NrBounce "nr_bounce",
        NrZspages "nr_zspages",
        NrFreeCma "nr_free_cma",
        NrUnaccepted "nr_unaccepted" (FromV6_12),
    }
}

stat_items! {
    /// Whether allocations got the node that they asked for: event counts of a zone.
    NumaEvent {
        NumaHit "numa_hit",
        NumaMiss "numa_miss",
        NumaForeign "numa_foreign",
        NumaInterleave "numa_interleave",
        NumaLocal "numa_local",
        NumaOther "numa_other",
    }
}

stat_items! {
    /// A value of a node, which zoneinfo prints as per-node statistics, and which vmstat sums over all nodes.
    NodeStat {
        NrInactiveAnon "nr_inactive_anon",
        NrActiveAnon "nr_active_anon",
        NrInactiveFile "nr_inactive_file",
        NrActiveFile "nr_active_file",
        NrUnevictable "nr_unevictable",
        NrSlabReclaimable "nr_slab_reclaimable",
        NrSlabUnreclaimable "nr_slab_unreclaimable",
        NrIsolatedAnon "nr_isolated_anon",
        NrIsolatedFile "nr_isolated_file",
        WorkingsetNodes "workingset_nodes",
        WorkingsetRefaultAnon "workingset_refault_anon",
        WorkingsetRefaultFile "workingset_refault_file",
        WorkingsetActivateAnon "workingset_activate_anon",
        WorkingsetActivateFile "workingset_activate_file",
        WorkingsetRestoreAnon "workingset_restore_anon",
        WorkingsetRestoreFile "workingset_restore_file",
        WorkingsetNodereclaim "workingset_nodereclaim",
        NrAnonPages "nr_anon_pages",
        NrMapped "nr_mapped",
        NrFilePages "nr_file_pages",
        NrDirty "nr_dirty",
        NrWriteback "nr_writeback",
        NrWritebackTemp "nr_writeback_temp",
        NrShmem "nr_shmem",
        NrShmemHugepages "nr_shmem_hugepages",
        NrShmemPmdmapped "nr_shmem_pmdmapped",
        NrFileHugepages "nr_file_hugepages",
        NrFilePmdmapped "nr_file_pmdmapped",
        NrAnonTransparentHugepages "nr_anon_transparent_hugepages",
        NrVmscanWrite "nr_vmscan_write",
        NrVmscanImmediateReclaim "nr_vmscan_immediate_reclaim",
        NrDirtied "nr_dirtied",
        NrWritten "nr_written",
        NrThrottledWritten "nr_throttled_written",
        NrKernelMiscReclaimable "nr_kernel_misc_reclaimable",
        NrFollPinAcquired "nr_foll_pin_acquired",
        NrFollPinReleased "nr_foll_pin_released",
        NrKernelStack "nr_kernel_stack",
        NrPageTablePages "nr_page_table_pages",
        NrSecPageTablePages "nr_sec_page_table_pages",
        NrIommuPages "nr_iommu_pages" (FromV6_12),
        NrSwapcached "nr_swapcached",
        PgpromoteSuccess "pgpromote_success",
        PgpromoteCandidate "pgpromote_candidate",
        PgdemoteKswapd "pgdemote_kswapd" (FromV6_12),
        PgdemoteDirect "pgdemote_direct" (FromV6_12),
        PgdemoteKhugepaged "pgdemote_khugepaged" (FromV6_12),
    }
}

stat_items! {
    /// A value of the whole machine, which vmstat prints.
    GlobalStat {
        NrDirtyThreshold "nr_dirty_threshold",
        NrDirtyBackgroundThreshold "nr_dirty_background_threshold",
        NrMemmapPages "nr_memmap_pages" (FromV6_12),
        NrMemmapBootPages "nr_memmap_boot_pages" (FromV6_12),
    }
}

stat_items! {
    /// An event that vmstat counts.
    VmEvent {
        Pgpgin "pgpgin",
        Pgpgout "pgpgout",
        Pswpin "pswpin",
        Pswpout "pswpout",
        PgallocDma "pgalloc_dma",
        PgallocDma32 "pgalloc_dma32",
        PgallocNormal "pgalloc_normal",
        PgallocMovable "pgalloc_movable",
        PgallocDevice "pgalloc_device",
        AllocstallDma "allocstall_dma",
        AllocstallDma32 "allocstall_dma32",
        AllocstallNormal "allocstall_normal",
        AllocstallMovable "allocstall_movable",
        AllocstallDevice "allocstall_device",
        PgskipDma "pgskip_dma",
        PgskipDma32 "pgskip_dma32",
        PgskipNormal "pgskip_normal",
        PgskipMovable "pgskip_movable",
        PgskipDevice "pgskip_device",
        Pgfree "pgfree",
        Pgactivate "pgactivate",
        Pgdeactivate "pgdeactivate",
        Pglazyfree "pglazyfree",
        Pgfault "pgfault",
        Pgmajfault "pgmajfault",
        Pglazyfreed "pglazyfreed",
        Pgrefill "pgrefill",
        Pgreuse "pgreuse",
        PgstealKswapd "pgsteal_kswapd",
        PgstealDirect "pgsteal_direct",
        PgdemoteKswapd "pgdemote_kswapd" (UpToV6_1),
        PgdemoteDirect "pgdemote_direct" (UpToV6_1),
        PgstealKhugepaged "pgsteal_khugepaged" (FromV6_12),
        PgscanKswapd "pgscan_kswapd",
        PgscanDirect "pgscan_direct",
        PgscanKhugepaged "pgscan_khugepaged" (FromV6_12),
        PgscanDirectThrottle "pgscan_direct_throttle",
        PgscanAnon "pgscan_anon",
        PgscanFile "pgscan_file",
        PgstealAnon "pgsteal_anon",
        PgstealFile "pgsteal_file",
        ZoneReclaimSuccess "zone_reclaim_success" (FromV6_12),
        ZoneReclaimFailed "zone_reclaim_failed",
        Pginodesteal "pginodesteal",
        SlabsScanned "slabs_scanned",
        KswapdInodesteal "kswapd_inodesteal",
        KswapdLowWmarkHitQuickly "kswapd_low_wmark_hit_quickly",
        KswapdHighWmarkHitQuickly "kswapd_high_wmark_hit_quickly",
        Pageoutrun "pageoutrun",
        Pgrotated "pgrotated",
        DropPagecache "drop_pagecache",
        DropSlab "drop_slab",
        OomKill "oom_kill",
        NumaPteUpdates "numa_pte_updates",
        NumaHugePteUpdates "numa_huge_pte_updates",
        NumaHintFaults "numa_hint_faults",
        NumaHintFaultsLocal "numa_hint_faults_local",
        NumaPagesMigrated "numa_pages_migrated",
        PgmigrateSuccess "pgmigrate_success",
        PgmigrateFail "pgmigrate_fail",
        ThpMigrationSuccess "thp_migration_success",
        ThpMigrationFail "thp_migration_fail",
        ThpMigrationSplit "thp_migration_split",
        CompactMigrateScanned "compact_migrate_scanned",
        CompactFreeScanned "compact_free_scanned",
        CompactIsolated "compact_isolated",
        CompactStall "compact_stall",
        CompactFail "compact_fail",
        CompactSuccess "compact_success",
        CompactDaemonWake "compact_daemon_wake",
        CompactDaemonMigrateScanned "compact_daemon_migrate_scanned",
        CompactDaemonFreeScanned "compact_daemon_free_scanned",
        HtlbBuddyAllocSuccess "htlb_buddy_alloc_success",
        HtlbBuddyAllocFail "htlb_buddy_alloc_fail",
        CmaAllocSuccess "cma_alloc_success" (WithCma),
        CmaAllocFail "cma_alloc_fail" (WithCma),
        UnevictablePgsCulled "unevictable_pgs_culled",
        UnevictablePgsScanned "unevictable_pgs_scanned",
        UnevictablePgsRescued "unevictable_pgs_rescued",
        UnevictablePgsMlocked "unevictable_pgs_mlocked",
        UnevictablePgsMunlocked "unevictable_pgs_munlocked",
        UnevictablePgsCleared "unevictable_pgs_cleared",
        UnevictablePgsStranded "unevictable_pgs_stranded",
        ThpFaultAlloc "thp_fault_alloc",
        ThpFaultFallback "thp_fault_fallback",
        ThpFaultFallbackCharge "thp_fault_fallback_charge",
        ThpCollapseAlloc "thp_collapse_alloc",
        ThpCollapseAllocFailed "thp_collapse_alloc_failed",
        ThpFileAlloc "thp_file_alloc",
        ThpFileFallback "thp_file_fallback",
        ThpFileFallbackCharge "thp_file_fallback_charge",
        ThpFileMapped "thp_file_mapped",
        ThpSplitPage "thp_split_page",
        ThpSplitPageFailed "thp_split_page_failed",
        ThpDeferredSplitPage "thp_deferred_split_page",
        ThpUnderusedSplitPage "thp_underused_split_page" (FromV6_12),
        ThpSplitPmd "thp_split_pmd",
        ThpScanExceedNonePte "thp_scan_exceed_none_pte",
        ThpScanExceedSwapPte "thp_scan_exceed_swap_pte",
        ThpScanExceedSharePte "thp_scan_exceed_share_pte",
        ThpSplitPud "thp_split_pud",
        ThpZeroPageAlloc "thp_zero_page_alloc",
        ThpZeroPageAllocFailed "thp_zero_page_alloc_failed",
        ThpSwpout "thp_swpout",
        ThpSwpoutFallback "thp_swpout_fallback",
        BalloonInflate "balloon_inflate",
        BalloonDeflate "balloon_deflate",
        BalloonMigrate "balloon_migrate",
        SwapRa "swap_ra",
        SwapRaHit "swap_ra_hit",
        SwpinZero "swpin_zero" (FromV6_12),
        SwpoutZero "swpout_zero" (FromV6_12),
        KsmSwpinCopy "ksm_swpin_copy",
        CowKsm "cow_ksm",
        Zswpin "zswpin",
        Zswpout "zswpout",
        Zswpwb "zswpwb" (FromV6_12),
        DirectMapLevel2Splits "direct_map_level2_splits",
        DirectMapLevel3Splits "direct_map_level3_splits",
    }
}

impl VmEvent {
    /// The counter of pages allocated from zones of that kind.
    #[must_use]
    pub const fn pgalloc(kind: ZoneKind) -> Self {
        match kind {
            ZoneKind::Dma => Self::PgallocDma,
            ZoneKind::Dma32 => Self::PgallocDma32,
            ZoneKind::Normal => Self::PgallocNormal,
            ZoneKind::Movable => Self::PgallocMovable,
            ZoneKind::Device => Self::PgallocDevice,
        }
    }

    /// The counter of allocations that had to reclaim memory themselves, with that kind as the highest zone they may
    /// use.
    #[must_use]
    pub const fn allocstall(kind: ZoneKind) -> Self {
        match kind {
            ZoneKind::Dma => Self::AllocstallDma,
            ZoneKind::Dma32 => Self::AllocstallDma32,
            ZoneKind::Normal => Self::AllocstallNormal,
            ZoneKind::Movable => Self::AllocstallMovable,
            ZoneKind::Device => Self::AllocstallDevice,
        }
    }

    /// The counter of pages of that kind that reclaim skipped because freeing them would not have helped.
    #[must_use]
    pub const fn pgskip(kind: ZoneKind) -> Self {
        match kind {
            ZoneKind::Dma => Self::PgskipDma,
            ZoneKind::Dma32 => Self::PgskipDma32,
            ZoneKind::Normal => Self::PgskipNormal,
            ZoneKind::Movable => Self::PgskipMovable,
            ZoneKind::Device => Self::PgskipDevice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_zone_kind_carry_its_name() {
        for kind in ZoneKind::ALL {
            let name = kind.name().to_lowercase();
            assert_eq!(VmEvent::pgalloc(kind).name(), std::format!("pgalloc_{name}"));
            assert_eq!(VmEvent::allocstall(kind).name(), std::format!("allocstall_{name}"));
            assert_eq!(VmEvent::pgskip(kind).name(), std::format!("pgskip_{name}"));
        }
    }

    #[test]
    fn a_name_leads_back_to_its_item() {
        for event in VmEvent::ALL {
            assert_eq!(VmEvent::from_name(event.name()), Some(*event));
        }
        assert_eq!(VmEvent::from_name("nr_free_pages"), None);
    }
}
