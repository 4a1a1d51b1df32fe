use std::fmt;

use serde::{Deserialize, Serialize};

/// A value, or the reason why there is none.
///
/// Absent is neither zero nor an error. Shown as `n/a (why)`; in JSON a value stands as itself and
/// an absence as `{"absent": "why"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading<T> {
    /// The machine said so.
    Known(T),
    /// The machine does not say.
    Absent {
        /// Why, in a few words: `no SLIT`, `needs CAP_SYS_ADMIN`.
        why: String,
    },
}

impl<T> Reading<T> {
    /// A reading that is missing for the given reason.
    pub fn absent(why: impl Into<String>) -> Self {
        Self::Absent { why: why.into() }
    }

    /// The value, if there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Absent { .. } => None,
        }
    }

    /// The reason of the absence, if there is no value.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Known(_) => None,
            Self::Absent { why } => Some(why),
        }
    }

    /// Changes the value and keeps the reason.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Known(value) => Reading::Known(change(value)),
            Self::Absent { why } => Reading::Absent { why },
        }
    }
}

impl<T: fmt::Display> fmt::Display for Reading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(value) => value.fmt(f),
            Self::Absent { why } => f.pad(&format!("n/a ({why})")),
        }
    }
}

impl<T: Serialize> Serialize for Reading<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Absent<'a> {
            absent: &'a str,
        }
        match self {
            Self::Known(value) => value.serialize(serializer),
            Self::Absent { why } => Absent { absent: why }.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Reading<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written<T> {
            Absent { absent: String },
            Known(T),
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Absent { absent } => Self::Absent { why: absent },
            Written::Known(value) => Self::Known(value),
        })
    }
}
