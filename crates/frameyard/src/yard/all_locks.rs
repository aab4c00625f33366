//! All locks of a yard at once, for a process that copies itself (`fork`).
//!
//! A forked process has one thread. If other threads held locks of the yard at the moment of the fork, these locks
//! would stay held in the copy, and what they guard could be half changed. So the thread that forks takes all locks
//! before the fork, and both processes release them afterwards.
//!
//! | order | lock | its holder waits for |
//! |---|---|---|
//! | 1 | change of the policy | all further ones |
//! | 2 | lists of a CPU: second owner word, then first | 3 to 5 |
//! | 3 | zone | 4 and 5 |
//! | 4 | pool of huge pages | none |
//! | 5 | table of devices | none |
//!
//! No other thread holds two locks of one kind while it waits for a third, except that a drain takes the second owner
//! words of one zone in the order of the CPUs. This module uses the same order.
//!
//! Free frames that are bits have no lock. A free that bypasses the per-CPU lists changes a bit, then the list of its
//! line, then a count. A fork can come between these steps, so the copy makes lists and counts agree with the bits
//! again ([`Yard::unlock_all_of_copy`]).

use crate::huge_pool::HugePageSize;
use crate::platform::{LockError, LockId, Platform};
use crate::store;
use crate::sync::AtomicU32;
use crate::units::{CpuId, ZoneId};
use crate::yard::Yard;

impl<P: Platform> Yard<P> {
    /// Takes all locks of the yard before a `fork`, so that no other thread is between two changes that belong
    /// together. Until [`unlock_all`](Self::unlock_all), threads that allocate or free wait, or bypass the per-CPU
    /// lists.
    ///
    /// The caller must not be inside a call of this yard, because it would wait for itself. So do not call this from a
    /// signal handler that may interrupt such a call.
    ///
    /// Another thread may have taken a block from a list without having marked it allocated yet, or the reverse. In the
    /// copy of the process such a block is lost, like the blocks that those threads had allocated. In the copy, longer
    /// operations (compaction, contiguous ranges, initialisation, changes of devices) stay unfinished.
    ///
    /// Cost: all lock words, and one [`Platform::end_sequences`].
    ///
    /// # Errors
    ///
    /// [`LockError`]; no lock is held then.
    pub fn lock_all(&self) -> Result<(), LockError> {
        let switch = self.tables.begin_switch(&self.platform)?.ok_or(LockError::Corrupt { lock: LockId::Policy })?;
        core::mem::forget(switch);
        let mut taken = 0;
        let mut failed = None;
        self.each_lock(&mut |step| {
            if failed.is_some() {
                return;
            }
            let done = match step {
                Step::Lock(id, word) => self.platform.lock(id, word).map(|_| ()),
                Step::EndSequences if !self.platform.has_sequences() => Ok(()),
                Step::EndSequences => {
                    let lock = LockId::PerCpu(ZoneId(0), CpuId(0));
                    self.platform.end_sequences(None).map_err(|_| LockError::SequencesNotEnded { lock })
                }
            };
            match done {
                Ok(()) => taken += 1,
                Err(error) => failed = Some(error),
            }
        });
        let Some(error) = failed else { return Ok(()) };
        self.unlock_first(taken);
        Err(error)
    }

    /// Releases all locks of the yard.
    ///
    /// # Safety
    ///
    /// [`lock_all`](Self::lock_all) has succeeded in the calling thread, or in the thread that it is a forked copy of,
    /// and this is the first call since then.
    pub unsafe fn unlock_all(&self) {
        self.unlock_first(usize::MAX);
    }

    /// As [`unlock_all`](Self::unlock_all), for the copy of the process. First finishes what threads that do not exist
    /// in the copy had begun: makes the counts and lists of free frames agree with the frames.
    ///
    /// Cost: reads the bits of all frames, 32 KiB for each GiB of 4 KiB frames, and three words more for each pageblock.
    ///
    /// # Safety
    ///
    /// As for [`unlock_all`](Self::unlock_all). No other thread uses this copy, and it shares its regions with no process.
    pub unsafe fn unlock_all_of_copy(&self) {
        (0..self.tables.zones.len()).for_each(|zone| store::mend(self.zone_view(ZoneId(zone as u16))));
        self.unlock_first(usize::MAX);
    }

    /// Releases the first `count` steps of [`each_lock`](Self::each_lock).
    fn unlock_first(&self, count: usize) {
        let mut at = 0;
        self.each_lock(&mut |step| {
            if let Step::Lock(id, word) = step
                && at < count
            {
                self.platform.unlock(id, word);
            }
            at += 1;
        });
        self.tables.end_switch();
    }

    /// Calls `visit` with each lock but that of the policy, in the order of the table above.
    fn each_lock(&self, visit: &mut dyn FnMut(Step<'_>)) {
        let zones = || (0..self.tables.zones.len()).map(|zone| ZoneId(zone as u16));
        let lists = || zones().flat_map(|zone| self.tables.pcps_of(zone));
        lists().for_each(|(_, pcp)| visit(Step::Lock(pcp.lock_id(), pcp.claim_word())));
        visit(Step::EndSequences);
        lists().for_each(|(_, pcp)| visit(Step::Lock(pcp.lock_id(), pcp.owner_word())));
        zones().for_each(|zone| visit(Step::Lock(LockId::Zone(zone), self.tables.zones[zone.index()].lock_word())));
        let pools = zones().flat_map(|zone| HugePageSize::ALL.map(|size| self.pool(zone, size)));
        pools.for_each(|pool| visit(Step::Lock(pool.id(), &pool.pool.lock)));
        let directories = self.tables.devices().directories.iter();
        directories.for_each(|directory| visit(Step::Lock(LockId::Devices, directory.lock_word())));
    }
}

/// A step of taking all locks.
enum Step<'a> {
    Lock(LockId, &'a AtomicU32),
    /// Sequences that saw their CPU's lists unclaimed end here.
    EndSequences,
}
