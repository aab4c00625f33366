//! Looks up the pages of a device's frames, for counting instructions.
//!
//! With `get` it also takes a reference of each page and returns it. With `shared` the yard is one that several
//! processes can use.
//!
//! ```console
//! cargo build --release -p frameyard-host --example look_up
//! for steps in 100000 300000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/look_up $steps deduplicated look private
//! done
//! ```
//!
//! The difference between two counts, divided by the difference between the numbers of steps, is the cost of looking up
//! a frame inside a compound page of 2 MiB, including the loop.

use std::error::Error;

use frameyard::devices::{DeviceRequest, MapLayout, MapPlacement};
use frameyard::{MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Yard, YardConfig};
use frameyard_host::{Backing, HostPlatform, HostYard};

/// Compound pages of 2 MiB.
const HUGE: Order = Order(9);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let steps: u64 = arguments.next().ok_or("how many steps?")?.parse()?;
    let layout: MapLayout = arguments.next().ok_or("which layout?")?.parse()?;
    let work = arguments.next().unwrap_or_else(|| "look".to_owned());
    let whose = arguments.next().unwrap_or_else(|| "private".to_owned());
    let memory = [(PfnRange::new(Pfn(0x10_0000), PageCount(1 << 15)), NodeId(0))];
    let range = PfnRange::new(Pfn(0x20_0000), PageCount(1 << 18));
    let config = YardConfig { device_space: Some(range), ..YardConfig::new(&[NodeId(0)]) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let builder = HostYard::builder().machine(&table, &config).backing(Backing::Phantom);
    let builder = match whose.as_str() {
        "private" => builder,
        "shared" => builder.shared(),
        _ => return Err("private or shared?".into()),
    };
    let yard = builder.build()?;
    yard.map_device(DeviceRequest { range, node: NodeId(0), order: HUGE, layout, placement: MapPlacement::Memory })?;
    let found = match work.as_str() {
        "look" => look_up(yard.core(), range, steps),
        "get" => get(yard.core(), range, steps),
        _ => return Err("look or get?".into()),
    };
    assert_eq!(found, steps, "every frame has a page");
    Ok(())
}

/// The number of frames that had a page, among `steps` frames of the range.
#[inline(never)]
fn look_up(yard: &Yard<HostPlatform>, range: PfnRange, steps: u64) -> u64 {
    let frames = range.count().0;
    let at = |step: u64| range.start + PageCount(step * 77 % frames);
    (0..steps).filter(|step| yard.devices().page(at(*step)).is_some_and(|page| page.order() == HUGE)).count() as u64
}

/// The same, taking and returning a reference.
#[inline(never)]
fn get(yard: &Yard<HostPlatform>, range: PfnRange, steps: u64) -> u64 {
    let frames = range.count().0;
    let at = |step: u64| range.start + PageCount(step * 77 % frames);
    let get_and_put = |step: &u64| {
        let Some(page) = yard.devices().page(at(*step)).filter(|page| page.try_get(1)) else { return false };
        // SAFETY: `try_get` has taken the reference just now.
        unsafe { page.put(1) }.is_ok()
    };
    (0..steps).filter(get_and_put).count() as u64
}
