//! Looks the page up that counts the users of a frame of a device, so many times: for counting instructions.
//!
//! ```console
//! cargo build --release -p frameyard-host --example look_up
//! for steps in 100000 300000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/look_up $steps shared-tails
//! done
//! ```
//!
//! The difference between two counts, divided by that between the numbers of steps, is what a look-up of a frame inside a
//! compound page of 2 MiB costs, the loop around it included.

use std::error::Error;

use frameyard::{
    DeviceRequest, MapLayout, MapPlacement, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Yard, YardConfig,
};
use frameyard_host::{Backing, HostPlatform, HostTopology, HostYard};

/// Compound pages of 2 MiB.
const HUGE: Order = Order(9);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let steps: u64 = arguments.next().ok_or("how many steps?")?.parse()?;
    let layout: MapLayout = arguments.next().ok_or("which layout?")?.parse()?;
    let memory = [(PfnRange::new(Pfn(0x10_0000), PageCount(1 << 15)), NodeId(0))];
    let range = PfnRange::new(Pfn(0x20_0000), PageCount(1 << 18));
    let config = YardConfig { device_space: Some(range), ..YardConfig::new(&[NodeId(0)]) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let yard = HostYard::builder().backing(Backing::Phantom).build(&table, &config, &HostTopology::current()?)?;
    yard.map_device(DeviceRequest { range, node: NodeId(0), order: HUGE, layout, placement: MapPlacement::Memory })?;
    assert_eq!(look_up(&yard, range, steps), steps, "every frame has a page");
    Ok(())
}

/// How many frames of the range had a page, of so many looked at.
#[inline(never)]
fn look_up(yard: &Yard<HostPlatform>, range: PfnRange, steps: u64) -> u64 {
    let frames = range.count().0;
    let at = |step: u64| range.start + PageCount(step * 77 % frames);
    (0..steps).filter(|step| yard.device_page(at(*step)).is_some_and(|page| page.order() == HUGE)).count() as u64
}
