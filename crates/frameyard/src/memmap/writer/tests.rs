//! Every writer against the same simple reference, on memory that is full of other bits.

use crate::memmap::writer::*;
use crate::page::MapContent;
use crate::units::{NodeId, ZoneId, ZoneKind};

/// A page as plain words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
struct Line([u64; WORDS]);

const OLD: Line = Line([0xa5a5_a5a5_a5a5_a5a5; WORDS]);
const ZONE: ZoneId = ZoneId::new(NodeId(3), ZoneKind::Normal);

/// A run of pages between two that nothing may write, in memory full of old bits.
struct Run {
    lines: Vec<Line>,
    start: usize,
    count: usize,
}

impl Run {
    fn new(start: usize, count: usize) -> Self {
        Self { lines: vec![OLD; start + count + 1], start, count }
    }

    /// The page at a place of the run; one further is where the run ends.
    fn page(&mut self, at: usize) -> NonNull<Page> {
        assert!(at <= self.count);
        // SAFETY: the page is inside of `lines`, or is the guard behind the run.
        unsafe { NonNull::new_unchecked(self.lines.as_mut_ptr().add(self.start + at)).cast() }
    }

    fn prepare(&mut self, writer: MapWriter) {
        // SAFETY: the run is memory of `self`, borrowed exclusively; a line is as large as a page and aligned as one.
        unsafe { writer.prepare(self.page(0), self.count as u64) }
    }

    fn write(&mut self, writer: MapWriter, from: usize, count: usize, content: PageTemplate) {
        assert!(from + count <= self.count);
        // SAFETY: as above.
        unsafe { writer.write(self.page(from), count as u64, content) }
        writer.finish();
    }

    /// Asserts that the run holds that, page by page, and that nothing was written beside it.
    fn assert_holds(&self, case: &str, expected: impl Fn(usize) -> Line) {
        for (at, line) in self.lines.iter().enumerate() {
            let inside = (self.start..self.start + self.count).contains(&at);
            let expected = if inside { expected(at - self.start) } else { OLD };
            assert_eq!(*line, expected, "line {at} of {case}, which begins at line {} ", self.start);
        }
    }
}

/// A writer by each initialiser that writes, and one for each way of streaming that this machine has.
fn writers() -> Vec<MapWriter> {
    let plain = [Initialiser::TwoPass, Initialiser::MemsetPerPage, Initialiser::StoresPerPage].map(MapWriter::new);
    let streaming = Streaming::available().map(|streaming| MapWriter { initialiser: Initialiser::Stream, streaming });
    let detected = MapWriter::new(Initialiser::Stream);
    plain.into_iter().chain(streaming).chain([detected]).collect()
}

/// What maps hold, and one that differs in every word.
fn contents() -> [PageTemplate; 4] {
    [
        PageTemplate::of(MapContent::Zero, 7, Some(ZONE)),
        PageTemplate::of(MapContent::Kernel, 7, Some(ZONE)),
        PageTemplate::of(MapContent::Kernel, 7, None),
        PageTemplate([1, 2 | 3 << 32, 4, 5, 6, 7, 8, u64::MAX]),
    ]
}

/// The reference: the words one by one, the links as they stand in a page.
fn line_of(content: PageTemplate) -> Line {
    let mut bytes = [0; PAGE_BYTES];
    for (at, word) in content.0.into_iter().enumerate() {
        bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_ne_bytes());
    }
    bytes[8..12].copy_from_slice(&(content.0[1] as u32).to_ne_bytes());
    bytes[12..16].copy_from_slice(&((content.0[1] >> 32) as u32).to_ne_bytes());
    let word = |at: usize| u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap());
    Line(core::array::from_fn(word))
}

#[test]
fn all_ways_write_the_same_bits_and_nothing_outside() {
    let lengths = if cfg!(miri) { &[1, 2, 3, 7, 64][..] } else { &[1, 2, 3, 7, 15, 16, 17, 64, 67, 32768] };
    for writer in writers() {
        for content in contents() {
            for count in lengths {
                for start in [1, 2, 5] {
                    let mut run = Run::new(start, *count);
                    run.prepare(writer);
                    run.write(writer, 0, *count, content);
                    run.assert_holds(&format!("{count} pages of {content:x?} by {writer:?}"), |_| line_of(content));
                }
            }
        }
    }
}

#[test]
fn a_prepared_run_is_written_in_parts() {
    let [zero, kernel, hole, _] = contents();
    for writer in writers() {
        let mut run = Run::new(3, 200);
        run.prepare(writer);
        run.write(writer, 0, 101, kernel);
        run.write(writer, 101, 18, hole);
        run.write(writer, 119, 81, zero);
        run.assert_holds(&format!("three parts by {writer:?}"), |at| match at {
            0..101 => line_of(kernel),
            101..119 => line_of(hole),
            _ => line_of(zero),
        });
    }
}

#[test]
fn an_empty_part_writes_nothing() {
    for writer in writers() {
        let mut run = Run::new(1, 0);
        run.prepare(writer);
        for content in contents() {
            run.write(writer, 0, 0, content);
        }
        run.assert_holds(&format!("nothing by {writer:?}"), |_| OLD);
    }
}

#[test]
fn the_way_none_writes_nothing() {
    let writer = MapWriter::new(Initialiser::None);
    let mut run = Run::new(1, 64);
    run.prepare(writer);
    run.write(writer, 0, 64, PageTemplate::ZERO);
    run.assert_holds("none", |_| OLD);
}

#[test]
fn only_two_pass_writes_while_preparing() {
    for writer in writers() {
        let mut run = Run::new(1, 64);
        run.prepare(writer);
        let expected = if writer.initialiser == Initialiser::TwoPass { Line([0; WORDS]) } else { OLD };
        run.assert_holds(&format!("the first pass of {writer:?}"), |_| expected);
    }
}

#[test]
fn kernel_like_content_has_zone_section_and_initial_counts() {
    let content = PageTemplate::of(MapContent::Kernel, 0x12_3456, Some(ZONE));
    let identity = (0x12_3456 << 32) | (u64::from(ZONE.0) + 1);
    assert_eq!(content.0, [0, 0, identity, 0xffff_ffff_0000_0000, 0, 0, 0, 0]);
    let hole = PageTemplate::of(MapContent::Kernel, 0x12_3456, None);
    assert_eq!(hole.0, [0, 0, 0x12_3456 << 32, 0xffff_ffff_0000_0000, 0, 0, 0, 0]);
    assert_ne!(PageTemplate::of(MapContent::Kernel, 0, Some(ZoneId(0))), PageTemplate::of(MapContent::Kernel, 0, None));
}

#[test]
fn zero_content_is_zero_in_all_sections_and_zones() {
    for zone in [None, Some(ZONE)] {
        assert_eq!(PageTemplate::of(MapContent::Zero, 0x12_3456, zone), PageTemplate::ZERO);
    }
}
