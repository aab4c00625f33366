//! Durations and examples, which end the help text and the manual page of a command.
//!
//! Durations are those of 2 CPUs at 2 to 3 GHz with nothing else to do.

/// The program.
pub(super) const PROGRAM: &str = "\
Examples:
  frameyard boot                                       boot this machine's memory layout
  frameyard machines                                   list the machines that the program knows
  frameyard show buddyinfo --machine server-1t --memory 8G --phantom --after churn
  frameyard bench alloc --quick                        allocate and free blocks, within 30 seconds
  frameyard bench zone-lock                            compare all policies of zones, in about five minutes
  frameyard sim page-fault --machine skylake-112 --tasks 112 --mode processes --policy vanilla-4.16,depot

Exit codes: 0 done, 1 a failure at run time, 2 bad usage or bad input, 141 standard output was closed.";

/// `boot`.
pub(super) const BOOT: &str = "\
Takes seconds; with --full and terabytes of memory, minutes.

Examples:
  frameyard boot
  frameyard boot --machine skylake-8167m --memory 64G --phantom
  frameyard boot --machine server-1t --phantom --init lazy
  frameyard boot --machine epyc2-256 --phantom --pcp-reset off";

/// `show`.
pub(super) const SHOW: &str = "\
Examples:
  frameyard show zoneinfo --machine desktop-8 --phantom
  frameyard show buddyinfo --machine server-1t --memory 8G --phantom --after churn
  frameyard show metrics --machine desktop-8 --phantom --after churn --format prometheus --nonzero";

/// `stress`.
pub(super) const STRESS: &str = "\
Takes about 10 seconds for each policy; the time grows with --ops.

Examples:
  frameyard stress
  frameyard stress --policy all --ops 5M --mode processes --tasks 4";

/// `device`.
pub(super) const DEVICE: &str = "\
The first create starts a session: a process in the background that holds the devices. Destroying the last device ends it:
frameyard device destroy all.

Examples:
  frameyard device create --size 64G --align 1G --phantom
  frameyard device list
  frameyard device destroy all";

/// `bench`.
pub(super) const BENCH: &str = "\
Every benchmark states its duration in its own --help and returns rows within 30 seconds with --quick.

Examples:
  frameyard bench alloc --quick
  frameyard bench page-fault --tasks 1,2,4 --csv page-fault.csv
  frameyard bench zone-lock --workload page-fault --policy vanilla,depot --json > zone-lock.json";

/// `bench alloc`.
pub(super) const ALLOC: &str = "\
Takes about 30 seconds; --quick about 5.

Examples:
  frameyard bench alloc --quick
  frameyard bench alloc --kind bulk --order 0 --tasks 1,2,4 --policy vanilla,depot";

/// `bench memmap`.
pub(super) const MEMMAP: &str = "\
Takes about two minutes; --quick about 10 seconds; --full adds maps of 16 GiB.

Examples:
  frameyard bench memmap --quick
  frameyard bench memmap --init eager --content kernel --initialiser stream,stores-per-page";

/// `bench pcp-reset`.
pub(super) const PCP_RESET: &str = "\
Takes about 10 seconds; --quick about 2. Counts only: every run gives the same rows.

Examples:
  frameyard bench pcp-reset
  frameyard bench pcp-reset --zone-size 1G,8G --cpus 16";

/// `bench page-fault`.
pub(super) const PAGE_FAULT: &str = "\
Takes about 100 seconds; --quick about 5.

Examples:
  frameyard bench page-fault --quick
  frameyard bench page-fault --tasks 1,2,4 --policy vanilla,depot --lru sharded
  frameyard bench page-fault --will-it-scale page_fault1.csv";

/// `bench kernbench`.
pub(super) const KERNBENCH: &str = "\
Takes about 100 seconds; --quick about 5.

Example:
  frameyard bench kernbench --tasks 2 --policy vanilla,depot --compute 20000";

/// `bench fault-cost`.
pub(super) const FAULT_COST: &str = "\
Takes about 10 seconds; --quick about 3.

Example:
  frameyard bench fault-cost --policy vanilla,depot --lru vanilla";

/// `bench parallel-free`.
pub(super) const PARALLEL_FREE: &str = "\
Takes about 90 seconds; --quick about 10.

Example:
  frameyard bench parallel-free --memory 2G --tasks 2 --mode threads";

/// `bench highalloc`.
pub(super) const HIGHALLOC: &str = "\
Takes about two minutes; --quick about 15 seconds.

Examples:
  frameyard bench highalloc --quick
  frameyard bench highalloc --delay 100ms --mode threads --policy vanilla,cluster-bulk";

/// `bench order0-thp`.
pub(super) const ORDER0_THP: &str = "\
Takes about two minutes; --quick about 10 seconds.

Example:
  frameyard bench order0-thp --tasks 1 --policy vanilla,depot";

/// `bench purge`.
pub(super) const PURGE: &str = "\
Takes about 100 seconds; --quick about 5.

Example:
  frameyard bench purge --tasks 2 --purgers 1 --policy vanilla,depot";

/// `bench zone-lock`.
pub(super) const ZONE_LOCK: &str = "\
The first policy is what the others are compared with. Takes about five minutes; --quick about 20 seconds; --full runs for at
least a second each, in both modes.

Examples:
  frameyard bench zone-lock --quick
  frameyard bench zone-lock --workload page-fault,alloc --policy vanilla,cluster-bulk,depot --lru vanilla";

/// `bench compaction`.
pub(super) const COMPACTION: &str = "\
Takes about 30 seconds; --quick about 5.

Example:
  frameyard bench compaction --memory 2G --lru vanilla,sharded";

/// `bench contig`.
pub(super) const CONTIG: &str = "\
Takes about 30 seconds; --quick about 5.

Example:
  frameyard bench contig --size 256M --fill 80% --tasks 4";

/// `bench report-free`.
pub(super) const REPORT_FREE: &str = "\
Takes about 30 seconds; --quick about 10.

Example:
  frameyard bench report-free --order 9 --memory 2G";

/// `bench device-map`.
pub(super) const DEVICE_MAP: &str = "\
Takes about three minutes; --quick about 10 seconds; --full adds page structures of more than 4 GiB.

Examples:
  frameyard bench device-map --quick
  frameyard bench device-map --size 1T --geometry 1G";

/// `bench pin`.
pub(super) const PIN: &str = "\
Takes about two minutes; --quick about 5 seconds.

Examples:
  frameyard bench pin --quick
  frameyard bench pin --size 1G --path fast --interface runs";

/// `bench memory-region`.
pub(super) const MEMORY_REGION: &str = "\
Takes about two minutes: five seconds for each row; --quick about 10 seconds.

Example:
  frameyard bench memory-region --memory huge,device --duration 1s";
