//! Waiting until a word in shared memory changes, and waking the waiters.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use rustix::thread::futex;

/// The low 32 bits of a word: the half that the kernel compares.
fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let halves: *mut u32 = word.as_ptr().cast();
    let low = if cfg!(target_endian = "little") { halves } else { halves.wrapping_add(1) };
    // SAFETY: `low` lies inside `word`, is aligned for a `u32` and lives as long as `word`. Only the kernel reads
    // through the result, so no program thread mixes accesses of two sizes.
    unsafe { AtomicU32::from_ptr(low) }
}

/// Sleeps until a thread wakes the word, `longest` has passed, or the kernel wakes the caller for no reason.
///
/// Returns at once if the low 32 bits of the word differ from those of `seen`.
pub(crate) fn wait(word: &AtomicU64, seen: u64, longest: Duration) {
    let timeout = futex::Timespec::try_from(longest).ok();
    // Every outcome means the same to the caller: look again.
    let _ = futex::wait(low_half(word), futex::Flags::empty(), seen as u32, timeout.as_ref());
}

/// Wakes all threads of all processes that wait on the word.
pub(crate) fn wake_all(word: &AtomicU64) -> io::Result<()> {
    futex::wake(low_half(word), futex::Flags::empty(), i32::MAX as u32)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_waiter_is_woken_when_the_word_changes() {
        let word = AtomicU64::new(1 << 40 | 7);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                while word.load(Ordering::Relaxed) == 1 << 40 | 7 {
                    wait(&word, 7, Duration::from_secs(60));
                }
            });
            word.store(8, Ordering::Relaxed);
            // The kernel compares the word before the waiter sleeps: the waiter is awake, or this wakes it.
            wake_all(&word).unwrap();
            waiter.join().unwrap();
        });
        wait(&word, 7, Duration::from_secs(60));
        wait(&word, 8, Duration::from_millis(1));
    }
}
