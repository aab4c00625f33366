//! The page in a headless browser.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::stored::rendered;

const BROWSERS: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "headless_shell"];

/// Measures the page and tells the one around it.
const SCRIPT: &str = "<script>
addEventListener('load', () => {
  document.querySelectorAll('details').forEach(of => { of.open = true; });
  const root = document.documentElement;
  const plots = [...document.querySelectorAll('figure svg')];
  // Large enough, and nothing that is drawn is cut off.
  const visible = plots.filter(svg => {
    const box = svg.getBoundingClientRect();
    const drawn = [...svg.querySelectorAll('*')].map(part => part.getBoundingClientRect());
    return box.width > 200 && box.height > 80 && box.right <= innerWidth + 1
      && drawn.every(part => part.right <= box.right + 1 && part.bottom <= box.bottom + 1);
  });
  const scale = ({ a, b }) => Math.hypot(a, b);
  const text = [...document.querySelectorAll('figure svg text')].map(
    of => parseFloat(getComputedStyle(of).fontSize) * scale(of.getScreenCTM()));
  const found = { width: innerWidth, scroll: root.scrollWidth, plots: plots.length, visible: visible.length,
    least: Math.min(...text), background: getComputedStyle(document.body).backgroundColor };
  parent.postMessage('FOUND' + JSON.stringify(found) + 'END', '*');
});
</script>";

/// A page that shows another one in a given width, and writes what that one has found. Windows have a least width.
fn around(page: &Path, width: u32) -> String {
    let page = page.file_name().unwrap().to_str().unwrap();
    format!(
        "<!doctype html><body><script>
addEventListener('message', event => {{ document.body.append(event.data); }});
</script><iframe style='width:{width}px;height:900px;border:0' src='{page}'></iframe>"
    )
}

/// Runs a browser on a page.
fn browse(browser: &str, page: &Path, width: u32, more: &[&str]) -> Output {
    let outer = page.with_file_name(format!("around-{width}.html"));
    fs::write(&outer, around(page, width)).unwrap();
    let profile = page.with_extension(format!("profile-{width}"));
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--dump-dom",
        ])
        .arg("--window-size=1400,1000")
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(more)
        .arg(format!("file://{}", outer.display()));
    command.output().unwrap()
}

/// A browser that starts. `None`, with the reason on standard output, where there is none.
fn browser() -> Option<&'static str> {
    let mut skipped = "no chromium is installed to show the page of a report".to_owned();
    for browser in BROWSERS {
        match Command::new(browser).arg("--version").output() {
            Ok(output) if output.status.success() => return Some(browser),
            Ok(output) => skipped = format!("{browser} does not start here: {}", output.status),
            Err(_) => {}
        }
    }
    println!("skipped: {skipped}");
    None
}

fn found(output: &Output) -> serde_json::Value {
    let dom = String::from_utf8_lossy(&output.stdout);
    let (_, found) = dom.split_once("FOUND{").unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_str(&format!("{{{}", found.split("END").next().unwrap())).unwrap()
}

#[test]
fn a_browser_shows_every_plot_without_errors_on_a_phone_and_a_desk() {
    let Some(browser) = browser() else { return };
    let folder = rendered("report-browser");
    let html = fs::read_to_string(folder.join("index.html")).unwrap();
    let drawn = html.matches("<svg ").count();
    assert!(drawn > 3, "{drawn} plots");
    let page = folder.join("measured.html");
    fs::write(&page, html.replace("</head>", &format!("{SCRIPT}</head>"))).unwrap();
    for width in [400, 1200] {
        let output = browse(browser, &page, width, &[]);
        let log = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(errors.is_empty(), "{errors:?}");
        let found = found(&output);
        assert_eq!(found["width"], width, "{found}");
        assert!(found["scroll"].as_u64() <= Some(width.into()), "horizontal scrolling: {found}");
        assert!(found["least"].as_f64() >= Some(10.0), "text too small to read: {found}");
        assert_eq!((&found["plots"], &found["visible"]), (&drawn.into(), &drawn.into()), "{found}");
    }
    let dark = found(&browse(browser, &page, 800, &["--blink-settings=preferredColorScheme=0"]));
    let light = found(&browse(browser, &page, 800, &["--blink-settings=preferredColorScheme=1"]));
    assert_ne!(dark["background"], light["background"]);
}

#[test]
fn the_page_names_no_other_file() {
    let html = fs::read_to_string(rendered("report-alone").join("index.html")).unwrap();
    for word in ["<script", "src=", "@import", "url(", "http:", "https:"] {
        assert!(!html.contains(word), "{word}");
    }
}
