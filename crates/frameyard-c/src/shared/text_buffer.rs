//! [`TextBuffer`]: text into a caller's buffer, cut like `snprintf`'s.

use core::ffi::c_char;
use core::fmt;

/// Writes text into a caller's buffer and counts all of it.
#[derive(Debug)]
pub struct TextBuffer<'a> {
    bytes: &'a mut [c_char],
    length: usize,
}

impl<'a> TextBuffer<'a> {
    /// A buffer of these bytes.
    pub fn of(bytes: &'a mut [c_char]) -> Self {
        Self { bytes, length: 0 }
    }

    /// A buffer at an address of the caller; empty if the address is null.
    ///
    /// # Safety
    ///
    /// `buffer` is null or points to `capacity` writable bytes that nothing else uses during the call.
    #[must_use]
    pub unsafe fn at(buffer: *mut c_char, capacity: usize) -> Self {
        if buffer.is_null() || capacity == 0 {
            return Self::of(&mut []);
        }
        // The bytes need no value: a slice of `c_char` may be made of any. They are zeroed for the compiler, which assumes that
        // the bytes behind a reference have values.
        // SAFETY: passed on to the caller. Larger sizes than a slice may have cannot be the size of a buffer.
        unsafe {
            let capacity = capacity.min(isize::MAX as usize);
            core::ptr::write_bytes(buffer, 0, capacity);
            Self::of(core::slice::from_raw_parts_mut(buffer, capacity))
        }
    }

    /// Adds bytes of a text.
    pub fn write_bytes(&mut self, text: &[u8]) {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        for (place, byte) in room.iter_mut().zip(text) {
            *place = *byte as c_char;
        }
        self.length += text.len();
    }

    /// Ends the text with a byte 0. Returns the length of the whole text without it.
    pub fn finish(self) -> usize {
        let Some(last) = self.bytes.len().checked_sub(1) else { return self.length };
        let mut end = self.length.min(last);
        if end < self.length {
            // Cut in front of a character, not inside one.
            while end > 0 && self.bytes[end] as u8 & 0xc0 == 0x80 {
                end -= 1;
            }
        }
        self.bytes[end..].fill(0);
        self.length
    }
}

impl fmt::Write for TextBuffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write_bytes(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::fmt::Write;
    use std::borrow::ToOwned;
    use std::string::String;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn cut_to(capacity: usize, text: &str) -> (usize, String) {
        let mut bytes = vec![0x55; capacity];
        let mut buffer = TextBuffer::of(&mut bytes);
        buffer.write_str(text).unwrap();
        let length = buffer.finish();
        let written: Vec<u8> = bytes.into_iter().take_while(|byte| *byte != 0).map(|byte| byte as u8).collect();
        (length, String::from_utf8(written).unwrap())
    }

    #[test]
    fn text_is_cut_to_the_buffer_and_counted_whole() {
        assert_eq!(cut_to(6, "hello"), (5, "hello".to_owned()));
        assert_eq!(cut_to(5, "hello"), (5, "hell".to_owned()));
        assert_eq!(cut_to(1, "hello"), (5, String::new()));
        let mut nothing = TextBuffer::of(&mut []);
        nothing.write_str("hello").unwrap();
        assert_eq!(nothing.finish(), 5);
    }

    #[test]
    fn text_is_not_cut_inside_a_character() {
        assert_eq!(cut_to(4, "aaé"), (4, "aa".to_owned()));
        assert_eq!(cut_to(5, "aaé"), (4, "aaé".to_owned()));
    }
}
