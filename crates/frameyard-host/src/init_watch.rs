//! [`InitWatch`]: the progress of initialising a memory map, for other threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use frameyard::PageCount;
use frameyard::platform::{InitProgress, NodeInit};

use crate::sys::lock::lock;

/// The progress of initialising the memory map of a yard.
///
/// Clones share one progress. To watch a yard being created, pass a watch to
/// [`HostYardBuilder::init_watch`](crate::HostYardBuilder::init_watch) and read it from another thread.
/// [`HostPlatform::init_watch`](crate::HostPlatform::init_watch) returns the one that a platform reports to.
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
    /// The number of page structures written so far, including those of holes. It never falls. Cost: one load.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        PageCount(self.seen.pages.load(Ordering::Relaxed))
    }

    /// The nodes whose pass is complete, in the order in which they finished. Cost: a lock and a copy.
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
            _ => {}
        }
    }
}
