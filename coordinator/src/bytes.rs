//! Amounts of bytes in settings: a number and a unit.

/// The units, each with its number of bytes.
const UNITS: [(&str, u64); 5] = [
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// Parses an amount of bytes, such as `256MB`; a number without a unit means bytes.
///
/// Errors: the text is not an amount. The error describes the format.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let unit = UNITS
        .iter()
        .find_map(|(unit, bytes)| Some((without(text, unit)?, *bytes)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let amount = number
        .trim()
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    amount.ok_or_else(|| "write a number and kB, MB, GB or TB, such as 256MB".to_owned())
}

/// Returns the text without that unit at its end, ignoring case.
fn without<'a>(text: &'a str, unit: &str) -> Option<&'a str> {
    let (number, end) = text.split_at_checked(text.len().checked_sub(unit.len())?)?;
    end.eq_ignore_ascii_case(unit).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn amounts_are_read() {
        for (text, expected) in [
            ("0", 0),
            ("12", 12),
            ("7B", 7),
            ("3kB", 3_000),
            ("256MB", 256_000_000),
            ("2 gb", 2_000_000_000),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "MB", "-1", "1.5GB", "256M", "20000000TB", "é", "many"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
