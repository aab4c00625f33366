//! Lines of published tables, which travel with the program as comma-separated values.

/// What was published about the zone lock and the LRU lock: its header says what its columns are.
pub(super) const ZONE_LOCK: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/zone-lock.csv"));

/// The cells of a line; one in quotes may have commas. `None` where there are not so many.
pub(super) fn cells<const CELLS: usize>(line: &str) -> Option<[String; CELLS]> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            other => cells.last_mut()?.push(other),
        }
    }
    cells.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_in_quotes_may_have_commas() {
        assert_eq!(cells("one,\"two, three\","), Some(["one".to_owned(), "two, three".to_owned(), String::new()]));
        assert_eq!(cells::<3>("too,few"), None);
    }
}
