use std::sync::atomic::AtomicBool;
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

/// As a platform's user does.
fn get(stand: impl FnOnce()) {
    let mark = begin_get();
    stand();
    mark.end();
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
        assert_eq!(wait_for_gets(SHORT).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        go_on.send(()).unwrap();
    });
    wait();
}

#[test]
fn a_get_is_waited_for_until_it_ends() {
    is_waited_for(|stand| get(stand));
    // The second of a thread goes the fast way, where there is one.
    is_waited_for(|stand| {
        get(|| ());
        assert_eq!(MARK.get().is_some(), ProcessBarrier::registered().is_some());
        get(stand);
    });
}

#[test]
fn gets_that_begin_later_are_not_waited_for() {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                get(|| ());
            }
        });
        (0..100).for_each(|_| wait());
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_thread_that_has_given_its_mark_back_gets_another() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            assert!(GIVER.try_with(|_| ()).is_err() && OWN.get().is_none());
            is_waited_for_here();
            WAS_LATE.store(true, Ordering::Relaxed);
        }
    }
    /// A get of this thread, and another's wait for it.
    fn is_waited_for_here() {
        get(|| {
            let waited = thread::spawn(|| wait_for_gets(SHORT)).join().unwrap();
            assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        });
    }
    static WAS_LATE: AtomicBool = AtomicBool::new(false);
    thread_local! {
        static FIRST: Late = const { Late };
    }
    let used = thread::spawn(|| {
        // Made first, so dropped last.
        FIRST.with(|_| ());
        is_waited_for_here();
        std::ptr::from_ref(OWN.get().unwrap()) as usize
    });
    let used = used.join().unwrap();
    assert!(WAS_LATE.load(Ordering::Relaxed));
    assert!(marks().all.iter().any(|mark| std::ptr::from_ref(*mark) as usize == used));
    wait();
}
