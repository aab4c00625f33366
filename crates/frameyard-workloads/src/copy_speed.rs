//! How fast this host zeroes and copies pages, as a reference for migration.

use std::hint::black_box;
use std::time::Instant;

use crate::stamp::PAGE;

/// Larger than the caches.
const BYTES: usize = 128 << 20;
/// Passes. The fastest counts: other processes may have used the CPU during the rest.
const PASSES: usize = 3;

/// Bytes per second of one thread, page by page.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CopySpeed {
    /// Zeroed.
    pub zeroed: f64,
    /// Copied.
    pub copied: f64,
}

impl CopySpeed {
    /// Measures both.
    #[must_use]
    pub fn measure() -> Self {
        let (from, mut to) = (vec![1_u8; BYTES], vec![2_u8; BYTES]);
        let zeroed = best(|| to.chunks_exact_mut(PAGE).for_each(|page| black_box(page).fill(0)));
        let copied = best(|| {
            let pages = from.chunks_exact(PAGE).zip(to.chunks_exact_mut(PAGE));
            pages.for_each(|(from, to)| black_box(to).copy_from_slice(black_box(from)));
        });
        Self { zeroed, copied }
    }
}

fn best(mut pass: impl FnMut()) -> f64 {
    let seconds = (0..PASSES).map(|_| {
        let begin = Instant::now();
        pass();
        begin.elapsed().as_secs_f64()
    });
    BYTES as f64 / seconds.fold(f64::INFINITY, f64::min)
}
