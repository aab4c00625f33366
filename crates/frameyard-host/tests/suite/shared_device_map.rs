//! Devices in a shared yard: every view of the memory map shows the same, and tails take no memory.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sharing_process::{go_on, stop};
use frameyard::devices::{DeviceError, DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::{ByteSize, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{
    Backing, DeviceMapProblem, HostDeviceError, HostTopology, HostYard, HostYardError, InheritedFile, MemoryUse,
    SharedFileError, SharedMemoryFile, SharedWords,
};

const ROLE: &str = "FRAMEYARD_TEST_ROLE";
const WORDS: &str = "FRAMEYARD_TEST_WORDS";

/// 64 MiB from 4 GiB on.
const MEMORY: [(PfnRange, NodeId); 1] = [(PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_4000) }, NodeId(0))];
/// 5 GiB from 8 GiB on.
const SPACE: PfnRange = devices(5);
const GIGANTIC: Order = Order(18);

/// The frames of devices. Each view has 16 MiB of page structures for 1 GiB.
const fn devices(gib: u64) -> PfnRange {
    PfnRange { start: Pfn(0x20_0000), end: Pfn(0x20_0000 + (gib << 18)) }
}

fn made() -> (HostYard, SharedMemoryFile, HostTopology) {
    made_for_devices(SPACE)
}

fn made_for_devices(space: PfnRange) -> (HostYard, SharedMemoryFile, HostTopology) {
    let host = HostTopology::current().unwrap();
    let config = YardConfig { device_space: Some(space), ..YardConfig::new(&[NodeId(0); 2]) };
    let memory = MemoryTable { memory: &MEMORY, ..MemoryTable::default() };
    let yard =
        HostYard::builder().machine(&memory, &config).host(&host).backing(Backing::Phantom).shared().build().unwrap();
    let file = yard.shared_file().unwrap().try_clone().unwrap();
    (yard, file, host)
}

fn attached(file: &SharedMemoryFile, host: &HostTopology) -> HostYard {
    // SAFETY: only yards write to the file.
    unsafe { HostYard::builder().attach(file) }.host(host).build().unwrap()
}

fn request(gib: u64, order: Order, layout: MapLayout) -> DeviceRequest {
    let range = PfnRange::new(SPACE.start, PageCount(gib << 18));
    DeviceRequest { range, node: NodeId(0), order, layout, placement: MapPlacement::Memory }
}

/// The first word of the page structure of a frame.
fn word(yard: &HostYard, pfn: Pfn) -> &AtomicU64 {
    // SAFETY: these tests read the words, or store what the yard would have stored, or store to a tail.
    let words = unsafe { yard.map_region().words() };
    &words[yard.core().map_offset(pfn).unwrap().0 as usize / 8]
}

fn map_use(yard: &HostYard, range: PfnRange) -> MemoryUse {
    let offset = yard.core().map_offset(range.start).unwrap();
    yard.map_region().memory_use(offset, ByteSize(range.count().0 * 64)).unwrap()
}

/// Reads a word of each page of the map. Returns the number of non-zero ones.
fn read_all(yard: &HostYard, range: PfnRange) -> usize {
    let frames = (range.start.0..range.end.0).step_by(64).map(Pfn);
    frames.filter(|pfn| word(yard, *pfn).load(Ordering::Relaxed) != 0).count()
}

/// This program executed again. It attaches the file and acts as its role says.
struct Follower {
    child: Child,
    words: SharedWords,
}

impl Follower {
    fn start(role: &str, inherited: &InheritedFile) -> Self {
        let words = SharedWords::create(4).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        crate::own_process::run_test(&mut command, module_path!(), "a_follower_acts_as_its_role_says");
        command.env(ROLE, role).env(WORDS, words.path()).stdout(Stdio::null()).stderr(Stdio::null());
        inherited.announce(&mut command);
        let child = command.spawn().unwrap();
        let follower = Self { child, words };
        follower.wait_for(0);
        follower
    }

    /// Waits until the follower has set a word.
    fn wait_for(&self, index: usize) {
        while self.words.words()[index].load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The frames that [`get_pages`] looks up: a compound page of 2 MiB.
const USED: PfnRange = PfnRange { start: SPACE.start, end: Pfn(SPACE.start.0 + 512) };

/// The frames of [`USED`] whose page structures are only tails if the device is deduplicated.
const TAILS: PfnRange = PfnRange { start: Pfn(USED.start.0 + 64), end: USED.end };

/// Threads that look pages up, take references and return them, until `stop` is set. Another one answers the number in `asked` with
/// one more than the bytes that the tails take in this process.
fn get_pages(yard: &HostYard, [stop, asked, answer]: [&AtomicU64; 3]) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut answered = 0;
            while stop.load(Ordering::Relaxed) == 0 {
                // Acquire: pairs with the Release in `bytes_of_tails`.
                let question = asked.load(Ordering::Acquire);
                if question != answered {
                    answered = question;
                    answer.store(1 + map_use(yard, TAILS).resident.0, Ordering::Release);
                }
                std::thread::yield_now();
            }
        });
        for thread in 0..3 {
            scope.spawn(move || {
                let mut at = thread;
                while stop.load(Ordering::Relaxed) == 0 {
                    at = (at + 77) % USED.count().0;
                    let Some(page) = yard.devices().page(USED.start + PageCount(at)) else { continue };
                    // A preemption here is the case under test.
                    for _ in 0..64 {
                        // SAFETY: `try_get` has taken the reference just before.
                        if !page.try_get(1) || unsafe { page.put(1) }.is_err() {
                            break;
                        }
                    }
                }
            });
        }
    });
}

/// Asks a follower that gets pages for the bytes that tails take in its process.
fn bytes_of_tails(follower: &Follower, question: u64) -> u64 {
    let words = follower.words.words();
    words[3].store(0, Ordering::Relaxed);
    // Release: pairs with the Acquire in `get_pages`.
    words[2].store(question, Ordering::Release);
    follower.wait_for(3);
    words[3].load(Ordering::Relaxed) - 1
}

/// No test by itself: the program of the [`Follower`]s.
#[test]
fn a_follower_acts_as_its_role_says() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let host = HostTopology::current().unwrap();
    let words = SharedWords::open(std::env::var(WORDS).unwrap().as_ref()).unwrap();
    let yard = attached(&SharedMemoryFile::from_environment(&host).unwrap(), &host);
    words.words()[0].store(1, Ordering::Release);
    match role.as_str() {
        "sleep" => loop {
            std::thread::park();
        },
        "get pages" => get_pages(&yard, [1, 2, 3].map(|word| &words.words()[word])),
        "write to a tail" => {
            let tail = word(&yard, SPACE.start + PageCount(64));
            tail.store(1, Ordering::Relaxed);
            assert_eq!(tail.load(Ordering::Relaxed), 1);
        }
        "write to a head" => word(&yard, SPACE.start + PageCount(7)).store(0, Ordering::Relaxed),
        _ => panic!("an unknown role"),
    }
}

#[test]
fn a_tebibyte_in_gigantic_pages_takes_little_memory_in_each_view() {
    // Three views.
    if crate::test_addresses::are_too_few(ByteSize::gib(3 * 17)) {
        return;
    }
    let (yard, file, host) = made_for_devices(devices(1025));
    let other = attached(&file, &host);
    let asked = request(1024, GIGANTIC, MapLayout::Deduplicated);
    let id = yard.map_device(asked).unwrap();
    for view in [&yard, &other] {
        assert_eq!(read_all(view, asked.range), 1024);
        let found = map_use(view, asked.range);
        assert!(found.proportional <= ByteSize::kib(4200) && found.mappings <= 2049, "{found:?}");
    }
    let late = attached(&file, &host);
    assert_eq!(read_all(&late, asked.range), 1024);
    assert!(map_use(&late, asked.range).proportional <= ByteSize::kib(4200));
    yard.devices().unmap(id, Removal::Refuse).unwrap();
    for view in [&yard, &other, &late] {
        let found = map_use(view, asked.range);
        assert_eq!((found.resident, found.mappings), (ByteSize(0), 1));
    }
    yard.validate().unwrap();
}

#[test]
fn a_split_page_is_writable_in_every_view_until_it_is_joined() {
    let (yard, file, host) = made();
    let other = attached(&file, &host);
    let asked = request(4, GIGANTIC, MapLayout::Deduplicated);
    let id = other.map_device(asked).unwrap();
    let second = SPACE.start + PageCount(1 << 18);
    let part = second + PageCount(777);
    yard.split_device_page(second).unwrap();
    let late = attached(&file, &host);
    for view in [&yard, &other, &late] {
        let page = view.devices().page(part).unwrap();
        assert_eq!(page.head(), part);
        // Taken through one view, returned through another.
        assert!(page.try_get(1));
    }
    let error = other.devices().join(second).unwrap_err();
    assert!(matches!(error, DeviceError::InUse { references: 3, .. }), "{error}");
    for view in [&other, &late, &yard] {
        // SAFETY: the reference was taken above, and the page is not used any more.
        unsafe { view.devices().page(part).unwrap().put(1).unwrap() };
    }
    other.devices().join(second).unwrap();
    for view in [&yard, &other, &late] {
        assert_eq!(view.devices().page(part).unwrap().head(), second);
        assert_eq!(read_all(view, asked.range), 4);
        assert_eq!(map_use(view, asked.range).resident, ByteSize(4 * 4096));
    }
    yard.devices().unmap(id, Removal::Refuse).unwrap();
}

#[test]
fn other_layouts_need_no_extra_mappings() {
    let (yard, file, host) = made();
    let other = attached(&file, &host);
    for (order, layout) in [(GIGANTIC, MapLayout::Folded), (Order(9), MapLayout::Folded), (Order(9), MapLayout::Full)] {
        let asked = request(1, order, layout);
        let id = yard.map_device(asked).unwrap();
        for pfn in [0, 511, 512, 0x3_ffff].map(|at| SPACE.start + PageCount(at)) {
            assert_eq!(other.devices().page(pfn).unwrap().head(), yard.devices().page(pfn).unwrap().head());
        }
        assert_eq!(map_use(&other, asked.range).mappings, 1);
        other.devices().unmap(id, Removal::Refuse).unwrap();
        assert_eq!(map_use(&yard, asked.range).resident, ByteSize(0), "{layout}");
    }
}

#[test]
fn a_change_above_the_limit_of_mappings_is_refused() {
    let limit: u64 = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
    // Two mappings for each 2 MiB.
    let gib = limit / (2 << 9) + 1;
    let needed = 2 * (gib << 9) + 1;
    if gib > 2048 {
        println!("skipped: vm.max_map_count is {limit}");
        return;
    }
    if crate::test_addresses::are_too_few(ByteSize::mib(16 * gib)) {
        return;
    }
    let (yard, _file, _host) = made_for_devices(devices(gib));
    let asked = request(gib, Order(9), MapLayout::Deduplicated);
    let error = yard.map_device(asked).unwrap_err();
    let HostDeviceError::Map {
        problem: DeviceMapProblem::Mappings { limit: limit_in_error, used, needed: more, .. },
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((limit_in_error, more), (limit, needed));
    let text = error.to_string();
    let advice = format!("vm.max_map_count is {limit}: set it to at least {}, or use the folded layout", used + needed);
    assert!(text.contains(&advice), "{text}");
    assert_eq!(map_use(&yard, asked.range).mappings, 1);
    yard.map_device(request(gib, Order(9), MapLayout::Folded)).unwrap();
}

#[test]
fn devices_of_a_shared_yard_cannot_hold_their_own_page_structures() {
    let (yard, _file, _host) = made();
    let asked = DeviceRequest { placement: MapPlacement::Device, ..request(4, GIGANTIC, MapLayout::Folded) };
    let error = yard.map_device(asked).unwrap_err();
    assert!(matches!(error, HostDeviceError::Map { problem: DeviceMapProblem::SharedYard, .. }), "{error}");
}

#[test]
fn a_write_to_a_deduplicated_tail_stays_in_its_process() {
    let (yard, file, _host) = made();
    yard.map_device(request(2, GIGANTIC, MapLayout::Deduplicated)).unwrap();
    let inherited = file.inherit().unwrap();
    let mut wrote = Follower::start("write to a head", &inherited);
    assert!(wrote.child.wait().unwrap().success());
    let mut wrote = Follower::start("write to a tail", &inherited);
    assert!(wrote.child.wait().unwrap().success());
    assert_eq!(read_all(&yard, PfnRange::new(SPACE.start, PageCount(1 << 18))), 1, "only the head is not zero");
}

#[test]
fn a_silent_process_is_named_and_an_ended_one_needs_no_answer() {
    let (yard, file, _host) = made();
    let inherited = file.inherit().unwrap();
    let mut follower = Follower::start("sleep", &inherited);
    let asked = request(2, GIGANTIC, MapLayout::Deduplicated);
    let id = yard.map_device(asked).unwrap();
    stop(&follower.child);
    let error = yard.split_device_page(SPACE.start).unwrap_err();
    let HostDeviceError::Map { problem: DeviceMapProblem::NoAnswer { process, .. }, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(process, follower.child.id());
    // Nothing has changed.
    assert_eq!(yard.devices().page(SPACE.start + PageCount(5)).unwrap().head(), SPACE.start);
    assert_eq!(read_all(&yard, asked.range), 2);
    // No other device can be mapped before that process has answered.
    let next = PfnRange::new(asked.range.end, PageCount(1 << 18));
    let next = DeviceRequest { range: next, ..request(1, GIGANTIC, MapLayout::Folded) };
    let error = yard.map_device(next).unwrap_err();
    assert!(matches!(error, HostDeviceError::Map { problem: DeviceMapProblem::NoAnswer { .. }, .. }), "{error}");
    // After it wakes it makes all changes that it missed.
    go_on(&follower.child);
    yard.map_device(next).unwrap();
    yard.split_device_page(SPACE.start).unwrap();
    yard.devices().join(SPACE.start).unwrap();
    follower.child.kill().unwrap();
    yard.split_device_page(SPACE.start).unwrap();
    follower.child.wait().unwrap();
    yard.devices().join(SPACE.start).unwrap();
    yard.devices().unmap(id, Removal::Refuse).unwrap();
}

/// A change waits for gets, but at most 50 ms. A busy machine stops a thread for longer in one of some hundred rounds. Without the wait,
/// gets write to tails in one of 12 rounds. The unit tests of the crate's module `speculation` check the wait itself.
#[test]
fn speculative_gets_hardly_ever_write_to_tails() {
    let rounds = if std::env::var_os("FRAMEYARD_LONG_RUNS").is_some() { 200 } else { 100 };
    let (yard, file, _host) = made();
    let inherited = file.inherit().unwrap();
    let mut follower = Follower::start("get pages", &inherited);
    let stop = &follower.words.words()[1];
    let kinds = [(Order::ZERO, MapLayout::Full), (Order(9), MapLayout::Deduplicated)];
    let mut written = 0;
    for (question, (order, layout)) in (1..=2 * rounds).zip(kinds.into_iter().cycle()) {
        let id = yard.map_device(DeviceRequest { range: USED, ..request(1, order, layout) }).unwrap();
        // Time for the followers to start and to be preempted.
        std::thread::sleep(Duration::from_micros(200));
        if layout == MapLayout::Deduplicated {
            written += u64::from(bytes_of_tails(&follower, question) > 0);
        }
        // A follower may be preempted while it has a reference.
        while yard.devices().unmap(id, Removal::Wait).is_err() {}
    }
    assert!(written * 40 <= rounds, "gets have written to tails in {written} of {rounds} rounds");
    stop.store(1, Ordering::Relaxed);
    let status = follower.child.wait().unwrap();
    assert!(status.success(), "{status}");
    yard.validate().unwrap();
}

#[test]
fn a_process_that_is_killed_during_gets_keeps_references_at_most() {
    for kill in 0..20 {
        let (yard, file, _host) = made();
        let mut follower = Follower::start("get pages", &file.inherit().unwrap());
        let asked = DeviceRequest { range: USED, ..request(1, Order(9), MapLayout::Deduplicated) };
        let id = yard.map_device(asked).unwrap();
        std::thread::sleep(Duration::from_micros(100 * kill));
        follower.child.kill().unwrap();
        follower.child.wait().unwrap();
        match yard.devices().unmap(id, Removal::Wait) {
            Ok(()) => drop(yard.map_device(asked).unwrap()),
            Err(DeviceError::InUse { references, pages, first }) => {
                assert!((1..=3).contains(&references) && (pages, first) == (1, USED.start), "{references} references");
            }
            Err(error) => panic!("{error}"),
        }
        let next = PfnRange::new(USED.end, USED.count());
        yard.map_device(DeviceRequest { range: next, ..asked }).unwrap();
        yard.validate().unwrap();
    }
}

/// Opens files until this process may open no more.
fn use_all_descriptors() -> Vec<File> {
    let few = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: the call only reads `few`.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn a_process_without_descriptors_takes_no_stopped_process_for_dead() {
    if !crate::own_process::is_own_process(
        module_path!(),
        "a_process_without_descriptors_takes_no_stopped_process_for_dead",
    ) {
        return;
    }
    let (yard, file, host) = made();
    let follower = Follower::start("sleep", &file.inherit().unwrap());
    stop(&follower.child);
    let used = use_all_descriptors();
    // SAFETY: only yards write to the file.
    let refused = unsafe { HostYard::builder().attach(&file) }.host(&host).build().unwrap_err();
    assert!(matches!(refused, HostYardError::File(SharedFileError::Place(_))), "{refused}");
    let error = yard.map_device(request(1, GIGANTIC, MapLayout::Deduplicated)).unwrap_err();
    drop(used);
    let HostDeviceError::Map { problem: DeviceMapProblem::NoAnswer { process, .. }, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*process, follower.child.id());
}

#[test]
fn a_forked_child_that_drops_a_yard_leaves_its_view_to_the_parent() {
    let name = "a_forked_child_that_drops_a_yard_leaves_its_view_to_the_parent";
    if !crate::own_process::is_own_process(module_path!(), name) {
        return;
    }
    let (yard, file, host) = made();
    let other = attached(&file, &host);
    // SAFETY: the child unlocks no lock of another thread's, and calls nothing that needs one.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(10);
            drop(yard);
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!((libc::waitpid(child, &raw mut status, 0), status), (child, 0));
    }
    let asked = request(1, GIGANTIC, MapLayout::Deduplicated);
    other.map_device(asked).unwrap();
    assert_eq!(read_all(&yard, asked.range), 1);
    assert_eq!(map_use(&yard, asked.range).resident, ByteSize(4096), "the parent's view has followed");
}
