//! Page contents computed from a key and a page number, so that they can be checked.

use std::error::Error;
use std::fmt;

use frameyard_vm::PatternStore;

/// Contents differ from what was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrongContents {
    /// What holds them.
    pub(crate) what: &'static str,
    /// Which page of it.
    pub(crate) page: u64,
}

impl fmt::Display for WrongContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of {} does not hold what was written there", self.page, self.what)
    }
}

impl Error for WrongContents {}

/// The bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// Fills a page with words computed from a key and a page number.
pub(crate) fn stamp(bytes: &mut [u8], key: u64, page: u64) {
    for (word, bytes) in (0..).zip(bytes.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&PatternStore::expected_word(key, page, word).to_le_bytes());
    }
}

/// Checks the contents that [`stamp`] wrote.
///
/// # Errors
///
/// [`WrongContents`] with the page of `what`.
pub(crate) fn check(bytes: &[u8], key: u64, page: u64, what: &'static str) -> Result<(), WrongContents> {
    let mut words = (0..).zip(bytes.chunks_exact(8));
    if words.all(|(word, bytes)| bytes == PatternStore::expected_word(key, page, word).to_le_bytes()) {
        return Ok(());
    }
    Err(WrongContents { what, page })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_another_number_another_key_and_a_changed_byte() {
        let mut bytes = vec![0; PAGE];
        stamp(&mut bytes, 7, 3);
        assert!(check(&bytes, 7, 3, "it").is_ok());
        assert!(check(&bytes, 7, 4, "it").is_err() && check(&bytes, 8, 3, "it").is_err());
        bytes[PAGE - 1] ^= 1;
        let error = check(&bytes, 7, 3, "a space").unwrap_err();
        assert_eq!(error.to_string(), "page 3 of a space does not hold what was written there");
    }
}
