//! The integration tests of the lab, in one program: one module per subject. Most run the program `frameyard`.

mod bench_alloc;
mod bench_compaction;
mod bench_device_map;
mod bench_fault_cost;
mod bench_memmap;
mod bench_pin;
mod bench_workloads;
mod bench_zone_lock;
mod boot_and_show;
mod command_line;
mod device;
mod map_init;
mod program;
mod report;
mod show_metrics;
mod sim_workloads;
mod stress;
mod top;
mod trace;
mod trace_record;
