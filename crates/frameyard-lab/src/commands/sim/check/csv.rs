//! Rows as comma-separated values.

use serde_json::Value;

use crate::output::Rows;

/// A line of keys, and a line of values for each row; what is null is empty.
pub(super) fn text(rows: &Rows) -> String {
    let rows = rows.as_slice();
    let keys = rows.first().map(|row| row.keys().map(|key| quoted(key)).collect::<Vec<_>>());
    let values = rows.iter().map(|row| row.values().map(cell).collect());
    keys.into_iter().chain(values).map(|cells: Vec<String>| cells.join(",") + "\n").collect()
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// A text, in quotes where it must be.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_lines_under_their_keys() {
        let rows = Rows::of(&[json!({"a": 1.5, "b": "x"}), json!({"a": null, "b": "y, \"z\""})]).unwrap();
        assert_eq!(text(&rows), "a,b\n1.5,x\n,\"y, \"\"z\"\"\"\n");
        assert_eq!(text(&Rows::default()), "");
    }
}
