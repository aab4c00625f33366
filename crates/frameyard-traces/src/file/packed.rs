//! Compressed parts of a file: length, compressed length, one zstd frame.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::varint;

/// Appends bytes in compressed form.
pub(super) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    if !bytes.is_empty() {
        let packed = compress_to_vec(bytes, CompressionLevel::Fastest);
        varint::put(out, packed.len() as u64);
        out.extend(packed);
    }
}

/// Takes what [`put`] has appended, of at most that many bytes; `None` if it is damaged.
pub(super) fn take(bytes: &mut &[u8], most: usize) -> Option<Vec<u8>> {
    let length = usize::try_from(varint::take(bytes)?).ok().filter(|length| *length <= most)?;
    if length == 0 {
        return Some(Vec::new());
    }
    let packed = usize::try_from(varint::take(bytes)?).ok()?;
    let (packed, rest) = bytes.split_at_checked(packed)?;
    *bytes = rest;
    let mut unpacked = Vec::with_capacity(length);
    StreamingDecoder::new(packed).ok()?.take(length as u64 + 1).read_to_end(&mut unpacked).ok()?;
    (unpacked.len() == length).then_some(unpacked)
}
