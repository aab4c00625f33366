//! Huge pages of the host for tests that need some.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use frameyard::ByteSize;

/// Huge pages that a test has added to the host's pool. They leave it on drop, also if the test fails.
///
/// One test at a time has such pages, in all processes: a lock of the pool's file excludes all other tests.
#[derive(Debug)]
pub(crate) struct AddedHugePages {
    pool: File,
    path: String,
    before: u64,
}

impl AddedHugePages {
    /// Waits until no other test has added pages, then adds some. `None` if the host has no pages of that size, or the test may not
    /// change their number.
    pub(crate) fn add(size: ByteSize, pages: u64) -> Option<Self> {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", size.0 >> 10);
        let pool = File::options().read(true).write(true).open(&path).ok()?;
        pool.lock().ok()?;
        let added = Self { before: configured(&path)?, pool, path };
        // The kernel adds fewer pages if it finds too little contiguous memory.
        for _ in 0..5 {
            added.configure(added.before + pages);
            if configured(&added.path)? >= added.before + pages {
                break;
            }
            thread::sleep(Duration::from_millis(200));
        }
        Some(added)
    }

    fn configure(&self, pages: u64) {
        let _ = self.pool.write_at(pages.to_string().as_bytes(), 0);
    }
}

impl Drop for AddedHugePages {
    fn drop(&mut self) {
        self.configure(self.before);
    }
}

fn configured(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
