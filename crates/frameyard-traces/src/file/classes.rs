//! The parts of events that repeat: tracepoint, order, type and flags. A block of events lists each combination once.

use std::collections::HashMap;

use frameyard::{MigrateType, Order, Pfn};
use frameyard_formats::{ExtFrag, TracedBlock};

use super::lists::Kind;
use crate::{GfpFlags, PageEvent};

/// Bytes of a class.
const BYTES: usize = 9;

/// A class: what an event is, without frame, place and time. Bytes: the tag; order and type; order and type of a fallback; flags, the low
/// byte first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Class([u8; BYTES]);

mod tag {
    pub(super) const ALLOC: u8 = 0;
    pub(super) const FAILED_ALLOC: u8 = 1;
    pub(super) const FREE: u8 = 2;
    pub(super) const FREE_BATCHED: u8 = 3;
    /// The kernel does not say where the block went.
    pub(super) const ZONE_LOCKED: u8 = 4;
    pub(super) const ZONE_LOCKED_DIRECT: u8 = 5;
    pub(super) const ZONE_LOCKED_REFILL: u8 = 6;
    pub(super) const PCPU_DRAIN: u8 = 7;
    pub(super) const EXTFRAG: u8 = 8;
    pub(super) const EXTFRAG_CHANGES_PAGEBLOCK: u8 = 9;
    pub(super) const LOST: u8 = 10;
}

impl Class {
    /// The class of an event, and its frame; for lost events their number.
    pub(super) fn of(what: &PageEvent) -> (Self, u64) {
        let class = |tag, order: Order, of: Option<MigrateType>| {
            let mut bytes = [0; BYTES];
            (bytes[0], bytes[1], bytes[2]) = (tag, order.0, of.map_or(0, |of| of as u8));
            bytes
        };
        let (bytes, frame) = match *what {
            PageEvent::Alloc { pfn, order, migrate_type, gfp } => {
                let tag = if pfn.is_some() { tag::ALLOC } else { tag::FAILED_ALLOC };
                let mut bytes = class(tag, order, Some(migrate_type));
                bytes[5..].copy_from_slice(&gfp.0.to_le_bytes());
                (bytes, pfn.unwrap_or(Pfn(0)))
            }
            PageEvent::Free(block) => (class(tag::FREE, block.order, None), block.pfn),
            PageEvent::FreeBatched(block) => (class(tag::FREE_BATCHED, block.order, None), block.pfn),
            PageEvent::AllocZoneLocked { block, migrate_type, percpu_refill } => {
                let tag = match percpu_refill {
                    None => tag::ZONE_LOCKED,
                    Some(false) => tag::ZONE_LOCKED_DIRECT,
                    Some(true) => tag::ZONE_LOCKED_REFILL,
                };
                (class(tag, block.order, Some(migrate_type)), block.pfn)
            }
            PageEvent::PcpuDrain { block, migrate_type } => {
                (class(tag::PCPU_DRAIN, block.order, Some(migrate_type)), block.pfn)
            }
            PageEvent::ExtFrag(extfrag) => {
                let tag = if extfrag.changes_pageblock { tag::EXTFRAG_CHANGES_PAGEBLOCK } else { tag::EXTFRAG };
                let mut bytes = class(tag, extfrag.order, Some(extfrag.migrate_type));
                (bytes[3], bytes[4]) = (extfrag.fallback_order.0, extfrag.fallback_type as u8);
                (bytes, extfrag.pfn)
            }
            PageEvent::Lost(events) => (class(tag::LOST, Order(0), None), Pfn(events)),
        };
        (Self(bytes), frame.0)
    }

    /// The event of this class with that frame; `None` if the class is none that [`of`](Self::of) returns.
    pub(super) fn event(self, frame: u64) -> Option<PageEvent> {
        let [tag, order, of, fallback_order, fallback_type, gfp @ ..] = self.0;
        let is_order = |order| order < 16;
        let types = |bits| MigrateType::from_bits(bits).filter(|of| MigrateType::ALL.contains(of));
        if !is_order(order) || !is_order(fallback_order) {
            return None;
        }
        let (pfn, order, migrate_type) = (Pfn(frame), Order(order), types(of)?);
        let block = TracedBlock { pfn, order };
        Some(match tag {
            tag::ALLOC | tag::FAILED_ALLOC => {
                let pfn = (tag == tag::ALLOC).then_some(pfn);
                PageEvent::Alloc { pfn, order, migrate_type, gfp: GfpFlags(u32::from_le_bytes(gfp)) }
            }
            tag::FREE => PageEvent::Free(block),
            tag::FREE_BATCHED => PageEvent::FreeBatched(block),
            tag::ZONE_LOCKED | tag::ZONE_LOCKED_DIRECT | tag::ZONE_LOCKED_REFILL => {
                let percpu_refill = (tag != tag::ZONE_LOCKED).then_some(tag == tag::ZONE_LOCKED_REFILL);
                PageEvent::AllocZoneLocked { block, migrate_type, percpu_refill }
            }
            tag::PCPU_DRAIN => PageEvent::PcpuDrain { block, migrate_type },
            tag::EXTFRAG | tag::EXTFRAG_CHANGES_PAGEBLOCK => PageEvent::ExtFrag(ExtFrag {
                pfn,
                order,
                fallback_order: Order(fallback_order),
                migrate_type,
                fallback_type: types(fallback_type)?,
                changes_pageblock: tag == tag::EXTFRAG_CHANGES_PAGEBLOCK,
            }),
            tag::LOST => PageEvent::Lost(frame),
            _ => return None,
        })
    }

    /// How the event uses the lists of the model.
    pub(super) fn kind(self) -> Kind {
        match self.0[0] {
            tag::ALLOC => Kind::Alloc,
            tag::FREE => Kind::Free,
            tag::FREE_BATCHED => Kind::FreeBatched,
            tag::ZONE_LOCKED | tag::ZONE_LOCKED_REFILL => Kind::Refill,
            tag::ZONE_LOCKED_DIRECT => Kind::Direct,
            tag::PCPU_DRAIN => Kind::Drain,
            _ => Kind::Other,
        }
    }

    pub(super) fn order(self) -> Order {
        Order(self.0[1])
    }
}

/// The classes of a block, by number.
#[derive(Default)]
pub(super) struct Classes {
    numbers: HashMap<Class, u64>,
    bytes: Vec<u8>,
}

impl Classes {
    /// The number of a class.
    pub(super) fn number(&mut self, class: Class) -> u64 {
        let next = self.numbers.len() as u64;
        *self.numbers.entry(class).or_insert_with(|| {
            self.bytes.extend(class.0);
            next
        })
    }

    /// The classes in the order of their numbers.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Reads what [`into_bytes`](Self::into_bytes) returned.
    pub(super) fn read(bytes: &[u8]) -> Option<Vec<Class>> {
        let (classes, rest) = bytes.as_chunks::<BYTES>();
        rest.is_empty().then(|| classes.iter().map(|bytes| Class(*bytes)).collect())
    }
}
