//! [`InitWatch`]: how far a memory map has come up, for other threads to see.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frameyard::PageCount;
use frameyard::platform::{InitProgress, NodeInit};

/// What has been reported of how the memory map of a yard comes up.
///
/// A handle: its clones see the same. Make one before the yard, give it to
/// [`HostYardBuilder::init_watch`](crate::HostYardBuilder::init_watch), and look at it from another thread while the
/// yard is being created; or ask a platform for its own.
#[derive(Clone, Debug, Default)]
pub struct InitWatch {
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    pages: AtomicU64,
    nodes: Mutex<Vec<NodeInit>>,
}

impl InitWatch {
    /// How many page structures are written so far, holes included. Only rises. Cost: one load.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        PageCount(self.seen.pages.load(Ordering::Relaxed))
    }

    /// The passes over nodes that are done, in the order in which they were. Cost: a lock and a copy.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeInit> {
        self.locked_nodes().clone()
    }

    /// Takes note of a report.
    pub(crate) fn note(&self, progress: InitProgress) {
        match progress {
            // Relaxed: a number to show; nobody reaches pages by it.
            InitProgress::Written(frames) => {
                self.seen.pages.fetch_add(frames.count().0, Ordering::Relaxed);
            }
            InitProgress::NodeDone(node) => self.locked_nodes().push(node),
        }
    }

    fn locked_nodes(&self) -> MutexGuard<'_, Vec<NodeInit>> {
        // A list that is pushed to is whole even where somebody panicked.
        self.seen.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
