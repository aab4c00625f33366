//! Writes results from stored runs into documents, or checks that the documents agree (`--check`). The working directory is the
//! repository root.
//!
//! - [`page`]: each query file `results/NAME.toml` becomes the page `docs/results/NAME.md`.
//! - [`quotes`]: `results/quoted.toml` lists the figures that other documents quote.
//!
//! [`template`] describes texts with expressions, [`expression`] the expressions, [`results`] the files that they read.
//!
//! Both ways of running also find files in `docs/results` that no query writes, runs that nothing uses, and queries in documents.

mod expression;
mod page;
mod quotes;
mod results;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use page::{INDEX, Page};

/// The folder of the generated pages.
const PAGES: &str = "docs/results";

/// The quotes, in the folder of the queries.
const QUOTED: &str = "results/quoted.toml";

/// What no document has: queries stand in `results/`.
const MARKS: [&str; 4] = ["<!-- template", "<!-- sources", "<!-- {", "<!-- end -->"];

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
            eprintln!(
                "tables: {} faults; `cargo xtask tables` writes the figures from the stored results",
                faults.len()
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tables: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Generates all pages and quotes. Without `check` it also writes those that changed. Returns the number of figures and the faults.
fn run(root: &Path, check: bool) -> io::Result<(usize, Vec<String>)> {
    let read = |path: &str| fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"));
    let (mut figures, mut faults, mut used) = (0, Vec::new(), BTreeSet::new());
    let mut texts = BTreeMap::new();

    let mut pages = BTreeMap::new();
    for path in entries(&root.join("results"))? {
        let (name, query) = (stem(&path), fs::read_to_string(&path)?);
        if !path.ends_with(QUOTED) {
            pages.insert(name.clone(), Page::new(&name, &query, &read));
        }
    }
    faults.extend(page::list(&mut pages));
    let mut generated = BTreeSet::new();
    for (name, page) in pages {
        let path = format!("{PAGES}/{}.md", if name == INDEX { "README" } else { &name });
        figures += page.figures;
        used.extend(page.origin.keys().cloned());
        if page.faults.is_empty() {
            texts.insert(path.clone(), page.text().to_owned());
        }
        faults.extend(page.faults.into_iter().map(|what| format!("results/{name}.toml: {what}")));
        generated.insert(path);
    }

    let quoted = quotes::quote(&fs::read_to_string(root.join(QUOTED))?, &read);
    figures += quoted.figures;
    used.extend(quoted.origin.keys().cloned());
    faults.extend(quoted.faults.into_iter().map(|what| format!("{QUOTED}: {what}")));
    for (path, text) in quoted.pages {
        if generated.contains(&path) {
            faults.push(format!("{QUOTED}: {path} is generated; its query has its figures"));
        } else {
            texts.insert(path, text);
        }
    }

    for (path, expected) in texts {
        let found = fs::read_to_string(root.join(&path)).unwrap_or_default();
        if check {
            let differences = differences(&found, &expected).into_iter();
            faults.extend(differences.map(|(line, what)| format!("{path}:{line}: {what}")));
        } else if found != expected {
            fs::create_dir_all(root.join(PAGES))?;
            fs::write(root.join(&path), expected)?;
            println!("tables: {path} written");
        }
    }
    faults.extend(not_generated(root, &generated)?);
    faults.extend(unused_runs(root, &used)?);
    faults.extend(queries_in_documents(root)?);
    Ok((figures, faults))
}

/// The lines in which a document differs from the right one.
fn differences(document: &str, right: &str) -> Vec<(usize, String)> {
    let (found, expected): (Vec<_>, Vec<_>) = (document.lines().collect(), right.lines().collect());
    let differs = |&at: &usize| found.get(at) != expected.get(at);
    let lines = (0..found.len().max(expected.len())).filter(differs);
    let show = |lines: &[&str], at: usize| lines.get(at).map_or("nothing", |line| *line).to_owned();
    let describe = |at| (at + 1, format!("expected\n  {}\nfound\n  {}", show(&expected, at), show(&found, at)));
    // If a line is missing, all lines below it differ.
    let most = if found.len() == expected.len() { usize::MAX } else { 1 };
    lines.take(most).map(describe).collect()
}

fn not_generated(root: &Path, generated: &BTreeSet<String>) -> io::Result<Vec<String>> {
    let files = entries(&root.join(PAGES))?.into_iter().map(|path| shown(root, &path));
    Ok(files
        .filter(|path| !generated.contains(path))
        .map(|path| format!("{path}: no query writes this file"))
        .collect())
}

fn unused_runs(root: &Path, used: &BTreeSet<String>) -> io::Result<Vec<String>> {
    let used: BTreeSet<&str> = used.iter().filter_map(|file| page::run_of(file)).collect();
    let runs = entries(&root.join("runs"))?.into_iter().map(|path| shown(root, &path));
    Ok(runs.filter(|run| !used.contains(run.as_str())).map(|run| format!("{run}: no query uses this run")).collect())
}

/// Finds comments that hold queries in the tree's Markdown files.
fn queries_in_documents(folder: &Path) -> io::Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inner) = folders.pop() {
        for path in entries(&inner)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if name.ends_with(".md") {
                let text = fs::read_to_string(&path)?;
                let marked = |line: &str| MARKS.iter().any(|mark| line.contains(mark));
                let lines = text.lines().zip(1..).filter(|(line, _)| marked(line));
                let path = shown(folder, &path);
                faults.extend(lines.map(|(_, line)| format!("{path}:{line}: a query; these stand in results/")));
            }
        }
    }
    Ok(faults)
}

/// The sorted entries of a folder; none if there is no such folder.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository in a temporary folder, which is removed in the end.
    struct Repository(PathBuf);

    impl Repository {
        fn new(test: &str) -> Self {
            let repository = Self(std::env::temp_dir().join(format!("figures-{}-{test}", std::process::id())));
            let page = "title = 'A'\nsummary = '{a.ns :.1} ns'\nheadline = 'x'\n[sources]\na = 'runs/one/a.csv'\n";
            repository.write("results/a.toml", page);
            repository.write("results/index.toml", "title = 'Results'\nsummary = 'All.'\npages = ['a']\n");
            let quotes =
                "[sources]\na = 'runs/one/a.csv'\n[[quote]]\npage = 'README.md'\nline = 'takes {a.ns :.1} ns'\n";
            repository.write("results/quoted.toml", quotes);
            repository.write("runs/one/a.csv", "ns\n13.08\n");
            repository.write("README.md", "It takes 12 ns.\n");
            repository
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.0.join(path)).unwrap()
        }

        fn faults(&self, check: bool) -> Vec<String> {
            run(&self.0, check).unwrap().1
        }
    }

    impl Drop for Repository {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_check_names_document_line_expected_and_found_and_writing_repairs_it() {
        let repository = Repository::new("repair");
        let faults = repository.faults(true);
        assert_eq!(faults[0], "README.md:1: expected\n  It takes 13.1 ns.\nfound\n  It takes 12 ns.");
        assert_eq!(faults[1], "docs/results/README.md:1: expected\n  # Results\nfound\n  nothing");
        assert_eq!((faults.len(), repository.read("README.md").as_str()), (3, "It takes 12 ns.\n"));

        assert_eq!(run(&repository.0, false).unwrap(), (2, vec![]));
        assert_eq!(repository.read("README.md"), "It takes 13.1 ns.\n");
        assert!(repository.read("docs/results/a.md").contains("\n13.1 ns\n"));
        assert!(repository.read("docs/results/README.md").contains("[A](a.md)"));
        assert_eq!(run(&repository.0, true).unwrap(), (2, vec![]));

        repository.write("docs/results/a.md", &repository.read("docs/results/a.md").replace("13.1", "13.2"));
        assert_eq!(repository.faults(true), ["docs/results/a.md:3: expected\n  13.1 ns\nfound\n  13.2 ns"]);
    }

    #[test]
    fn a_page_whose_file_is_gone_stays_as_it_is() {
        let repository = Repository::new("gone");
        assert_eq!(repository.faults(false), [""; 0]);
        fs::remove_file(repository.0.join("runs/one/a.csv")).unwrap();
        let faults = repository.faults(false);
        assert!(faults[0].starts_with("results/a.toml: source `a`: runs/one/a.csv: No such file"), "{faults:?}");
        assert!(repository.read("docs/results/a.md").contains("13.1"));
    }

    #[test]
    fn finds_what_no_query_writes_or_uses() {
        let repository = Repository::new("unused");
        repository.write("docs/results/b.md", "");
        repository.write("runs/two/b.csv", "");
        let expected = ["docs/results/b.md: no query writes this file", "runs/two: no query uses this run"];
        assert_eq!(repository.faults(false), expected);
    }

    #[test]
    fn finds_queries_in_documents() {
        let repository = Repository::new("marks");
        repository.write("crates/one/README.md", "a\n<!-- template\n");
        repository.write("docs/x.md", "b <!-- {a.ns} -->13<!-- end -->\n<!-- a remark -->");
        repository.write("target/y.md", "<!-- sources\n");
        let mut faults = repository.faults(false);
        faults.sort();
        let queries = ["crates/one/README.md:2: ", "docs/x.md:1: "]
            .map(|place| format!("{place}a query; these stand in results/"));
        assert_eq!(faults, queries);
    }

    #[test]
    fn refuses_quotes_in_generated_pages() {
        let repository = Repository::new("generated");
        repository.faults(false);
        let quotes = repository.read("results/quoted.toml").replace("README.md", "docs/results/a.md");
        repository.write("results/quoted.toml", &quotes.replace("takes ", ""));
        let expected = "results/quoted.toml: docs/results/a.md is generated; its query has its figures";
        assert_eq!(repository.faults(true), [expected]);
    }

    #[test]
    fn a_missing_line_is_one_difference() {
        assert_eq!(differences("a\nc\nd", "a\nb\nc\nd"), [(2, "expected\n  b\nfound\n  c".to_owned())]);
    }
}
