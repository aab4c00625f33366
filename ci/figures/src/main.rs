//! Writes figures from stored results into the project's documents, or checks that they agree (`--check`). The working directory
//! is the repository root.
//!
//! A document holds three kinds of HTML comments:
//!
//! - `<!-- sources` gives names to stored results, one `name = expression` a line. A name is valid from there to the document's end.
//! - `<!-- template` holds text with expressions in braces, such as a table. The text between this comment and `<!-- end -->` is
//!   generated from it. A line `each name: a b c` repeats the next line for each word, which replaces `$name`.
//! - `<!-- {expression} -->8.7<!-- end -->` is a figure in a sentence. It must not begin a line, where Markdown would end the
//!   paragraph.
//!
//! [`expression`] describes expressions, [`results`] the files that they read.

mod document;
mod expression;
mod results;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use document::Generated;

/// The folders whose documents may have figures.
const FOLDERS: [&str; 2] = [".", "docs"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.as_slice() {
        [] => false,
        [argument] if argument == "--check" => true,
        _ => {
            eprintln!("tables: the only argument is --check");
            return ExitCode::from(2);
        }
    };
    match run(Path::new("."), check) {
        Ok((figures, faults)) if faults.is_empty() => {
            println!("tables: {figures} figures agree with the stored results");
            ExitCode::SUCCESS
        }
        Ok((_, faults)) => {
            for fault in &faults {
                eprintln!("tables: {fault}");
            }
            eprintln!("tables: {} faults; `ci/tables` writes the figures from the stored results", faults.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tables: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Generates every document. Without `check` it also writes those that changed. Returns the number of figures and the faults.
fn run(root: &Path, check: bool) -> io::Result<(usize, Vec<String>)> {
    let read_result = |path: &str| fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"));
    let (mut figures, mut faults) = (0, Vec::new());
    for path in documents(root)? {
        let text = fs::read_to_string(&path)?;
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let Generated { text: expected, figures: found, faults: broken } = document::generate(&text, &read_result);
        figures += found;
        faults.extend(broken.into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
        if check {
            let differences = document::differences(&text, &expected);
            faults.extend(differences.into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
        } else if text != expected {
            fs::write(&path, expected)?;
            println!("tables: {name} written");
        }
    }
    Ok((figures, faults))
}

fn documents(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut documents = Vec::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root.join(folder))? {
            documents.push(entry?.path());
        }
    }
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents.sort();
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_names_document_line_expected_and_found_and_writing_repairs_it() {
        let root = std::env::temp_dir().join(format!("figures-{}", std::process::id()));
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::write(root.join("a.csv"), "ns\n13.08\n").unwrap();
        let document =
            |figure: &str| format!("# Title\n\nIt takes <!-- {{\"a.csv\".ns :.1}} -->{figure}<!-- end --> ns.\n");
        fs::write(root.join("docs/page.md"), document("12")).unwrap();

        let (_, faults) = run(&root, true).unwrap();
        let lines = |figure: &str| document(figure).lines().last().unwrap().to_owned();
        assert_eq!(faults, [format!("docs/page.md:3: expected\n  {}\nfound\n  {}", lines("13.1"), lines("12"))]);
        assert_eq!(fs::read_to_string(root.join("docs/page.md")).unwrap(), document("12"));

        assert_eq!(run(&root, false).unwrap(), (1, vec![]));
        assert_eq!(fs::read_to_string(root.join("docs/page.md")).unwrap(), document("13.1"));
        assert_eq!(run(&root, true).unwrap(), (1, vec![]));

        fs::remove_file(root.join("a.csv")).unwrap();
        let (_, faults) = run(&root, true).unwrap();
        assert!(
            faults.len() == 1 && faults[0].contains("docs/page.md:3: ") && faults[0].contains("a.csv: No such file")
        );
        fs::remove_dir_all(&root).unwrap();
    }
}
