//! The workload `page-fault`: tasks map memory, touch each page and unmap it, as will-it-scale's page_fault1 does.
//!
//! Allocator and owners run unmodified. The machine's [kernel costs](crate::KernelCost) stand for the rest of a
//! kernel.

use std::cell::{Cell, RefCell};

use frameyard::platform::{Activity, LockKind};
use frameyard::units::named;
use frameyard::{ByteSize, CpuId};
use frameyard_vm::{AddressSpace, LruPolicy, MapRequest, MemoryAccess, VirtAddr, Vm};

use crate::account::{Accessed, Account, Spent};
use crate::platform::SimPlatform;
use crate::profile::Profile;
use crate::sim_yard::{SimError, SimYard};
use crate::time::Picos;

/// Whether tasks share an address space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Each task has its own.
    Processes,
    /// All tasks share one.
    Threads,
}

named!(Mode: Processes => "processes", Threads => "threads");

/// The loop of each task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultLoop {
    /// Tasks, on the CPUs from 0 on.
    pub tasks: u32,
    /// Whether they share an address space.
    pub mode: Mode,
    /// Pages of a mapping; page_fault1 maps 32768.
    pub pages: u32,
    /// Counted mappings of each task. The same number precedes them, in which tasks settle at the locks.
    pub rounds: u32,
    /// Seed of the sizes of the first mappings.
    pub seed: u64,
    /// The locks of the LRU lists.
    pub lru: LruPolicy,
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultRun {
    /// Counted faults.
    pub faults: u64,
    /// Faults per second of virtual time, all tasks together.
    pub rate: f64,
    /// The use of time.
    pub account: Account,
    /// The same by span.
    pub profile: Profile,
    /// The length of the run.
    pub time: Picos,
}

impl FaultRun {
    /// The share of the tasks' time spent waiting for locks of a kind.
    #[must_use]
    pub fn waiting_share(&self, kind: LockKind) -> f64 {
        self.account.waiting_share(kind)
    }

    /// The share of the tasks' time spent waiting for locks of a kind within any of these spans.
    #[must_use]
    pub fn waiting_share_within(&self, spans: &[Activity], kind: LockKind) -> f64 {
        self.profile.within(spans, Spent::Waiting(kind)).time.0 as f64 / self.busy().0 as f64
    }

    /// The time of all CPUs except idle time.
    #[must_use]
    pub fn busy(&self) -> Picos {
        self.account.busy()
    }

    /// The share of the tasks' time spent on accesses, by target.
    pub fn access_shares(&self) -> impl Iterator<Item = (Accessed, f64)> {
        let busy = self.busy().0 as f64;
        Accessed::all().map(move |accessed| {
            let times = crate::Cause::ALL.map(|cause| self.account.of(Spent::Access(accessed, cause)).time.0);
            (accessed, times.iter().sum::<u64>() as f64 / busy)
        })
    }
}

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// A task of the loop.
struct Faulting<'y> {
    space: &'y AddressSpace<'y, SimPlatform>,
    pages: u32,
}

impl Faulting<'_> {
    /// Maps `pages` pages, touches each, and unmaps them. Returns early, without unmapping, once `is_over` holds.
    fn round(&self, pages: u64, is_over: impl Fn() -> bool) {
        if pages == 0 {
            return;
        }
        let request = MapRequest::anonymous(ByteSize(pages * PAGE_BYTES));
        let mapped = self.space.map(request).expect("a space has room for a mapping");
        for page in 0..pages {
            let addr = VirtAddr(mapped.start.0 + page * PAGE_BYTES);
            if is_over() {
                return;
            }
            self.space.touch(addr, MemoryAccess::Write).expect("the machine has memory for all mappings");
        }
        self.space.unmap(mapped).expect("a mapping can be unmapped once");
    }

    /// A number from 0 to below the mapping's pages, by a seed (splitmix64).
    fn some_pages(&self, seed: u64) -> u64 {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % u64::from(self.pages.max(1))
    }
}

impl FaultLoop {
    /// Runs the loop on a yard, in address spaces of its own.
    ///
    /// Each task first maps a random part of the mapping, so that tasks are apart. Tasks that queue for a lock with first-come
    /// order draw together: the waits of the first mappings differ from those in the long run. A task that is done continues
    /// uncounted until all are done, so the number of running tasks is constant. The account begins when the last task
    /// begins to count.
    ///
    /// # Errors
    ///
    /// [`SimError`] if the run does not end.
    ///
    /// # Panics
    ///
    /// If the machine has fewer CPUs than tasks, or too little memory.
    pub fn run(&self, yard: &SimYard, vm: &Vm<'_, SimPlatform>) -> Result<FaultRun, SimError> {
        vm.set_lru_policy(self.lru);
        let spaces = match self.mode {
            Mode::Processes => self.tasks.max(1),
            Mode::Threads => 1,
        };
        let spaces = (0..spaces).map(|at| {
            yard.platform().set_up_on(CpuId(at));
            vm.create_space().expect("the machine has memory for page tables")
        });
        let spaces: Vec<AddressSpace<'_, SimPlatform>> = spaces.collect();
        let done = self.run_in(yard, &spaces);
        yard.platform().set_up_on(CpuId(0));
        drop(spaces);
        done
    }

    fn run_in(&self, yard: &SimYard, spaces: &[AddressSpace<'_, SimPlatform>]) -> Result<FaultRun, SimError> {
        let task = |at: u32| Faulting { space: &spaces[at as usize % spaces.len()], pages: self.pages };
        let each = |body: &dyn Fn(u32)| {
            let tasks = (0..self.tasks).map(|at| (CpuId(at), Box::new(move || body(at)) as Box<dyn FnOnce()>));
            yard.run(tasks.collect())
        };
        let seed = |at: u32| self.seed.wrapping_mul(0x1_0001).wrapping_add(at.into());
        let all = u64::from(self.pages);
        let times: Vec<Cell<Picos>> = (0..self.tasks).map(|_| Cell::default()).collect();
        let [waiting, counting] = [(); 2].map(|()| Cell::new(self.tasks));
        let before = RefCell::new(None);
        let end = each(&|at| {
            let task = task(at);
            task.round(task.some_pages(seed(at)), || false);
            (0..self.rounds).for_each(|_| task.round(all, || false));
            waiting.set(waiting.get() - 1);
            if waiting.get() == 0 {
                before.replace(Some((yard.platform().profile(), yard.platform().now())));
            }
            let from = yard.platform().now();
            (0..self.rounds).for_each(|_| task.round(all, || false));
            times[at as usize].set(yard.platform().now() - from);
            counting.set(counting.get() - 1);
            while counting.get() > 0 {
                task.round(all, || counting.get() == 0);
            }
        })?;
        let (before, begin) = before.take().unwrap_or_else(|| (yard.platform().profile(), end));
        let faults = all * u64::from(self.rounds);
        let profile = yard.platform().profile().since(&before);
        Ok(FaultRun {
            faults: faults * u64::from(self.tasks),
            rate: times.iter().map(|time| faults as f64 / time.get().as_secs()).sum(),
            account: profile.account(),
            profile,
            time: end - begin,
        })
    }
}
