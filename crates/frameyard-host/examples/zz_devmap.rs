use frameyard::*;
use frameyard_host::*;
use std::time::Instant;
fn main() {
    const M: [(PfnRange, NodeId); 1] = [(PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_4000) }, NodeId(0))];
    let space = PfnRange { start: Pfn(0x20_0000), end: Pfn(0x20_0000 + (1024 << 18)) };
    let config = YardConfig { device_space: Some(space), ..YardConfig::new(&[NodeId(0); 2]) };
    let memory = MemoryTable { memory: &M, ..MemoryTable::default() };
    let host = HostTopology::current().unwrap();
    let shared = std::env::args().nth(1).as_deref() == Some("shared");
    let yard = if shared {
        HostYard::builder().build_shared(&memory, &config, SharedFrames::Memory, &host).unwrap().0
    } else {
        HostYard::builder()
            .huge_pages(if std::env::args().nth(1).as_deref() == Some("never") {
                HugePages::Never
            } else {
                HugePages::Advise
            })
            .build(&memory, &config, &host)
            .unwrap()
    };
    for round in 0..4 {
        for (order, layout) in
            [(18, MapLayout::SharedTails), (18, MapLayout::Folded), (9, MapLayout::Folded), (9, MapLayout::SharedTails)]
        {
            if order == 9 && layout == MapLayout::SharedTails {
                continue;
            }
            let req = DeviceRequest {
                range: space,
                node: NodeId(0),
                order: Order(order),
                layout,
                placement: MapPlacement::Memory,
            };
            let t = Instant::now();
            let id = match yard.map_device(req) {
                Ok(id) => id,
                Err(e) => {
                    println!("{e}");
                    continue;
                }
            };
            let up = t.elapsed();
            let off = ByteSize((space.start - M[0].0.start).0 * 64);
            let size = ByteSize(space.count().0 * 64);
            let before = yard.map_region().memory_use(off, size).unwrap();
            let pt0 = page_table_bytes().unwrap();
            let t = Instant::now();
            let w = &unsafe { yard.map_region().words() }[off.0 as usize / 8..][..size.0 as usize / 8];
            let sum: u64 = if layout == MapLayout::SharedTails && round == 9 {
                w.iter().step_by(512).map(|w| w.load(std::sync::atomic::Ordering::Relaxed) & 1).sum()
            } else {
                0
            };
            let read = t.elapsed();
            let after = yard.map_region().memory_use(off, size).unwrap();
            let pt = page_table_bytes().unwrap();
            let t = Instant::now();
            yard.unmap_device(id, Removal::Refuse).unwrap();
            println!(
                "{order} {layout:12} up {:8.3} ms, read {:8.1} ms ({sum}), remove {:8.3} ms, pss {} KiB -> {} KiB, mappings {}, pt {} -> {} KiB",
                up.as_secs_f64() * 1e3,
                read.as_secs_f64() * 1e3,
                t.elapsed().as_secs_f64() * 1e3,
                before.proportional.0 >> 10,
                after.proportional.0 >> 10,
                after.mappings,
                pt0.0 >> 10,
                pt.0 >> 10
            );
        }
    }
}
