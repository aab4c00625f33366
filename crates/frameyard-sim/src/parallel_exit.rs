//! The workload `parallel-free`: many workers tear down one process that holds most of memory.
//!
//! One task touches all pages in order, as an allocating program does. So neighbouring addresses lie on one node, and
//! all workers use one zone most of the time. Then the address space exits.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;

use frameyard::platform::LockKind;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{ByteSize, CpuId, PageCount};
use frameyard_vm::{ExitOutcome, LruPolicy, MapRequest, MemoryAccess, VirtAddr, Vm, VmConfig};

use crate::account::Account;
use crate::list_access::ListAccess;
use crate::machine::Machine;
use crate::platform::SimPlatform;
use crate::profile::Profile;
use crate::sim_yard::{SimConfig, SimError, SimYard};
use crate::time::Picos;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// Pages of a section, 128 MiB.
const SECTION: u64 = 1 << 15;

/// One exit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParallelExit {
    /// Touched pages of the process.
    pub pages: PageCount,
    /// Memory of each node.
    pub node_memory: PageCount,
    /// Workers that tear the space down, distributed round-robin over the nodes.
    pub workers: NonZeroUsize,
    /// The sizes of per-CPU lists.
    pub sizing: PcpSizing,
    /// The locks of the LRU lists.
    pub lru: LruPolicy,
}

/// The result of an exit.
#[derive(Clone, PartialEq, Debug)]
pub struct ExitRun {
    /// Freed pages.
    pub pages: PageCount,
    /// The time until all pages were free.
    pub time: Picos,
    /// The use of the exit's time.
    pub account: Account,
    /// The same by span.
    pub profile: Profile,
}

impl ParallelExit {
    /// The exit of a process with `memory` on a machine half as large again: the published ratio of 512 to 768 GiB.
    ///
    /// Per-CPU lists have the sizes of kernels of that time ([`PcpSizing::Early`]).
    #[must_use]
    pub fn scaled(machine: &Machine, memory: ByteSize, workers: NonZeroUsize) -> Self {
        let pages = PageCount(memory.0 / PAGE_BYTES);
        let of_node = (pages.0 + pages.0 / 2).div_ceil(machine.topology.sockets.into());
        let node_memory = PageCount(of_node.next_multiple_of(SECTION));
        Self { pages, node_memory, workers, sizing: PcpSizing::Early, lru: LruPolicy::Vanilla }
    }

    /// Fills a space on a fresh yard and tears it down.
    ///
    /// # Errors
    ///
    /// [`SimError`] if the yard cannot be created or a run does not end.
    ///
    /// # Panics
    ///
    /// If the machine has too little memory for the pages and their page tables.
    pub fn run(&self, machine: &Machine, policy: ZonePolicy) -> Result<ExitRun, SimError> {
        let Self { node_memory, sizing, lru, .. } = *self;
        let config = SimConfig { node_memory, policy, sizing, lists: ListAccess::Locks, costs: Vec::new() };
        let yard = SimYard::new(machine, &config)?;
        let vm = Vm::create(&yard, &VmConfig { lru, ..VmConfig::default() }).map_err(SimError::Owners)?;
        self.run_on(&yard, &vm)
    }

    fn run_on(&self, yard: &SimYard, vm: &Vm<'_, SimPlatform>) -> Result<ExitRun, SimError> {
        let platform = yard.platform();
        let space = vm.create_space().expect("the machine has memory for page tables");
        let on_first = |task: &dyn Fn()| yard.run(vec![(CpuId(0), Box::new(task) as Box<dyn FnOnce()>)]);
        on_first(&|| {
            let request = MapRequest::anonymous(ByteSize(self.pages.0 * PAGE_BYTES));
            let mapped = space.map(request).expect("a space has room for a mapping");
            for page in 0..self.pages.0 {
                let addr = VirtAddr(mapped.start.0 + page * PAGE_BYTES);
                space.touch(addr, MemoryAccess::Write).expect("the machine has memory for the process");
            }
        })?;
        let (before, begin) = (platform.profile(), platform.now());
        let (space, freed) = (RefCell::new(Some(space)), Cell::new(PageCount(0)));
        let end = on_first(&|| {
            let Some(space) = space.take() else { return };
            match space.exit(self.workers) {
                Ok(ExitOutcome::Gone(unmapped)) => freed.set(unmapped.pages),
                other => panic!("the space has one handle: {other:?}"),
            }
        })?;
        let profile = platform.profile().since(&before);
        Ok(ExitRun { pages: freed.get(), time: end - begin, account: profile.account(), profile })
    }
}

impl ExitRun {
    /// The share of the workers' time spent waiting for locks of a kind.
    #[must_use]
    pub fn waiting_share(&self, kind: LockKind) -> f64 {
        self.account.waiting_share(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(policy: ZonePolicy, workers: usize) -> ExitRun {
        let machine = Machine::built_in("skylake-4s").unwrap();
        let workers = NonZeroUsize::new(workers).unwrap();
        ParallelExit::scaled(&machine, ByteSize::gib(2), workers).run(&machine, policy).unwrap()
    }

    #[test]
    fn the_machine_has_half_as_much_again_as_the_process() {
        let machine = Machine::built_in("skylake-4s").unwrap();
        let all = ParallelExit::scaled(&machine, ByteSize::gib(512), NonZeroUsize::MIN);
        assert_eq!((all.pages.0 << 12, all.node_memory.0 << 12), (512 << 30, 192 << 30));
    }

    #[test]
    fn one_worker_never_waits_and_many_wait_for_the_zone_lock() {
        let alone = exit(ZonePolicy::Vanilla416, 1);
        assert_eq!((alone.pages, alone.waiting_share(LockKind::Zone)), (PageCount(1 << 19), 0.0));
        let many = exit(ZonePolicy::Vanilla416, 16);
        assert_eq!(many.pages, alone.pages);
        assert!(many.waiting_share(LockKind::Zone) > 0.2, "{}", many.waiting_share(LockKind::Zone));
        assert!(many.time < alone.time, "{:?} of many, {:?} alone", many.time, alone.time);
        let bulk = exit(ZonePolicy::ClusterBulk, 16);
        assert!(bulk.waiting_share(LockKind::Zone) < 0.05, "{}", bulk.waiting_share(LockKind::Zone));
    }
}
