//! Reading a file, chunk by chunk.

use std::io::{self, Read, Seek, SeekFrom};

use super::varint::{take, take_difference};
use super::{BlockPlace, CHUNK_HEAD, END_MAGIC, MAGIC, MOST_CONTENT, MOST_TEXT, block, checksum, packed, tag};
use crate::{TraceError, TraceEvent};

/// A part of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// Events, in the order of the recording.
    Events(Vec<TraceEvent>),
    /// A fact about the recording.
    Fact {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A file of /proc.
    Snapshot {
        /// Its name: `buddyinfo.before`.
        name: String,
        /// Its text.
        text: String,
    },
}

/// How a file ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileEnd {
    /// With its index.
    Complete,
    /// Within a chunk, or without an index. All chunks before were read.
    Truncated,
}

/// Reads the rest of a file, behind its magic bytes. Calls `visit` with each part.
///
/// Needs the memory of one chunk.
///
/// # Errors
///
/// [`TraceError::Io`]; [`TraceError::Corrupt`] at the first damaged chunk. `visit` has had all parts before it.
pub fn read_file(mut source: impl Read, visit: &mut dyn FnMut(Item)) -> Result<FileEnd, TraceError> {
    let mut offset = MAGIC.len() as u64;
    loop {
        let Some((chunk_tag, content)) = read_chunk(&mut source, offset)? else { return Ok(FileEnd::Truncated) };
        let corrupt = || TraceError::Corrupt { offset };
        match chunk_tag {
            tag::EVENTS => visit(Item::Events(block::decode(&content).ok_or_else(corrupt)?)),
            tag::FACT => {
                let text = text(&content).ok_or_else(corrupt)?;
                let (name, value) = text.split_once(": ").ok_or_else(corrupt)?;
                visit(Item::Fact { name: name.to_owned(), value: value.to_owned() });
            }
            tag::SNAPSHOT => {
                let text = text(&content).ok_or_else(corrupt)?;
                let (name, text) = text.split_once('\n').ok_or_else(corrupt)?;
                visit(Item::Snapshot { name: name.to_owned(), text: text.to_owned() });
            }
            tag::INDEX => return Ok(FileEnd::Complete),
            _ => {}
        }
        offset += (CHUNK_HEAD + content.len()) as u64;
    }
}

fn text(mut content: &[u8]) -> Option<String> {
    String::from_utf8(packed::take(&mut content, MOST_TEXT)?).ok()
}

/// The tag and content of a chunk.
type Chunk = ([u8; 4], Vec<u8>);

/// The next chunk; `None` if the file ends before its end.
fn read_chunk(source: &mut impl Read, offset: u64) -> Result<Option<Chunk>, TraceError> {
    let mut head = [0; CHUNK_HEAD];
    if read_up_to(source, &mut head)? < CHUNK_HEAD {
        return Ok(None);
    }
    let [a, b, c, d, l0, l1, l2, l3, sum @ ..] = head;
    let chunk_tag = [a, b, c, d];
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > MOST_CONTENT {
        return Err(TraceError::Corrupt { offset });
    }
    let mut content = Vec::new();
    if source.take(length as u64).read_to_end(&mut content).map_err(TraceError::Io)? < length {
        return Ok(None);
    }
    if checksum(chunk_tag, &content) != u64::from_le_bytes(sum) {
        return Err(TraceError::Corrupt { offset });
    }
    Ok(Some((chunk_tag, content)))
}

fn read_up_to(source: &mut impl Read, buffer: &mut [u8]) -> Result<usize, TraceError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(TraceError::Io(error)),
        }
    }
    Ok(filled)
}

/// The index of a complete file; `None` if the file has none, as one that was cut off.
///
/// Reads the end of the file.
///
/// # Errors
///
/// [`TraceError::Io`]; [`TraceError::Corrupt`] if the index is damaged.
pub fn read_index(source: &mut (impl Read + Seek)) -> Result<Option<Vec<BlockPlace>>, TraceError> {
    let mut end = [0; 16];
    let length = source.seek(SeekFrom::End(0)).map_err(TraceError::Io)?;
    if length < (MAGIC.len() + end.len()) as u64 {
        return Ok(None);
    }
    source.seek(SeekFrom::End(-16)).map_err(TraceError::Io)?;
    read_up_to(source, &mut end)?;
    let [offset @ .., _, _, _, _, _, _, _, _] = end;
    if end[8..] != END_MAGIC {
        return Ok(None);
    }
    let offset = u64::from_le_bytes(offset);
    source.seek(SeekFrom::Start(offset)).map_err(TraceError::Io)?;
    let corrupt = || TraceError::Corrupt { offset };
    match read_chunk(source, offset)? {
        Some((tag::INDEX, content)) => Ok(Some(parse_index(&content).ok_or_else(corrupt)?)),
        _ => Err(corrupt()),
    }
}

fn parse_index(mut content: &[u8]) -> Option<Vec<BlockPlace>> {
    let mut index = Vec::new();
    let mut before = BlockPlace { offset: 0, events: 0, first_us: 0, last_us: 0 };
    for _ in 0..take(&mut content)? {
        let offset = before.offset.checked_add(take(&mut content)?)?;
        let events = take(&mut content)?;
        let first_us = take_difference(&mut content, before.last_us)?;
        let last_us = first_us.checked_add(take(&mut content)?)?;
        before = BlockPlace { offset, events, first_us, last_us };
        index.push(before);
    }
    Some(index)
}
