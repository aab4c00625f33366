//! Facts about a recorded command, as comments at the end of its trace.

use std::collections::BTreeMap;
use std::fs;
use std::io;

/// CPU time and faults of the children that this process has waited for, and of their children.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ChildrenUse {
    pub(super) user_ms: u64,
    pub(super) system_ms: u64,
    pub(super) minor_faults: u64,
}

impl ChildrenUse {
    /// The present use.
    pub(super) fn current() -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let ticks = rustix::param::clock_ticks_per_second();
        Self::parse(&stat, ticks).ok_or_else(|| io::Error::other("/proc/self/stat: an unknown format"))
    }

    /// Reads `cminflt`, `cutime` and `cstime` of proc(5): fields 11, 16 and 17. Field 2, in parentheses, may have spaces.
    fn parse(stat: &str, ticks_per_second: u64) -> Option<Self> {
        let (_, from_third) = stat.rsplit_once(") ")?;
        let field = |number: usize| from_third.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
        let ms = |number| Some(field(number)? * 1000 / ticks_per_second);
        Some(Self { user_ms: ms(16)?, system_ms: ms(17)?, minor_faults: field(11)? })
    }

    /// The use since an earlier one.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            user_ms: self.user_ms - earlier.user_ms,
            system_ms: self.system_ms - earlier.system_ms,
            minor_faults: self.minor_faults - earlier.minor_faults,
        }
    }
}

/// Named facts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Facts(BTreeMap<String, String>);

impl Facts {
    /// Adds a fact.
    pub(super) fn add(&mut self, name: &str, value: &(impl ToString + ?Sized)) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    /// A fact.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A fact that is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Passes on each fact: name and value.
    pub(super) fn each<E>(&self, mut visit: impl FnMut(&str, &str) -> Result<(), E>) -> Result<(), E> {
        self.0.iter().try_for_each(|(name, value)| visit(name, value))
    }
}

#[cfg(test)]
mod tests {
    use frameyard_traces::{BadLines, Item, import, write_fact};

    use super::*;

    #[test]
    fn comments_give_the_same_facts() {
        let mut facts = Facts::default();
        facts.add("user_ms", &1250);
        facts.add("command", "make a: b");
        let mut read = Facts::default();
        let mut text = b"# tracer: nop\n".to_vec();
        facts.each(|name, value| write_fact(name, value, &mut text)).unwrap();
        let imported = import(&text[..], BadLines::Refuse, &mut |item| {
            if let Item::Fact { name, value } = item {
                read.add(&name, &value);
            }
            Ok(())
        });
        assert_eq!(imported.unwrap().events, 0);
        assert_eq!((&read, read.number("user_ms"), read.text("command")), (&facts, Some(1250), Some("make a: b")));
    }

    #[test]
    fn use_of_children_is_read_behind_the_name_of_the_program() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 100 2345 0 0 1 2 150 50 20 0";
        let expected = ChildrenUse { user_ms: 1500, system_ms: 500, minor_faults: 2345 };
        assert_eq!(ChildrenUse::parse(stat, 100), Some(expected));
        assert_eq!(ChildrenUse::parse("7 (a) S 1", 100), None);
    }

    #[test]
    fn a_child_that_was_waited_for_counts() {
        let before = ChildrenUse::current().unwrap();
        assert!(std::process::Command::new("true").status().unwrap().success());
        assert!(ChildrenUse::current().unwrap().since(before).minor_faults > 0);
    }
}
