//! A process opens a yard whose memory file has any header: it gets an error, or a yard that is valid.
//!
//! Each ten bytes are an offset in the header and a word to write there.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use frameyard::ByteSize;
use frameyard_host::HostYard;
use libfuzzer_sys::fuzz_target;

/// The part of the file that is changed: more than the header of a small yard.
const HEADER: usize = 512;

struct Target {
    name: String,
    yard: HostYard,
    file: File,
    header: [u8; HEADER],
}

fn target() -> &'static Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = format!("frameyard-fuzz-attach-{}", std::process::id());
        let yard = HostYard::create_shared(&name, ByteSize::mib(32)).expect("memory for a yard");
        let file =
            File::options().read(true).write(true).open(yard.path().expect("a name")).expect("the file of the yard");
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0).expect("the header");
        Target { name, yard, file, header }
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Target { name, yard, file, header } = target();
    let mut changed = *header;
    for edit in bytes.as_chunks::<10>().0 {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % (HEADER - 7);
        changed[at..at + 8].copy_from_slice(&edit[2..]);
    }
    file.write_all_at(&changed, 0).expect("the file can be written");
    // SAFETY: nothing else uses the file. That its words may be anything is what the target tests.
    if let Ok(opened) = unsafe { HostYard::open_shared(name) } {
        assert_eq!(opened.core().frame_range(), yard.core().frame_range(), "the header contradicts the yard");
        opened.validate().expect("nothing else uses the yard");
    }
    file.write_all_at(header, 0).expect("the file can be written");
});
