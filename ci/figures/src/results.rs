//! Stored results: JSON, CSV, and the tables that the program prints.
//!
//! - JSON: the list `rows`, or the list named after a `#`: `"runs/…/sim-check.json#summary"`.
//! - CSV: one row a line, below a header.
//! - Text: tables are separated by empty lines, columns by two or more spaces; the first line with columns is a table's header.
//!   Lines with another number of columns than their header are not rows.

use serde_json::Value;

/// Cells by the name of their column, as text.
pub(crate) type Row = Vec<(String, String)>;

/// The rows of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Results {
    pub(crate) rows: Vec<Row>,
    /// The commit of the program that made them, if the file names it. With `-dirty` if its sources differed from that commit.
    pub(crate) commit: Option<String>,
}

/// Reads the text of a file. `name` is its path, with `#` and the name of a list for JSON.
pub(crate) fn parse(name: &str, text: &str) -> Result<Results, String> {
    let (path, list) = name.split_once('#').unwrap_or((name, "rows"));
    let anonymous = |rows| Results { rows, commit: None };
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json") => json(text, list),
        Some("csv") => csv(text).map(anonymous),
        Some("txt") => Ok(anonymous(tables(text))),
        _ => Err("neither JSON, CSV nor text".to_owned()),
    }
    .map_err(|error| format!("{name}: {error}"))
}

fn json(text: &str, list: &str) -> Result<Results, String> {
    let object: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let rows = object[list].as_array().ok_or_else(|| format!("no list `{list}`"))?;
    let cell = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |row: &Value| {
        let cells = row.as_object().into_iter().flatten();
        cells.map(|(column, value)| (column.clone(), cell(value))).collect()
    };
    let commit = object["commit"].as_str().map(str::to_owned);
    Ok(Results { rows: rows.iter().map(row).collect(), commit })
}

fn csv(text: &str) -> Result<Vec<Row>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| error.to_string())?.clone();
    let row =
        |record: csv::StringRecord| header.iter().map(str::to_owned).zip(record.iter().map(str::to_owned)).collect();
    reader.records().map(|record| record.map(row).map_err(|error| error.to_string())).collect()
}

fn tables(text: &str) -> Vec<Row> {
    let cells = |line: &str| -> Vec<String> {
        line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
    };
    let mut rows = Vec::new();
    for table in text.split("\n\n") {
        let mut lines = table.lines().map(cells);
        let header = lines.find(|cells| cells.len() > 1).unwrap_or_default();
        let same_length = lines.filter(|cells| cells.len() == header.len());
        rows.extend(same_length.map(|cells| header.iter().cloned().zip(cells).collect()));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[(&str, &str)]) -> Row {
        cells.iter().map(|(column, cell)| ((*column).to_owned(), (*cell).to_owned())).collect()
    }

    #[test]
    fn reads_rows_of_json_csv_and_printed_tables() {
        let json = r#"{"commit": "abc", "rows": [{"a": 1, "b": "x"}], "summary": [{"c": null}]}"#;
        assert_eq!(parse("f.json", json).unwrap().rows, [row(&[("a", "1"), ("b", "x")])]);
        assert_eq!(parse("f.json#summary", json).unwrap().rows, [row(&[("c", "null")])]);
        assert_eq!(parse("f.csv", "a,b\n1,\"x, y\"\n").unwrap().rows, [row(&[("a", "1"), ("b", "x, y")])]);
        let printed = "A title\nzone policy  ns\nvanilla       8\n\nn  m\n1  2\n\nA note.\n";
        let rows = parse("f.txt", printed).unwrap().rows;
        assert_eq!(rows, [row(&[("zone policy", "vanilla"), ("ns", "8")]), row(&[("n", "1"), ("m", "2")])]);
    }

    #[test]
    fn knows_the_commit_of_json() {
        let commit = |text: &str| parse("f.json", text).unwrap().commit;
        assert_eq!(commit(r#"{"commit": "abc-dirty", "rows": []}"#).as_deref(), Some("abc-dirty"));
        assert_eq!(commit(r#"{"rows": []}"#), None);
    }

    #[test]
    fn names_the_file_that_it_cannot_read() {
        assert!(parse("f.json", "{").unwrap_err().starts_with("f.json: "));
        assert_eq!(parse("f.json#gone", r#"{"rows": []}"#).unwrap_err(), "f.json#gone: no list `gone`");
        assert_eq!(parse("f.md", "").unwrap_err(), "f.md: neither JSON, CSV nor text");
    }
}
