//! The equations of devices.

use crate::devices::DeviceProblem;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{NodeId, PageCount, PfnRange, ZoneId, ZoneKind};
use crate::yard::{ValidateError, Yard};

impl<P: Platform> Yard<P> {
    /// Checks the table of devices against sections, page structures and the Device zones of all nodes.
    pub(super) fn check_devices(&self) -> Result<(), ValidateError> {
        let map = self.page_map();
        map.check().map_err(|problem| match problem {
            DeviceProblem::Device { device, what, at } => ValidateError::Device { device, what, at },
            DeviceProblem::NoDevice(pfn) => ValidateError::NoDevice(pfn),
        })?;
        for node in (0..self.nodes()).map(NodeId) {
            let id = ZoneId::new(node, ZoneKind::Device);
            let zone = &self.tables.zones[id.index()];
            let devices = || map.devices().filter(|device| device.node == node);
            let present: PageCount = devices().map(|device| device.range.count()).sum();
            let span = devices()
                .map(|device| device.range)
                .reduce(|a, b| PfnRange { start: a.start.min(b.start), end: a.end.max(b.end) });
            let span = span.unwrap_or_default();
            let kept =
                [zone.facts.present.load(Ordering::Relaxed), zone.span().start.0, zone.span().end.0, zone.managed().0];
            let found = [present.0, span.start.0, span.end.0, 0];
            let what = ["present pages", "first frame", "end of the last frame", "managed pages"];
            for (what, (kept, found)) in what.into_iter().zip(kept.into_iter().zip(found)) {
                super::compare(what, id, kept, found)?;
            }
        }
        Ok(())
    }
}
