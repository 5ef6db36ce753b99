//! Values whose text form is parsed where it stands in the input, without a copy.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserializer, de};

/// Returns the value of a text.
///
/// Errors: it is not a text, or not one of this type.
pub(crate) fn parsed<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    from.deserialize_str(Text(PhantomData))
}

struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}
