//! Enumerations with one word per variant.

use std::borrow::Cow;

/// An unknown value; the message lists the valid ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{word}`; valid values: {known}")]
pub struct UnknownWord {
    pub word: String,
    /// The expected kind of value.
    pub what: &'static str,
    /// The valid words.
    pub known: Cow<'static, str>,
}

impl UnknownWord {
    pub(crate) fn new(word: &str, what: &'static str, known: impl Into<Cow<'static, str>>) -> Self {
        Self { word: word.to_owned(), what, known: known.into() }
    }
}

/// Implements `Display` and `FromStr` with one word per variant.
macro_rules! words {
    ($type:ty, $what:literal, $known:literal, { $($value:path => $word:literal),+ $(,)? }) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $($value => $word),+ })
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::words::UnknownWord;

            fn from_str(word: &str) -> Result<Self, $crate::words::UnknownWord> {
                match word {
                    $($word => Ok($value),)+
                    _ => Err($crate::words::UnknownWord::new(word, $what, $known)),
                }
            }
        }
    };
}

pub(crate) use words;
