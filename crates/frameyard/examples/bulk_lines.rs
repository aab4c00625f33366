//! Counts the cache lines that allocating and freeing many blocks touches, per block: as CSV, by policy, order and pattern.
//!
//! ```console
//! cargo run --release -p frameyard --features counting,published --example bulk_lines > bulk-lines.csv
//! ```
//!
//! A yard of 2 GiB with one CPU. A round allocates three quarters of the memory and frees it, in the order in which it was allocated or in
//! a random one. The lists are drained after each round. The third round is counted. `get_under_lock` and `put_under_lock` count lines
//! once for each hold of the zone lock, `get_lines` and `put_lines` all lines once for each call.

use std::alloc::{Layout as Heap, alloc_zeroed};
use std::error::Error;
use std::ptr::NonNull;

use frameyard::boot::ZoneLimits;
use frameyard::counting::{Counted, CountingPlatform, TaskCounters};
use frameyard::platform::SequencesNotEnded;
use frameyard::policy::ZonePolicy;
use frameyard::{
    ByteSize, CpuId, Gfp, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, RawRegion, Yard,
    YardConfig,
};

/// Lines that a task remembers in one hold of a lock.
const REMEMBERED: usize = 1 << 14;
const FRAMES: u64 = 1 << 19;
const ROUNDS: usize = 3;

/// One CPU without memory behind its frames.
#[derive(Clone, Copy)]
struct OneCpu {
    sequences: bool,
}

impl Platform for OneCpu {
    type Guard = ();
    fn guard(&self) {}
    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn spin(&self, _round: u32) {}
    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
    fn has_sequences(&self) -> bool {
        self.sequences
    }
    fn end_sequences(&self, _cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        Ok(())
    }
}

type CountedYard = Yard<CountingPlatform<'static, OneCpu, fn() -> u32, REMEMBERED>>;

fn main() -> Result<(), Box<dyn Error>> {
    println!("policy,list_access,order,kind,get_under_lock,get_lines,put_under_lock,put_lines");
    for sequences in [false, true] {
        for policy in [ZonePolicy::Vanilla, ZonePolicy::Bits] {
            for order in [Order::ZERO, Order(9)] {
                for kind in ["bulk", "random"] {
                    let yard = yard(OneCpu { sequences }, policy)?;
                    let [by_hold, by_call] =
                        [false, true].map(|by_call| count(&yard, order, kind == "random", by_call));
                    let ([get_hold, put_hold], [get_call, put_call]) = (by_hold?, by_call?);
                    let access = if sequences { "sections" } else { "locks" };
                    println!(
                        "{},{access},{},{kind},{:.3},{:.3},{:.3},{:.3}",
                        policy.name(),
                        order.0,
                        get_hold.0,
                        get_call.1,
                        put_hold.0,
                        put_call.1
                    );
                }
            }
        }
    }
    Ok(())
}

/// A fresh yard, which stays until the program ends.
fn yard(platform: OneCpu, policy: ZonePolicy) -> Result<CountedYard, Box<dyn Error>> {
    let memory = [(PfnRange::new(Pfn(0x8000), PageCount(FRAMES)), NodeId(0))];
    let source = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let config = YardConfig { zone_limits: ZoneLimits::NONE, policy, ..YardConfig::new(&[NodeId(0)]) };
    let layout = Layout::plan(&source, &config)?;
    let region = |size: ByteSize| {
        let heap = Heap::from_size_align(size.0 as usize, 128).expect("a valid layout");
        // SAFETY: the size is not 0.
        RawRegion { base: NonNull::new(unsafe { alloc_zeroed(heap) }).expect("memory"), size }
    };
    let (map, control) = (region(layout.map_bytes()), region(layout.control_bytes()));
    let tasks: &'static [TaskCounters<REMEMBERED>] = Box::leak(Box::new([TaskCounters::default()]));
    let counting = CountingPlatform::new(Box::leak(Box::new(platform)), tasks, (|| 0) as fn() -> u32);
    // SAFETY: fresh zeroed memory with no other user, never freed.
    Ok(unsafe { Yard::create(&source, &config, &layout, map, control, counting)? })
}

/// Lines of a block under the zone lock, and all lines.
type PerBlock = (f64, f64);

/// Runs rounds and counts the last one: gets and puts. `by_call` counts each line once for each call.
fn count(yard: &CountedYard, order: Order, is_random: bool, by_call: bool) -> Result<[PerBlock; 2], Box<dyn Error>> {
    let blocks = (FRAMES >> order.0) * 3 / 4;
    let mut last = [(0.0, 0.0); 2];
    for _ in 0..ROUNDS {
        let mut held = Vec::new();
        let got = counted(yard, blocks, || {
            for _ in 0..blocks {
                let alloc = || yard.alloc(order, Gfp::HIGHUSER_MOVABLE);
                held.push(if by_call { yard.platform().in_one_stretch(alloc) } else { alloc() }?);
            }
            Ok(())
        })?;
        if is_random {
            shuffle(&mut held);
        }
        let put = counted(yard, blocks, || {
            for pfn in held {
                let free = || yard.free(pfn, order);
                if by_call { yard.platform().in_one_stretch(free) } else { free() }?;
            }
            Ok(())
        })?;
        yard.drain_all();
        last = [got, put];
    }
    Ok(last)
}

fn counted(
    yard: &CountedYard,
    blocks: u64,
    work: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<PerBlock, Box<dyn Error>> {
    let before = yard.platform().counted();
    work()?;
    let counted = yard.platform().counted().since(&before);
    if counted.forgotten + counted.lost > 0 {
        return Err("lines were not remembered".into());
    }
    let Counted { refill, drain, elsewhere, .. } = counted;
    let spans = [refill, drain, elsewhere];
    let under_lock: u64 = spans.iter().map(|span| span.lines_under_lock()).sum();
    let all: u64 = spans.iter().map(|span| span.lines()).sum();
    Ok((under_lock as f64 / blocks as f64, all as f64 / blocks as f64))
}

/// Fisher and Yates, with splitmix64.
fn shuffle(blocks: &mut [Pfn]) {
    let mut state = 0u64;
    for at in (1..blocks.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        blocks.swap(at, ((z ^ z >> 31) % (at as u64 + 1)) as usize);
    }
}
