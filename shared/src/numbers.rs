//! Numbers in JSON. JSON Schema counts 30.0 as an integer, and some clients write integers so.

use serde_json::{Number, Value};

/// The number from which on not every integer is a double: 2^53.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Replaces every whole number that has a fraction or an exponent, such as `30.0`, with its integer. Returns how many there
/// were.
pub fn make_integers(value: &mut Value) -> usize {
    match value {
        Value::Number(number) => match integer(number) {
            Some(integer) => {
                *number = integer;
                1
            }
            None => 0,
        },
        Value::Array(values) => values.iter_mut().map(make_integers).sum(),
        Value::Object(members) => members.values_mut().map(make_integers).sum(),
        Value::Null | Value::Bool(_) | Value::String(_) => 0,
    }
}

fn integer(number: &Number) -> Option<Number> {
    let double = number.as_f64().filter(|_| number.is_f64())?;
    let is_whole = double.fract() == 0.0 && double.abs() < EXACT_MAX;
    // Exact, because of that bound.
    is_whole.then(|| Number::from(double as i64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_whole_numbers_become_integers() {
        let mut value =
            json!({"a": 30.0, "b": [1e3, -0.0, 1.5], "c": {"d": 1e300, "e": "2.0"}, "f": 7});
        assert_eq!(make_integers(&mut value), 3);
        assert_eq!(
            value,
            json!({"a": 30, "b": [1000, 0, 1.5], "c": {"d": 1e300, "e": "2.0"}, "f": 7})
        );
        assert_eq!(make_integers(&mut value), 0);
        let mut largest = json!([-9_007_199_254_740_991.0, EXACT_MAX]);
        assert_eq!(make_integers(&mut largest), 1);
        assert_eq!(largest[0], json!(-9_007_199_254_740_991_i64));
    }
}
