//! Addresses for tests that need many.

use frameyard::ByteSize;

/// Whether a test must be skipped because this process may have too few addresses (`ulimit -v`). Says so on standard output.
///
/// Tests run at the same time, so each may have a quarter of the limit.
pub(crate) fn are_too_few(needed: ByteSize) -> bool {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
    // No number: it is unlimited.
    let limit =
        limit.and_then(|values| values.split_whitespace().next()?.parse().ok()).map_or(ByteSize(u64::MAX), ByteSize);
    let too_few = needed.0 > limit.0 / 4;
    if too_few {
        println!("skipped: needs {needed} of addresses, more than a quarter of the {limit} that this process may have");
    }
    too_few
}
