//! A process that shares address spaces, files and LRU lists is killed or stopped at random points while it works on them.
//!
//! The other process never waits without end: its calls succeed, or end in an error, and errors of locks name the process.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use frameyard::platform::LockError;
use frameyard::{ByteSize, CpuId, MemoryTable, NodeId, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{CpuIdentity, HostPlatform, HostTopology, HostYard, SharedFrames, SharedMemoryFile, SharedWords};
use frameyard_vm::{
    AddressSpace, Damage, Dirty, FileError, FileId, HugeAdvice, MapError, MapRequest, MemoryAccess, PinError,
    PinRequest, RefHandling, SpaceId, VirtAddr, VirtRange, Vm, VmConfig, VmError, VmValidateError,
};

const READY: &str = "FRAMEYARD_TEST_READY";
const NAMES: &str = "FRAMEYARD_TEST_NAMES";
const SEED: &str = "FRAMEYARD_TEST_SEED";
/// How often the neighbour is killed; 5 unless this is set.
const KILLS: &str = "FRAMEYARD_KILLS";

const MEMORY: [(PfnRange, NodeId); 1] = [(PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_4000) }, NodeId(0))];
const PAGES: u64 = 1024;
const START: VirtAddr = VirtAddr(1 << 40);
/// Longer than any wait for a process that has ended, with much room for a busy host.
const NO_HANG: Duration = Duration::from_secs(30);
/// Longer than one call may take after the holder of its lock was killed.
const LONGEST_CALL: Duration = Duration::from_secs(5);

type HostVm<'y> = Vm<'y, HostPlatform>;

/// The next random number (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn page(number: u64) -> VirtAddr {
    VirtAddr(START.0 + number * 4096)
}

/// What ends the work of a process: a lock that is not released, or damage.
fn lock_error(error: VmError) -> Option<VmError> {
    matches!(error, VmError::Lock(_) | VmError::Damaged(_)).then_some(error)
}

/// One random action on the shared space and the shared file. Other errors than those of locks are part of the race.
fn act(vm: HostVm<'_>, space: &AddressSpace<'_, HostPlatform>, file: FileId, random: u64) -> Result<(), VmError> {
    let first = random >> 8 & (PAGES - 1);
    let pages = (1 + (random >> 24) % 64).min(PAGES - first);
    let range = VirtRange { start: page(first), end: page(first + pages) };
    let of_map = |error: MapError| if let MapError::Vm(error) = error { Some(error) } else { None };
    let of_fault = |error| if let frameyard_vm::FaultError::Vm(error) = error { Some(error) } else { None };
    let error = match random % 16 {
        0 | 1 => {
            let advice = if random >> 32 & 3 == 0 { HugeAdvice::Huge } else { HugeAdvice::Never };
            space.map(MapRequest::anonymous(range.size()).at(range.start).advised(advice)).err().and_then(of_map)
        }
        2 => space.unmap(range).err().and_then(of_map),
        3..8 => space.touch(range.start, MemoryAccess::Write).err().and_then(of_fault),
        8 => space.read(range.start, &mut [0; 5000]).err().and_then(of_fault),
        9 | 10 => {
            let mut frames = [Pfn(0); 8];
            match space.take_pages(range.start, PinRequest::PIN, &mut frames) {
                Ok(PageCount(taken)) => {
                    let taken = &frames[..taken as usize];
                    // A page that the kill left half released is refused.
                    let _ = vm.unpin_pages(taken, RefHandling::Batched, Dirty::Keep);
                    None
                }
                Err(PinError::Fault(error)) => of_fault(error),
                Err(PinError::Vm(error)) => Some(error),
                Err(_) => None,
            }
        }
        11 | 12 => vm.file(file).and_then(|file| match file.read(first * 4096, &mut [0; 9000]) {
            Err(FileError::Vm(error)) => Some(error),
            _ => None,
        }),
        13 => {
            vm.reclaim_pages(NodeId(0), frameyard::units::ZoneKind::Movable, PageCount(8));
            None
        }
        14 => {
            vm.file(file).inspect(|file| _ = file.drop_clean());
            None
        }
        _ => match vm.create_space() {
            Ok(own) => own.map(MapRequest::anonymous(ByteSize::kib(64))).err().and_then(of_map),
            Err(error) => Some(error),
        },
    };
    error.and_then(lock_error).map_or(Ok(()), Err)
}

fn made() -> (HostYard, SharedMemoryFile) {
    let host = HostTopology::current().unwrap();
    let memory = MemoryTable { memory: &MEMORY, ..MemoryTable::default() };
    let config = YardConfig::new(&[NodeId(0); 2]);
    let builder = HostYard::builder().identity(CpuIdentity::Fixed(CpuId(0))).lock_limit(Duration::from_millis(500));
    builder.build_shared(&memory, &config, SharedFrames::Memory, &host).unwrap()
}

/// A process that works on the shared space and file until it is killed.
struct Neighbour {
    child: Child,
}

impl Neighbour {
    fn start(file: &SharedMemoryFile, names: (SpaceId, FileId), seed: u64) -> Self {
        let ready = SharedWords::create(1).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        crate::own_process::run_test(&mut command, module_path!(), "neighbour_works_until_it_is_killed");
        command.env(READY, ready.path()).env(SEED, seed.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env(NAMES, format!("{} {}", names.0.to_bits(), names.1.to_bits()));
        let inherited = file.inherit().unwrap();
        inherited.announce(&mut command);
        let mut child = command.spawn().unwrap();
        // Acquire: pairs with the Release in `neighbour_works_until_it_is_killed`.
        while ready.words()[0].load(Ordering::Acquire) == 0 {
            assert!(child.try_wait().unwrap().is_none(), "the neighbour failed");
            std::thread::yield_now();
        }
        Self { child }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the call touches no memory.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "a worker of other tests"]
fn neighbour_works_until_it_is_killed() {
    let host = HostTopology::current().unwrap();
    let file = SharedMemoryFile::from_environment(&host).unwrap();
    let mut state: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    let builder = HostYard::builder().identity(CpuIdentity::Fixed(CpuId(state as u32 / 2 % 2)));
    // SAFETY: only yards write to the file.
    let yard = unsafe { builder.attach(&file, &host) }.unwrap();
    let vm = Vm::attach(&yard).unwrap();
    let names = std::env::var(NAMES).unwrap();
    let [space, file] = [0, 1].map(|at| names.split(' ').nth(at).unwrap().parse().unwrap());
    let space = vm.space(SpaceId::from_bits(space)).unwrap();
    let ready = SharedWords::open(std::env::var(READY).unwrap().as_ref()).unwrap();
    // Release: pairs with the Acquire in `Neighbour::start`.
    ready.words()[0].store(1, Ordering::Release);
    state |= 1;
    while act(vm, &space, FileId::from_bits(file), next(&mut state)).is_ok() {}
}

/// Works until `stop`, or an error of a lock; no call takes long.
fn work(
    vm: HostVm<'_>,
    space: &AddressSpace<'_, HostPlatform>,
    file: FileId,
    seed: u64,
    mut stop: impl FnMut() -> bool,
) -> Result<(), VmError> {
    let mut state = seed | 1;
    while !stop() {
        let begin = Instant::now();
        let random = next(&mut state);
        let done = act(vm, space, file, random);
        assert!(begin.elapsed() < LONGEST_CALL, "action {} took {:?}: {done:?}", random % 16, begin.elapsed());
        done?;
    }
    Ok(())
}

/// Checks that an error of a lock names the killed process, and that the state says so from then on.
fn examine(vm: HostVm<'_>, worked: Result<(), VmError>, killed: u32) -> bool {
    let begin = Instant::now();
    let validated = vm.validate();
    assert!(begin.elapsed() < LONGEST_CALL, "the check took {:?}", begin.elapsed());
    match worked {
        Err(VmError::Damaged(what)) => panic!("a kill damages no words: {what}"),
        Err(VmError::Lock(error)) => {
            assert!(matches!(error, LockError::HolderEnded { holder, .. } if holder == killed), "{error}");
            assert_eq!(validated, Err(VmValidateError::Lock(error)));
            assert_eq!(Vm::attach(vm.yard()).err(), Some(VmError::Lock(error)));
            assert_eq!(vm.create_space().err(), Some(VmError::Lock(error)));
        }
        _ => {}
    }
    assert!(!matches!(validated, Err(VmValidateError::Damaged(Damage::Object))), "{validated:?}");
    matches!(validated, Err(VmValidateError::Lock(_)))
}

/// Kills a neighbour at a random point; whether the yard is damaged then.
fn kill_one(seed: u64) -> bool {
    let (done, wait) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let (yard, memory_file) = made();
        let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
        let space = vm.create_space().unwrap();
        let file = vm.create_file(1, ByteSize::kib(4 * PAGES)).unwrap();
        let neighbour = Neighbour::start(&memory_file, (space.id(), file.id()), seed);
        let killed = neighbour.child.id();
        let begin = Instant::now();
        let delay = Duration::from_micros(2_000 + seed % 20_000);
        let mut neighbour = Some(neighbour);
        let worked = work(vm, &space, file.id(), !seed, || {
            if begin.elapsed() > delay
                && let Some(mut neighbour) = neighbour.take()
            {
                neighbour.child.kill().unwrap();
            }
            begin.elapsed() > 2 * delay
        });
        drop(neighbour);
        let is_damaged = examine(vm, worked, killed);
        drop(space);
        drop(file);
        done.send(is_damaged).unwrap();
    });
    match wait.recv_timeout(NO_HANG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("seed {seed}: a call hangs"),
        ended => {
            worker.join().unwrap_or_else(|_| panic!("seed {seed}"));
            ended.unwrap()
        }
    }
}

#[test]
fn no_call_hangs_after_a_neighbour_of_address_spaces_was_killed() {
    let kills = std::env::var(KILLS).map_or(5, |kills| kills.parse().unwrap());
    let mut state = u64::from(std::process::id()) << 20 | 1;
    let damaged = (0..kills).filter(|_| kill_one(next(&mut state) >> 8)).count();
    println!("{damaged} of {kills} kills damaged the yard");
}

#[test]
fn a_stopped_reader_of_a_map_is_named_and_damages_nothing() {
    let (yard, memory_file) = made();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let file = vm.create_file(1, ByteSize::kib(4 * PAGES)).unwrap();
    let neighbour = Neighbour::start(&memory_file, (space.id(), file.id()), 4);
    let mut found = None;
    let begin = Instant::now();
    for turn in (0..).map(|turn| turn % PAGES).take_while(|_| begin.elapsed() < NO_HANG) {
        neighbour.signal(libc::SIGSTOP);
        // A writer of the map waits for all its readers.
        found = space.unmap(VirtRange { start: page(turn), end: page(turn + 1) }).err();
        if matches!(found, Some(MapError::Vm(VmError::Lock(_)))) {
            break;
        }
        neighbour.signal(libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(1));
    }
    let Some(MapError::Vm(VmError::Lock(stuck))) = found else { panic!("no stop hits a holder: {found:?}") };
    assert!(matches!(stuck, LockError::LockStuck { holder, .. } if holder == neighbour.child.id()), "{stuck}");
    neighbour.signal(libc::SIGCONT);
    let begin = Instant::now();
    while let Err(MapError::Vm(VmError::Lock(error))) = space.unmap(VirtRange { start: page(0), end: page(1) }) {
        assert!(begin.elapsed() < NO_HANG, "{error}");
    }
    drop(neighbour);
}
