//! The equations of devices.

use crate::devices::DeviceProblem;
use crate::platform::Platform;
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
            let equations = [
                ("present pages", zone.present(), present),
                ("first frame", PageCount(zone.span().start.0), PageCount(span.start.0)),
                ("end of the last frame", PageCount(zone.span().end.0), PageCount(span.end.0)),
                ("managed pages", zone.managed(), PageCount(0)),
            ];
            equations.into_iter().try_for_each(|(what, kept, found)| super::compare(what, id, kept.0, found.0))?;
        }
        Ok(())
    }
}
