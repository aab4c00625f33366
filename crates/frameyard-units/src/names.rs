//! Enumerations with a name for each variant, for command lines and tables.

/// Error of parsing a name that matches no variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownName {
    choices: &'static str,
}

impl UnknownName {
    /// Builds the error from the valid names, separated by commas.
    #[inline]
    #[must_use]
    pub const fn among(choices: &'static str) -> Self {
        Self { choices }
    }
}

crate::messages!(UnknownName { Self { choices } => "no such choice: write one of {choices}" });

/// Implements `ALL`, `name`, `Display` and `FromStr` (with [`UnknownName`] as its error) for an enumeration. For use
/// inside Frameyard's crates.
#[doc(hidden)]
#[macro_export]
macro_rules! named {
    ($type:ident: $first:ident => $first_name:literal $(, $variant:ident => $name:literal)*) => {
        impl $type {
            /// All variants.
            pub const ALL: [Self; [$first_name $(, $name)*].len()] = [Self::$first $(, Self::$variant)*];

            /// The name used on command lines and in tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    Self::$first => $first_name,
                    $(Self::$variant => $name),*
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }

        impl core::str::FromStr for $type {
            type Err = $crate::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let unknown = $crate::UnknownName::among(concat!($first_name $(, ", ", $name)*));
                Self::ALL.into_iter().find(|choice| choice.name() == text).ok_or(unknown)
            }
        }
    };
}
