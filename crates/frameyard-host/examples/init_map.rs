//! Initialises a memory map once, for counting instructions. No timing, and no output but a check.
//!
//! The difference between two sizes is the cost of a page, including writing, fencing and freeing.
//!
//! ```console
//! $ cargo build --release -p frameyard-host --example init_map
//! $ valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/init_map 1048576 kernel stream
//! $ valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/init_map 2097152 kernel stream
//! ```

use std::process::ExitCode;

use frameyard::boot::{Initialiser, MapInit, ZoneLimits};
use frameyard::page::MapContent;
use frameyard::{MemoryTable, NodeId, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{Backing, HostYard, HugePages};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("init_map: {error}; usage: init_map FRAMES zero|kernel INITIALISER");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |what: &str| args.next().ok_or_else(|| format!("{what} is missing"));
    let frames: u64 = next("how many frames")?.parse()?;
    let content: MapContent = next("the content")?.parse()?;
    let initialiser: Initialiser = next("the initialiser")?.parse()?;

    let memory = [(PfnRange::new(Pfn(0), PageCount(frames)), NodeId(0))];
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let config = YardConfig {
        zone_limits: ZoneLimits::NONE,
        map_init: MapInit { content, initialiser, ..MapInit::default() },
        ..YardConfig::new(&[NodeId(0)])
    };
    let yard =
        HostYard::builder().backing(Backing::Phantom).huge_pages(HugePages::Never).machine(&table, &config).build()?;
    if yard.stats().free_pages() == PageCount(frames) { Ok(()) } else { Err("frames are missing".into()) }
}
