use std::sync::mpsc;

use super::*;

/// Long enough for what ends by itself.
const LONG: Duration = Duration::from_secs(60);
/// For what does not.
const SHORT: Duration = Duration::from_millis(5);

/// A wait that some other test's get may delay.
fn wait() {
    wait_for_gets(LONG).unwrap();
}

/// Runs `get` in a thread, and lets it stand there until the wait for it was seen to last.
fn is_waited_for(get: impl FnOnce(&dyn Fn()) + Send) {
    let ((began, begun), (go_on, gone_on)) = (mpsc::channel(), mpsc::channel());
    thread::scope(|scope| {
        scope.spawn(move || {
            get(&|| {
                began.send(()).unwrap();
                gone_on.recv().unwrap();
            });
        });
        begun.recv().unwrap();
        assert_eq!(wait_for_gets(SHORT).unwrap_err().kind(), io::ErrorKind::TimedOut);
        go_on.send(()).unwrap();
    });
    wait();
}

#[test]
fn a_get_is_waited_for_until_it_ends() {
    is_waited_for(|stand| marked(stand));
    // The second of a thread goes the fast way, where there is one.
    is_waited_for(|stand| {
        marked(|| ());
        assert_eq!(MARK.get().is_some(), ProcessBarrier::registered().is_some());
        marked(stand);
    });
    is_waited_for(|stand| unmarked(stand));
}

#[test]
fn gets_that_begin_later_are_not_waited_for() {
    let stop = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while stop.load(Ordering::Relaxed) == 0 {
                marked(|| ());
            }
        });
        (0..100).for_each(|_| wait());
        stop.store(1, Ordering::Relaxed);
    });
}

#[test]
fn a_get_that_panics_has_ended() {
    let panicked = thread::spawn(|| marked(|| panic!("on purpose"))).join();
    assert!(panicked.is_err());
    wait();
}

#[test]
fn marks_are_used_again_and_a_thread_that_ends_needs_none() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            marked(|| assert!(OWNED.try_with(|_| ()).is_err() && UNMARKED.load(Ordering::Relaxed) > 0));
            LATE.store(1, Ordering::Relaxed);
        }
    }
    static LATE: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static FIRST: Late = const { Late };
    }
    let used = thread::spawn(|| {
        // Made first, so dropped last.
        FIRST.with(|_| ());
        marked(|| ());
        OWNED.with(|owned| std::ptr::from_ref(owned.0) as usize)
    });
    let used = used.join().unwrap();
    assert_eq!(LATE.load(Ordering::Relaxed), 1);
    assert!(marks().all.iter().any(|mark| std::ptr::from_ref(*mark) as usize == used));
    wait();
}
