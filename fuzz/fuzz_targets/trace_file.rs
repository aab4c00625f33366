//! Damage of a file of Frameyard's format behind valid checksums: chunks of any content. The reader ends with an error at most. A truncated
//! file has the events of its whole chunks.
#![no_main]

use frameyard_traces::file::read_file;
use frameyard_traces::{Item, TraceError};
use libfuzzer_sys::fuzz_target;
use twox_hash::XxHash64;

const TAGS: [[u8; 4]; 5] = [*b"EVTS", *b"FACT", *b"SNAP", *b"INDX", *b"NONE"];

fuzz_target!(|chunks: Vec<(u8, Vec<u8>)>| {
    let mut file = Vec::new();
    for (tag, content) in &chunks {
        let tag = TAGS[usize::from(*tag) % TAGS.len()];
        file.extend(tag);
        file.extend((content.len() as u32).to_le_bytes());
        file.extend(XxHash64::oneshot(u64::from(u32::from_le_bytes(tag)), content).to_le_bytes());
        file.extend(content);
    }
    let events = |file: &[u8]| {
        let mut events = Vec::new();
        let end = read_file(file, &mut |item| {
            if let Item::Events(more) = item {
                events.extend(more);
            }
        });
        assert!(matches!(end, Ok(_) | Err(TraceError::Corrupt { .. })), "{end:?}");
        events
    };
    let all = events(&file);
    assert!(all.starts_with(&events(&file[..file.len() / 2])));
});
