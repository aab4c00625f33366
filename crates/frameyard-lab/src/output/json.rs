//! The JSON form: one object around flat rows.

use std::io::Write;

use serde_json::{Map, Value};

use super::{HostFacts, Report};
use crate::Failure;
use crate::version::{COMMIT, VERSION};

/// The version of the form. It changes when a reader of the old form would misread the new one.
pub(crate) const SCHEMA: u32 = 1;

/// Writes the one JSON object of a report, with a line end behind it.
pub(super) fn write(report: &Report, host: &HostFacts, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(row) = report.rows.iter().position(|row| !row.keys().eq(report.rows[0].keys())) {
        return Err(Failure::run_time(format!("{}: row {row} has other keys than row 0", report.command)));
    }
    let mut object = Map::new();
    object.insert("schema".to_owned(), SCHEMA.into());
    object.insert("command".to_owned(), report.command.into());
    object.insert("version".to_owned(), VERSION.into());
    object.insert("commit".to_owned(), COMMIT.into());
    object.insert("host".to_owned(), serde_json::to_value(host).map_err(Failure::run_time)?);
    object.insert("machine".to_owned(), report.machine.clone().into());
    object.extend(report.totals.clone());
    object.insert("rows".to_owned(), report.rows.iter().map(|row| Value::Object(row.object())).collect());
    serde_json::to_writer_pretty(&mut *out, &object).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Row;

    #[test]
    fn the_object_has_its_keys_in_order_and_null_for_what_was_not_measured() {
        let mut out = Vec::new();
        let host = HostFacts { cpu: None, cpus: Some(2), memory_bytes: Some(1024), kernel: Some("6.1.0".to_owned()) };
        let row = |zone: &str, free: u64, get_ns: Option<f64>| {
            Row::new().data("zone", zone).data("free", free).data("get_ns", get_ns)
        };
        let report = Report::new("boot", vec![row("DMA", 3, None), row("Normal", 0, Some(f64::NAN))]);
        write(&report.of_machine("desktop-8").total("map_bytes", 64), &host, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("}\n"));
        let compact: String = text.split_whitespace().collect();
        let expected = format!(
            r#"{{"schema":1,"command":"boot","version":"{VERSION}","commit":"{COMMIT}","host":{{"cpu":null,"cpus":2,"memory_bytes":1024,"kernel":"6.1.0"}},"machine":"desktop-8","map_bytes":64,"rows":[{{"zone":"DMA","free":3,"get_ns":null}},{{"zone":"Normal","free":0,"get_ns":null}}]}}"#
        );
        assert_eq!(compact, expected);
    }

    #[test]
    fn rows_with_different_keys_are_refused() {
        let host = HostFacts { cpu: None, cpus: None, memory_bytes: None, kernel: None };
        let report = Report::new("boot", vec![Row::new().data("a", 1), Row::new().data("b", 1)]);
        let refused = write(&report, &host, &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(refused, "boot: row 1 has other keys than row 0");
    }
}
