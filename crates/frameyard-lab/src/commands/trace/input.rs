//! The lines of a recorded trace: plain text or zstd, from a file or standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use frameyard_formats::TraceLine;
use ruzstd::decoding::StreamingDecoder;

use crate::Failure;

/// The first bytes of a zstd frame.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// More bytes than a line of a trace has.
const LONGEST: u64 = 1 << 16;

/// Calls `visit` with each line of a trace; `-` is standard input.
///
/// # Errors
///
/// [`Failure::Input`] where the file cannot be read or a line is none of a trace. The message has the number of the line.
pub(super) fn for_each_line(path: &Path, visit: impl FnMut(TraceLine<'_>)) -> Result<(), Failure> {
    let of_file = |error: &dyn std::fmt::Display| Failure::input(format!("{}: {error}", path.display()));
    let source: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(File::open(path).map_err(|error| of_file(&error))?),
    };
    let mut source = BufReader::new(source);
    let is_zstd = source.fill_buf().map_err(|error| of_file(&error))?.starts_with(&ZSTD);
    if is_zstd {
        let decoder = StreamingDecoder::new(source).map_err(|error| of_file(&error))?;
        parse_lines(BufReader::new(decoder), visit).map_err(|error| of_file(&error))
    } else {
        parse_lines(source, visit).map_err(|error| of_file(&error))
    }
}

/// Parses each line. The error names the line.
fn parse_lines(mut source: impl BufRead, mut visit: impl FnMut(TraceLine<'_>)) -> Result<(), String> {
    let mut bytes = Vec::new();
    for number in 1_u64.. {
        bytes.clear();
        let at_line = |error: &dyn std::fmt::Display| format!("line {number}: {error}");
        if (&mut source).take(LONGEST).read_until(b'\n', &mut bytes).map_err(|error| at_line(&error))? == 0 {
            break;
        }
        let line = std::str::from_utf8(&bytes).map_err(|error| at_line(&error))?;
        visit(TraceLine::parse(line.trim_end_matches(['\n', '\r'])).map_err(|error| at_line(&error))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_line() {
        let count = |text: &[u8]| {
            let mut lines = 0;
            parse_lines(text, |_| lines += 1).map(|()| lines)
        };
        assert_eq!(count(b"# a\n# b\r\n# c"), Ok(3));
        let error = count(b"# a\nnonsense\n").unwrap_err();
        assert!(error.starts_with("line 2: no line of an ftrace text"), "{error}");
        assert!(count(b"# a\n\xff\n").unwrap_err().starts_with("line 2: "));
        let long = [b'#'; LONGEST as usize + 10];
        assert_eq!(count(&long), Ok(2));
    }
}
