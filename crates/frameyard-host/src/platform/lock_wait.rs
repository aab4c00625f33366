//! Waiting for locks.
//!
//! In a private yard every holder is a thread of this process, and a wait has no limit. In a shared yard a wait ends with
//! an error in two cases:
//!
//! | the holder | error | noticed after |
//! |---|---|---|
//! | has died ([`Attachment::has_ended`]) | [`LockError::OwnerDied`], and the yard is damaged for good | about 50 ms, later at once |
//! | is stopped, or the word is damaged and names a living process | [`LockError::LockStuck`] | the limit |
//!
//! No process takes a lock of a dead holder again. What the lock guards may be half changed, and stays out of use.
//!
//! A call that fails may need the same lock again, for the rest of its frames. So a later wait for a process that is known
//! to have died is over at once, and one for a lock that did not come free before is short.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use frameyard::Platform;
use frameyard::platform::{Contention, LockError, LockId};
use frameyard::sync::{AtomicU32, Ordering};

use super::{FREE, HostPlatform, YIELD_ROUNDS};
use crate::shared::process::{Attachment, CORRUPT};

/// A waiter that sleeps looks at the holder once in this number of rounds.
const ROUNDS_PER_CHECK: u32 = 16;
/// A waiter that finds the lock free this number of times, and does not get it, waits a round.
const LOST_PER_ROUND: u32 = 1024;
/// The limit of a wait for a lock of which an earlier wait reached the limit.
const SHORT_LIMIT: Duration = Duration::from_millis(20);

thread_local! {
    /// The error of the last wait of this thread, until it is asked for.
    static LAST_ERROR: Cell<Option<LockError>> = const { Cell::new(None) };
    /// When round 0 of this thread's last wait with [`Platform::check_holder`] was.
    static WAIT_BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// How threads of this process wait for the locks of a shared yard.
#[derive(Debug)]
pub(super) struct LockWait {
    attachment: Arc<Attachment>,
    limit: Duration,
    /// The last lock that did not come free, or 0: the holder in the high half, the low half of the word's address.
    stuck: AtomicU64,
    /// The name of the last holder that was found to have died, or 0.
    died: AtomicU32,
}

impl LockWait {
    pub(super) fn new(attachment: Arc<Attachment>, limit: Duration) -> Self {
        // What this thread did not ask for is of another yard.
        LAST_ERROR.set(None);
        Self { attachment, limit, stuck: AtomicU64::new(0), died: AtomicU32::new(FREE) }
    }

    /// The damage of the yard, or the error of the last wait of this thread, which it forgets.
    pub(super) fn error(&self) -> Option<LockError> {
        self.attachment.damage().or_else(|| LAST_ERROR.take())
    }

    /// Notes in the memory file that what a lock guards is corrupt.
    pub(super) fn note_corrupt(&self, lock: LockId) {
        self.attachment.note_damage(lock, CORRUPT);
    }

    /// Whether a waiter looks at the holder in this round.
    fn looks_at(&self, holder: u32, round: u32) -> bool {
        let is_known = holder != FREE && holder == self.died.load(Ordering::Relaxed);
        is_known || (round >= YIELD_ROUNDS && round.is_multiple_of(ROUNDS_PER_CHECK))
    }

    /// Why a thread that has waited since `begin` for a lock should give up, if it should. Its word names `holder`, or no process (0),
    /// as `still` finds out. `word` tells it from other locks.
    fn give_up(
        &self,
        lock: LockId,
        (word, holder): (u32, u32),
        begin: Instant,
        still: &dyn Fn() -> bool,
    ) -> Option<LockError> {
        let process = self.attachment.named(holder);
        // The word names a process that has died, so it names it for good.
        if holder != FREE && self.attachment.has_ended(process) && still() {
            self.died.store(holder, Ordering::Relaxed);
            self.attachment.note_damage(lock, process);
            return Some(LockError::OwnerDied { lock, holder: process.id() });
        }
        let stuck = u64::from(holder) << 32 | u64::from(word);
        let was_stuck = self.stuck.load(Ordering::Relaxed) == stuck;
        let limit = if was_stuck { SHORT_LIMIT.min(self.limit) } else { self.limit };
        (begin.elapsed() >= limit).then(|| {
            self.stuck.store(stuck, Ordering::Relaxed);
            LockError::LockStuck { lock, holder: process.id() }
        })
    }
}

impl HostPlatform {
    /// Takes a lock that another thread held.
    #[cold]
    pub(super) fn wait_for_lock(&self, id: LockId, word: &AtomicU32) -> Result<Contention, LockError> {
        let begin = Instant::now();
        let (mut round, mut lost) = (0u32, 0u32);
        loop {
            let holder = word.load(Ordering::Relaxed);
            if holder == FREE {
                if self.try_lock(id, word) == Contention::Free {
                    self.shared.iter().for_each(|shared| shared.stuck.store(0, Ordering::Relaxed));
                    return Ok(Contention::Contended);
                }
                // Another thread was faster, or another process writes to the word all the time.
                lost = lost.wrapping_add(1);
                if !lost.is_multiple_of(LOST_PER_ROUND) {
                    continue;
                }
            }
            if let Some(shared) = &self.shared
                && shared.looks_at(holder, round)
                && let Some(error) = shared.give_up(id, (word.as_ptr().addr() as u32, holder), begin, &|| {
                    word.load(Ordering::Relaxed) == holder
                })
            {
                LAST_ERROR.set(Some(error));
                return Err(error);
            }
            self.wait(round);
            round = round.checked_add(1).unwrap_or(YIELD_ROUNDS);
        }
    }

    /// Ends a wait for something else than the word of a spinning lock, as [`Platform::check_holder`] describes.
    #[cold]
    pub(super) fn check_wait(
        &self,
        id: LockId,
        holder: u32,
        round: u32,
        still: &dyn Fn() -> bool,
    ) -> Result<(), LockError> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let now = Instant::now();
        let begin = WAIT_BEGAN.get().filter(|_| round > 0).unwrap_or(now);
        WAIT_BEGAN.set(Some(begin));
        if !shared.looks_at(holder, round) {
            return Ok(());
        }
        let word = (id.to_bits() ^ id.to_bits() >> 32) as u32;
        shared.give_up(id, (word, holder), begin, still).map_or(Ok(()), |error| {
            LAST_ERROR.set(Some(error));
            Err(error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{HostMemory, HugePages, in_memory};
    use crate::region::Region;
    use crate::topology::HostTopology;
    use frameyard::{ByteSize, Geometry, NodeId, Pfn, PfnRange};

    const LOCK: LockId = LockId::Devices;
    const LIMIT: Duration = Duration::from_millis(50);

    /// Platforms of several processes, as far as locks can tell.
    fn platforms<const N: usize>() -> [HostPlatform; N] {
        let host = HostTopology::current().unwrap();
        let file = in_memory(1 << 16).unwrap();
        let range = PfnRange { start: Pfn(0), end: Pfn(0x400) };
        let frames = [crate::memory::NodeFrames { range, node: NodeId(0) }];
        std::array::from_fn(|_| {
            let memory = HostMemory::builder(Geometry::X86_64, &frames).backing(crate::memory::Backing::Phantom);
            let table = Region::in_file(&file, 0, ByteSize(1 << 16), HugePages::Default).unwrap();
            let place = Attachment::new(&file, table).unwrap().unwrap();
            HostPlatform::new(memory.build(&host).unwrap(), &host).with_attachment(Arc::new(place), LIMIT)
        })
    }

    fn process(platform: &HostPlatform) -> u32 {
        platform.shared.as_ref().unwrap().attachment.process().identity()
    }

    #[test]
    fn a_held_lock_names_its_holder_and_waiters_leave_the_name_alone() {
        let [holder, waiter] = platforms();
        let word = AtomicU32::new(FREE);
        assert_eq!(holder.lock(LOCK, &word), Ok(Contention::Free));
        assert_eq!(word.load(Ordering::Relaxed), process(&holder));
        assert_eq!(waiter.try_lock(LOCK, &word), Contention::Contended);
        assert_eq!(word.load(Ordering::Relaxed), process(&holder));
        holder.unlock(LOCK, &word);
        assert_eq!(waiter.lock(LOCK, &word), Ok(Contention::Free));
        assert_eq!(word.load(Ordering::Relaxed), process(&waiter));
        assert_eq!((holder.lock_error(), waiter.lock_error()), (None, None));
    }

    #[test]
    fn a_lock_whose_holder_has_ended_damages_the_yard_for_all_processes() {
        let [holder, waiter, other] = platforms();
        let word = AtomicU32::new(FREE);
        holder.lock(LOCK, &word).unwrap();
        drop(holder);
        let error = waiter.lock(LOCK, &word).unwrap_err();
        assert_eq!(error, LockError::OwnerDied { lock: LOCK, holder: std::process::id() });
        for platform in [&waiter, &waiter, &other] {
            assert_eq!(platform.lock_error(), Some(error));
        }
        let name = word.load(Ordering::Relaxed);
        assert_ne!(name, FREE, "no process takes it again");
        // Its other locks are not waited for any more.
        let shared = waiter.shared.as_ref().unwrap();
        assert!(shared.looks_at(name, 0) && !shared.looks_at(name + 1, 0) && !shared.looks_at(FREE, 0));
        assert_eq!(
            waiter.lock(LockId::LruShard(NodeId(0), 0), &AtomicU32::new(name)),
            Err(LockError::OwnerDied { lock: LockId::LruShard(NodeId(0), 0), holder: std::process::id() })
        );
        assert_eq!(waiter.lock(LOCK, &AtomicU32::new(FREE)), Ok(Contention::Free), "other locks serve as before");
    }

    #[test]
    fn a_word_that_names_no_process_damages_the_yard() {
        let [waiter] = platforms();
        let error = waiter.lock(LOCK, &AtomicU32::new(0xdead_beef)).unwrap_err();
        assert_eq!(error, LockError::OwnerDied { lock: LOCK, holder: 0 });
    }

    #[test]
    fn a_wait_for_a_living_process_ends_at_the_limit_and_damages_nothing() {
        let [holder, waiter] = platforms();
        // A damaged word that names a process, be it the waiter itself.
        for named in [&holder, &waiter] {
            let word = AtomicU32::new(process(named));
            let error = waiter.lock(LOCK, &word).unwrap_err();
            assert_eq!(error, LockError::LockStuck { lock: LOCK, holder: std::process::id() });
            assert_eq!((waiter.lock_error(), waiter.lock_error()), (Some(error), None), "it is told once");
            named.unlock(LOCK, &word);
            assert_eq!(waiter.lock(LOCK, &word), Ok(Contention::Free));
        }
    }
}
