//! Lists of numbers as the kernel writes them under `/sys`: `0-25,52-77`.

use core::fmt;

use super::MAX_CPUS;

/// The reason that a text is no list of CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CpuListError {
    /// A part that is neither a number nor a range.
    Malformed(String),
    /// A range that ends below its start.
    Backwards(u32, u32),
    /// A number of [`MAX_CPUS`] or more.
    TooLarge(u64),
    /// A number that is listed twice.
    Twice(u32),
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(part) => {
                write!(f, "'{}' is no CPU or range of CPUs: write a list as in 0-3,8", part.escape_debug())
            }
            Self::Backwards(first, last) => write!(f, "the range {first}-{last} ends below its start"),
            Self::TooLarge(cpu) => write!(f, "cpu {cpu} is too large: CPUs are numbered below {MAX_CPUS}"),
            Self::Twice(cpu) => write!(f, "cpu {cpu} is listed twice: list it once"),
        }
    }
}

impl core::error::Error for CpuListError {}

/// The numbers of a list such as `0-25,52-77`, ascending. An empty text is an empty list.
///
/// The kernel's `bitmap_print_to_pagebuf` writes lists in this format.
///
/// # Errors
///
/// [`CpuListError`] with the part that is malformed, ends below its start, is too large, or is listed twice.
pub fn parse_cpu_list(text: &str) -> Result<Vec<u32>, CpuListError> {
    let text = text.trim();
    let mut listed = Vec::new();
    if text.is_empty() {
        return Ok(listed);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first, part)?, number(last, part)?);
        if last < first {
            return Err(CpuListError::Backwards(first, last));
        }
        listed.extend(first..=last);
        if listed.len() > MAX_CPUS {
            break;
        }
    }
    listed.sort_unstable();
    match listed.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(CpuListError::Twice(pair[0])),
        None => Ok(listed),
    }
}

fn number(text: &str, part: &str) -> Result<u32, CpuListError> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CpuListError::Malformed(part.trim().to_owned()));
    }
    let value = text.parse::<u64>().unwrap_or(u64::MAX);
    if value >= MAX_CPUS as u64 { Err(CpuListError::TooLarge(value)) } else { Ok(value as u32) }
}

/// Formats ascending numbers as a list. The inverse of [`parse_cpu_list`].
#[must_use]
pub fn format_cpu_list(cpus: &[u32]) -> String {
    cpus.chunk_by(|one, next| *next == one + 1)
        .map(|run| match run {
            [one] => one.to_string(),
            _ => format!("{}-{}", run[0], run[run.len() - 1]),
        })
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip_in_the_kernels_format() {
        for (text, cpus) in [("", vec![]), ("0", vec![0]), ("0-3,8", vec![0, 1, 2, 3, 8]), ("1,3", vec![1, 3])] {
            assert_eq!(parse_cpu_list(text).unwrap(), cpus);
            assert_eq!(format_cpu_list(&cpus), text);
        }
        assert_eq!(parse_cpu_list("8, 0-1\n").unwrap(), [0, 1, 8]);
    }

    #[test]
    fn malformed_lists_are_refused_with_the_part() {
        assert_eq!(parse_cpu_list("0,x"), Err(CpuListError::Malformed("x".to_owned())));
        assert_eq!(parse_cpu_list("1-"), Err(CpuListError::Malformed("1-".to_owned())));
        assert_eq!(parse_cpu_list("5-2"), Err(CpuListError::Backwards(5, 2)));
        assert_eq!(parse_cpu_list("0-3,2"), Err(CpuListError::Twice(2)));
        assert_eq!(parse_cpu_list("8192"), Err(CpuListError::TooLarge(8192)));
        assert_eq!(parse_cpu_list("99999999999999999999"), Err(CpuListError::TooLarge(u64::MAX)));
    }
}
