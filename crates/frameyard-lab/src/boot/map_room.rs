//! Whether this host has memory for what boot writes.

use frameyard::boot::{InitMode, Initialiser, MapInit, MemorySource};
use frameyard::page::Page;
use frameyard::{ByteSize, Geometry, Layout};
use frameyard_host::{HostTopology, MemoryError};

use super::BootFailure;
use crate::args::FullArgs;

/// The largest map that is written in full without `--full`.
pub(super) const USUAL_LIMIT: ByteSize = ByteSize::gib(4);

/// How much of a memory map may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum MapLimit {
    /// 4 GiB, the map of 256 GiB of frames. A larger map takes long and much memory.
    #[default]
    Usual,
    /// As much as the host has memory for (`--full`).
    Full,
}

impl FullArgs {
    /// How much of a memory map may be written.
    pub(crate) fn map_limit(self) -> MapLimit {
        if self.full { MapLimit::Full } else { MapLimit::Usual }
    }
}

/// Refuses a map that is larger than allowed, if all of it is written.
pub(super) fn check_limit(map: ByteSize, limit: MapLimit) -> Result<(), BootFailure> {
    if limit == MapLimit::Usual && map > USUAL_LIMIT {
        return Err(BootFailure::NeedsFull { map, limit: USUAL_LIMIT });
    }
    Ok(())
}

/// Refuses a yard if the host lacks memory for the part of map and control region that boot writes.
///
/// Real frames need far more memory than that.
pub(super) fn check_host(written: ByteSize, layout: &Layout, host: &HostTopology) -> Result<(), BootFailure> {
    let available = host.available_memory().map_err(|error| BootFailure::Host(MemoryError::from(error).into()))?;
    if written <= available {
        return Ok(());
    }
    let tables = ByteSize(layout.map_bytes().0.saturating_add(layout.control_bytes().0));
    Err(BootFailure::MapLargerThanHost { tables, touched: written, available })
}

/// The part of the map that boot writes from end to end: all sections with memory, or nothing.
pub(super) fn wholly_written(
    memory: &dyn MemorySource,
    geometry: Geometry,
    layout: &Layout,
    map: &MapInit,
) -> ByteSize {
    if map.initialiser == Initialiser::None || map.mode == InitMode::Lazy {
        return ByteSize(0);
    }
    let shift = geometry.section_pages_shift();
    let (mut sections, mut next) = (0, 0);
    memory.for_each_memory(&mut |range, _| {
        let (first, end) = ((range.start.0 >> shift).max(next), range.end.0.div_ceil(1 << shift));
        sections += end.saturating_sub(first);
        next = next.max(end);
    });
    let bytes_of_a_section = (size_of::<Page>() as u64) << shift;
    ByteSize(sections.saturating_mul(bytes_of_a_section).min(layout.map_bytes().0))
}

/// An estimate of the part of map and control region that boot writes, in pages of the host.
///
/// `wholly` is the result of [`wholly_written`]. Where that is nothing, boot writes to one page of the host for each
/// maximum-order block, and in lazy mode to none.
pub(super) fn written_bytes(
    layout: &Layout,
    geometry: Geometry,
    mode: InitMode,
    wholly: ByteSize,
    host_page: ByteSize,
) -> ByteSize {
    let blocks = layout.present().0.div_ceil(geometry.max_order().pages().0);
    let map = match mode {
        InitMode::Lazy => 0,
        _ => wholly.0.max(blocks.saturating_mul(host_page.0)),
    };
    ByteSize(map.min(layout.map_bytes().0).saturating_add(layout.control_bytes().0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::early_map::EarlyMap;
    use crate::machine::{Machine, built_in};
    use frameyard::page::MapContent;
    use frameyard::{NodeId, Order, YardConfig};

    const GIB: u64 = 1 << 30;

    fn written(geometry: Geometry, init: MapInit) -> u64 {
        let machine = Machine { geometry, ..built_in("server-1t").unwrap() };
        let (early, _) = EarlyMap::of(&machine).unwrap();
        let config = YardConfig { geometry, ..YardConfig::new(&[NodeId(0), NodeId(1)]) };
        let layout = Layout::plan(&early, &config).unwrap();
        let wholly = wholly_written(&early, geometry, &layout, &init);
        written_bytes(&layout, geometry, init.mode, wholly, ByteSize::kib(4)).0 - layout.control_bytes().0
    }

    #[test]
    fn boot_writes_a_host_page_for_each_block_and_at_most_the_whole_map() {
        let init = MapInit::default();
        assert!(written(Geometry::X86_64, init).abs_diff(GIB) < GIB / 100);
        let single = Geometry::new(ByteSize::kib(4), ByteSize::mib(128), Order(1), Order(1)).unwrap();
        assert!(written(single, init).abs_diff(16 * GIB) < GIB / 10);
    }

    #[test]
    fn an_initialiser_writes_the_map_of_all_sections_with_memory_and_lazy_mode_none() {
        let init = |mode, content, initialiser| MapInit { mode, content, initialiser, ..MapInit::default() };
        let sections = |mode| written(Geometry::X86_64, init(mode, MapContent::Kernel, Initialiser::Stream));
        // 2 GiB below 4 GiB are a hole, so 2 MiB a section for 1 TiB less nothing.
        assert_eq!((sections(InitMode::Eager), sections(InitMode::Deferred)), (16 * GIB, 16 * GIB));
        assert_eq!(sections(InitMode::Lazy), 0);
        assert_eq!(written(Geometry::X86_64, init(InitMode::Lazy, MapContent::Zero, Initialiser::None)), 0);
    }

    #[test]
    fn a_map_beyond_the_limit_is_written_only_in_full() {
        assert!(check_limit(USUAL_LIMIT, MapLimit::Usual).is_ok());
        assert!(check_limit(ByteSize::gib(16), MapLimit::Full).is_ok());
        let error = check_limit(ByteSize::gib(16), MapLimit::Usual).unwrap_err();
        assert!(error.to_string().contains("--full"), "{error}");
    }
}
