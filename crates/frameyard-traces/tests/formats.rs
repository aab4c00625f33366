//! Recordings survive every format that can hold them.

use std::io::Cursor;

use frameyard::{CpuId, MigrateType, Order, Pfn};
use frameyard_traces::file::{FileEnd, read_file, read_index};
use frameyard_traces::{
    BadLines, ExtFrag, GfpFlags, Imported, Item, LlfreeWriter, PageEvent, TraceEvent, TraceFormat, TraceWriter,
    TracedBlock, import, write_text,
};
use proptest::prelude::*;

fn events_of(source: &[u8], bad_lines: BadLines) -> (Vec<TraceEvent>, Imported) {
    let mut all = Vec::new();
    let imported = import(source, bad_lines, &mut |item| {
        if let Item::Events(events) = item {
            all.extend(events);
        }
        Ok(())
    });
    (all, imported.expect("a recording"))
}

fn file_of(events: &[TraceEvent]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new()).unwrap();
    writer.fact("command", "make\nall").unwrap();
    writer.snapshot("buddyinfo.before", "Node 0\n1 2\n").unwrap();
    events.iter().for_each(|event| writer.event(*event).unwrap());
    let (file, bytes) = writer.finish().unwrap();
    assert_eq!(file.len() as u64, bytes);
    file
}

fn text_of(events: &[TraceEvent]) -> Vec<u8> {
    let mut text = Vec::new();
    events.iter().for_each(|event| write_text(event, &mut text).unwrap());
    text
}

const FIXTURES: [(&str, &[u8]); 2] = [
    ("rust-build", include_bytes!("fixtures/rust-build.ftrace.zst")),
    ("page-cache", include_bytes!("fixtures/page-cache.ftrace.zst")),
];

#[test]
fn real_recordings_take_at_most_one_and_a_half_bytes_an_event() {
    for (name, text) in FIXTURES {
        let (events, imported) = events_of(text, BadLines::Refuse);
        assert_eq!((imported.events, imported.format), (events.len() as u64, TraceFormat::Text));
        assert!(events.len() >= 8000, "{name}");
        let file = file_of(&events);
        assert!(file.len() * 2 <= events.len() * 3, "{name}: {} bytes for {} events", file.len(), events.len());
        assert_eq!(events_of(&file, BadLines::Refuse).0, events, "{name}");
    }
}

#[test]
fn real_recordings_survive_text() {
    for (name, text) in FIXTURES {
        let (events, _) = events_of(text, BadLines::Refuse);
        assert_eq!(events_of(&text_of(&events), BadLines::Refuse).0, events, "{name}");
    }
}

#[test]
fn perf_script_is_read() {
    let (events, imported) = events_of(include_bytes!("fixtures/perf-script.txt"), BadLines::Refuse);
    assert_eq!((imported.events, imported.others), (101, 0));
    let first = TraceEvent {
        time_us: 5_088_913_945,
        pid: 2590,
        cpu: CpuId(0),
        what: PageEvent::Alloc {
            pfn: Some(Pfn(0x0011_7f9c)),
            order: Order(0),
            migrate_type: MigrateType::Movable,
            gfp: GfpFlags::parse("GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP"),
        },
    };
    assert_eq!(events[0], first);
}

#[test]
fn facts_and_snapshots_come_back() {
    let mut items = Vec::new();
    let file = file_of(&[]);
    let end = read_file(&file[8..], &mut |item| items.push(item)).unwrap();
    let fact = Item::Fact { name: "command".to_owned(), value: "make all".to_owned() };
    let snapshot = Item::Snapshot { name: "buddyinfo.before".to_owned(), text: "Node 0\n1 2\n".to_owned() };
    assert_eq!((items, end), (vec![fact, snapshot], FileEnd::Complete));
}

/// Two blocks and a little more.
fn long_recording() -> Vec<TraceEvent> {
    let (events, _) = events_of(FIXTURES[0].1, BadLines::Refuse);
    events.iter().copied().cycle().take((2 << 16) + 100).collect()
}

#[test]
fn a_file_that_was_cut_off_keeps_its_whole_blocks() {
    let events = long_recording();
    let file = file_of(&events);
    let index = read_index(&mut Cursor::new(&file)).unwrap().expect("an index");
    assert_eq!(index.len(), 3);
    let cut = &file[..index[2].offset as usize + 10];
    let (read, imported) = events_of(cut, BadLines::Refuse);
    assert!(imported.is_truncated);
    assert_eq!(read, events[..2 << 16]);
    assert_eq!(read_index(&mut Cursor::new(cut)).unwrap(), None);
    // The index alone is missing.
    let (read, imported) = events_of(&file[..file.len() - 40], BadLines::Refuse);
    assert_eq!((read.len(), imported.is_truncated), (events.len(), true));
}

#[test]
fn a_damaged_block_is_an_error_that_names_its_place() {
    let events = long_recording();
    let mut file = file_of(&events);
    let index = read_index(&mut Cursor::new(&file)).unwrap().expect("an index");
    file[index[1].offset as usize + 500] ^= 1;
    let mut read = 0;
    let result = import(&file[..], BadLines::Skip, &mut |item| {
        if let Item::Events(events) = item {
            read += events.len();
        }
        Ok(())
    });
    let message = result.unwrap_err().to_string();
    assert_eq!((message, read), (format!("the file is damaged from byte {} on", index[1].offset), 1 << 16));
}

#[test]
fn blocks_can_be_read_at_their_places() {
    let events = long_recording();
    let file = file_of(&events);
    let index = read_index(&mut Cursor::new(&file)).unwrap().expect("an index");
    let mut items = Vec::new();
    read_file(&file[index[1].offset as usize..], &mut |item| items.push(item)).unwrap();
    assert_eq!(items.first(), Some(&Item::Events(events[1 << 16..2 << 16].to_vec())));
    assert_eq!(index.iter().map(|block| block.events).sum::<u64>(), events.len() as u64);
}

fn llfree_of(events: &[TraceEvent]) -> (Vec<u8>, u64) {
    let mut file = Cursor::new(Vec::new());
    let mut writer = LlfreeWriter::new(&mut file).unwrap();
    events.iter().for_each(|event| writer.event(event).unwrap());
    let written = writer.finish().unwrap();
    (file.into_inner(), written)
}

#[test]
fn a_real_recording_survives_llfrees_format_but_for_events_that_it_lacks() {
    let (events, _) = events_of(FIXTURES[1].1, BadLines::Refuse);
    let (file, written) = llfree_of(&events);
    let (read, imported) = events_of(&file, BadLines::Refuse);
    assert_eq!((imported.format, imported.events), (TraceFormat::Llfree, written));
    let start =
        events.iter().find(|event| matches!(event.what, PageEvent::Alloc { .. } | PageEvent::Free(_))).unwrap().time_us;
    let kept = events.iter().filter(|event| matches!(event.what, PageEvent::Alloc { .. } | PageEvent::Free(_)));
    for cpu in [CpuId(0), CpuId(1)] {
        let of_cpu =
            |events: &mut dyn Iterator<Item = TraceEvent>| events.filter(|event| event.cpu == cpu).collect::<Vec<_>>();
        let expected = of_cpu(&mut kept.clone().map(|event| TraceEvent { time_us: event.time_us - start, ..*event }));
        assert_eq!(of_cpu(&mut read.iter().copied()), expected);
    }
    assert!(read.is_sorted_by_key(|event| event.time_us));
}

#[test]
fn events_that_do_not_fit_llfrees_format_are_refused() {
    let block = TracedBlock { pfn: Pfn(1 << 24), order: Order(0) };
    let event = TraceEvent { time_us: 5, pid: 1, cpu: CpuId(0), what: PageEvent::Free(block) };
    let mut writer = LlfreeWriter::new(Cursor::new(Vec::new())).unwrap();
    let error = writer.event(&event).unwrap_err().to_string();
    assert!(error.starts_with("LLFree's format cannot hold so high a frame"), "{error}");
}

fn block() -> impl Strategy<Value = TracedBlock> {
    (any::<u64>(), 0..16_u8).prop_map(|(pfn, order)| TracedBlock { pfn: Pfn(pfn), order: Order(order) })
}

/// A few frames, so that events meet on them.
fn one_of_few_blocks() -> impl Strategy<Value = TracedBlock> {
    prop_oneof![3 => (1..60_u64, 0..3_u8).prop_map(|(pfn, order)| TracedBlock { pfn: Pfn(pfn), order: Order(order) }), 1 => block()]
}

fn migrate_type() -> impl Strategy<Value = MigrateType> {
    proptest::sample::select(&MigrateType::ALL[..])
}

fn what() -> impl Strategy<Value = PageEvent> {
    // Bits that have no name print as a number, and a number may not have the highest bit, which stands for unknown names.
    let gfp = prop_oneof![Just(GfpFlags(0)), (0..1_u32 << 24).prop_map(GfpFlags)];
    let alloc = (one_of_few_blocks(), migrate_type(), gfp, any::<bool>());
    prop_oneof![
        alloc.prop_map(|(block, migrate_type, gfp, is_served)| PageEvent::Alloc {
            pfn: Some(block.pfn).filter(|pfn| is_served && pfn.0 != 0),
            order: block.order,
            migrate_type,
            gfp,
        }),
        one_of_few_blocks().prop_map(PageEvent::Free),
        one_of_few_blocks().prop_map(PageEvent::FreeBatched),
        (one_of_few_blocks(), migrate_type(), any::<Option<bool>>()).prop_map(
            |(block, migrate_type, percpu_refill)| {
                PageEvent::AllocZoneLocked { block, migrate_type, percpu_refill }
            }
        ),
        (one_of_few_blocks(), migrate_type())
            .prop_map(|(block, migrate_type)| PageEvent::PcpuDrain { block, migrate_type }),
        (block(), 0..16_u8, migrate_type(), migrate_type(), any::<bool>()).prop_map(
            |(block, fallback, migrate_type, fallback_type, changes_pageblock)| {
                PageEvent::ExtFrag(ExtFrag {
                    pfn: block.pfn,
                    order: block.order,
                    fallback_order: Order(fallback),
                    migrate_type,
                    fallback_type,
                    changes_pageblock,
                })
            }
        ),
    ]
}

/// Times in any order. A text cannot hold the highest ones.
fn event() -> impl Strategy<Value = TraceEvent> {
    let time = prop_oneof![1_000..2_000_u64, 0..1_u64 << 60];
    (time, any::<u32>(), prop_oneof![0..3_u32, any::<u32>()], what()).prop_map(|(time_us, pid, cpu, what)| TraceEvent {
        time_us,
        pid,
        cpu: CpuId(cpu),
        what,
    })
}

proptest! {
    #[test]
    fn any_events_survive_the_file_format(events in prop::collection::vec(event(), 0..300), lost in any::<u64>()) {
        let mut events = events;
        events.push(TraceEvent { time_us: u64::MAX, pid: 0, cpu: CpuId(0), what: PageEvent::Lost(lost) });
        prop_assert_eq!(events_of(&file_of(&events), BadLines::Refuse).0, events);
    }

    #[test]
    fn any_events_survive_text(events in prop::collection::vec(event(), 1..100)) {
        prop_assert_eq!(events_of(&text_of(&events), BadLines::Refuse).0, events);
    }

    #[test]
    fn changed_bytes_never_panic(
        events in prop::collection::vec(event(), 0..50),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..5),
        cut in any::<usize>(),
    ) {
        for mut bytes in [file_of(&events), text_of(&events)] {
            for (at, byte) in &changes {
                if let Some(place) = at.checked_rem(bytes.len()) {
                    bytes[place] = *byte;
                }
            }
            bytes.truncate(cut % (bytes.len() + 1));
            let _ = import(&bytes[..], BadLines::Skip, &mut |_| Ok(()));
        }
    }
}
