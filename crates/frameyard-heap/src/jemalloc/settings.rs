//! Settings of a heap, and the environment variables that hold them.

use std::env;
use std::ffi::OsString;
use std::fmt;

use frameyard::policy::ZonePolicy;
use frameyard_host::ByteSize;

/// Size and policy of a heap's yard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The size of the yard.
    pub memory: ByteSize,
    /// Its policy.
    pub policy: ZonePolicy,
}

/// A malformed environment variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsError {
    variable: &'static str,
    value: String,
    right: String,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?} is not {}", self.variable, self.value, self.right)
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// The variable for the size, as in `4G`.
    pub const MEMORY: &'static str = "FRAMEYARD_MEMORY";
    /// The variable for the policy.
    pub const POLICY: &'static str = "FRAMEYARD_POLICY";

    /// A yard of that size, with the default policy.
    #[must_use]
    pub fn new(memory: ByteSize) -> Self {
        Self { memory, policy: ZonePolicy::default() }
    }

    /// These settings, changed by the environment variables that are set.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] names the variable, its value, and what would be right.
    pub fn from_environment(self) -> Result<Self, SettingsError> {
        self.changed_by(env::var_os(Self::MEMORY), env::var_os(Self::POLICY))
    }

    fn changed_by(mut self, memory: Option<OsString>, policy: Option<OsString>) -> Result<Self, SettingsError> {
        let refused = |variable, value: &OsString, right: &str| {
            let value = value.to_string_lossy().chars().take(64).collect();
            SettingsError { variable, value, right: right.to_owned() }
        };
        if let Some(value) = memory {
            let size = value.to_str().and_then(|text| text.parse().ok());
            self.memory = size.ok_or_else(|| refused(Self::MEMORY, &value, "a size such as 512M or 4G"))?;
        }
        if let Some(value) = policy {
            let named = value.to_str().and_then(|text| text.parse().ok());
            let names: Vec<&str> = ZonePolicy::ALL.into_iter().map(ZonePolicy::name).collect();
            let right = format!("one of {}", names.join(", "));
            self.policy = named.ok_or_else(|| refused(Self::POLICY, &value, &right))?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(memory: Option<&str>, policy: Option<&str>) -> Result<Settings, String> {
        let settings = Settings::new(ByteSize::gib(1));
        settings.changed_by(memory.map(Into::into), policy.map(Into::into)).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_change_what_they_name() {
        assert_eq!(changed(None, None), Ok(Settings::new(ByteSize::gib(1))));
        let vanilla = Settings { memory: ByteSize::mib(512), policy: ZonePolicy::Vanilla };
        assert_eq!(changed(Some("512M"), Some("vanilla")), Ok(vanilla));
    }

    #[test]
    fn malformed_variables_are_named() {
        let error = changed(Some("much"), None).unwrap_err();
        assert_eq!(error, "FRAMEYARD_MEMORY=\"much\" is not a size such as 512M or 4G");
        let error = changed(None, Some("best")).unwrap_err();
        assert!(error.starts_with("FRAMEYARD_POLICY=\"best\" is not one of vanilla, "), "{error}");
        for malformed in ["", "-1", "4X", "99999999999999999999", "16777216T"] {
            assert!(changed(Some(malformed), None).is_err(), "{malformed:?}");
        }
    }
}
