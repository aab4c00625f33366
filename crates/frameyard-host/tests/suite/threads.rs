//! Threads that allocate, write, exchange, check and free at the same time, pinned to CPUs or not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::checked_yard::{CheckedYard, range};
use frameyard::boot::{BootError, Poisoning};
use frameyard::policy::PolicyError;
use frameyard::validate::ValidateError;
use frameyard::watermarks::PcpSizing;
use frameyard::{AllocError, CpuId, Frames, FreeError, Gfp, NodeId, Order, PageCount, PfnRange, Yard, YardConfig};
use frameyard_host::{
    Budget, CpuIdentity, CpuList, DeviceMemory, HostPlatform, HostTopology, HostYard, HostYardBuilder, HostYardError,
    InitWatch, MappedFrames, MemoryError, ObservedYard,
};

const THREADS: u64 = 5;
const MEMORY: [(PfnRange, NodeId); 3] = [range(1, 0x9e, 0), range(0x1000, 0x4000, 0), range(0x10_0000, 0x4000, 1)];
const CPUS: [NodeId; 3] = [NodeId(0), NodeId(0), NodeId(1)];

/// The CPUs of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Placement {
    /// Chosen by the host.
    Unpinned,
    /// One CPU each.
    Pinned,
    /// One CPU each, changed every 256 steps.
    Moving,
}

/// Frames and the stamp that is written in them.
struct Held<'y> {
    frames: MappedFrames<&'y HostYard>,
    stamp: u64,
}

impl<'y> Held<'y> {
    /// Writes to the first and last word of every frame.
    fn new(mut frames: MappedFrames<&'y HostYard>, stamp: u64) -> Self {
        let first = frames.pfn().0;
        for (at, bytes) in frames.bytes_mut().chunks_exact_mut(4096).enumerate() {
            let word = (stamp << 24 ^ (first + at as u64)).to_le_bytes();
            bytes[..8].copy_from_slice(&word);
            bytes[4088..].copy_from_slice(&word);
        }
        Self { frames, stamp }
    }

    fn check(&self) {
        let first = self.frames.pfn().0;
        for (at, bytes) in self.frames.bytes().chunks_exact(4096).enumerate() {
            let word = (self.stamp << 24 ^ (first + at as u64)).to_le_bytes();
            assert_eq!([&bytes[..8], &bytes[4088..]], [&word, &word], "frame {at} of {:?}", self.frames);
        }
    }
}

/// Small deterministic random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

struct Stress<'y> {
    yard: &'y CheckedYard,
    /// Frames that any thread may take and free.
    slots: [Mutex<Option<Held<'y>>>; 32],
    served: AtomicU64,
    foreign: AtomicU64,
    cpus: CpuList,
    done: AtomicBool,
}

impl<'y> Stress<'y> {
    fn allocate(&self, random: &mut Random) -> Result<MappedFrames<&'y HostYard>, AllocError> {
        let types = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL | Gfp::RECLAIMABLE, Gfp::ATOMIC];
        let gfp = types[random.below(4) as usize] | Gfp::NOWARN;
        match random.below(64) {
            0 => self.yard.frames(Order(9), gfp),
            1 => self.yard.request(PageCount(1 + random.below(100)), gfp).guard(),
            2 => self.yard.frames(Order(4 + random.below(5) as u8), gfp),
            3 => {
                let block = self.yard.core().frames(Order(3), gfp)?;
                self.yard.with_bytes(block.into_single_frames().last().expect("the last of eight frames"))
            }
            n if n < 24 => self.yard.frames(Order(1 + random.below(3) as u8), gfp),
            _ => self.yard.frames(Order::ZERO, gfp),
        }
    }

    fn run(&self, thread: u64, steps: u64, placement: Placement) {
        let mut random = Random(0x2545_f491_4f6c_dd1d ^ thread << 40);
        for step in 0..steps {
            let moves = step == 0 || step % 256 == 0 && placement == Placement::Moving;
            if moves && placement != Placement::Unpinned {
                let all = self.cpus.as_slice();
                let cpu = all[(thread + step / 256) as usize % all.len()];
                CpuList::from_iter([cpu]).pin_this_thread().unwrap();
            }
            let held = match self.allocate(&mut random) {
                Ok(frames) => Some(Held::new(frames, thread << 32 | step)),
                Err(AllocError::OutOfMemory { .. }) => None,
                Err(problem) => panic!("{problem}"),
            };
            self.served.fetch_add(u64::from(held.is_some()), Ordering::Relaxed);
            let slot = &self.slots[random.below(self.slots.len() as u64) as usize];
            let taken = std::mem::replace(&mut *slot.lock().unwrap_or_else(PoisonError::into_inner), held);
            if let Some(taken) = taken {
                taken.check();
                self.foreign.fetch_add(u64::from(taken.stamp >> 32 != thread), Ordering::Relaxed);
            }
        }
    }

    fn drain(&self) {
        for round in 0u32.. {
            if self.done.load(Ordering::Relaxed) {
                break;
            }
            match round % 4 {
                0 => self.yard.drain_all(),
                1 => self.yard.core().lists().drain_cpu(CpuId(round / 4 % 3)),
                2 => self.yard.core().lists().resize(PcpSizing::Fixed(8)),
                _ => self.yard.core().lists().resize(PcpSizing::Scaled),
            }
            std::thread::yield_now();
        }
        self.yard.core().lists().resize(PcpSizing::Scaled);
    }
}

/// Five threads, and one that drains. At the end every frame is free and the validator agrees.
fn stress(placement: Placement, poisoning: Poisoning, identity: Option<CpuIdentity>, steps: u64) {
    let config = YardConfig { poisoning, ..YardConfig::new(&CPUS) };
    let builder = identity.into_iter().fold(HostYard::builder(), |builder, identity| builder.identity(identity));
    let yard = CheckedYard::new(builder, &MEMORY, &config);
    let cpus = HostTopology::current().unwrap().allowed().clone();
    let stress = Stress {
        yard: &yard,
        slots: Default::default(),
        served: AtomicU64::new(0),
        foreign: AtomicU64::new(0),
        cpus,
        done: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let stress = &stress;
        let drainer = scope.spawn(|| stress.drain());
        let workers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || stress.run(thread, steps, placement))).collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stress.done.store(true, Ordering::Relaxed);
        drainer.join().unwrap();
        assert!(results.iter().all(Result::is_ok), "a thread panicked");
    });
    for held in stress.slots.iter().filter_map(|slot| slot.lock().unwrap().take()) {
        held.check();
    }
    assert!(stress.served.load(Ordering::Relaxed) > steps * THREADS / 2, "most requests were served");
    assert!(stress.foreign.load(Ordering::Relaxed) > stress.slots.len() as u64, "threads freed each other's frames");
    assert_eq!(yard.stats().poison_hits(), 0);
}

#[test]
fn pinned_threads_share_a_yard() {
    stress(Placement::Pinned, Poisoning::Off, None, 30_000);
}

#[test]
fn unpinned_threads_share_a_yard() {
    stress(Placement::Unpinned, Poisoning::Off, None, 30_000);
}

#[test]
fn threads_that_change_cpus_share_a_yard() {
    stress(Placement::Moving, Poisoning::Off, None, 30_000);
}

#[test]
fn threads_with_one_cpu_identity_share_a_yard() {
    stress(Placement::Unpinned, Poisoning::Off, Some(CpuIdentity::Fixed(CpuId(2))), 30_000);
}

#[test]
fn no_thread_writes_to_freed_frames() {
    stress(Placement::Moving, Poisoning::On, None, 4_000);
}

#[test]
fn yards_guards_and_errors_may_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    fn is_error<E: std::error::Error + Send + Sync + 'static>() {}
    crosses::<HostYard>();
    crosses::<ObservedYard>();
    crosses::<Yard<HostPlatform>>();
    crosses::<MappedFrames<&HostYard>>();
    crosses::<MappedFrames<Arc<HostYard>>>();
    crosses::<Frames<'_, HostPlatform>>();
    crosses::<HostYardBuilder>();
    crosses::<HostTopology>();
    crosses::<DeviceMemory>();
    crosses::<Budget>();
    crosses::<InitWatch>();
    is_error::<HostYardError>();
    is_error::<AllocError>();
    is_error::<FreeError>();
    is_error::<MemoryError>();
    is_error::<BootError>();
    is_error::<PolicyError>();
    is_error::<ValidateError>();
}
