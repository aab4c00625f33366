//! How a value is shown to people.

use frameyard::ByteSize;
use serde_json::Value;

use super::RoundedSize;

/// How a column shows its values. JSON and CSV have them unformatted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Format {
    /// As it is; a fraction has one digit.
    Plain,
    /// A size with three digits and a unit, as in `23.5 GiB`.
    Size,
    /// A size as the command line has it, as in `8G`.
    ExactSize,
    /// A number in another unit.
    Number {
        /// What the number is divided by.
        unit: f64,
        /// Digits behind the point.
        digits: usize,
        /// Whether a positive number has a sign.
        sign: Sign,
    },
}

/// Whether a positive number has a sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sign {
    /// Only a negative number has a sign.
    Negative,
    /// Every number has a sign, as differences do.
    Always,
}

impl Format {
    /// A number in its own unit.
    pub(crate) const fn number(digits: usize) -> Self {
        Self::Number { unit: 1.0, digits, sign: Sign::Negative }
    }

    /// A number in a unit that is a thousand times as large: nanoseconds as microseconds.
    pub(crate) const fn thousands(digits: usize) -> Self {
        Self::Number { unit: 1e3, digits, sign: Sign::Negative }
    }

    /// A number in a unit that is a million times as large: nanoseconds as milliseconds.
    pub(crate) const fn millions(digits: usize) -> Self {
        Self::Number { unit: 1e6, digits, sign: Sign::Negative }
    }

    /// A number in a unit that is 10⁹ times as large: bytes as GB.
    pub(crate) const fn billions(digits: usize) -> Self {
        Self::Number { unit: 1e9, digits, sign: Sign::Negative }
    }

    /// A share of 1 in percent.
    pub(crate) const fn percent(digits: usize) -> Self {
        Self::Number { unit: 0.01, digits, sign: Sign::Negative }
    }

    /// The same format with a sign in front of positive numbers.
    pub(crate) const fn signed(self) -> Self {
        match self {
            Self::Number { unit, digits, .. } => Self::Number { unit, digits, sign: Sign::Always },
            other => other,
        }
    }

    /// The text of a value; `None` for null, which stands for "not measured".
    pub(super) fn text(self, value: &Value) -> Option<String> {
        let bytes = || value.as_u64().map(ByteSize);
        match (self, value) {
            (_, Value::Null) => None,
            (Self::Plain, Value::String(text)) => Some(text.clone()),
            (Self::Plain, Value::Number(number)) if number.is_f64() => {
                number.as_f64().map(|number| format!("{number:.1}"))
            }
            (Self::Plain, value) => Some(value.to_string()),
            (Self::Size, _) => bytes().map(|size| RoundedSize(size).to_string()),
            (Self::ExactSize, _) => bytes().map(|size| size.to_string()),
            (Self::Number { unit, digits, sign }, _) => value.as_f64().map(|number| match sign {
                Sign::Negative => format!("{:.digits$}", number / unit),
                Sign::Always => format!("{:+.digits$}", number / unit),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_shown_in_the_unit_of_the_column() {
        for (format, value, text) in [
            (Format::Plain, json!("bits"), "bits"),
            (Format::Plain, json!(12), "12"),
            (Format::Plain, json!(4.5678), "4.6"),
            (Format::Size, json!(1u64 << 30), "1 GiB"),
            (Format::ExactSize, json!(1u64 << 30), "1G"),
            (Format::millions(2), json!(1_234_567), "1.23"),
            (Format::percent(1), json!(0.2345), "23.4"),
            (Format::percent(1).signed(), json!(0.2345), "+23.4"),
        ] {
            assert_eq!(format.text(&value).as_deref(), Some(text), "{format:?}");
        }
        assert_eq!(Format::Size.text(&Value::Null), None);
    }
}
