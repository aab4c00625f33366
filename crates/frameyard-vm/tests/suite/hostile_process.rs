//! Another process overwrites words of the frames with the state of address spaces and files, while this one works on them.
//!
//! Calls may fail and frames may be lost. No call panics, loops without end, or accesses memory outside the yard, which
//! AddressSanitizer checks in the fuzz target.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use frameyard::page::FrameLink;
use frameyard::units::ZoneKind;
use frameyard::{ByteSize, NodeId, PageCount, Pfn};
use frameyard_vm::{
    AddressSpace, Dirty, ExitOutcome, File, HugeAdvice, LruPolicy, MapRequest, MemoryAccess, MemoryRegion, PinRequest,
    PinnedPage, RefHandling, Sharing, ThpMode, VirtAddr, VirtRange, Vm, VmConfig,
};

use crate::test_yard::{TestMachine, TestPlatform, TestYard, limit_waits, run_on};

/// The bytes of an action.
pub(crate) const BYTES_PER_ACTION: usize = 8;
const PAGE: u64 = 4096;
/// The pages that the spaces use.
const PAGES: u64 = 1536;
const START: VirtAddr = VirtAddr(1 << 40);
/// Rounds of a wait: nothing ends a wait for an overwritten lock.
const LIMIT: u32 = 20;
/// Much longer than any call of this test.
const LONGEST: Duration = Duration::from_secs(60);

struct Victim<'y> {
    yard: &'y TestYard,
    vm: Vm<'y, TestPlatform>,
    spaces: Vec<AddressSpace<'y, TestPlatform>>,
    files: Vec<File<'y, TestPlatform>>,
    pins: Vec<PinnedPage<'y, TestPlatform>>,
    regions: Vec<MemoryRegion<'y, TestPlatform>>,
}

fn page(number: u64) -> VirtAddr {
    VirtAddr(START.0 + number % PAGES * PAGE)
}

impl Victim<'_> {
    fn act(&mut self, bytes: [u8; BYTES_PER_ACTION]) {
        let half = |at: usize| u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let (vm, first, many) = (self.vm, page(half(1)), 1 + u64::from(bytes[3]) % 64);
        let range = VirtRange { start: first, end: VirtAddr(first.0 + many * PAGE) };
        let Some(space) = self.spaces.get(usize::from(bytes[7]) % self.spaces.len().max(1)) else {
            return self.spaces.extend(vm.create_space());
        };
        let file = self.files.get(usize::from(bytes[7]) % self.files.len().max(1));
        match bytes[0] % 32 {
            0..3 => {
                let huge = HugeAdvice::ALL[usize::from(bytes[4]) % HugeAdvice::ALL.len()];
                let _ = space.map(MapRequest::anonymous(range.size()).at(first).advised(huge));
            }
            3 => {
                let huge = VirtAddr(first.0 & !((2 << 20) - 1));
                let _ = space.map(MapRequest::anonymous(ByteSize::mib(2)).at(huge).advised(HugeAdvice::Huge));
            }
            4 => {
                let request = match file {
                    Some(file) if bytes[4] & 1 == 0 => {
                        let sharing = Sharing::ALL[usize::from(bytes[4] >> 1) % Sharing::ALL.len()];
                        MapRequest::file(file.id(), half(5) % 32, range.size(), sharing).at(first)
                    }
                    _ => MapRequest::anonymous(range.size()),
                };
                let _ = space.map(request);
            }
            5 | 6 => _ = space.unmap(range),
            7..10 => _ = space.write(first, &vec![bytes[4]; half(5) as usize % 20_000 + 1]),
            10 => _ = space.read(first, &mut vec![0; half(5) as usize % 20_000 + 1]),
            11 | 12 => _ = space.touch(first, if bytes[4] & 1 == 0 { MemoryAccess::Read } else { MemoryAccess::Write }),
            13 => self.pins.extend(space.pin(first)),
            14 => _ = self.pins.pop(),
            15 => {
                let mut frames = [Pfn(0); 16];
                if let Ok(PageCount(taken)) = space.take_pages(first, PinRequest::PIN, &mut frames) {
                    let _ = vm.unpin_pages(&frames[..taken as usize], RefHandling::PerPage, Dirty::Mark);
                }
            }
            16 => self.regions.extend(MemoryRegion::register(space, range, MemoryAccess::Write)),
            17 => _ = self.regions.pop().map(MemoryRegion::deregister),
            18 => {
                let space = self.spaces.swap_remove(usize::from(bytes[7]) % self.spaces.len());
                let workers = NonZeroUsize::new(1 + usize::from(bytes[4] & 1)).unwrap();
                if let Ok(ExitOutcome::StillUsed) = space.exit(workers) {
                    self.spaces.extend(vm.create_space());
                }
            }
            19 => self.files.extend(vm.create_file(half(1), ByteSize::kib(4 * many))),
            20 => _ = self.files.pop(),
            21 => _ = file.map(|file| file.read(half(1) * 16, &mut vec![0; half(5) as usize % 20_000])),
            22 => _ = file.map(|file| file.write(half(1) * 16, &vec![bytes[4]; half(5) as usize % 20_000])),
            23 => _ = file.map(|file| file.truncate(ByteSize(half(1) * 16))),
            24 => _ = file.map(File::sync),
            25 => _ = file.map(File::drop_clean),
            26 => _ = vm.reclaim_pages(NodeId(0), ZoneKind::Movable, PageCount(many)),
            27 => _ = vm.reclaim_step(NodeId(0)),
            28 => {
                let _ = vm.yard().compaction().node(NodeId(0), &vm.owners());
            }
            29 => {
                vm.set_lru_policy(LruPolicy::ALL[usize::from(bytes[4]) % LruPolicy::ALL.len()]);
                vm.set_thp_mode(ThpMode::ALL[usize::from(bytes[4]) % ThpMode::ALL.len()]);
                run_on(u32::from(bytes[5] & 1));
                vm.lru_drain_all();
            }
            30 => {
                let _ = (vm.validate(), vm.cached_pages(), space.statistics(), space.translate(first));
                let _ = (vm.lru_statistics(NodeId(0)), vm.space(space.id()), vm.object_frames());
            }
            _ => _ = Vm::attach(vm.yard()),
        }
    }

    /// Overwrites a word, a bit or a cache line of the state, as the bytes say.
    fn overwrite(&self, bytes: [u8; BYTES_PER_ACTION]) {
        let memory = self.vm.yard().frame_range();
        let count = memory.count().0;
        let from = u64::from(u16::from_le_bytes([bytes[1], bytes[2]])) * 251 % count;
        let state = |pfn: &Pfn| self.vm.is_fixed(*pfn);
        let Some(pfn) = (from..count).chain(0..from).map(|at| Pfn(memory.start.0 + at)).find(state) else { return };
        let word = usize::from(u16::from_le_bytes([bytes[3], bytes[4]])) % 512;
        let Some(words) = self.yard.frame_words(pfn) else { return };
        let store = |at: usize, value| words[at].store(value, frameyard::sync::Ordering::Relaxed);
        let old = words[word].load(frameyard::sync::Ordering::Relaxed);
        match bytes[0] >> 5 & 3 {
            0 => store(word, old ^ 1 << (bytes[5] % 64)),
            1 => store(word, value(bytes, old)),
            2 => (0..8).for_each(|at| store(word & !7 | at, value(bytes, old))),
            _ => self.overwrite_page(pfn, bytes),
        }
    }

    /// Overwrites a word of a page structure that this crate uses.
    fn overwrite_page(&self, first: Pfn, bytes: [u8; BYTES_PER_ACTION]) {
        let pfn = Pfn(first.0 + u64::from(bytes[6] % 16));
        // SAFETY: the words of this crate may hold anything: that is what this test is about.
        let Some(page) = unsafe { self.vm.yard().counted().page(pfn) }.filter(|page| page.is_counted()) else { return };
        let word = value(bytes, page.owner());
        match bytes[3] % 6 {
            0 => page.set_owner(page.owner() ^ 1 << (bytes[5] % 64)),
            1 => page.set_index(word),
            2 => page.set_spare(0, word),
            3 => page.set_spare(1, word),
            4 => page.set_next(FrameLink::from_bits(word as u32)),
            _ => page.set_prev(FrameLink::from_bits(word as u32)),
        }
    }
}

/// A value that may be taken for a number of another meaning.
fn value(bytes: [u8; BYTES_PER_ACTION], old: u64) -> u64 {
    let small = u64::from(u16::from_le_bytes([bytes[6], bytes[7]]));
    match bytes[5] % 8 {
        0 => 0,
        1 => u64::MAX,
        2 => small,
        3 => small << 8,
        4 => (0x1_0000_0000 * small) | small,
        5 => (0x1_0000 + small) << 12 | 0x67,
        6 => old.rotate_left(u32::from(bytes[6])),
        _ => old.wrapping_add(small),
    }
}

/// Takes the actions; those whose first byte is 128 or more overwrite memory.
pub(crate) fn run(actions: &[[u8; BYTES_PER_ACTION]]) {
    limit_waits(LIMIT);
    let yard = TestYard::of(TestMachine { memory: ByteSize::mib(16), ..TestMachine::PLAIN });
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let spaces = vec![vm.create_space().unwrap(), vm.create_space().unwrap()];
    let files = vec![vm.create_file(3, ByteSize::kib(400)).unwrap()];
    let mut victim = Victim { yard: &yard, vm, spaces, files, pins: Vec::new(), regions: Vec::new() };
    for bytes in actions {
        let begin = Instant::now();
        if bytes[0] < 128 {
            victim.act(*bytes);
        } else {
            victim.overwrite(*bytes);
        }
        assert!(begin.elapsed() < LONGEST, "{bytes:?} took {:?}", begin.elapsed());
    }
    drop(victim);
    yard.abandon();
    limit_waits(u32::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next random number (xorshift).
    fn next(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn no_overwritten_word_leads_to_a_panic_or_an_endless_loop() {
        let runs = std::env::var("FRAMEYARD_HOSTILE_RUNS").map_or(200, |runs| runs.parse().unwrap());
        let mut failed = Vec::new();
        for run_number in 0..runs {
            let mut state = 0x9e37_79b9_7f4a_7c15 ^ (run_number + 1) << 20;
            let mut action = |overwrites: bool| {
                let mut bytes = next(&mut state).to_le_bytes();
                bytes[0] = if overwrites { bytes[0] | 0x80 } else { bytes[0] & 0x7f };
                bytes
            };
            // First some state, then one word in four actions.
            let actions: Vec<_> = (0..400).map(|number| action(number > 100 && number % 4 == 0)).collect();
            if std::panic::catch_unwind(|| run(&actions)).is_err() {
                failed.push(run_number);
            }
        }
        assert!(failed.is_empty(), "runs {failed:?}");
    }
}
