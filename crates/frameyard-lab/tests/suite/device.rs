//! `device` as a user meets it: each test has its own session, which ends with its last device.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::program::{assert_refused, frameyard, has_too_few_addresses, json, stderr, stdout};
use serde_json::Value;

/// A session in a folder of its own. Dropped, it is ended, and both go.
struct Session {
    folder: PathBuf,
}

impl Session {
    /// `None` where the page structures of the frames that a session has for devices cannot have addresses.
    fn new(name: &str) -> Option<Self> {
        if has_too_few_addresses(128) {
            return None;
        }
        let folder = std::env::temp_dir().join(format!("frameyard-device-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Some(Self { folder })
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    fn line<'a>(&self, line: &'a str, socket: &'a str) -> Vec<&'a str> {
        ["device"].into_iter().chain(line.split_whitespace()).chain(["--session", socket]).collect()
    }

    fn rows(&self, line: &str) -> Vec<Value> {
        let socket = self.path("session");
        let object = json(&[&self.line(line, &socket)[..], &["--json"]].concat());
        assert_eq!(object["session"].as_str(), Some(&*socket));
        object["rows"].as_array().unwrap().clone()
    }

    fn refused(&self, line: &str, code: i32, says: &str) {
        assert_refused(&self.line(line, &self.path("session")), code, says);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        frameyard(&self.line("destroy all", &self.path("session")));
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn the_first_device_tells_how_to_end_the_process_in_the_background() {
    let Some(session) = Session::new("note") else { return };
    let create = || frameyard(&session.line("create --size 64M --phantom", &session.path("session")));
    let first = create();
    assert!(stderr(&first).contains("frameyard device destroy all"), "{}", stderr(&first));
    assert_eq!(stderr(&create()), "");
}

#[test]
fn devices_stay_until_they_are_destroyed_and_the_session_ends_with_the_last() {
    let Some(session) = Session::new("stay") else { return };
    assert_eq!(session.rows("list"), Vec::<Value>::new());
    let made = session.rows("create --size 64M");
    assert_eq!((made.len(), &made[0]["device"], &made[0]["backing"]), (1, &0.into(), &"memfd".into()));
    session.rows("create --size 1G --align 1G --layout folded --phantom");
    let listed = session.rows("list");
    let layouts: Vec<&str> = listed.iter().map(|row| row["layout"].as_str().unwrap()).collect();
    assert_eq!(layouts, ["deduplicated", "folded"]);
    assert!(listed.iter().all(|row| row["bring_up_ns"].as_u64().unwrap() > 0 && row["remove_ns"].is_null()));
    let gone = session.rows("destroy 0");
    assert!(gone.len() == 1 && gone[0]["remove_ns"].as_u64().unwrap() > 0 && gone[0]["mappings"].is_null());
    session.refused("destroy 0", 2, "device 0 does not exist: there are 1");
    assert_eq!(session.rows("destroy all").len(), 1);
    // The process takes a moment to end.
    let ended = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(10));
        !fs::exists(session.path("session")).unwrap()
    });
    assert!(ended, "the socket goes with the session");
    session.refused("destroy all", 2, "no session");
}

#[test]
fn each_layout_costs_the_memory_of_its_formula() {
    let Some(session) = Session::new("layouts") else { return };
    // Of 4 GiB: structures and bytes.
    for (options, structures, bytes) in [
        ("--layout full", 1 << 20, 64 << 20),
        ("--layout deduplicated", 2048, 8 << 20),
        ("--layout folded", 2048, 128 << 10),
        ("--layout deduplicated --align 1G", 4, 16 << 10),
        ("--layout folded --align 1G", 4, 4 << 10),
    ] {
        let row = &session.rows(&format!("create --size 4G --phantom {options}"))[0];
        assert_eq!((row["structures"].as_u64(), row["map_bytes_equation"].as_u64()), (Some(structures), Some(bytes)));
        assert_eq!((row["map_bytes_resident"].as_u64(), row["map_bytes_full"].as_u64()), (Some(bytes), Some(64 << 20)));
    }
    let output = frameyard(&session.line("list", &session.path("session")));
    assert_eq!(stdout(&output).lines().count(), 6, "{}", stdout(&output));
}

#[test]
fn page_structures_can_lie_in_the_device_and_the_device_in_a_file() {
    let Some(session) = Session::new("file") else { return };
    let file = session.path("bytes");
    let row = &session.rows(&format!("create --size 64M --file {file} --map dev --layout full"))[0];
    assert_eq!((row["path"].as_str(), row["map"].as_str()), (Some(&*file), Some("dev")));
    // 1 MiB of page structures takes 2 MiB of the device.
    assert_eq!((row["size_bytes"].as_u64(), row["data_bytes"].as_u64()), (Some(64 << 20), Some(62 << 20)));
    assert_eq!(fs::metadata(&file).unwrap().len(), 64 << 20);
    session.refused(&format!("create --file {file}"), 2, "in use as memory of another yard");
    session.rows("destroy all");
    assert_eq!(session.rows(&format!("create --file {file} --align 4K"))[0]["size_bytes"], 64 << 20);
}

#[test]
fn a_refused_device_leaves_no_session() {
    let Some(session) = Session::new("refused") else { return };
    session.refused("create --size 3M", 2, "the nearest sizes are 2M and 4M");
    session.refused("create --size 1G --align 3M", 2, "write 4K, 2M or 1G");
    session.refused("create --size 100T --phantom", 2, "no room for a device of 100T");
    session.refused("create --size 1G --phantom --map dev", 2, "leave --phantom or --map out");
    session.refused("create --size 2M --map dev --layout full", 2, "place them in memory");
    session.refused("create --file /nowhere/at/all", 2, "say its --size");
    session.refused("create --file /dev/null", 2, "not a DAX device");
    session.refused("create", 2, "--size");
    session.refused("destroy", 2, "<DEVICE>");
    session.refused("destroy first", 2, "the number of a device, or all");
    fs::write(session.path("text"), "no socket").unwrap();
    let socket = session.path("text");
    assert_refused(&session.line("list", &socket), 2, "not the socket of a session");
    assert_refused(&session.line("create --size 2M", &socket), 2, "not the socket of a session");
    assert_refused(&session.line("create --size 2M", &session.path("no/folder")), 1, "cannot start a session");
}
