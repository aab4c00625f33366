//! [`Vm`]: the view of everything that owns frames of a yard.

use core::fmt;

use frameyard::owners::Ownership;
use frameyard::page::Counts;
use frameyard::sync::Ordering;
use frameyard::{Block, CpuId, Gfp, NodeId, Platform, Yard};

use crate::block::NewBlock;
use crate::counters::VmCounter;
use crate::error::{VmError, VmValidateError};
use crate::inject::{FaultInjector, Step};
use crate::object_id::{ObjectId, ObjectKind};
use crate::page::{PageKind, owner_word};
use crate::root::{HeaderWord, LruPolicy, Root, ThpMode, VmConfig};
use crate::store::{BackingStore, PatternStore};

/// A view of the address spaces, files and LRU lists of a yard. It can be copied: each thread and each process can have
/// one.
pub struct Vm<'y, P: Platform> {
    yard: &'y Yard<P>,
    root: Root<'y>,
    injector: Option<&'y dyn FaultInjector>,
    store: &'y dyn BackingStore,
}

#[cfg(test)]
pub(crate) type TestVm<'y> = Vm<'y, crate::test_yard::TestPlatform>;

impl<P: Platform> Clone for Vm<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Vm<'_, P> {}

impl<'y, P: Platform> Vm<'y, P> {
    /// Creates the root in a yard that has none, and returns a view of it.
    ///
    /// The root is a block of unmovable frames, which becomes the yard's anchor.
    ///
    /// # Errors
    ///
    /// [`VmError::AlreadyThere`] if the yard has a root, [`VmError::BadConfig`], [`VmError::BeyondEntries`],
    /// [`VmError::NoFrameBytes`] in a phantom yard, [`VmError::Lock`] in a damaged one, and [`VmError::OutOfMemory`].
    pub fn create(yard: &'y Yard<P>, config: &VmConfig) -> Result<Self, VmError> {
        if let Some(pfn) = yard.counted().anchor() {
            return Err(VmError::AlreadyThere(pfn));
        }
        let (order, shards) = Root::order_for(yard, config)?;
        let owner = owner_word(PageKind::Root, ObjectId::NONE, 0);
        let counts = Counts { references: 1, mappings: 0 };
        let pfn = NewBlock::alloc(yard, order, Gfp::KERNEL)?.into_zeroed(Ownership { counts, owner, index: 0 })?;
        let root = Root::write(yard, Block { pfn, order }, shards, config).inspect_err(|_| {
            // SAFETY: only this function has the block: no anchor leads to it.
            let page = unsafe { yard.counted().allocated_page(pfn) };
            if page.put() == Ok(0) {
                // SAFETY: as above; the last reference was put.
                let _ = unsafe { yard.counted().free(pfn, order) };
            }
        })?;
        let vm = Self { yard, root, injector: None, store: &PatternStore };
        vm.assign_shards();
        // SAFETY: the block is counted, and complete. Its reference is put only after `destroy` has removed the anchor.
        match unsafe { yard.counted().set_anchor(None, Some(pfn)) } {
            Ok(()) => Ok(vm),
            Err(found) => {
                vm.free_root()?;
                Err(VmError::AlreadyThere(found.unwrap_or(pfn)))
            }
        }
    }

    /// Attaches to the root that [`create`](Self::create) has made, in this process or another.
    ///
    /// # Errors
    ///
    /// [`VmError::NotThere`] if the yard has no root, or one of another version. [`VmError::Lock`] or
    /// [`VmError::Damaged`] if the state is known to be damaged.
    pub fn attach(yard: &'y Yard<P>) -> Result<Self, VmError> {
        let pfn = yard.counted().anchor().ok_or(VmError::NotThere)?;
        // SAFETY: only reads.
        let page = unsafe { yard.counted().page(pfn) }.filter(|page| page.is_counted()).ok_or(VmError::NotThere)?;
        let root = Root::find(yard, pfn)?;
        if PageKind::of_word(page.owner()) != Some(PageKind::Root) || page.tag().order() != root.block().order {
            return Err(VmError::NotThere);
        }
        let vm = Self { yard, root, injector: None, store: &PatternStore };
        vm.check_damage()?;
        Ok(vm)
    }

    /// The same view, in which those steps fail that `injector` chooses.
    #[must_use]
    pub fn with_injector(self, injector: &'y dyn FaultInjector) -> Self {
        Self { injector: Some(injector), ..self }
    }

    /// The same view, with `store` as the store that files are filled from and written back to. The default is
    /// [`PatternStore`].
    ///
    /// All users of a file need stores with the same contents.
    #[must_use]
    pub fn with_store(self, store: &'y dyn BackingStore) -> Self {
        Self { store, ..self }
    }

    #[inline(always)]
    pub(crate) fn store(&self) -> &'y dyn BackingStore {
        self.store
    }

    /// Frees the root, and everything else that belongs to no space or file.
    ///
    /// ```compile_fail,E0133
    /// # fn f<P: frameyard::Platform>(vm: frameyard_vm::Vm<'_, P>) {
    /// let copy = vm;
    /// vm.destroy();
    /// copy.create_space();
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`VmError::InUse`] if there are still address spaces, files or pinned pages. Nothing has changed then.
    ///
    /// # Safety
    ///
    /// During the call, and after it if it succeeds, no other view of the root is used, in this process or another:
    /// neither a copy of this one nor one that was attached. The frames of the root then belong to the yard, and soon
    /// to another owner.
    pub unsafe fn destroy(self) -> Result<(), VmError> {
        if ObjectKind::ALL.into_iter().any(|kind| self.live_objects(kind) > 0) {
            return Err(VmError::InUse("address spaces or files remain: drop them first"));
        }
        self.lru_drain_all();
        // The LRU lists of pinned pages are in the root.
        if (0..self.yard.nodes()).any(|node| self.lru_statistics(NodeId(node)).pages.iter().any(|pages| pages.0 > 0)) {
            return Err(VmError::InUse("pinned pages remain: unpin them first"));
        }
        self.free_stable_frames();
        // Fails only if another root was installed meanwhile, which the contract excludes.
        // SAFETY: removes the anchor.
        let _ = unsafe { self.yard.counted().set_anchor(Some(self.root.block().pfn), None) };
        self.free_root()
    }

    fn free_root(&self) -> Result<(), VmError> {
        let Block { pfn, order } = self.root.block();
        self.page(pfn).put()?;
        // SAFETY: this thread put the last reference, as `put` leaves no user or fails.
        Ok(unsafe { self.yard.counted().free(pfn, order) }?)
    }

    /// The yard.
    #[inline(always)]
    #[must_use]
    pub fn yard(&self) -> &'y Yard<P> {
        self.yard
    }

    #[inline(always)]
    pub(crate) fn root(&self) -> &Root<'y> {
        &self.root
    }

    /// The caller's CPU, folded into the yard's CPUs.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> CpuId {
        let (cpu, cpus) = (self.yard.platform().current_cpu(), self.yard.cpus());
        // The comparison nearly always suffices and avoids a division on a hot path.
        if cpu.0 < cpus { cpu } else { CpuId(cpu.0 % cpus) }
    }

    /// Fails if the injector makes this step fail.
    #[inline(always)]
    pub(crate) fn may_fail(&self, step: Step) -> Result<(), VmError> {
        match self.injector {
            Some(injector) if injector.fails(step) => Err(VmError::Injected),
            _ => Ok(()),
        }
    }

    /// The locking of the LRU lists.
    #[must_use]
    pub fn lru_policy(&self) -> LruPolicy {
        match self.root.header(HeaderWord::Lru) {
            1 => LruPolicy::Sharded,
            _ => LruPolicy::Vanilla,
        }
    }

    /// Changes the locking of the LRU lists. Each page stays on its list until something moves it.
    pub fn set_lru_policy(&self, policy: LruPolicy) {
        self.root.set_header(HeaderWord::Lru, policy as u64);
    }

    /// Which areas get huge pages.
    #[must_use]
    pub fn thp_mode(&self) -> ThpMode {
        match self.root.header(HeaderWord::Thp) {
            0 => ThpMode::Always,
            2 => ThpMode::Never,
            _ => ThpMode::Madvise,
        }
    }

    /// Changes which areas get huge pages from now on.
    pub fn set_thp_mode(&self, mode: ThpMode) {
        self.root.set_header(HeaderWord::Thp, mode as u64);
    }

    /// The number of pages that a CPU collects before it takes the lock of an LRU list.
    #[inline(always)]
    pub(crate) fn lru_batch(&self) -> usize {
        self.root.batch()
    }

    /// Counts events, on the caller's CPU.
    #[inline(always)]
    pub(crate) fn count(&self, counter: VmCounter, amount: u64) {
        self.root.counters(self.cpu()).at(counter as usize).fetch_add(amount, Ordering::Relaxed);
    }

    /// The number of events so far, over all CPUs; may be stale.
    #[must_use]
    pub fn counted(&self, counter: VmCounter) -> u64 {
        let of = |cpu| self.root.counters(CpuId(cpu)).at(counter as usize).load(Ordering::Relaxed);
        (0..self.yard.cpus()).map(of).fold(0, u64::wrapping_add)
    }

    /// Recounts all state and compares. Like [`Yard::validate`], which it does not call, it requires a quiet yard.
    ///
    /// # Errors
    ///
    /// [`VmValidateError`] names the first equation that does not hold, or the damage that a call has found, or the
    /// process that does not release a lock.
    pub fn validate(&self) -> Result<(), VmValidateError> {
        self.check_damage()?;
        let recount = || {
            self.validate_objects()?;
            self.validate_lru()?;
            self.validate_spaces()?;
            self.validate_files()
        };
        let found = recount();
        // A lock that could not be taken explains what was found.
        self.yard.platform().lock_error().map_or(found, |error| Err(VmValidateError::Lock(error)))
    }
}

#[cfg(test)]
impl<P: Platform> Vm<'_, P> {
    /// Validates and destroys the root, at the end of a test.
    #[track_caller]
    pub(crate) fn finish(self) {
        self.validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
        // SAFETY: a test ends with its only view.
        unsafe { self.destroy() }.unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    }
}

impl<P: Platform> fmt::Debug for Vm<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vm").field("root", &self.root.block()).finish_non_exhaustive()
    }
}
