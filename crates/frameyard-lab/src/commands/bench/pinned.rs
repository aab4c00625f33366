//! The kinds of memory of `pin` and `memory-region`, and which of them this host has memory for.

use frameyard::ByteSize;
use frameyard_host::{DeviceAlignment, HostTopology};

use crate::Failure;
use crate::cli::{PinMemory, PinnedArgs};
use crate::output::RoundedSize;
use frameyard_workloads::pin::{PinKind, PinnedMemory};

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
pub(super) fn kinds(name: &str, args: &PinnedArgs, size: ByteSize, host: &HostTopology) -> Result<Vec<Asked>, Failure> {
    let available = host.available_memory().map_err(Failure::run_time)?;
    if !size.0.is_multiple_of(DeviceAlignment::Huge.size().0) {
        return Err(Failure::input(format!("{name} --size {size}: write a multiple of 2M")));
    }
    let is_asked = |kind: &PinKind| {
        let memory = args.memory.contains(&match kind.memory {
            PinnedMemory::Anonymous => PinMemory::Anonymous,
            PinnedMemory::Huge => PinMemory::Huge,
            PinnedMemory::Device => PinMemory::Device,
        });
        let has = |sizes: &[DeviceAlignment], size| sizes.is_empty() || sizes.contains(&size);
        memory && has(&args.pages, kind.page) && has(&args.maps, kind.map)
    };
    let asked: Vec<PinKind> = PinKind::ALL.into_iter().filter(is_asked).collect();
    if asked.is_empty() {
        return Err(Failure::input(format!(
            "{name}: no such memory: anonymous is 4K over 4K, huge is 2M over 2M, device is every page size over 4K or over its own"
        )));
    }
    let kinds = left_out(&asked, size, available);
    match kinds.iter().all(|asked| asked.left_out.is_some()).then(|| kinds[0].left_out.clone()).flatten() {
        Some(reason) => Err(Failure::input(format!("{name}: {reason}"))),
        None => Ok(kinds),
    }
}

/// Kinds are mapped side by side. A kind is left out where memory does not suffice for it beside those that need less.
fn left_out(asked: &[PinKind], size: ByteSize, available: ByteSize) -> Vec<Asked> {
    let mut left = ByteSize(available.0 / SHARE);
    let mut kinds: Vec<Asked> = asked.iter().map(|&kind| Asked { kind, left_out: None }).collect();
    let mut modest: Vec<&mut Asked> = kinds.iter_mut().collect();
    modest.sort_by_key(|asked| asked.kind.memory_needed(size));
    for asked in modest {
        let (kind, needed) = (asked.kind, asked.kind.memory_needed(size));
        if !size.0.is_multiple_of(kind.page.size().0) {
            asked.left_out = Some(format!("{size} is no multiple of {} pages: choose a --size that is", kind.page));
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
        let of = |size, available| {
            let kinds = left_out(&PinKind::ALL, size, available);
            kinds.into_iter().map(|asked| asked.left_out.unwrap_or_default()).collect::<Vec<_>>()
        };
        assert!(of(ByteSize::gib(1), ByteSize::gib(5)).iter().all(String::is_empty));
        // Devices need only page structures, so they are not left out.
        let reasons = of(ByteSize::gib(16), ByteSize::gib(32));
        assert!(reasons[0].contains("16G of anonymous memory needs") && reasons[1].contains("huge"), "{reasons:?}");
        assert!(reasons[2..].iter().all(String::is_empty));
        let small = of(ByteSize::mib(64), ByteSize::gib(4));
        assert_eq!(small.iter().filter(|reason| reason.contains("no multiple of 1G pages")).count(), 2);
    }
}
