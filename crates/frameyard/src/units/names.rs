//! Choices that go by names.

use core::fmt;

/// A name that none of the choices has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownName {
    pub(crate) choices: &'static str,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no such choice: write one of {}", self.choices)
    }
}

impl core::error::Error for UnknownName {}
