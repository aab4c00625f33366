//! A process that shares address spaces, files and LRU lists is killed or stopped at random points while it works on them.
//!
//! The other process never waits without end: its calls succeed, or end in an error, and errors of locks name the process.

use std::time::{Duration, Instant};

use crate::sharing_process::{NO_HANG, SharingProcess, next, own_task, report_ready, seeds, without_hang};
use frameyard::platform::LockError;
use frameyard::{ByteSize, CpuId, MemoryTable, NodeId, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{CpuIdentity, HostPlatform, HostTopology, HostYard, SharedMemoryFile};
use frameyard_vm::{
    AddressSpace, Damage, Dirty, FileError, FileId, HugeAdvice, MapError, MapRequest, MemoryAccess, PinError,
    PinRequest, RefHandling, SpaceId, VirtAddr, VirtRange, Vm, VmConfig, VmError, VmValidateError,
};

const MEMORY: [(PfnRange, NodeId); 1] = [(PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_4000) }, NodeId(0))];
const PAGES: u64 = 1024;
const START: VirtAddr = VirtAddr(1 << 40);
/// Longer than one call may take after the holder of its lock was killed.
const LONGEST_CALL: Duration = NO_HANG;

type HostVm<'y> = Vm<'y, HostPlatform>;

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
    let memory = MemoryTable { memory: &MEMORY, ..MemoryTable::default() };
    let config = YardConfig::new(&[NodeId(0); 2]);
    let builder = HostYard::builder().identity(CpuIdentity::Fixed(CpuId(0))).lock_limit(Duration::from_millis(500));
    let yard = builder.machine(&memory, &config).shared().build().unwrap();
    let file = yard.shared_file().unwrap().try_clone().unwrap();
    (yard, file)
}

/// A process that works on the space and the file.
fn sharing_process(memory_file: &SharedMemoryFile, space: SpaceId, file: FileId, seed: u64) -> SharingProcess {
    SharingProcess::start(module_path!(), memory_file, &format!("{} {}", space.to_bits(), file.to_bits()), seed)
}

#[test]
#[ignore = "a worker of other tests"]
fn process_works_until_it_is_killed() {
    let host = HostTopology::current().unwrap();
    let file = SharedMemoryFile::from_environment(&host).unwrap();
    let (seed, names) = own_task();
    let builder = HostYard::builder().identity(CpuIdentity::Fixed(CpuId(seed as u32 / 2 % 2)));
    // SAFETY: only yards write to the file.
    let yard = unsafe { builder.attach(&file) }.host(&host).build().unwrap();
    let vm = Vm::attach(yard.core()).unwrap();
    let [space, file] = [0, 1].map(|at| names.split(' ').nth(at).unwrap().parse().unwrap());
    let space = vm.space(SpaceId::from_bits(space)).unwrap();
    report_ready();
    let mut state = seed | 1;
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
            assert!(matches!(error, LockError::OwnerDied { holder, .. } if holder == killed), "{error}");
            assert_eq!(validated, Err(VmValidateError::Lock(error)));
            assert_eq!(Vm::attach(vm.yard()).err(), Some(VmError::Lock(error)));
            assert_eq!(vm.create_space().err(), Some(VmError::Lock(error)));
        }
        _ => {}
    }
    assert!(!matches!(validated, Err(VmValidateError::Damaged(Damage::Object))), "{validated:?}");
    matches!(validated, Err(VmValidateError::Lock(_)))
}

/// Kills a sharing process at a random point; whether the yard is damaged then.
fn kill_one(seed: u64) -> bool {
    without_hang(&format!("seed {seed}"), move || {
        let (yard, memory_file) = made();
        let vm = Vm::create(yard.core(), &VmConfig::default()).unwrap();
        let space = vm.create_space().unwrap();
        let file = vm.create_file(1, ByteSize::kib(4 * PAGES)).unwrap();
        let other = sharing_process(&memory_file, space.id(), file.id(), seed);
        let killed = other.id();
        let worked = work(vm, &space, file.id(), !seed, other.killed_meanwhile(seed));
        examine(vm, worked, killed)
    })
}

#[test]
fn no_call_on_address_spaces_hangs_after_a_sharing_process_was_killed() {
    let seeds = seeds();
    let damaged = seeds.iter().filter(|seed| kill_one(**seed)).count();
    println!("{damaged} of {} kills damaged the yard", seeds.len());
}

#[test]
fn a_stopped_reader_of_a_map_is_named_and_damages_nothing() {
    let (yard, memory_file) = made();
    let vm = Vm::create(yard.core(), &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let file = vm.create_file(1, ByteSize::kib(4 * PAGES)).unwrap();
    let other = sharing_process(&memory_file, space.id(), file.id(), 4);
    let mut found = None;
    let begin = Instant::now();
    for turn in (0..).map(|turn| turn % PAGES).take_while(|_| begin.elapsed() < NO_HANG) {
        other.stop();
        // A writer of the map waits for all its readers.
        found = space.unmap(VirtRange { start: page(turn), end: page(turn + 1) }).err();
        if matches!(found, Some(MapError::Vm(VmError::Lock(_)))) {
            break;
        }
        other.go_on();
        std::thread::sleep(Duration::from_millis(1));
    }
    let Some(MapError::Vm(VmError::Lock(stuck))) = found else { panic!("no stop hits a holder: {found:?}") };
    assert!(matches!(stuck, LockError::LockStuck { holder, .. } if holder == other.id()), "{stuck}");
    other.go_on();
    let begin = Instant::now();
    while let Err(MapError::Vm(VmError::Lock(error))) = space.unmap(VirtRange { start: page(0), end: page(1) }) {
        assert!(begin.elapsed() < NO_HANG, "{error}");
    }
    drop(other);
}
