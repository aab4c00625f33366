//! Sizes in bytes, written `64M`, `8G`, `1T` (powers of 1024).

use core::fmt;
use core::str::FromStr;

/// A size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct ByteSize(pub u64);

const SUFFIXES: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];

impl ByteSize {
    /// `count` KiB.
    #[inline]
    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// `count` MiB.
    #[inline]
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// `count` GiB.
    #[inline]
    #[must_use]
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }
}

impl fmt::Display for ByteSize {
    /// Uses the largest suffix that leaves a whole number. The text parses to the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (suffix, shift) in SUFFIXES.iter().rev() {
            if self.0 != 0 && self.0.trailing_zeros() >= *shift {
                return write!(f, "{}{suffix}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error of parsing a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseSizeError {
    /// Not digits, optionally followed by one of K, M, G, T, P.
    Malformed,
    /// More than 2⁶⁴ − 1 bytes.
    Overflow,
}

impl fmt::Display for ParseSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a size: write digits and K, M, G, T or P, as in 64M or 8G",
            Self::Overflow => "the size overflows: at most 2^64 - 1 bytes",
        })
    }
}

impl core::error::Error for ParseSizeError {}

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSizeError> {
        let text = text.trim();
        let text = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
        let last = text.chars().next_back().ok_or(ParseSizeError::Malformed)?;
        let suffix = SUFFIXES.iter().find(|(suffix, _)| *suffix == last.to_ascii_uppercase());
        let (digits, shift) = match suffix {
            Some((_, shift)) => (&text[..text.len() - 1], *shift),
            None => (text, 0),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ParseSizeError::Malformed);
        }
        let count: u64 = digits.parse().map_err(|_| ParseSizeError::Overflow)?;
        count.checked_mul(1 << shift).map(Self).ok_or(ParseSizeError::Overflow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_prints() {
        for (text, bytes) in
            [("64M", 64 << 20), ("8g", 8 << 30), ("1T", 1 << 40), ("4096", 4096), ("512KiB", 512 << 10)]
        {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size.0, bytes);
            let printed = std::format!("{size}");
            assert_eq!(printed.parse::<ByteSize>().unwrap(), size);
        }
    }

    #[test]
    fn distinguishes_malformed_and_overflowing_sizes() {
        assert_eq!("".parse::<ByteSize>(), Err(ParseSizeError::Malformed));
        assert_eq!("-4K".parse::<ByteSize>(), Err(ParseSizeError::Malformed));
        assert_eq!("M".parse::<ByteSize>(), Err(ParseSizeError::Malformed));
        assert_eq!("1.5G".parse::<ByteSize>(), Err(ParseSizeError::Malformed));
        assert_eq!("99999999999P".parse::<ByteSize>(), Err(ParseSizeError::Overflow));
        assert_eq!("99999999999999999999999".parse::<ByteSize>(), Err(ParseSizeError::Overflow));
    }
}
