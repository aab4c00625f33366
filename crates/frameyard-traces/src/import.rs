//! Reading a recording of any known format.
//!
//! | format | found by |
//! |---|---|
//! | Frameyard's | its first eight bytes |
//! | zstd around any other | its first four bytes |
//! | LLFree's | a first page of three numbers, then zeros |
//! | text of ftrace, `trace-cmd report` or `perf script` | anything else; each line for itself |

use std::io::{self, BufRead, BufReader, Read};

use frameyard::CpuId;
use frameyard_formats::TraceLine;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::file::{FileEnd, Item, MAGIC, read_file};
use crate::{PageEvent, TraceError, TraceEvent, llfree};

/// The first bytes of a zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// More bytes than a line of a recording has.
const LONGEST: u64 = 1 << 16;
/// Lines that cannot be read and are kept with their numbers.
const KEPT: usize = 5;
/// What begins a fact in a comment of a text.
pub(crate) const FACT_MARK: &str = "frameyard ";

/// What to do with a line that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BadLines {
    /// Count it and go on.
    #[default]
    Skip,
    /// Stop with an error that has its number.
    Refuse,
}

/// A format of recordings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceFormat {
    /// Frameyard's.
    Frameyard,
    /// LLFree's.
    Llfree,
    /// Text.
    Text,
}

/// What was read beside the events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// The format.
    pub format: TraceFormat,
    /// Events, without lost ones.
    pub events: u64,
    /// Events of other tracepoints.
    pub others: u64,
    /// Events that the recorder lost.
    pub lost: u64,
    /// Lines that could not be read.
    pub skipped: u64,
    /// The first of them: number and problem.
    pub first_skipped: Vec<(u64, String)>,
    /// Whether the end is missing.
    pub is_truncated: bool,
}

impl Imported {
    fn of(format: TraceFormat) -> Self {
        Self { format, events: 0, others: 0, lost: 0, skipped: 0, first_skipped: Vec::new(), is_truncated: false }
    }

    fn count(&mut self, events: &[TraceEvent]) {
        for event in events {
            match event.what {
                PageEvent::Lost(lost) => self.lost = self.lost.saturating_add(lost),
                _ => self.events += 1,
            }
        }
    }
}

/// Reads a recording of any known format, and calls `visit` with each part of it.
///
/// Memory: a block of events; for a trace of LLFree the whole trace, which is not in the order of time.
///
/// # Errors
///
/// [`TraceError`]. `visit` has had everything before the error. Where [`BadLines::Skip`] is given, damaged compression behind the first
/// events is no error. A file of Frameyard or LLFree that ends too early never is one: see [`Imported::is_truncated`].
pub fn import(
    source: impl Read,
    bad_lines: BadLines,
    visit: &mut dyn FnMut(Item) -> Result<(), TraceError>,
) -> Result<Imported, TraceError> {
    let mut source = BufReader::with_capacity(1 << 16, source);
    if source.fill_buf()?.starts_with(&ZSTD) {
        let mut frames = ZstdFrames { decoder: None, source: Some(source), problem: None };
        let mut imported = import_plain(&mut frames, bad_lines, visit)?;
        match frames.problem {
            Some(problem) if imported.events == 0 || bad_lines == BadLines::Refuse => {
                return Err(TraceError::Compression(problem));
            }
            Some(_) => imported.is_truncated = true,
            None => {}
        }
        return Ok(imported);
    }
    import_plain(&mut source, bad_lines, visit)
}

type Decoder<R> = StreamingDecoder<R, FrameDecoder>;

/// The content of zstd frames that follow each other. Damage ends it.
struct ZstdFrames<R: Read> {
    decoder: Option<Decoder<BufReader<R>>>,
    source: Option<BufReader<R>>,
    problem: Option<String>,
}

impl<R: Read> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                match decoder.read(buffer) {
                    Ok(0) if !buffer.is_empty() => self.source = self.decoder.take().map(StreamingDecoder::into_inner),
                    Ok(read) => return Ok(read),
                    Err(error) => {
                        self.problem = Some(error.to_string());
                        self.decoder = None;
                    }
                }
            }
            let Some(mut source) = self.source.take() else { return Ok(0) };
            if source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match StreamingDecoder::new(source) {
                Ok(decoder) => self.decoder = Some(decoder),
                Err(error) => self.problem = Some(error.to_string()),
            }
        }
    }
}

fn import_plain(
    source: &mut impl Read,
    bad_lines: BadLines,
    visit: &mut dyn FnMut(Item) -> Result<(), TraceError>,
) -> Result<Imported, TraceError> {
    let mut first = Vec::new();
    source.take(llfree::PAGE as u64).read_to_end(&mut first)?;
    let mut rest = first.chain(source);
    if first.starts_with(&MAGIC) {
        import_file(&mut rest, visit)
    } else if llfree::is_header(&first) {
        let mut imported = Imported::of(TraceFormat::Llfree);
        let read = llfree::read(&mut rest)?;
        imported.is_truncated = read.is_truncated;
        imported.count(&read.events);
        visit(Item::Events(read.events))?;
        Ok(imported)
    } else {
        import_text(&mut BufReader::with_capacity(1 << 16, rest), bad_lines, visit)
    }
}

fn import_file(
    source: &mut impl Read,
    visit: &mut dyn FnMut(Item) -> Result<(), TraceError>,
) -> Result<Imported, TraceError> {
    let mut imported = Imported::of(TraceFormat::Frameyard);
    source.read_exact(&mut [0; MAGIC.len()])?;
    let mut refused = Ok(());
    let end = read_file(source, &mut |item| {
        if let Item::Events(events) = &item {
            imported.count(events);
        }
        if refused.is_ok() {
            refused = visit(item);
        }
    });
    refused?;
    imported.is_truncated = end? == FileEnd::Truncated;
    Ok(imported)
}

/// Events that are passed on together.
const TOGETHER: usize = 4096;

fn import_text(
    source: &mut impl BufRead,
    bad_lines: BadLines,
    visit: &mut dyn FnMut(Item) -> Result<(), TraceError>,
) -> Result<Imported, TraceError> {
    let mut imported = Imported::of(TraceFormat::Text);
    let (mut bytes, mut events) = (Vec::new(), Vec::with_capacity(TOGETHER));
    let (mut time_us, mut result) = (0, Ok(()));
    for number in 1_u64.. {
        bytes.clear();
        if (&mut *source).take(LONGEST).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        let line = std::str::from_utf8(&bytes).map_err(|error| error.to_string());
        match line.and_then(|line| TraceLine::parse(line.trim_end()).map_err(|error| error.to_string())) {
            Ok(TraceLine::Event(event)) => {
                time_us = event.time_us;
                events.push(event);
            }
            Ok(TraceLine::Lost(lost)) => {
                events.push(TraceEvent { time_us, pid: 0, cpu: CpuId(0), what: PageEvent::Lost(lost) });
            }
            Ok(TraceLine::Other(_)) => imported.others += 1,
            Ok(TraceLine::Comment(comment)) => {
                if let Some((name, value)) = comment.strip_prefix(FACT_MARK).and_then(|fact| fact.split_once(": ")) {
                    visit(Item::Fact { name: name.to_owned(), value: value.to_owned() })?;
                }
            }
            Err(problem) if bad_lines == BadLines::Refuse => {
                result = Err(TraceError::Line { number, problem });
                break;
            }
            Err(problem) => {
                imported.skipped += 1;
                if imported.first_skipped.len() < KEPT {
                    imported.first_skipped.push((number, problem));
                }
            }
        }
        if events.len() == TOGETHER {
            imported.count(&events);
            visit(Item::Events(std::mem::replace(&mut events, Vec::with_capacity(TOGETHER))))?;
        }
    }
    imported.count(&events);
    if !events.is_empty() {
        visit(Item::Events(events))?;
    }
    result.map(|()| imported)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events_of(source: &[u8], bad_lines: BadLines) -> Result<(Vec<TraceEvent>, Imported), TraceError> {
        let mut all = Vec::new();
        let imported = import(source, bad_lines, &mut |item| {
            if let Item::Events(events) = item {
                all.extend(events);
            }
            Ok(())
        })?;
        Ok((all, imported))
    }

    const LINE: &str = "  cargo-3368    [001] ...2.  2470.144200: mm_page_free: page=0 pfn=0x248d9f order=0\n";

    #[test]
    fn lines_that_cannot_be_read_are_counted_or_refused_with_their_numbers() {
        let text = format!("# a\n{LINE}nonsense\n{LINE}\n");
        let mut bytes = text.into_bytes();
        bytes.extend(b"\xff\n");
        let (events, imported) = events_of(&bytes, BadLines::Skip).unwrap();
        assert_eq!((events.len(), imported.events, imported.skipped, imported.is_truncated), (2, 2, 2, false));
        assert_eq!(imported.first_skipped[0].0, 3);
        assert_eq!(imported.first_skipped[1].0, 6);
        let error = events_of(&bytes, BadLines::Refuse).unwrap_err().to_string();
        assert!(error.starts_with("line 3: no line of a trace: [CPU] expected"), "{error}");
    }

    #[test]
    fn zstd_frames_are_read_one_after_the_other_and_damage_keeps_what_came_before() {
        let packed = |lines: usize| {
            ruzstd::encoding::compress_to_vec(
                LINE.repeat(lines).as_bytes(),
                ruzstd::encoding::CompressionLevel::Fastest,
            )
        };
        let mut both = packed(10);
        both.extend(packed(5));
        assert_eq!(events_of(&both, BadLines::Refuse).unwrap().1.events, 15);
        both.truncate(both.len() - 7);
        let (events, imported) = events_of(&both, BadLines::Skip).unwrap();
        assert!(imported.is_truncated && events.len() >= 10);
        assert!(matches!(events_of(&both, BadLines::Refuse), Err(TraceError::Compression(_))));
    }

    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let long = vec![b'#'; LONGEST as usize + 10];
        assert_eq!(events_of(&long, BadLines::Refuse).unwrap().1.events, 0);
    }
}
