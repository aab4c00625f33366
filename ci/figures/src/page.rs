//! Pages: each query file `results/NAME.toml` becomes `docs/results/NAME.md`, and `index.toml` the folder's README.md.
//!
//! ```toml
//! title = "…"
//! summary = "What is shown, and why a reader should care."
//! headline = "The page's most important figure, {a.ns :.1} ns, for the index."
//!
//! [runs]                                  # short names of runs
//! latest = "runs/2026-11-30-…"
//!
//! [sources]                               # names of stored results and of selections of their rows
//! a = "latest/alloc.csv"
//! linux = "data/published/linux.csv"
//! one = "a[threads=1]"
//!
//! [[table]]
//! title = "…"
//! command = "`frameyard bench alloc …`"
//! text = '''
//! | order | ns |
//! |---|---|
//! each order: 0 9
//! | $order | {one[order=$order].ns :.1} |
//! '''
//! ```
//!
//! `summary`, `headline` and `text` are [templates](crate::template). Below each table stand its command and the files of its
//! figures. The first paragraph of a run's README.md describes it: machine, cost of a compare-exchange, commit. Commits that its JSON files
//! name are added where that paragraph lacks them.
//!
//! `index.toml` has `pages`, the names of all other pages in the order in which readers should see them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::expression::{Origin, ReadResult};
use crate::template::{self, Filler, Runs};

/// The name of the query file of the index.
pub(crate) const INDEX: &str = "index";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    title: String,
    summary: String,
    headline: Option<String>,
    #[serde(default)]
    pages: Vec<String>,
    #[serde(default)]
    runs: Runs,
    #[serde(default)]
    sources: toml::Table,
    #[serde(default)]
    table: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    title: String,
    command: Option<String>,
    text: String,
}

/// A generated page.
#[derive(Default)]
pub(crate) struct Page {
    title: String,
    headline: String,
    pages: Vec<String>,
    text: String,
    pub(crate) origin: Origin,
    pub(crate) figures: usize,
    pub(crate) faults: Vec<String>,
}

impl Page {
    /// Generates the page of the query file `results/NAME.toml`. The index has no list of pages yet.
    pub(crate) fn new(name: &str, query: &str, read: &ReadResult<'_>) -> Self {
        let mut page = Self::default();
        let query: Query = match toml::from_str(query) {
            Ok(query) => query,
            Err(error) => {
                page.faults.push(error.to_string().trim_end().to_owned());
                return page;
            }
        };
        let names = template::names(&query.runs, &query.sources, read, &mut page.faults);
        if query.headline.is_none() && name != INDEX {
            page.faults.push("`headline` is missing".to_owned());
        }
        let mut filler = Filler::new(names, read);
        let mut described = BTreeSet::new();
        let mut fill = |filler: &mut Filler<'_>, template: &str, place: &str| match filler.fill(template.trim()) {
            Ok(text) => text,
            Err(what) => {
                page.faults.push(format!("{place}: {what}"));
                String::new()
            }
        };

        let summary = fill(&mut filler, &query.summary, "summary");
        page.text = format!("# {}\n\n{summary}\n", query.title);
        page.headline = fill(&mut filler, query.headline.as_deref().unwrap_or_default(), "headline");
        page.origin.append(&mut filler.origin);
        for table in query.table {
            let text = fill(&mut filler, &table.text, &format!("table \"{}\"", table.title));
            page.text.push_str(&format!("\n## {}\n\n{text}\n\n", table.title));
            if let Some(command) = table.command {
                page.text.push_str(&format!("- Command: {command}\n"));
            }
            page.text.push_str(&provenance(&filler.origin, &mut described, read));
            page.origin.append(&mut filler.origin);
        }
        page.figures = filler.figures;
        if name != INDEX {
            page.text
                .push_str(&format!("\n[All results](README.md) · [Queries of this page](../../results/{name}.toml)\n"));
        }
        (page.title, page.pages) = (query.title, query.pages);
        page
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Names the files of figures, and describes their runs where the page has not done so yet.
fn provenance(origin: &Origin, described: &mut BTreeSet<String>, read: &ReadResult<'_>) -> String {
    let mut runs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut published = BTreeSet::new();
    for (file, commit) in origin {
        match run_of(file) {
            Some(run) => runs.entry(run).or_default().extend(commit.as_deref()),
            None => drop(published.insert(file)),
        }
    }
    let mut text = String::new();
    for (run, commits) in runs {
        let name = run.trim_start_matches("runs/");
        let machine = read(&format!("{run}/README.md")).ok().as_deref().and_then(first_paragraph).unwrap_or_default();
        text.push_str(&format!("- Run: [{name}](../../{run})"));
        let named = |commit: &str| commit.get(..8).is_some_and(|short| machine.contains(short));
        let commits: Vec<_> = commits.into_iter().filter(|commit| !named(commit)).collect();
        if !commits.is_empty() {
            text.push_str(&format!(", commit {}", commits.join(", ")));
        }
        if described.insert(run.to_owned()) && !machine.is_empty() {
            text.push_str(&format!(". {machine}"));
        }
        text.push('\n');
    }
    for file in published {
        let name = file.rsplit('/').next().unwrap_or_default();
        text.push_str(&format!("- Published: [{name}](../../{file})\n"));
    }
    text
}

/// The folder of a run's file.
pub(crate) fn run_of(file: &str) -> Option<&str> {
    let name = file.strip_prefix("runs/")?.split('/').next()?;
    Some(&file[.."runs/".len() + name.len()])
}

/// The paragraph below the title of a run's README.md: machine and commit.
fn first_paragraph(readme: &str) -> Option<String> {
    let paragraph = readme.split("\n\n").nth(1)?.trim();
    (!paragraph.starts_with('|')).then(|| paragraph.replace('\n', " "))
}

/// Puts the list of all pages into the index, below its summary. Returns faults of the list.
pub(crate) fn list(pages: &mut BTreeMap<String, Page>) -> Vec<String> {
    let Some(mut index) = pages.remove(INDEX) else { return vec![format!("results/{INDEX}.toml is missing")] };
    let mut faults = Vec::new();
    let mut list = String::new();
    for name in &index.pages {
        match pages.get(name) {
            Some(page) => list.push_str(&format!("- [{}]({name}.md). {}\n", page.title, page.headline)),
            None => faults.push(format!("results/{INDEX}.toml: `{name}` is no page")),
        }
    }
    let missing = pages.keys().filter(|name| !index.pages.contains(name));
    faults.extend(missing.map(|name| format!("results/{INDEX}.toml: `pages` lacks `{name}`")));
    let place = index.text.find("\n## ").unwrap_or(index.text.len());
    index.text.insert_str(place, &format!("\n{list}"));
    pages.insert(INDEX.to_owned(), index);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &str = "
title = 'Fast paths'
summary = 'A pair takes {one.ns :.1} ns.'
headline = '{one.ns :.1} ns'
[runs]
latest = 'runs/new'
[sources]
a = 'latest/a.json'
one = 'a[tasks=1]'
p = 'data/published/p.csv'
[[table]]
title = 'One task'
command = '`bench`'
text = '''
| ns |
|---|
| {one.ns :.1 <= 9} |
'''
[[table]]
title = 'Again'
text = '{one.ns :.1}, published {p.ns}'
";
    const PAGE: &str = "# Fast paths

A pair takes 13.1 ns.

## One task

| ns |
|---|
| **13.1** |

- Command: `bench`
- Run: [new](../../runs/new), commit 12ab34cd56. A machine in two lines.

## Again

13.1, published 5

- Run: [new](../../runs/new), commit 12ab34cd56
- Published: [p.csv](../../data/published/p.csv)

[All results](README.md) · [Queries of this page](../../results/fast.toml)
";

    fn read(path: &str) -> Result<String, String> {
        match path {
            "runs/new/a.json" => Ok(r#"{"commit": "12ab34cd56", "rows": [{"tasks": 1, "ns": 13.08}]}"#.to_owned()),
            "runs/new/README.md" => Ok("# New\n\nA machine\nin two lines.\n\n| file |\n".to_owned()),
            "data/published/p.csv" => Ok("ns\n5\n".to_owned()),
            _ => Err(format!("{path}: not found")),
        }
    }

    #[test]
    fn a_page_has_its_tables_with_commands_and_runs() {
        let page = Page::new("fast", QUERY, &read);
        assert_eq!((page.faults.as_slice(), page.text.as_str(), page.figures), (&[][..], PAGE, 5));
        assert_eq!(page.origin.keys().collect::<Vec<_>>(), ["data/published/p.csv", "runs/new/a.json"]);
    }

    #[test]
    fn a_commit_that_the_readme_names_is_not_repeated() {
        let readme = "# New\n\nA machine. Commit 12ab34cd.\n";
        let read = |path: &str| if path.ends_with("README.md") { Ok(readme.to_owned()) } else { read(path) };
        let page = Page::new("fast", QUERY, &read);
        assert!(page.text.contains("](../../runs/new). A machine. Commit 12ab34cd.\n"), "{}", page.text);
    }

    #[test]
    fn faults_name_the_place_in_the_query_file() {
        let faults = |old: &str, new: &str| Page::new("fast", &QUERY.replace(old, new), &read).faults;
        assert_eq!(faults("p.csv", "gone.csv")[0], "source `p`: data/published/gone.csv: not found");
        assert_eq!(faults("{p.ns}", "{p.x}"), ["table \"Again\": {p.x}: data/published/p.csv has no column `x`"]);
        assert_eq!(faults("headline = '{one.ns :.1} ns'", ""), ["`headline` is missing"]);
        assert!(faults("command", "comand")[0].contains("unknown field `comand`"));
        assert!(faults("title = 'Again'", "")[0].contains("missing field `title`"));
    }

    #[test]
    fn the_index_lists_all_pages_in_its_order() {
        let index = "title = 'Results'\nsummary = 'All.'\npages = ['b', 'fast']\n[[table]]\ntitle = 'T'\ntext = 'x'";
        let pages = |index: &str| {
            let new = |name: &str, query: &str| (name.to_owned(), Page::new(name, query, &read));
            BTreeMap::from([new(INDEX, index), new("fast", QUERY), new("b", &QUERY.replace("Fast paths", "B"))])
        };
        let mut all = pages(index);
        assert_eq!(list(&mut all), [""; 0]);
        let list_of_pages = "- [B](b.md). 13.1 ns\n- [Fast paths](fast.md). 13.1 ns\n";
        assert_eq!(all[INDEX].text, format!("# Results\n\nAll.\n\n{list_of_pages}\n## T\n\nx\n\n"));
        let faults = list(&mut pages(&index.replace("'fast'", "'gone'")));
        assert_eq!(faults, ["results/index.toml: `gone` is no page", "results/index.toml: `pages` lacks `fast`"]);
    }
}
