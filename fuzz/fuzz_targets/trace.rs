//! Any bytes as a recording of any format: an error of one line, or events that survive Frameyard's format and text. Both ways to treat bad
//! lines read the same events before the first bad line.
#![no_main]

use frameyard_traces::{BadLines, Imported, Item, TraceError, TraceEvent, TraceWriter, import, write_csv, write_text};
use libfuzzer_sys::fuzz_target;

fn read(source: &[u8], bad_lines: BadLines) -> (Vec<TraceEvent>, Result<Imported, TraceError>) {
    let mut all = Vec::new();
    let imported = import(source, bad_lines, &mut |item| {
        if let Item::Events(events) = item {
            all.extend(events);
        }
        Ok(())
    });
    (all, imported)
}

fuzz_target!(|bytes: &[u8]| {
    let (events, imported) = read(bytes, BadLines::Skip);
    let (strict, refused) = read(bytes, BadLines::Refuse);
    assert!(events.starts_with(&strict));
    for error in [imported.as_ref().err(), refused.as_ref().err()].into_iter().flatten() {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let mut writer = TraceWriter::new(Vec::new()).expect("a vector takes all bytes");
    let mut text = Vec::new();
    for event in &events {
        writer.event(*event).expect("a vector takes all bytes");
        write_text(event, &mut text).expect("a vector takes all bytes");
        write_csv(event, &mut std::io::sink()).expect("a sink takes all bytes");
    }
    let (file, _) = writer.finish().expect("a vector takes all bytes");
    let (again, complete) = read(&file, BadLines::Refuse);
    assert!(again == events && complete.is_ok_and(|imported| !imported.is_truncated));
    let (from_text, complete) = read(&text, BadLines::Refuse);
    assert!(from_text.len() == events.len() && complete.is_ok());
});
