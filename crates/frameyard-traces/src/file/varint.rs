//! Numbers of variable length: seven bits a byte, the low ones first; the last byte has no high bit.

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference of two numbers, modulo 2^64.
pub(super) fn put_difference(out: &mut Vec<u8>, value: u64, from: u64) {
    put(out, zigzag(value.wrapping_sub(from)));
}

/// Small differences of either sign as small numbers: 0, -1, 1, -2, …
pub(super) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference.cast_signed() >> 63).cast_unsigned())
}

/// The inverse of [`zigzag`].
pub(super) fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

/// Takes a number from the front; `None` where the bytes end before it or it exceeds 64 bits.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The inverse of [`put_difference`].
pub(super) fn take_difference(bytes: &mut &[u8], from: u64) -> Option<u64> {
    Some(from.wrapping_add(unzigzag(take(bytes)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_differences_come_back() {
        for value in [0, 1, 127, 128, 1 << 35, u64::MAX - 1, u64::MAX] {
            for from in [0, 5, u64::MAX] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                put_difference(&mut bytes, value, from);
                let mut rest = &bytes[..];
                assert_eq!((take(&mut rest), take_difference(&mut rest, from)), (Some(value), Some(value)));
                assert_eq!(take(&mut rest), None);
            }
        }
        assert_eq!(take(&mut &[0xff; 10][..]), None);
    }
}
