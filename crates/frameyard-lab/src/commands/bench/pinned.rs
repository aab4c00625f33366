//! The kinds of memory of `pin` and `memory-region`, and which of them this host has memory for.

use clap::{Args, ValueEnum};
use frameyard::ByteSize;
use frameyard::devices::{MapLayout, MapPlacement};
use frameyard_host::{DeviceAlignment, HostTopology};
use frameyard_workloads::pin::{DeviceMaps, PinKind, PinnedMemory};

use crate::Failure;
use crate::args::values::{device_alignment, map_layout, map_placement};
use crate::output::RoundedSize;

/// A kind of memory.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PinMemory {
    /// Anonymous memory in pages of 4 KiB
    Anonymous,
    /// Anonymous memory in transparent huge pages
    Huge,
    /// Huge pages of a pool in ordinary memory; their bytes are not touched
    Pool,
    /// Memory of devices without memory behind their frames: only page structures are used
    Device,
    /// Shared anonymous memory in pages of 4 KiB
    Shared,
    /// A shared mapping of a file of the page cache
    SharedFile,
    /// A private mapping of a file of the page cache: written pages are copies
    PrivateFile,
}

/// How pages are taken, as far as a kind of memory can refuse it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taking {
    /// Not both for long and for writing.
    Usual,
    /// For long and for writing, which a shared mapping of a file refuses.
    WritesForLong,
}

/// Which memory is mapped, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Memory")]
pub(super) struct PinnedArgs {
    /// Kinds of memory
    #[arg(
        long = "memory",
        value_name = "KINDS",
        value_delimiter = ',',
        value_enum,
        default_value = "anonymous,huge,pool,device"
    )]
    pub(super) memory: Vec<PinMemory>,

    /// What an entry of the page tables maps: 4K, 2M, 1G [default: all]
    #[arg(long = "page-size", value_name = "SIZES", value_delimiter = ',', value_parser = device_alignment)]
    pub(super) pages: Vec<DeviceAlignment>,

    /// What a page structure is the head of: 4K, 2M, 1G [default: all; over 4K devices are mapped by entries of every size]
    #[arg(long = "map-geometry", value_name = "SIZES", value_delimiter = ',', value_parser = device_alignment)]
    pub(super) maps: Vec<DeviceAlignment>,

    /// Which page structures devices of compound pages have
    #[arg(long, value_name = "LAYOUT", value_parser = map_layout(), default_value = "deduplicated")]
    pub(super) layout: MapLayout,

    /// Where the page structures of devices are: in ordinary memory (mem) or in the device itself (dev)
    #[arg(long, value_name = "WHERE", value_parser = map_placement(), default_value = "mem")]
    pub(super) map: MapPlacement,
}

impl PinnedArgs {
    /// The page structures of devices.
    pub(super) const fn device_maps(&self) -> DeviceMaps {
        DeviceMaps { layout: self.layout, placement: self.map }
    }
}

/// One part in this many of the available memory is used; the rest stays for other programs.
const SHARE: u64 = 2;

/// A requested kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) kind: PinKind,
    /// The reason, where it is not measured.
    pub(super) left_out: Option<String>,
}

/// The kinds that the options request, of a size.
///
/// # Errors
///
/// [`Failure::Input`] where no kind is requested, or none can have that size.
pub(super) fn kinds(
    name: &str,
    args: &PinnedArgs,
    taking: Taking,
    size: ByteSize,
    host: &HostTopology,
) -> Result<Vec<Asked>, Failure> {
    let available = host.available_memory().map_err(Failure::run_time)?;
    if !size.0.is_multiple_of(DeviceAlignment::Huge.size().0) {
        return Err(Failure::input(format!("{name} --size {size}: write a multiple of 2M")));
    }
    let is_asked = |kind: &PinKind| {
        let memory = args.memory.contains(&match kind.memory {
            PinnedMemory::Anonymous => PinMemory::Anonymous,
            PinnedMemory::Huge => PinMemory::Huge,
            PinnedMemory::Pool => PinMemory::Pool,
            PinnedMemory::Device => PinMemory::Device,
            PinnedMemory::Shared => PinMemory::Shared,
            PinnedMemory::SharedFile => PinMemory::SharedFile,
            PinnedMemory::PrivateFile => PinMemory::PrivateFile,
        });
        let has = |sizes: &[DeviceAlignment], size| sizes.is_empty() || sizes.contains(&size);
        memory && has(&args.pages, kind.page) && has(&args.maps, kind.map)
    };
    let asked: Vec<PinKind> = PinKind::ALL.into_iter().filter(is_asked).collect();
    if asked.is_empty() {
        return Err(Failure::input(format!(
            "{name}: no such memory: anonymous, shared and files are 4K over 4K, huge is 2M over 2M, pool is 2M over 2M or 1G over 1G, device is every page size over 4K or over its own"
        )));
    }
    let kinds = left_out(&asked, taking, size, available);
    match kinds.iter().all(|asked| asked.left_out.is_some()).then(|| kinds[0].left_out.clone()).flatten() {
        Some(reason) => Err(Failure::input(format!("{name}: {reason}"))),
        None => Ok(kinds),
    }
}

/// Kinds are mapped side by side. A kind is left out where memory does not suffice for it beside those that need less.
fn left_out(asked: &[PinKind], taking: Taking, size: ByteSize, available: ByteSize) -> Vec<Asked> {
    let mut left = ByteSize(available.0 / SHARE);
    let mut kinds: Vec<Asked> = asked.iter().map(|&kind| Asked { kind, left_out: None }).collect();
    let mut modest: Vec<&mut Asked> = kinds.iter_mut().collect();
    modest.sort_by_key(|asked| asked.kind.memory_needed(size));
    for asked in modest {
        let (kind, needed) = (asked.kind, asked.kind.memory_needed(size));
        if !size.0.is_multiple_of(kind.page.size().0) {
            asked.left_out = Some(format!("{size} is no multiple of {} pages: choose a --size that is", kind.page));
        } else if kind.memory == PinnedMemory::SharedFile && taking == Taking::WritesForLong {
            let refusal =
                "a shared mapping of a file is not taken for long and for writing, because its pages are written back";
            asked.left_out = Some(format!("{refusal}: choose --memory shared"));
        } else if needed > left {
            asked.left_out = Some(format!(
                "{size} of {} memory needs {}, and {} can be used here: choose a smaller --size",
                kind.memory.name(),
                RoundedSize(needed),
                RoundedSize(left)
            ));
        } else {
            left.0 -= needed.0;
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_without_room_is_left_out_with_a_reason() {
        let with_default: Vec<PinKind> = PinKind::ALL[..9].to_vec();
        let of = |size, available| {
            let kinds = left_out(&with_default, Taking::Usual, size, available);
            kinds.into_iter().map(|asked| asked.left_out.unwrap_or_default()).collect::<Vec<_>>()
        };
        assert!(of(ByteSize::gib(1), ByteSize::gib(5)).iter().all(String::is_empty));
        // Pools and devices need only page structures, so they are not left out.
        let reasons = of(ByteSize::gib(16), ByteSize::gib(32));
        assert!(reasons[0].contains("16G of anonymous memory needs") && reasons[1].contains("huge"), "{reasons:?}");
        assert!(reasons[2..].iter().all(String::is_empty));
        let small = of(ByteSize::mib(64), ByteSize::gib(4));
        assert_eq!(small.iter().filter(|reason| reason.contains("no multiple of 1G pages")).count(), 3);
    }

    #[test]
    fn a_shared_mapping_of_a_file_is_left_out_for_long_writes() {
        let reasons = |taking| {
            let kinds = left_out(&PinKind::ALL[9..], taking, ByteSize::mib(256), ByteSize::gib(8));
            kinds
                .into_iter()
                .filter_map(|asked| asked.left_out.map(|reason| (asked.kind.memory, reason)))
                .collect::<Vec<_>>()
        };
        assert!(reasons(Taking::Usual).is_empty());
        let left_out = reasons(Taking::WritesForLong);
        assert!(left_out.len() == 1 && left_out[0].0 == PinnedMemory::SharedFile, "{left_out:?}");
        assert!(left_out[0].1.contains("--memory shared"), "{left_out:?}");
    }
}
