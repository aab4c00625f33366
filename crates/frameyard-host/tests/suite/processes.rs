//! Worker processes: this test program executed again, with the memory file of a yard inherited.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use frameyard::{ByteSize, Geometry, NodeId, Pfn, PfnRange};
use frameyard_host::{
    HostMemory, HostTopology, HugePages, NodeFrames, Region, SharedFileError, SharedFrames, SharedLayout,
    SharedMemoryFile, WorkerError, Workers, spawn_workers,
};

const WORKER: &str = "FRAMEYARD_TEST_WORKER";
const ROUNDS: u64 = 20_000;

fn created() -> (SharedMemoryFile, HostTopology) {
    let host = HostTopology::current().unwrap();
    let range = |start, end| PfnRange { start: Pfn(start), end: Pfn(end) };
    let ranges = [
        NodeFrames { range: range(1, 0x9f), node: NodeId(0) },
        NodeFrames { range: range(0x100, 0x400), node: NodeId(1) },
    ];
    let (memory_map, control) = (ByteSize::mib(3), ByteSize::kib(64));
    let wanted = SharedLayout {
        geometry: Geometry::X86_64,
        ranges: &ranges,
        frames: SharedFrames::Memory,
        memory_map,
        control,
        devices: None,
    };
    (SharedMemoryFile::create(&wanted, &host).unwrap(), host)
}

fn first_word(memory: &HostMemory, pfn: Pfn) -> &AtomicU64 {
    let word = memory.frame(pfn).unwrap().cast::<AtomicU64>();
    // SAFETY: the frame is present as long as `memory` lives, and all processes use its word as an atomic.
    unsafe { word.as_ref() }
}

fn words(region: &Region) -> &[AtomicU64] {
    // SAFETY: no yard lies in these files, and all processes use their words as atomics.
    unsafe { region.words() }
}

/// Makes `command` run one of the ignored tests below, which are the programs of workers.
fn run_test(command: &mut Command, name: &str, worker: usize) {
    crate::own_process::run_test(command, module_path!(), name);
    command.env(WORKER, worker.to_string()).stderr(Stdio::null());
}

fn workers(count: usize, name: &str) -> Workers {
    spawn_workers(count, |command, worker| {
        run_test(command, name, worker);
        command.stdout(Stdio::piped());
    })
    .unwrap()
}

fn worker_number() -> u64 {
    std::env::var(WORKER).expect("runs only as a worker of another test").parse().unwrap()
}

#[test]
fn two_processes_share_map_control_region_and_frames() {
    let (file, host) = created();
    let control = file.map_control(HugePages::Default).unwrap();
    let map = file.map_memory_map(HugePages::Never).unwrap();
    let memory = file.map_frames(HugePages::Default, &host).unwrap();
    first_word(&memory, Pfn(0x3ff)).store(77, Ordering::Relaxed);

    let inherited = file.inherit().unwrap();
    let workers = spawn_workers(2, |command, worker| {
        run_test(command, "worker_counts_in_shared_memory", worker);
        command.stdout(Stdio::piped());
        inherited.announce(command);
    })
    .unwrap();
    drop(inherited);
    let outputs = workers.wait_all().unwrap();

    assert_eq!(words(&control)[0].load(Ordering::Acquire), 2 * ROUNDS);
    assert_eq!(outputs.len(), 2);
    for (worker, output) in outputs.iter().enumerate() {
        assert_eq!(words(&map)[(2 << 20) / 8 + worker].load(Ordering::Acquire), 100 + worker as u64);
        assert_eq!(first_word(&memory, Pfn(0x100 + worker as u64)).load(Ordering::Acquire), 78);
        let text = String::from_utf8_lossy(output);
        assert!(text.contains(&format!("worker {worker} is done")), "{text}");
    }
}

#[test]
#[ignore = "a worker of another test"]
fn worker_counts_in_shared_memory() {
    let worker = worker_number();
    let host = HostTopology::current().unwrap();
    let file = SharedMemoryFile::from_environment(&host).unwrap();
    let control = file.map_control(HugePages::Default).unwrap();
    let map = file.map_memory_map(HugePages::Default).unwrap();
    let memory = file.map_frames(HugePages::Never, &host).unwrap();
    // Both processes count at the same time, so each waits for the other to arrive.
    words(&control)[1].fetch_add(1, Ordering::AcqRel);
    while words(&control)[1].load(Ordering::Acquire) < 2 {
        std::thread::yield_now();
    }
    for _ in 0..ROUNDS {
        words(&control)[0].fetch_add(1, Ordering::AcqRel);
    }
    words(&map)[(2 << 20) / 8 + worker as usize].store(100 + worker, Ordering::Release);
    let given = first_word(&memory, Pfn(0x3ff)).load(Ordering::Relaxed);
    first_word(&memory, Pfn(0x100 + worker)).store(given + 1, Ordering::Release);
    println!("worker {worker} is done");
}

#[test]
fn a_program_without_an_inherited_memory_file_reports_it() {
    let host = HostTopology::current().unwrap();
    let error = SharedMemoryFile::from_environment(&host).unwrap_err();
    assert!(matches!(error, SharedFileError::NotInherited), "{error}");
}

#[test]
fn a_failed_worker_is_named_with_its_exit_code_and_the_others_are_killed() {
    let workers = workers(3, "worker_one_fails_and_the_others_wait");
    let processes = workers.process_ids();
    let error = workers.wait_all().unwrap_err();
    // The test harness ends with this code when a test fails.
    assert_eq!(error.to_string(), "worker process 1 failed with exit code 101");
    for process in processes {
        assert!(!std::path::Path::new(&format!("/proc/{process}")).exists(), "process {process} is gone");
    }
}

#[test]
#[ignore = "a worker of another test"]
fn worker_one_fails_and_the_others_wait() {
    assert_ne!(worker_number(), 1, "fails on purpose");
    std::thread::sleep(std::time::Duration::from_secs(600));
}

#[test]
fn the_worker_waited_for_is_named_even_if_another_fails_before() {
    let workers = workers(3, "worker_one_fails_and_the_others_wait");
    let processes = workers.process_ids();
    let kill = |process: u32| Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap();
    let waiting = std::thread::spawn(move || workers.wait_for(0).unwrap_err());
    // Worker 1 stays a zombie, because this test waits for worker 0.
    while !std::fs::read_to_string(format!("/proc/{}/stat", processes[1])).unwrap().contains(") Z ") {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!waiting.is_finished());
    assert!(kill(processes[0]).success());
    assert_eq!(waiting.join().unwrap().to_string(), "worker process 0 was killed by signal 9");
    for process in processes {
        assert!(!std::path::Path::new(&format!("/proc/{process}")).exists(), "process {process} is gone");
    }
}

#[test]
fn a_worker_killed_by_a_signal_is_named_with_the_signal() {
    let workers = workers(2, "worker_one_aborts");
    let error = workers.wait_all().unwrap_err();
    assert_eq!(error.to_string(), "worker process 1 was killed by signal 6");
    assert!(matches!(error, WorkerError::Failed { worker: 1, .. }));
}

#[test]
#[ignore = "a worker of another test"]
fn worker_one_aborts() {
    if worker_number() == 1 {
        std::process::abort();
    }
}

#[test]
fn a_worker_may_write_more_than_fits_a_pipe() {
    let outputs = workers(2, "worker_writes_a_megabyte").wait_all().unwrap();
    for output in outputs {
        assert!(output.iter().filter(|byte| **byte == b'#').count() >= 1 << 20);
    }
}

#[test]
#[ignore = "a worker of another test"]
fn worker_writes_a_megabyte() {
    let _ = worker_number();
    for _ in 0..1 << 10 {
        println!("{}", "#".repeat(1 << 10));
    }
}

#[test]
fn dropped_workers_are_killed() {
    let workers = workers(1, "worker_one_fails_and_the_others_wait");
    let process = workers.process_ids()[0];
    assert!(std::path::Path::new(&format!("/proc/{process}")).exists());
    drop(workers);
    assert!(!std::path::Path::new(&format!("/proc/{process}")).exists());
}
