//! Progress of the initialisation of a memory map.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use frameyard::PageCount;
use frameyard::boot::{InitMode, Initialiser, MapInit};
use frameyard::platform::NodeInit;
use frameyard_host::{HostYardBuilder, InitWatch};

use crate::output::{self, ProgressBar};

/// What the platform learns while the map is initialised. Clones share it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Watch(InitWatch);

impl Watch {
    /// The builder, whose yard reports to this watch.
    pub(crate) fn attach<'a>(&self, builder: HostYardBuilder<'a>) -> HostYardBuilder<'a> {
        builder.init_watch(&self.0)
    }

    /// Page structures written so far.
    pub(crate) fn pages(&self) -> PageCount {
        self.0.pages()
    }

    /// The result of each pass over the map of a node, by node. Empty without passes.
    pub(crate) fn nodes(&self) -> Vec<NodeInit> {
        self.0.nodes()
    }
}

/// How often the bar is drawn again.
const TICK: Duration = Duration::from_millis(100);

/// Does `work` with progress on a terminal: a bar that counts pages up to `total` where the map is written from end to end,
/// else a spinner.
pub(super) fn watched<T>(name: &str, map: &MapInit, total: PageCount, watch: &Watch, work: impl FnOnce() -> T) -> T {
    if map.initialiser == Initialiser::None || map.mode == InitMode::Lazy {
        let sign = output::spinner(format!("booting {name}"));
        let done = work();
        sign.finish_and_clear();
        return done;
    }
    if !output::is_terminal() {
        return work();
    }
    let bar = output::progress_bar("initialising the memory map", total.0);
    let done = followed(&bar, total, watch, work);
    bar.finish_and_clear();
    done
}

/// Does `work` while a thread moves the bar along with the watch.
fn followed<T>(bar: &ProgressBar, total: PageCount, watch: &Watch, work: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let follower = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                bar.set_position(watch.pages().0.min(total.0));
                thread::park_timeout(TICK);
            }
        });
        // Runs even where the work panics, so that the follower ends.
        let _end = OnDrop(|| {
            ended.store(true, Ordering::Relaxed);
            follower.thread().unpark();
        });
        work()
    })
}

/// Calls a function when it is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    #[test]
    fn the_bar_follows_work_until_it_ends_or_panics() {
        let (bar, watch, total) = (ProgressBar::hidden("testing".to_owned(), 8), Watch::default(), PageCount(8));
        assert_eq!(followed(&bar, total, &watch, || 7), 7);
        let panicked =
            catch_unwind(AssertUnwindSafe(|| followed(&bar, total, &watch, || resume_unwind(Box::new("stop")))));
        assert!(panicked.is_err());
    }

    #[test]
    fn work_is_done_for_every_initialiser() {
        for initialiser in Initialiser::ALL {
            let init = MapInit { initialiser, ..MapInit::default() };
            assert_eq!(watched("x", &init, PageCount(8), &Watch::default(), || 5), 5);
        }
    }
}
