//! [`InitWatch`]: the progress of initialising a memory map, for other threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use frameyard::PageCount;
use frameyard::platform::{InitProgress, NodeInit};

use crate::sys::lock::lock;

/// The reported progress of initialising the memory map of a yard.
///
/// Clones see the same progress. To watch the creation of a yard, make one first, pass it to
/// [`HostYardBuilder::init_watch`](crate::HostYardBuilder::init_watch), and read it from another thread. A platform also
/// returns its own.
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
    /// The number of page structures written so far, holes included. It only rises. Cost: one load.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        PageCount(self.seen.pages.load(Ordering::Relaxed))
    }

    /// The completed passes over nodes, in the order of completion. Cost: a lock and a copy.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeInit> {
        lock(&self.seen.nodes).clone()
    }

    /// Records a report.
    pub(crate) fn note(&self, progress: InitProgress) {
        match progress {
            // Relaxed: the number is for display, and no thread reaches pages through it.
            InitProgress::Written(frames) => {
                self.seen.pages.fetch_add(frames.count().0, Ordering::Relaxed);
            }
            InitProgress::NodeDone(node) => lock(&self.seen.nodes).push(node),
        }
    }
}
