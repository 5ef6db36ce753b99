//! Whole numbers of a request, also where its writer knows only numbers with a fraction and says `60.0`: in JSON that is the same.

use serde::{Deserialize, Deserializer, de};
use serde_json::Number;

/// From here on not every whole number has a double of its own.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Reads a number that may be left out.
pub(super) fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Option::<Number>::deserialize(from)?.map(|number| whole(&number)).transpose()
}

/// Reads a small number.
pub(super) fn small<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = Number::deserialize(from)?;
    u32::try_from(whole(&number)?).map_err(|_| de::Error::custom(format!("{number} is too large")))
}

fn whole<E: de::Error>(number: &Number) -> Result<u64, E> {
    let of_fraction = || number.as_f64().filter(|of| of.fract() == 0.0 && (0.0..EXACT_MAX).contains(of));
    let whole = number.as_u64().or_else(|| of_fraction().map(|of| of as u64));
    whole.ok_or_else(|| E::custom(format!("{number} is no whole number, or too large")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        let check = |text: &str, expected: Option<u64>| {
            let mut json = serde_json::Deserializer::from_str(text);
            assert_eq!(optional(&mut json).ok().flatten(), expected, "{text}");
        };
        check("60", Some(60));
        check("60.0", Some(60));
        check("6e1", Some(60));
        check("null", None);
        check("0", Some(0));
        check("18446744073709551615", Some(u64::MAX));
        for wrong in ["60.5", "-1", "-1.0", "1e300", "\"60\"", "true", "18446744073709551616", "[60]"] {
            check(wrong, None);
        }
    }
}
