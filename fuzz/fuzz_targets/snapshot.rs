//! Any texts as buddyinfo, pagetypeinfo and zoneinfo: zones, or an error of one line.
#![no_main]

use frameyard_traces::snapshot::KernelSnapshot;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|texts: (&str, Option<&str>, &str)| {
    let (buddyinfo, pagetypeinfo, zoneinfo) = texts;
    match KernelSnapshot::parse(buddyinfo, pagetypeinfo, zoneinfo) {
        Ok(snapshot) => assert!(snapshot.zones.values().all(|zone| zone.span.start <= zone.span.end)),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});
