//! Fields of the text files in `/proc` and `/sys`.

use frameyard::ByteSize;

/// The value of the first line that starts with `key`, in the kernel's kB.
pub(crate) fn size_field(text: &str, key: &str) -> Option<ByteSize> {
    text.lines().find_map(|line| line.strip_prefix(key)).and_then(size)
}

/// A size in the kernel's kB, as in ` 4 kB`.
pub(crate) fn size(value: &str) -> Option<ByteSize> {
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024).map(ByteSize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_found_by_their_key() {
        let text = "VmHWM:\t  99 kB\nVmRSS:\t    1880 kB\nThreads: 1\n";
        assert_eq!(size_field(text, "VmRSS:"), Some(ByteSize::kib(1880)));
        assert_eq!(size_field(text, "Threads:"), None);
        assert_eq!(size_field(text, "VmPTE:"), None);
        assert_eq!(size("18446744073709551615 kB"), None);
    }
}
