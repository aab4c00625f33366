//! Writing a file, chunk by chunk.

use std::io::{self, Write};

use super::varint::{put, put_difference};
use super::{BlockPlace, END_MAGIC, MAGIC, block, checksum, packed, tag};
use crate::TraceEvent;

/// Writes a recording. After an error, or without [`finish`](Self::finish), what was written until then can be read.
pub struct TraceWriter<W> {
    out: W,
    written: u64,
    pending: Vec<TraceEvent>,
    index: Vec<BlockPlace>,
}

impl<W> std::fmt::Debug for TraceWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceWriter")
            .field("blocks", &self.index.len())
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

impl<W: Write> TraceWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        Ok(Self { out, written: MAGIC.len() as u64, pending: Vec::new(), index: Vec::new() })
    }

    /// The output.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// Adds an event. Writes when a block of 65536 is full.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn event(&mut self, event: TraceEvent) -> io::Result<()> {
        self.pending.push(event);
        if self.pending.len() < block::EVENTS { Ok(()) } else { self.flush() }
    }

    /// Adds a fact about the recording. Line breaks in the value become spaces.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn fact(&mut self, name: &str, value: &str) -> io::Result<()> {
        let fact = format!("{name}: {value}").replace(['\n', '\r'], " ");
        self.text(tag::FACT, &fact)
    }

    /// Adds a file of /proc; `buddyinfo.before` is the name of `/proc/buddyinfo` before the recording.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn snapshot(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.text(tag::SNAPSHOT, &format!("{name}\n{text}"))
    }

    /// Writes pending events as a block.
    fn flush(&mut self) -> io::Result<()> {
        let times = || self.pending.iter().map(|event| event.time_us);
        if let (Some(first_us), Some(last_us)) = (times().min(), times().max()) {
            let content = block::encode(&self.pending);
            let events = self.pending.len() as u64;
            self.index.push(BlockPlace { offset: self.written, events, first_us, last_us });
            self.pending.clear();
            self.chunk(tag::EVENTS, &content)?;
        }
        Ok(())
    }

    /// Writes the rest and the index. Returns the output and the bytes written.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.flush()?;
        let mut content = Vec::new();
        put(&mut content, self.index.len() as u64);
        let mut before = BlockPlace { offset: 0, events: 0, first_us: 0, last_us: 0 };
        for place in &self.index {
            put(&mut content, place.offset - before.offset);
            put(&mut content, place.events);
            put_difference(&mut content, place.first_us, before.last_us);
            put(&mut content, place.last_us - place.first_us);
            before = *place;
        }
        let offset = self.written;
        self.chunk(tag::INDEX, &content)?;
        self.out.write_all(&offset.to_le_bytes())?;
        self.out.write_all(&END_MAGIC)?;
        self.out.flush()?;
        Ok((self.out, self.written + (size_of_val(&offset) + END_MAGIC.len()) as u64))
    }

    fn text(&mut self, tag: [u8; 4], text: &str) -> io::Result<()> {
        let mut content = Vec::new();
        packed::put(&mut content, text.as_bytes());
        self.chunk(tag, &content)
    }

    fn chunk(&mut self, tag: [u8; 4], content: &[u8]) -> io::Result<()> {
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        let mut chunk = Vec::with_capacity(super::CHUNK_HEAD + content.len());
        chunk.extend(tag);
        chunk.extend(length.to_le_bytes());
        chunk.extend(checksum(tag, content).to_le_bytes());
        chunk.extend(content);
        self.out.write_all(&chunk)?;
        self.written += chunk.len() as u64;
        Ok(())
    }
}
