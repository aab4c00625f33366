//! The workload `page-fault` on a yard alone: tasks that allocate a mapping's frames one by one and free them in batches, as
//! will-it-scale's page_fault1 has a kernel do. What a kernel does besides is named costs.

use std::cell::Cell;

use frameyard::{Access, CpuId, Gfp, LockKind, Order, Pfn, Platform};

use crate::account::{Accessed, Account, CostId, Spent};
use crate::sim_yard::{SimError, SimYard};
use crate::time::Picos;

/// What is done for a page outside the allocator, in cycles of the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultCosts {
    /// Exception entry and exit.
    pub exception: u64,
    /// Finding the area, charging, setting the entry, reverse mapping.
    pub fault_path: u64,
    /// Writing zeros to the page, from the core's side.
    pub zero_page: u64,
    /// Clearing the entry, and what goes with it, at the end.
    pub unmap_page: u64,
}

impl Default for FaultCosts {
    /// Start values for a kernel with page-table isolation on a Broadwell processor; to be calibrated.
    ///
    /// Entry and exit: published measurements of 4.15 with isolation (about 900 cycles). Zeroing: 4 KiB by `rep stosb` at
    /// about 10 GB/s, as the memory bandwidth of one core is. The rest: profiles of page_fault1.
    fn default() -> Self {
        Self { exception: 900, fault_path: 1000, zero_page: 1200, unmap_page: 500 }
    }
}

impl FaultCosts {
    /// The names of the costs, in the order of the fields: what a machine is to be told of
    /// ([`SimConfig::costs`](crate::SimConfig::costs)).
    pub const NAMES: [&'static str; 4] = ["exception", "fault-path", "zero-page", "unmap-page"];
}

/// The loop of each task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultLoop {
    /// Tasks, on the CPUs from 0 on.
    pub tasks: u32,
    /// Pages of a mapping; page_fault1 has 32768.
    pub pages: u32,
    /// Mappings that are made and unmapped while it counts; one more goes before.
    pub rounds: u32,
    /// Decides how far tasks are apart.
    pub seed: u64,
    /// What is done outside the allocator.
    pub costs: FaultCosts,
}

/// What a run of the loop came to.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultRun {
    /// Faults that were counted.
    pub faults: u64,
    /// Faults in a second of virtual time, of all tasks together.
    pub rate: f64,
    /// Where time went.
    pub account: Account,
    /// The length of the run.
    pub time: Picos,
}

impl FaultRun {
    /// The share of the tasks' time that was waited for locks of a kind.
    #[must_use]
    pub fn waiting_share(&self, kind: LockKind) -> f64 {
        self.account.of(Spent::Waiting(kind)).time.0 as f64 / self.busy().0 as f64
    }

    /// All CPUs' time but for those that were idle.
    #[must_use]
    pub fn busy(&self) -> Picos {
        self.account.total() - self.account.of(Spent::Idle).time
    }

    /// The share of the tasks' time that accesses took, by what was accessed.
    pub fn access_shares(&self) -> impl Iterator<Item = (Accessed, f64)> {
        let busy = self.busy().0 as f64;
        Accessed::all().map(move |accessed| {
            let times = crate::Cause::ALL.map(|cause| self.account.of(Spent::Access(accessed, cause)).time.0);
            (accessed, times.iter().sum::<u64>() as f64 / busy)
        })
    }
}

/// Pages that an unmap gathers before it frees them (the kernel's `MAX_GATHER_BATCH`, rounded).
const GATHERED: usize = 512;

/// A task of the loop.
struct Faulting<'y> {
    yard: &'y SimYard,
    pages: u32,
    cycles: FaultCosts,
    costs: [CostId; FaultCosts::NAMES.len()],
}

impl Faulting<'_> {
    /// Maps so many pages, touches each, and unmaps them.
    fn round(&self, pages: usize) {
        let platform = self.yard.platform();
        let [exception, fault_path, zero_page, unmap_page] = self.costs;
        let mut mapped: Vec<Pfn> = Vec::with_capacity(pages);
        for _ in 0..pages {
            platform.spend(exception, self.cycles.exception);
            let pfn =
                self.yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("the machine has memory for all mappings");
            platform.stream(pfn, self.yard.geometry().page_size().0);
            platform.spend(zero_page, self.cycles.zero_page);
            platform.touch_page(pfn, Access::Write);
            platform.spend(fault_path, self.cycles.fault_path);
            mapped.push(pfn);
        }
        for gathered in mapped.chunks(GATHERED) {
            for pfn in gathered {
                platform.spend(unmap_page, self.cycles.unmap_page);
                platform.touch_page(*pfn, Access::ReadModifyWrite);
            }
            for pfn in gathered {
                self.yard.free(*pfn, Order::ZERO).expect("what was allocated is freed once");
            }
        }
    }

    /// A number of pages between none and all, by a seed (splitmix64).
    fn some_pages(&self, seed: u64) -> usize {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % u64::from(self.pages.max(1))) as usize
    }
}

impl FaultLoop {
    /// Runs the loop on a yard whose machine was told of the costs.
    ///
    /// # Errors
    ///
    /// [`SimError`] where the run does not come to its end.
    ///
    /// # Panics
    ///
    /// Where the machine was not told of the costs, has fewer CPUs than tasks, or too little memory.
    pub fn run(&self, yard: &SimYard) -> Result<FaultRun, SimError> {
        let costs = FaultCosts::NAMES.map(|name| yard.platform().cost(name).expect("the machine knows the costs"));
        let task = Faulting { yard, pages: self.pages, cycles: self.costs, costs };
        let each = |body: &dyn Fn(u32)| {
            let tasks = (0..self.tasks).map(|at| (CpuId(at), Box::new(move || body(at)) as Box<dyn FnOnce()>));
            yard.run(tasks.collect())
        };
        let seed = |at: u32| self.seed.wrapping_mul(0x1_0001).wrapping_add(at.into());
        each(&|at| task.round(task.some_pages(seed(at)) + self.pages as usize / 2))?;
        let before = yard.platform().account();
        let begin = yard.platform().now();
        let ends: Vec<Cell<Picos>> = (0..self.tasks).map(|_| Cell::default()).collect();
        let faults: Vec<u64> = (0..self.tasks)
            .map(|at| task.some_pages(!seed(at)) as u64 + u64::from(self.pages) * u64::from(self.rounds))
            .collect();
        let end = each(&|at| {
            task.round(task.some_pages(!seed(at)));
            (0..self.rounds).for_each(|_| task.round(self.pages as usize));
            ends[at as usize].set(yard.platform().now());
        })?;
        let rate = |(faults, end): (&u64, &Cell<Picos>)| *faults as f64 / (end.get() - begin).as_secs();
        Ok(FaultRun {
            faults: faults.iter().sum(),
            rate: faults.iter().zip(&ends).map(rate).sum(),
            account: yard.platform().account().since(&before),
            time: end - begin,
        })
    }
}
