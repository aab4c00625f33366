//! Errors and their messages: `errors!` declares a type and its messages together, and `messages!` adds messages to a
//! type that is declared by hand.

/// Implements `Display` and `Error` for an error type, with one message per pattern. The message may use names that the
/// pattern binds. For use inside Frameyard's crates.
#[doc(hidden)]
#[macro_export]
macro_rules! messages {
    ($type:ident { $($pattern:pat $(if $guard:expr)? => $message:literal),+ $(,)? }) => {
        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $($pattern $(if $guard)? => write!(f, $message),)+
                }
            }
        }

        impl core::error::Error for $type {}
    };
}

/// Declares an error enumeration. A variant is `Variant = "message"`, `Variant(field: Type) = "message"` or `Variant {
/// field: Type } = "message"`. The message may use fields by name in braces; arguments in parentheses after it fill its
/// remaining placeholders. Implements `Display` and `Error`. For use inside Frameyard's crates.
#[doc(hidden)]
#[macro_export]
macro_rules! errors {
    ($(#[$meta:meta])* $visibility:vis enum $name:ident {
        $($(#[$doc:meta])* $variant:ident $(($($place:ident: $place_type:ty),+))?
            $({ $($(#[$field_doc:meta])* $field:ident: $field_type:ty),+ $(,)? })?
            = $message:literal $(($($argument:expr),+))?),+ $(,)?
    }) => {
        $(#[$meta])*
        $visibility enum $name {
            $($(#[$doc])* $variant $(($($place_type),+))? $({ $($(#[$field_doc])* $field: $field_type),+ })?),+
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $(Self::$variant $(($($place),+))? $({ $($field),+ })? => {
                        // A message need not name every field.
                        $($(let _ = $place;)+)? $($(let _ = $field;)+)?
                        write!(f, $message $(, $($argument),+)?)
                    })+
                }
            }
        }

        impl core::error::Error for $name {}
    };
}

#[cfg(test)]
mod tests {
    use core::fmt::Display;
    use std::string::ToString;

    errors! {
        /// What went wrong.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        enum Problem {
            /// Nothing to say.
            Plain = "plain",
            /// A value.
            Value(value: u32) = "the value {value}",
            /// Two, one of them hidden.
            Pair {
                /// The first.
                first: u32,
                /// The second.
                second: u32,
            } = "{first} and {}" (second + 1),
        }
    }

    #[test]
    fn messages_name_fields_and_arguments() {
        let text = |problem: Problem| (&problem as &dyn Display).to_string();
        assert_eq!(text(Problem::Plain), "plain");
        assert_eq!(text(Problem::Value(7)), "the value 7");
        assert_eq!(text(Problem::Pair { first: 1, second: 2 }), "1 and 3");
        assert!(core::error::Error::source(&Problem::Plain).is_none());
    }
}
