//! Predicts the time of allocating and freeing blocks on a machine, by the number of tasks: as CSV.
//!
//! ```console
//! cargo run --release -p frameyard-sim --example alloc skylake-112 0 4G 1,28,56,112 > alloc.csv
//! ```
//!
//! The arguments: the machine, the order of the blocks, the memory of each node, and numbers of tasks. Nanoseconds are means over all
//! tasks, each on a CPU of its own: of a block that is allocated and freed again (`pair_ns`), and of many that are allocated before the
//! first is freed (`get_ns`, `put_ns`). Tasks do nothing else, and begin apart. `naive_*` is one task's time at the clock with that number of busy cores, and with
//! the slow-down of second threads.

use std::cell::Cell;
use std::error::Error;

use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{ByteSize, CpuId, Gfp, Order, PageCount, Pfn};
use frameyard_sim::{ListAccess, Machine, Picos, SimConfig, SimYard};

/// Pairs that are measured, and the frames of the blocks that a task holds at once.
const PAIRS: u64 = 1000;
/// Rounds that are measured, after as many in which tasks settle.
const ROUNDS: u64 = 2;
const FRAMES: u64 = 1 << 15;
/// Blocks at least and at most.
const BLOCKS: (u64, u64) = (64, 4096);

/// Nanoseconds of a pair, an allocation, and a free.
type Times = [f64; 3];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (machine, _) = Machine::resolve(&next("skylake-112"))?;
    let order = Order(next("0").parse()?);
    let memory: ByteSize = next("4G").parse()?;
    let tasks = next("1,28,56,112").split(',').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    println!("order,policy,list_access,tasks,pair_ns,get_ns,put_ns,naive_pair_ns,naive_get_ns,naive_put_ns");
    let yards = [
        (ZonePolicy::Vanilla, ListAccess::Locks),
        (ZonePolicy::Bits, ListAccess::Locks),
        (ZonePolicy::Bits, ListAccess::Sequences),
    ];
    for (policy, lists) in yards {
        let mut one = None;
        for &tasks in &tasks {
            let node_memory = PageCount(memory.0 >> 12);
            let config = SimConfig { node_memory, policy, sizing: PcpSizing::Classic, lists, costs: Vec::new() };
            let yard = SimYard::new(&machine, &config)?;
            let times = measure(&yard, tasks, order)?;
            yard.validate()?;
            let first: Times = *one.get_or_insert(times);
            let naive = first.map(|ns| ns * slower(&machine, tasks));
            let all: Vec<String> = times.iter().chain(&naive).map(|ns| format!("{ns:.1}")).collect();
            println!("{},{},{},{tasks},{}", order.0, policy.name(), lists.name(), all.join(","));
        }
    }
    Ok(())
}

/// The factor by which instructions take longer with that number of tasks than with one.
fn slower(machine: &Machine, tasks: u32) -> f64 {
    let cores = machine.cpus() as u32 / u32::from(machine.topology.threads_per_core);
    let on_first = tasks.min(machine.topology.cores_per_socket.into()) as usize;
    let mhz = |cores: usize| f64::from(machine.clock.mhz[cores.min(machine.clock.mhz.len()) - 1]);
    mhz(1) / mhz(on_first) * if tasks > cores { machine.clock.smt_slowdown } else { 1.0 }
}

fn measure(yard: &SimYard, tasks: u32, order: Order) -> Result<Times, Box<dyn Error>> {
    let blocks = (FRAMES >> order.0).clamp(BLOCKS.0, BLOCKS.1);
    let sums: [Cell<f64>; 3] = Default::default();
    let now = || yard.platform().now();
    let take = || yard.alloc(order, Gfp::HIGHUSER_MOVABLE).expect("the machine has memory for all tasks");
    let give = |pfn: Pfn| yard.free(pfn, order).expect("the task has allocated it");
    // Allocates and frees blocks; when that began, when all were allocated, and when all were free.
    let round = |blocks: u64| {
        let begin = now();
        let held: Vec<Pfn> = (0..blocks).map(|_| take()).collect();
        let between = now();
        held.into_iter().for_each(give);
        [begin, between, now()]
    };
    let add = |sum: usize, time: Picos, count: u64| {
        sums[sum].set(sums[sum].get() + time.as_ns() / count as f64 / f64::from(tasks));
    };
    let task = |cpu: u32| {
        (0..PAIRS).for_each(|_| give(take()));
        let begin = now();
        (0..PAIRS).for_each(|_| give(take()));
        add(0, now() - begin, PAIRS);
        // Tasks that begin together would meet at the same words all the time.
        round(blocks * u64::from(cpu) / u64::from(tasks));
        for number in 0..2 * ROUNDS {
            let [begin, between, end] = round(blocks);
            if number >= ROUNDS {
                add(1, between - begin, ROUNDS * blocks);
                add(2, end - between, ROUNDS * blocks);
            }
        }
    };
    let task = &task;
    yard.run((0..tasks).map(|cpu| (CpuId(cpu), Box::new(move || task(cpu)) as Box<dyn FnOnce() + '_>)).collect())?;
    Ok(sums.map(Cell::into_inner))
}
