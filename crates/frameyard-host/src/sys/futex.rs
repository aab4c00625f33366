//! Waiting for a word in shared memory to change, and waking who waits.

use std::io;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::check;

/// The half of a word that the kernel looks at: its low 32 bits.
fn low_half(word: &AtomicU64) -> *const u32 {
    let halves: *const u32 = word.as_ptr().cast();
    if cfg!(target_endian = "little") { halves } else { halves.wrapping_add(1) }
}

/// Sleeps until somebody wakes the word, or the time is over, or for no reason; not at all where the low 32 bits of the word are
/// others than those of `seen`.
pub(crate) fn wait(word: &AtomicU64, seen: u64, longest: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(longest.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: the word and the time live through the call. The kernel reads the word as an atomic, and writes nothing.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            low_half(word),
            libc::FUTEX_WAIT,
            seen as u32,
            &raw const time,
            ptr::null::<u32>(),
            0,
        )
    };
}

/// Wakes all that wait for the word, in all processes.
pub(crate) fn wake_all(word: &AtomicU64) -> io::Result<()> {
    // SAFETY: the word lives through the call, and nothing is written.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            low_half(word),
            libc::FUTEX_WAKE,
            i32::MAX,
            ptr::null::<u32>(),
            ptr::null::<u32>(),
            0,
        )
    };
    check(woken)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn who_waits_is_woken_when_the_wake_waiters() {
        let word = AtomicU64::new(1 << 40 | 7);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                while word.load(Ordering::Acquire) == 1 << 40 | 7 {
                    wait(&word, 7, Duration::from_secs(60));
                }
            });
            word.store(8, Ordering::Release);
            // The waiter looks at the word before it sleeps, so it is awake or woken here.
            wake_all(&word).unwrap();
            waiter.join().unwrap();
        });
        wait(&word, 7, Duration::from_secs(60));
        wait(&word, 8, Duration::from_millis(1));
    }
}
