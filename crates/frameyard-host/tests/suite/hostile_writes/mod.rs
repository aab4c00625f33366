//! A process that writes anything anywhere into the memory file of a live yard, while two views of the yard work.
//!
//! [`run`] repeats the schedule that its bytes describe: steps that corrupt words of the file, and steps that use the yard. For
//! the fuzz target `hostile_process` and the tests. A view may lose frames, or get errors; it must not crash, panic or hang.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use frameyard::compaction::CompactRequest;
use frameyard::devices::{DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::owners::Owners;
use frameyard::policy::ZonePolicy;
use frameyard::{
    ByteSize, CpuId, Geometry, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId,
};
use frameyard_host::{Backing, CpuIdentity, HostTopology, HostYard, HostYardError, SharedFrames, SharedMemoryFile};

/// The bytes of a step.
pub(crate) const STEP: usize = 8;

/// Two nodes, a hole of one section, and ends that no large block fits.
const MEMORY: [(PfnRange, NodeId); 3] = [
    (PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_0c80) }, NodeId(0)),
    (PfnRange { start: Pfn(0x10_1800), end: Pfn(0x10_2400) }, NodeId(0)),
    (PfnRange { start: Pfn(0x10_2400), end: Pfn(0x10_3003) }, NodeId(1)),
];
/// Without a hole: a look-up of a frame outside the map is the caller's error, not another process's.
const WITHOUT_HOLES: [(PfnRange, NodeId); 2] = [
    (PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_2400) }, NodeId(0)),
    (PfnRange { start: Pfn(0x10_2400), end: Pfn(0x10_4000) }, NodeId(1)),
];
const RESERVED: [PfnRange; 1] = [PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_0007) }];
const CMA: [PfnRange; 1] = [PfnRange { start: Pfn(0x10_1800), end: Pfn(0x10_1c00) }];
pub(crate) const DEVICES: PfnRange = PfnRange { start: Pfn(0x10_4000), end: Pfn(0x10_4800) };
const CPUS: [NodeId; 4] = [NodeId(0), NodeId(0), NodeId(1), NodeId(1)];
/// A wait for a lock whose word names a living process ends after this.
const LOCK_LIMIT: Duration = Duration::from_millis(2);

/// How often each of several threads uses the yard.
const LEAST_USES: u64 = 200;
const MOST_USES: u64 = 2000;

/// A random number generator (splitmix64).
#[derive(Clone, Copy)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }
}

/// A part of the file, and its bytes when the yard was new.
struct Part {
    offset: u64,
    bytes: Vec<u8>,
}

/// A memory file with a yard, which is new again before each run.
pub(crate) struct Target {
    host: HostTopology,
    file: SharedMemoryFile,
    raw: File,
    parts: Vec<Part>,
}

impl Target {
    /// Makes the yard.
    pub(crate) fn new(frames: SharedFrames) -> Self {
        Self::under(ZonePolicy::default(), frames)
    }

    /// As [`new`](Self::new), of a yard that has a policy from its creation on.
    pub(crate) fn under(policy: ZonePolicy, frames: SharedFrames) -> Self {
        Self::of(&MEMORY, policy, frames)
    }

    /// As [`under`](Self::under), of a machine without holes.
    pub(crate) fn without_holes(policy: ZonePolicy, frames: SharedFrames) -> Self {
        Self::of(&WITHOUT_HOLES, policy, frames)
    }

    fn of(memory: &[(PfnRange, NodeId)], policy: ZonePolicy, frames: SharedFrames) -> Self {
        let host = HostTopology::current().unwrap();
        let memory = MemoryTable { memory, reserved: &RESERVED, cma: &CMA };
        let geometry = Geometry::new(ByteSize::kib(4), ByteSize::mib(8), Order(9), Order(10)).unwrap();
        let config = YardConfig { geometry, policy, device_space: Some(DEVICES), ..YardConfig::new(&CPUS) };
        let builder = builder(0).machine(&memory, &config).host(&host).shared();
        let yard = match frames {
            SharedFrames::Memory => builder.build(),
            SharedFrames::Phantom => builder.backing(Backing::Phantom).build(),
        };
        let yard = yard.unwrap();
        let file = yard.shared_file().unwrap().try_clone().unwrap();
        let map_bytes = yard.core().map_frames().0 * 64;
        drop(yard);
        let inherited = file.inherit().unwrap();
        let path = format!("/proc/self/fd/{}", inherited.as_raw_fd());
        let raw = File::options().read(true).write(true).open(path).unwrap();
        let word = |offset| {
            let mut bytes = [0; 8];
            raw.read_exact_at(&mut bytes, offset).unwrap();
            u64::from_le_bytes(bytes)
        };
        // The offsets of map, control region, words of views, and processes in the header of the file.
        let [map, control, views, processes] = [8, 10, 15, 20].map(|at| word(at * 8));
        let control_bytes = word(control + 7 * 8);
        let parts = [(map, map_bytes), (control, control_bytes), (views, 0x4000), (processes, 1026 * 8)];
        let parts = parts.map(|(offset, len)| {
            let mut bytes = vec![0; len as usize];
            raw.read_exact_at(&mut bytes, offset).unwrap();
            Part { offset, bytes }
        });
        Self { host, file, raw, parts: parts.into() }
    }

    /// Makes the yard new again.
    pub(crate) fn restore(&self) {
        self.parts.iter().for_each(|part| self.raw.write_all_at(&part.bytes, part.offset).unwrap());
    }

    /// A view of the yard whose threads are all on one CPU.
    pub(crate) fn attach(&self, cpu: u32) -> Result<HostYard, HostYardError> {
        // SAFETY: that the words of the file may be anything is what the target tests.
        unsafe { builder(cpu).attach(&self.file) }.host(&self.host).build()
    }

    /// As [`attach`](Self::attach), of a yard that is new again.
    pub(crate) fn view(&self, cpu: u32) -> HostYard {
        self.attach(cpu).expect("a yard that is new again")
    }

    /// A word of the file that is used, mostly: one of the next bytes that are not zero.
    fn place(&self, random: &mut Random) -> u64 {
        let part = [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3][random.below(13) as usize];
        self.place_in(part, random)
    }

    fn place_in(&self, part: usize, random: &mut Random) -> u64 {
        let part = &self.parts[part];
        let words = part.bytes.len() as u64 / 8;
        let at = random.below(words);
        let mut behind = [0; 0x2000];
        let len = behind.len().min(((words - at) * 8) as usize);
        self.raw.read_exact_at(&mut behind[..len], part.offset + at * 8).unwrap();
        let used = behind[..len].chunks(8).position(|word| word.iter().any(|byte| *byte != 0)).unwrap_or(0);
        part.offset + (at + used as u64) * 8
    }

    fn read(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.raw.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn write(&self, at: u64, word: u64) {
        self.raw.write_all_at(&word.to_le_bytes(), at).unwrap();
    }

    /// A value that something may mistake for its own.
    fn value(&self, random: &mut Random, old: u64) -> u64 {
        let pages = 0x4800;
        match random.below(12) {
            0 => random.next(),
            1 => old ^ 1 << random.below(64),
            2 => random.below(16),
            3 => random.below(pages),
            4 => random.below(pages) << 32 | random.below(pages),
            5 => old.wrapping_add(1 << random.below(63)),
            6 => self.read(self.place(random)),
            7 => u64::MAX,
            8 => old & !0xffff_ffff | random.below(pages),
            9 => old & 0xffff_ffff | random.below(1 << 32) << 32,
            10 => old & !0xff00 | random.below(256) << 8,
            _ => old.rotate_left(8 * random.below(8) as u32),
        }
    }

    /// Writes what stands elsewhere, so that a frame is in two lists, or twice in one: the same word of another page structure, or one
    /// half of a word, or of the next, of the control region.
    fn duplicate(&self, random: &mut Random) {
        if random.below(2) == 0 {
            let at = self.place_in(0, random);
            return self.write(at, self.read(self.place_in(0, random) & !63 | at & 63));
        }
        let at = self.place_in(1, random);
        let half = self.read(at ^ (8 * random.below(2))) >> (32 * random.below(2)) & 0xffff_ffff;
        self.write(
            at,
            match random.below(3) {
                0 => half << 32 | half,
                1 => self.read(at) & 0xffff_ffff | half << 32,
                _ => self.read(at) & !0xffff_ffff | half,
            },
        );
    }

    /// Has the first process that uses the file, which lives, hold the right to change views.
    #[cfg(test)]
    pub(crate) fn hold_right_to_change_views(&self) {
        let [views, processes] = [2, 3].map(|part| self.parts[part].offset);
        let process = (0..1024).map(|slot| self.read(processes + slot * 8)).find(|word| *word != 0);
        self.write(views, process.expect("a process"));
    }

    /// Writes a word, a few words or a cache line.
    pub(crate) fn corrupt(&self, random: &mut Random) {
        let at = self.place(random);
        match random.below(10) {
            8 | 9 => self.duplicate(random),
            0 => {
                let from = self.place(random) & !63;
                (0..8).for_each(|word| self.write((at & !63) + word * 8, self.read(from + word * 8)));
            }
            1 => (0..8).for_each(|word| self.write((at & !63) + word * 8, random.next())),
            2 => (0..8).for_each(|word| self.write((at & !63) + word * 8, 0)),
            _ => self.write(at, self.value(random, self.read(at))),
        }
    }
}

fn builder(cpu: u32) -> frameyard_host::HostYardBuilder<'static> {
    HostYard::builder().identity(CpuIdentity::Fixed(CpuId(cpu))).lock_limit(LOCK_LIMIT)
}

/// One user of the yard, and what it has.
#[derive(Default)]
pub(crate) struct User {
    held: Vec<(Pfn, Order)>,
}

const FLAGS: [Gfp; 6] =
    [Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL, Gfp::ATOMIC, Gfp::NOWAIT, Gfp::RECLAIMABLE, Gfp::HIGHUSER_MOVABLE];

impl User {
    fn allocate(&mut self, yard: &HostYard, random: &mut Random) {
        let order = Order([0, 0, 0, 0, 0, 1, 2, 3, 5, 9, 10][random.below(11) as usize]);
        let gfp = FLAGS[random.below(6) as usize] | Gfp::NOWARN;
        let gfp = if random.below(8) == 0 { gfp | Gfp::ZERO } else { gfp };
        if self.held.len() < 500
            && let Ok(pfn) = yard.alloc(order, gfp)
        {
            self.held.push((pfn, order));
        }
    }

    fn free(&mut self, yard: &HostYard, random: &mut Random) {
        if !self.held.is_empty() {
            let (pfn, order) = self.held.swap_remove(random.below(self.held.len() as u64) as usize);
            let _ = yard.free(pfn, order);
        }
    }

    /// Uses the yard. Any result will do.
    pub(crate) fn operate(&mut self, yard: &HostYard, random: &mut Random) {
        let any_frame = Pfn(MEMORY[0].0.start.0 + random.below(0x4800));
        let range = PfnRange::new(any_frame, PageCount(1 << random.below(11)));
        let zone = ZoneId(random.below(12) as u16);
        // Each frame in transit, which may be so for ever now, makes a patient request wait for a while.
        let patience = if random.below(64) == 0 { Gfp::KERNEL } else { Gfp::NOWAIT };
        match random.below(64) {
            0..20 => self.allocate(yard, random),
            20..40 => self.free(yard, random),
            40 => yard.drain_all(),
            41 => drop(yard.validate()),
            42 => drop(yard.core().set_policy(ZonePolicy::ALL[random.below(ZonePolicy::ALL.len() as u64) as usize])),
            43 => drop(yard.request(range, patience | Gfp::NOWARN).guard()),
            44 => drop(yard.request(range.count(), patience | Gfp::MOVABLE | Gfp::NOWARN).guard()),
            45 => drop(yard.request(range.count(), patience | Gfp::MOVABLE).from_any_area().range()),
            46 => {
                yard.stats().zones().for_each(drop);
                let _ = (yard.stats().free_pages(), yard.stats().managed_pages(), yard.stats().frame(any_frame));
            }
            47 => {
                let view = yard.zone(zone);
                for order in (0..=10).map(Order) {
                    let _ = (view.fragmentation_index(order), view.unusable_index(order));
                }
                let _ = (view.lock_telemetry(), view.mechanism_counts(), view.pcp(CpuId(1)));
            }
            48 => drop(yard.core().compaction().zone(zone, CompactRequest::WHOLE_ZONE, &Owners::NONE)),
            49 => {
                let mut frames = [Pfn(0); 100];
                if let Ok(got) = yard.alloc_bulk(Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN, &mut frames) {
                    let _ = yard.free_bulk(&frames[..got]);
                }
            }
            50 | 51 => {
                if let Ok(mut frames) = yard.frames(Order(random.below(4) as u8), Gfp::HIGHUSER_MOVABLE) {
                    frames.bytes_mut().fill(7);
                }
            }
            52 => drop(yard.free(any_frame, Order(random.below(12) as u8))),
            53 => drop(yard.free_range(range)),
            54 => drop(yard.core().report_free_pages(Order(9), PageCount(1024))),
            55 => yard.zone(zone).drain_cpu(CpuId(random.below(5) as u32)),
            56 => {
                let range = PfnRange::new(DEVICES.start, PageCount(512 << random.below(3)));
                let layout = MapLayout::ALL[random.below(MapLayout::ALL.len() as u64) as usize];
                let order = Order(9 * random.below(2) as u8);
                let placement = MapPlacement::Memory;
                let _ = yard.devices().map(DeviceRequest { range, node: NodeId(0), order, layout, placement });
            }
            57 => {
                let found: Vec<_> = yard.devices().list().take(8).collect();
                for device in found {
                    let _ = (yard.devices().at(device.range.start), yard.devices().page(device.range.start).is_some());
                    let _ = yard.devices().unmap(device.id, Removal::Refuse);
                }
            }
            58 => {
                let device = Pfn(DEVICES.start.0 + random.below(0x800));
                let _ = (yard.devices().add_mapping(device), yard.devices().split(device), yard.devices().join(device));
                let _ = yard.devices().remove_mapping(device);
            }
            59 => drop(yard.core().compaction().background(NodeId(random.below(2) as u16), &Owners::NONE)),
            60 => {
                let _ = yard.core().init().range(range);
                let _ = yard.core().init().next_section(NodeId(random.below(3) as u16));
            }
            61 => yard.core().lists().resize(frameyard::watermarks::PcpSizing::Fixed(random.below(2000) as u32)),
            62 => drop(yard.core().cma().release(range)),
            _ => {
                if let Some((pfn, order)) = self.held.pop()
                    && yard.core().split(pfn, order).is_err()
                {
                    let _ = yard.free(pfn, order);
                }
            }
        }
    }
}

/// Runs a schedule: the first byte chooses the policy, each further step corrupts the file or uses the yard. Returns the number of
/// uses.
pub(crate) fn run(target: &Target, bytes: &[u8]) -> u64 {
    let Some((first, steps)) = bytes.split_first() else { return 0 };
    target.restore();
    let views = [target.view(0), target.view(2)];
    let _ = views[0].core().set_policy(ZonePolicy::ALL[usize::from(*first) % ZonePolicy::ALL.len()]);
    let mut users = [User::default(), User::default()];
    let mut uses = 0;
    for step in steps.as_chunks::<STEP>().0 {
        let [what, ..] = *step;
        let mut random = Random(u64::from_le_bytes(*step));
        if what < 0x40 {
            target.corrupt(&mut random);
            continue;
        }
        for _ in 0..1 + what % 32 {
            let at = usize::from(what & 0x20 != 0);
            users[at].operate(&views[at], &mut random);
            uses += 1;
        }
    }
    uses
}

/// As [`run`], with threads that use the yard while the steps of the schedule corrupt it.
pub(crate) fn run_with_threads(target: &Target, bytes: &[u8]) -> u64 {
    let Some((first, steps)) = bytes.split_first() else { return 0 };
    target.restore();
    let views = [target.view(0), target.view(2), target.view(3)];
    let _ = views[0].core().set_policy(ZonePolicy::ALL[usize::from(*first) % ZonePolicy::ALL.len()]);
    let ended = AtomicBool::new(false);
    let uses = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let users = views.iter().enumerate().map(|(thread, view)| {
            let (ended, uses) = (&ended, &uses);
            scope.spawn(move || {
                let (mut user, mut random) = (User::default(), Random(u64::from(*first) + thread as u64));
                for at in 0.. {
                    if at >= MOST_USES || (at >= LEAST_USES && ended.load(Ordering::Relaxed)) {
                        break;
                    }
                    user.operate(view, &mut random);
                    uses.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let users: Vec<_> = users.collect();
        for step in steps.as_chunks::<STEP>().0 {
            target.corrupt(&mut Random(u64::from_le_bytes(*step)));
        }
        ended.store(true, Ordering::Relaxed);
        // The scope waits for the closures only. A thread that is still ending looks like a leak to the leak check.
        for user in users {
            user.join().unwrap();
        }
    });
    uses.load(Ordering::Relaxed)
}
