//! The jobs of a report. Tables, plots and claims name the groups; a job is a group or one of its details.

use std::path::{Path, PathBuf};

use super::job::{Job, JobKind};

/// Names of groups.
pub(super) mod group {
    pub(in super::super) const BOOT: &str = "native-boot";
    pub(in super::super) const ALLOC: &str = "native-alloc";
    pub(in super::super) const PAGE_FAULT: &str = "native-page-fault";
    pub(in super::super) const HIGHALLOC: &str = "native-highalloc";
    pub(in super::super) const ORDER0_THP: &str = "native-order0-thp";
    pub(in super::super) const MEMMAP: &str = "native-memmap";
    pub(in super::super) const FRAG: &str = "native-frag";
    pub(in super::super) const PIN: &str = "native-pin";
    pub(in super::super) const DEVICE_MAP: &str = "native-device-map";
    pub(in super::super) const MEMORY_REGION: &str = "native-memory-region";
    pub(in super::super) const HUGE_POOL: &str = "native-huge-pool";
    pub(in super::super) const LOCK_TIMES: &str = "native-lock-times";
    pub(in super::super) const CHECK_PAGE_FAULT: &str = "check-page-fault";
    pub(in super::super) const CHECK_PAGE_FAULT_88: &str = "check-page-fault-88";
    pub(in super::super) const CHECK_ZONE_LOCK: &str = "check-zone-lock";
    pub(in super::super) const CHECK_ORDER0_THP: &str = "check-order0-thp";
    pub(in super::super) const CHECK_PARALLEL_FREE: &str = "check-parallel-free";
    pub(in super::super) const CHECK_KERNBENCH: &str = "check-kernbench";
    pub(in super::super) const CHECK_DEFERRED_INIT: &str = "check-deferred-init";
    pub(in super::super) const CHECK_HIGHALLOC: &str = "check-highalloc";
    pub(in super::super) const SIM_BROADWELL: &str = "sim-page-fault-broadwell-40";
    pub(in super::super) const SIM_SKYLAKE: &str = "sim-page-fault-skylake-112";
    pub(in super::super) const SIM_FRAG: &str = "sim-frag";
    pub(in super::super) const REPLAY: &str = "replay";
    pub(in super::super) const SIM_REPLAY: &str = "sim-replay";
}

use group as g;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effort {
    /// All jobs within three minutes on two idle CPUs.
    Quick,
    /// Hours: whole tables, the programs' own numbers of runs.
    Full,
}

/// The policies whose replays are compared.
const REPLAYED: &str = "vanilla,cluster-bulk,bits";
/// The policies of the published page-fault tables.
const PUBLISHED: [&str; 3] = ["vanilla-4.16", "cluster-bulk", "big-pcp"];
/// Numbers of tasks in the whole simulated curves.
const TASKS_40: [u32; 9] = [1, 2, 4, 8, 12, 16, 20, 30, 40];
const TASKS_112: [u32; 8] = [1, 4, 14, 28, 42, 56, 84, 112];

/// The jobs, the deterministic ones first.
pub(super) fn jobs(effort: Effort, recordings: &[PathBuf]) -> Vec<Job> {
    let mut jobs = match effort {
        Effort::Quick => quick(),
        Effort::Full => full(),
    };
    jobs.extend(recordings.iter().map(|path| sim_replay(path, effort)));
    jobs.extend(recordings.iter().map(|path| replay(path)));
    jobs
}

/// The replay of a recording on one thread.
fn replay(path: &Path) -> Job {
    of_recording(g::REPLAY, JobKind::Replay, path, &format!("--policy {REPLAYED}"))
}

/// The replay of copies of a recording on a simulated machine.
fn sim_replay(path: &Path, effort: Effort) -> Job {
    let line = match effort {
        Effort::Quick => "--machine skylake-112 --copies 4 --events 100000 --policy vanilla,bits".to_owned(),
        Effort::Full => format!("--machine skylake-112 --copies 28 --policy {REPLAYED}"),
    };
    of_recording(g::SIM_REPLAY, JobKind::Simulation, path, &line)
}

/// A job of `trace replay`, named after the file of the recording.
fn of_recording(group: &str, kind: JobKind, path: &Path, options: &str) -> Job {
    let stem = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = stem.split('.').next().unwrap_or_default();
    let plain: String = stem.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    let mut job = Job::new(format!("{group}.{plain}"), kind, "trace replay");
    // The path may have spaces.
    job.arguments.push(path.to_string_lossy().into_owned());
    job.arguments.extend(options.split_whitespace().map(str::to_owned));
    job
}

fn native(name: &str, line: &str) -> Job {
    Job::new(name, JobKind::Native, line)
}

fn simulation(name: impl Into<String>, line: &str) -> Job {
    Job::new(name, JobKind::Simulation, line)
}

fn boot() -> Job {
    native(g::BOOT, "boot --machine desktop-8 --memory 8G --phantom")
}

fn lock_times() -> [Job; 2] {
    ["vanilla", "bits"].map(|policy| {
        let line = format!("show metrics --machine desktop-8 --memory 1G --phantom --after churn --policy {policy}");
        native(&format!("{}.{policy}", g::LOCK_TIMES), &line)
    })
}

fn quick() -> Vec<Job> {
    let mut jobs = vec![
        simulation(
            g::CHECK_PAGE_FAULT,
            "sim check --table page-fault --quick --rows \
            vanilla-4.16/processes/1,10,20,30,40;cluster-bulk/processes/1,10,20,30,40;big-pcp/processes/1,20,40;vanilla-4.16/threads/1,10,20,30,40;cluster-bulk/threads/1,20,40",
        ),
        simulation(
            g::CHECK_PAGE_FAULT_88,
            "sim check --table page-fault-88 --quick --rows vanilla-4.16/processes/1,11,44,88;cluster-bulk/processes/1,11,44,88",
        ),
        simulation(g::CHECK_ZONE_LOCK, "sim check --table zone-lock --quick"),
        simulation(g::CHECK_ORDER0_THP, "sim check --table order0-thp --quick"),
        simulation(g::CHECK_PARALLEL_FREE, "sim check --table parallel-free --quick"),
        simulation(g::CHECK_KERNBENCH, "sim check --table kernbench --quick"),
        simulation(g::CHECK_DEFERRED_INIT, "sim check --table deferred-init"),
        simulation(g::CHECK_HIGHALLOC, "sim check --table highalloc --quick"),
        simulation(
            g::SIM_BROADWELL,
            "sim page-fault --quick --machine broadwell-40 --tasks 1,10,20,40 --mode processes --lru vanilla --policy vanilla-4.16,cluster-bulk,bits",
        ),
        simulation(
            g::SIM_SKYLAKE,
            "sim page-fault --quick --machine skylake-112 --tasks 1,28,112 --mode processes --lru vanilla,sharded --policy vanilla-4.17,bits",
        ),
        simulation(g::SIM_FRAG, "sim frag --quick --policy vanilla,bits"),
        native(g::ALLOC, "bench alloc --quick --kind repeat,bulk,random --order 0 --repeat 3 --policy vanilla,bits"),
        native(
            g::PAGE_FAULT,
            "bench page-fault --quick --tasks 1,2 --mode threads,processes --repeat 3 --lru vanilla --policy vanilla-4.16,cluster-bulk,big-pcp,bits",
        ),
        native(
            g::HIGHALLOC,
            "bench highalloc --quick --tasks 2 --lru vanilla --policy vanilla-4.17,skip-merge,cluster-bulk",
        ),
        native(
            g::ORDER0_THP,
            "bench order0-thp --quick --tasks 1 --lru vanilla --policy vanilla-4.17,skip-merge,cluster-bulk",
        ),
        native(g::MEMMAP, "bench memmap --quick --repeat 3 --init eager"),
        native(g::FRAG, "bench frag --quick --policy vanilla,bits"),
        native(g::PIN, "bench pin --quick --memory device --call get,pin --path fast"),
        native(g::DEVICE_MAP, "bench device-map --quick --size 2G"),
        native(
            g::MEMORY_REGION,
            "bench memory-region --quick --no-host --memory pool,device --page-size 2M --map-geometry 4K,2M",
        ),
        native(g::HUGE_POOL, "bench huge-pool --quick --size 2G --before written"),
    ];
    jobs.push(boot());
    jobs.extend(lock_times());
    jobs
}

fn full() -> Vec<Job> {
    let mut jobs = Vec::new();
    jobs.extend(checks_of_page_faults(g::CHECK_PAGE_FAULT, "page-fault", &PUBLISHED, 40));
    jobs.extend(checks_of_page_faults(g::CHECK_PAGE_FAULT_88, "page-fault-88", &PUBLISHED[..2], 88));
    for table in ["zone-lock", "order0-thp", "parallel-free", "kernbench", "deferred-init", "highalloc"] {
        jobs.push(simulation(format!("check-{table}"), &format!("sim check --table {table}")));
    }
    jobs.extend(curve(g::SIM_BROADWELL, "broadwell-40", "vanilla-4.16,cluster-bulk,bits", &TASKS_40));
    jobs.extend(curve(g::SIM_SKYLAKE, "skylake-112", "vanilla-4.17,cluster-bulk,bits", &TASKS_112));
    jobs.push(simulation(g::SIM_FRAG, "sim frag --policy vanilla,cluster-bulk,bits"));
    jobs.extend([
        native(g::ALLOC, "bench alloc --policy vanilla,cluster-bulk,bits"),
        native(
            g::PAGE_FAULT,
            "bench page-fault --mode threads,processes --lru vanilla --policy vanilla-4.16,cluster-bulk,big-pcp,bits",
        ),
        native(g::HIGHALLOC, "bench highalloc --lru vanilla --policy vanilla-4.17,skip-merge,cluster-bulk"),
        native(g::ORDER0_THP, "bench order0-thp --lru vanilla --policy vanilla-4.17,skip-merge,cluster-bulk"),
        native(g::MEMMAP, "bench memmap"),
        native(g::FRAG, "bench frag --policy vanilla,bits"),
        native(g::PIN, "bench pin --size 1G"),
        native(g::DEVICE_MAP, "bench device-map"),
        native(g::MEMORY_REGION, "bench memory-region --no-host --memory pool,device"),
        native(g::HUGE_POOL, "bench huge-pool"),
    ]);
    jobs.push(boot());
    jobs.extend(lock_times());
    jobs
}

/// A job for each policy and mode of a published page-fault table.
fn checks_of_page_faults(group: &str, table: &str, policies: &[&str], most_tasks: u32) -> Vec<Job> {
    let job = |policy: &str, mode: &str| {
        let line = format!("sim check --table {table} --rows {policy}/{mode}/1..{most_tasks}");
        simulation(format!("{group}.{policy}-{mode}"), &line)
    };
    policies.iter().flat_map(|policy| ["processes", "threads"].map(|mode| job(policy, mode))).collect()
}

/// A job for each number of tasks.
fn curve(group: &str, machine: &str, policies: &str, tasks: &[u32]) -> Vec<Job> {
    let job = |tasks: &u32| {
        let line = format!(
            "sim page-fault --machine {machine} --tasks {tasks} --mode processes --lru vanilla,sharded --policy {policies}"
        );
        simulation(format!("{group}.{tasks}"), &line)
    };
    tasks.iter().map(job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_fit_file_names() {
        for effort in [Effort::Quick, Effort::Full] {
            let jobs = jobs(effort, &[PathBuf::from("dir/rust build.trace.zst")]);
            let names: HashSet<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
            assert_eq!(names.len(), jobs.len());
            assert!(names.contains("replay.rust-build") && names.contains("sim-replay.rust-build"));
            let fits = |name: &str| name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-.".contains(letter));
            assert!(names.iter().all(|name| fits(name) && !name.ends_with(".run")), "{names:?}");
        }
    }

    #[test]
    fn the_program_can_read_every_command() {
        use clap::Parser;
        for job in [Effort::Quick, Effort::Full].into_iter().flat_map(|effort| jobs(effort, &[PathBuf::from("a.zst")]))
        {
            let line = ["frameyard".to_owned()].into_iter().chain(job.arguments.clone()).chain(["--json".to_owned()]);
            let read = crate::commands::Cli::try_parse_from(line);
            assert!(read.is_ok(), "{}: {}", job.name, read.unwrap_err());
        }
    }

    #[test]
    fn every_group_of_a_full_report_is_in_a_quick_one() {
        let groups = |effort| -> HashSet<String> {
            let group = |job: Job| job.name.split('.').next().unwrap_or_default().to_owned();
            jobs(effort, &[]).into_iter().map(group).collect()
        };
        assert_eq!(groups(Effort::Quick), groups(Effort::Full));
    }
}
