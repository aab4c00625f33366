//! Sets of CPUs in the kernel's list format, and thread affinity.

use std::fmt;
use std::io;
use std::str::FromStr;

use frameyard::CpuId;

use crate::sys;

/// A set of CPUs in ascending order, written as the kernel does: `0-3,8`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CpuList(Vec<CpuId>);

/// An exclusive bound on CPU numbers, far above any kernel's limit.
const MAX_CPU: u32 = 1 << 20;

/// The error for a text that is not a list of CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseCpuListError {
    text: String,
}

impl fmt::Display for ParseCpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is no list of CPUs: expected numbers and ascending ranges below {MAX_CPU}, such as 0-3,8",
            self.text
        )
    }
}

impl std::error::Error for ParseCpuListError {}

impl CpuList {
    /// The CPUs that the calling thread may run on.
    ///
    /// # Errors
    ///
    /// The error of `sched_getaffinity`.
    pub fn of_this_thread() -> io::Result<Self> {
        Ok(Self(sys::cpu::affinity()?.into_iter().map(CpuId).collect()))
    }

    /// Restricts the calling thread to these CPUs.
    ///
    /// # Errors
    ///
    /// The error of `sched_setaffinity`, such as `EINVAL` if the host permits none of the CPUs.
    pub fn pin_this_thread(&self) -> io::Result<()> {
        sys::cpu::set_affinity(self.0.iter().map(|cpu| cpu.0))
    }

    /// The CPUs, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[CpuId] {
        &self.0
    }

    /// The number of CPUs.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the CPU is in the set. Cost: a binary search.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.iter().copied().filter(|cpu| other.contains(*cpu)).collect())
    }
}

impl FromIterator<CpuId> for CpuList {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut cpus: Vec<CpuId> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

impl FromStr for CpuList {
    type Err = ParseCpuListError;

    fn from_str(text: &str) -> Result<Self, ParseCpuListError> {
        let error = || ParseCpuListError { text: text.trim().to_owned() };
        let number = |digits: &str| match digits.trim().parse::<u32>() {
            Ok(cpu) if cpu < MAX_CPU => Ok(cpu),
            _ => Err(error()),
        };
        let mut cpus = Vec::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(error());
            }
            cpus.extend((first..=last).map(CpuId));
        }
        Ok(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, run) in self.0.chunk_by(|a, b| a.0 + 1 == b.0).enumerate() {
            let separator = if index == 0 { "" } else { "," };
            match run {
                [only] => write!(f, "{separator}{}", only.0)?,
                _ => write!(f, "{separator}{}-{}", run[0].0, run[run.len() - 1].0)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_print_as_they_were_parsed() {
        for text in ["0", "0-3", "0-3,8,10-11", "", "5,7"] {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), text);
        }
        let list: CpuList = "2-3,0\n".parse().unwrap();
        assert_eq!(list.as_slice(), [CpuId(0), CpuId(2), CpuId(3)]);
    }

    #[test]
    fn malformed_lists_are_refused() {
        for text in ["a", "3-1", "1-", "-1", "1,,2", "0-4294967295", "0x1"] {
            let error = text.parse::<CpuList>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("\"{text}\" is no list of CPUs")), "{error}");
        }
    }

    #[test]
    fn an_intersection_contains_the_common_cpus() {
        let a: CpuList = "0-3,8".parse().unwrap();
        let b: CpuList = "2-9".parse().unwrap();
        assert_eq!(a.intersection(&b).to_string(), "2-3,8");
    }
}
