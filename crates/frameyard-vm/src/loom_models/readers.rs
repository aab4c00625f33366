//! Readers of a map lock in a shared yard (`crate::lock`): the words beside it name their processes, so that a writer knows for
//! which process it waits.

use std::num::NonZeroU32;
use std::ptr::NonNull;

use frameyard::platform::{LockError, LockId};
use frameyard::sync::{Ordering, Weakness, weakened};
use frameyard::{CpuId, Pfn, Platform};
use loom::thread;

use super::{assert_fails_to, explore_to};
use crate::lock::{MAP_LOCK_WORDS, MapLock};
use crate::words::{Words, forget_all};

const ID: LockId = LockId::AddressSpace(1);
const WRITER_WAITS: u64 = 1 << 62;
const WITHOUT_NAME: &str = "a writer waits for a reader without a name";

/// The platform of a process that uses the lock.
struct Process {
    name: NonZeroU32,
    words: Words<'static>,
}

impl Platform for Process {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    /// As for the machine of the other models.
    fn spin(&self, round: u32) {
        if round > 0 {
            loom::skip_branch();
        }
        thread::yield_now();
    }

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }

    fn process(&self) -> Option<NonZeroU32> {
        Some(self.name)
    }

    /// A wait without a named process is over, or the writer does not keep new readers out yet.
    fn check_holder(&self, _: LockId, holder: u32, _: u32, _: &dyn Fn() -> bool) -> Result<(), LockError> {
        // An exchange reads the latest value.
        let word = self.words.at(0).fetch_add(0, Ordering::Relaxed);
        assert!(holder != 0 || word & WRITER_WAITS == 0 || word == WRITER_WAITS, "{WITHOUT_NAME}");
        Ok(())
    }
}

/// Runs `body` with the lock of a process.
fn in_process(name: u32, words: Words<'static>, body: impl FnOnce(MapLock<'_, Process>)) {
    let process = Process { name: NonZeroU32::new(name).expect("a name"), words };
    body(MapLock::new(&process, ID, words));
}

/// Two threads read a map while another writes it. Two threads of one process use one word.
fn read_by_two_while_written(names: [u32; 2]) {
    forget_all();
    let words = Words::bare(MAP_LOCK_WORDS);
    let read = move |name| {
        in_process(name, words, |lock| {
            let reading = lock.try_read();
            let second = words.at(2).load(Ordering::Relaxed);
            assert!(names[0] != names[1] || second == 0, "a process has two words");
            drop(reading);
        });
    };
    let reader = thread::spawn(move || read(names[1]));
    // Not this thread, which has seen that there are no names yet and so would never look at an old value again.
    let writer = thread::spawn(move || {
        in_process(9, words, |lock| drop(lock.write().expect("all processes go on")));
    });
    read(names[0]);
    reader.join().unwrap();
    writer.join().unwrap();
    for word in 0..MAP_LOCK_WORDS {
        assert_eq!(words.at(word).load(Ordering::Relaxed), 0, "a reader left something in word {word}");
    }
}

#[test]
fn writer_knows_the_readers_that_it_waits_for() {
    explore_to(2, || read_by_two_while_written([7, 8]));
}

#[test]
fn threads_of_a_process_share_a_word() {
    explore_to(2, || read_by_two_while_written([7, 7]));
}

#[test]
fn detects_readers_that_are_named_late() {
    weakened(Weakness::ReadersNamedLate, || assert_fails_to(2, || read_by_two_while_written([7, 8]), &[WITHOUT_NAME]));
}

#[test]
fn detects_non_atomic_names_of_readers() {
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails_to(
            2,
            || read_by_two_while_written([7, 7]),
            &[WITHOUT_NAME, "a reader left something", "subtract with overflow"],
        );
    });
}

#[test]
fn detects_unordered_names_of_readers() {
    weakened(Weakness::RelaxedExchanges, || {
        assert_fails_to(2, || read_by_two_while_written([7, 8]), &[WITHOUT_NAME]);
    });
}
