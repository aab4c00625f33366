//! Readahead: the windows of the kernel's `ondemand_readahead`.
//!
//! A window is a run of pages read at once. One of its pages carries a mark: the first page of the part that was not
//! requested yet. Reading a marked page starts the next window, so a sequential reader never waits. Windows double up
//! to [`MAX_WINDOW`] while reads are sequential. A random reader gets only the requested pages.

use frameyard::sync::{AtomicU64, Ordering};

/// The largest window: 128 KiB of 4 KiB pages.
pub(super) const MAX_WINDOW: u64 = 32;

/// A window: `pages` pages from `start`, of which the last `ahead` were not requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) pages: u64,
    pub(super) ahead: u64,
}

impl Window {
    /// One past the last page.
    pub(super) fn end(self) -> u64 {
        self.start.saturating_add(self.pages)
    }

    /// The page with the mark.
    pub(super) fn mark(self) -> Option<u64> {
        (self.ahead > 0).then(|| self.start + (self.pages - self.ahead))
    }

    /// Whether a read of this page continues the sequence.
    fn continues_at(self, index: u64) -> bool {
        self.pages > 0 && (Some(index) == self.mark() || index == self.end())
    }

    /// The first window for a request of `requested` pages (the kernel's `get_init_ra_size`).
    fn first(start: u64, requested: u64) -> Self {
        let rounded = requested.min(MAX_WINDOW).next_power_of_two();
        let pages = match rounded {
            _ if rounded <= MAX_WINDOW / 32 => rounded * 4,
            _ if rounded <= MAX_WINDOW / 4 => rounded * 2,
            _ => MAX_WINDOW,
        };
        Self { start, pages, ahead: if pages > requested { pages - requested } else { pages } }
    }

    /// The size of the window after one of `pages` pages (the kernel's `get_next_ra_size`).
    fn grown(pages: u64) -> u64 {
        match pages {
            0..2 => pages.max(1) * 4,
            2..=16 => pages * 2,
            _ => MAX_WINDOW,
        }
    }

    /// The next window, all of it ahead.
    fn following(self) -> Self {
        let pages = Self::grown(self.pages);
        Self { start: self.end(), pages, ahead: pages }
    }
}

/// The cause of a readahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// A page is missing.
    Miss,
    /// A marked page was read. The value is the first missing page behind it.
    Mark(u64),
}

/// The access history of a handle. Only hints: threads that share a handle may mix them up.
#[derive(Debug)]
pub(super) struct Stream {
    start: AtomicU64,
    pages: AtomicU64,
    ahead: AtomicU64,
    /// The last page read, plus 1; 0 at first.
    last: AtomicU64,
    /// The last page written, plus 1; 0 at first.
    written: AtomicU64,
}

impl Default for Stream {
    fn default() -> Self {
        let [start, pages, ahead, last, written] = [(); 5].map(|()| AtomicU64::new(0));
        Self { start, pages, ahead, last, written }
    }
}

impl Stream {
    fn window(&self) -> Window {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Window { start: load(&self.start), pages: load(&self.pages), ahead: load(&self.ahead) }
    }

    fn set_window(&self, window: Window) {
        self.start.store(window.start, Ordering::Relaxed);
        self.pages.store(window.pages, Ordering::Relaxed);
        self.ahead.store(window.ahead, Ordering::Relaxed);
    }

    /// Notes a read of a page; returns whether the previous read was of a different page.
    pub(super) fn read(&self, index: u64) -> bool {
        Self::moved(&self.last, index)
    }

    /// Notes a write of a page, like `read`.
    pub(super) fn wrote(&self, index: u64) -> bool {
        Self::moved(&self.written, index)
    }

    fn moved(word: &AtomicU64, index: u64) -> bool {
        let last = index.wrapping_add(1);
        if word.load(Ordering::Relaxed) == last {
            return false;
        }
        word.store(last, Ordering::Relaxed);
        true
    }

    /// Whether the next window is known for a read of this page.
    pub(super) fn expects(&self, index: u64) -> bool {
        self.window().continues_at(index)
    }

    /// The window for page `index`, the first of `requested` wanted pages.
    pub(super) fn plan(&self, index: u64, requested: u64, cause: Cause) -> Window {
        let known = self.window();
        let continues = known.continues_at(index);
        let last = self.last.load(Ordering::Relaxed);
        let in_sequence = index == last || index + 1 == last;
        let window = match cause {
            _ if index == 0 && cause == Cause::Miss => Window::first(index, requested),
            _ if continues => known.following(),
            Cause::Mark(hole) => {
                // The reader that left the mark is unknown. The pages in memory show its progress.
                let pages = Window::grown((hole - index).saturating_add(requested).min(MAX_WINDOW));
                Window { start: hole, pages, ahead: pages }
            }
            Cause::Miss if requested > MAX_WINDOW || in_sequence => Window::first(index, requested),
            Cause::Miss => return Window { start: index, pages: requested.min(MAX_WINDOW), ahead: 0 },
        };
        // A miss at the mark of a window dropped since, or whose end was never reached.
        let window = match cause {
            Cause::Miss if window.start > index => Window::first(index, requested),
            _ => Self::merged(window, index),
        };
        self.set_window(window);
        window
    }

    /// Extends a window requested at its own mark by the next one.
    fn merged(window: Window, index: u64) -> Window {
        if index != window.start || window.ahead != window.pages {
            return window;
        }
        let next = Window::grown(window.pages);
        let pages = (window.pages + next).min(MAX_WINDOW);
        let ahead = if pages == MAX_WINDOW { MAX_WINDOW / 2 } else { next };
        Window { pages, ahead, ..window }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_windows_double_up_to_the_maximum() {
        let stream = Stream::default();
        let first = stream.plan(0, 1, Cause::Miss);
        assert_eq!(first, Window { start: 0, pages: 4, ahead: 3 });
        let mut at = first;
        let mut sizes = vec![at.pages];
        for _ in 0..5 {
            let mark = at.mark().unwrap();
            let next = stream.plan(mark, 1, Cause::Mark(at.end()));
            assert_eq!(next.start, at.end(), "the next window begins where the last one ends");
            sizes.push(next.pages);
            at = next;
        }
        assert_eq!(sizes, [4, 8, 16, 32, 32, 32]);
    }

    #[test]
    fn random_reads_fetch_only_requested_pages() {
        let stream = Stream::default();
        for (index, requested) in [(100, 1), (7, 2), (5000, 1), (60, 9)] {
            assert!(stream.read(index + requested + 1000));
            let window = stream.plan(index, requested, Cause::Miss);
            assert_eq!(window, Window { start: index, pages: requested, ahead: 0 });
            assert_eq!(window.mark(), None);
        }
    }

    #[test]
    fn sequential_read_from_any_page_gets_a_window() {
        let stream = Stream::default();
        stream.read(99);
        assert_eq!(stream.plan(100, 1, Cause::Miss), Window { start: 100, pages: 4, ahead: 3 });
    }

    #[test]
    fn continues_another_readers_window_behind_cached_pages() {
        let stream = Stream::default();
        let window = stream.plan(40, 1, Cause::Mark(48));
        assert_eq!(window.start, 48);
        assert_eq!(window.pages, 18, "twice the eight pages that are there and the one requested for");
    }

    #[test]
    fn window_of_a_miss_contains_the_page() {
        let stream = Stream::default();
        for index in [0, 1, 2, 3, 4, 8, 9, 8, 3, 0, 1, 100, 101, 103, 116, 115] {
            let window = stream.plan(index, 1, Cause::Miss);
            assert!((window.start..window.end()).contains(&index), "{window:?} for {index}");
            assert!(window.pages <= MAX_WINDOW && window.ahead <= window.pages);
            stream.read(index);
        }
    }
}
