//! Sizes for people.

use std::fmt;

use frameyard::ByteSize;

/// Prints a size with three digits and a unit: `23.5 GiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RoundedSize(pub(crate) ByteSize);

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for RoundedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ByteSize(bytes)) = *self;
        match bytes {
            1 => return f.write_str("1 byte"),
            ..1024 => return write!(f, "{bytes} bytes"),
            _ => {}
        }
        let mut value = bytes as f64 / 1024.0;
        let mut unit = 0;
        // A value that would round to 1024 belongs to the next unit.
        while value >= 1023.5 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let digits = match value {
            _ if value == value.trunc() => 0,
            ..9.995 => 2,
            ..99.95 => 1,
            _ => 0,
        };
        write!(f, "{value:.digits$} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_printed_and_whole_numbers_without_a_point() {
        let printed = |bytes| RoundedSize(ByteSize(bytes)).to_string();
        assert_eq!(printed(0), "0 bytes");
        assert_eq!(printed(1), "1 byte");
        assert_eq!(printed(1023), "1023 bytes");
        assert_eq!(printed(4096), "4 KiB");
        assert_eq!(printed((1 << 20) + (1 << 18)), "1.25 MiB");
        assert_eq!(printed((23 << 30) + (1 << 29)), "23.5 GiB");
        assert_eq!(printed((1 << 30) - 1), "1.00 GiB");
        assert_eq!(printed(u64::MAX), "16 EiB");
    }
}
