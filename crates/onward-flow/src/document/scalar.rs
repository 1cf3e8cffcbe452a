//! What a plain scalar means: the core schema of YAML 1.2.
//!
//! `no`, `on` and `1_000` are texts and `010` is ten, other than in YAML 1.1. Infinities and what is not a number are refused:
//! JSON has neither.

use serde_json::{Number, Value};

/// What a plain scalar is.
#[derive(Debug, Clone, PartialEq)]
pub enum Plain {
    Value(Value),
    /// A number with a remark: it is read otherwise than its text may suggest.
    Remark(Value, String),
    /// A number that JSON cannot hold.
    Refused(String),
}

/// Returns the value of a plain scalar.
pub fn resolve(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Value(Value::Null),
        "true" | "True" | "TRUE" => return Plain::Value(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Plain::Value(Value::Bool(false)),
        _ => {}
    }
    let begins_number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
    begins_number.then(|| number(text)).flatten().unwrap_or_else(|| Plain::Value(Value::String(text.to_owned())))
}

/// Returns the number of a text; `None` if it is not a number.
fn number(text: &str) -> Option<Plain> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(Plain::Refused(format!("`{text}` is not a number in JSON")));
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix).filter(|digits| digits.chars().all(|c| c.is_digit(radix))) {
            return match u64::from_str_radix(digits, radix) {
                Ok(number) => Some(Plain::Value(number.into())),
                Err(_) if digits.is_empty() => None,
                Err(_) => Some(Plain::Refused(format!("`{text}` does not fit into 64 bits"))),
            };
        }
    }
    if !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(integer(text, unsigned));
    }
    is_float(unsigned).then(|| {
        let number = text.strip_prefix('+').unwrap_or(text).parse::<f64>().ok().and_then(Number::from_f64);
        number.map_or_else(
            || Plain::Refused(format!("`{text}` is too large for a number of 64 bits")),
            |number| Plain::Value(Value::Number(number)),
        )
    })
}

fn integer(text: &str, unsigned: &str) -> Plain {
    let signed = text.strip_prefix('+').unwrap_or(text);
    let value = match (signed.parse::<u64>(), signed.parse::<i64>()) {
        (Ok(number), _) => Value::from(number),
        (_, Ok(number)) => Value::from(number),
        _ => {
            return match signed.parse::<f64>().ok().and_then(Number::from_f64) {
                Some(number) => {
                    let remark = format!("`{text}` has more digits than an integer of 64 bits and is read as {number}");
                    Plain::Remark(Value::Number(number), remark)
                }
                None => Plain::Refused(format!("`{text}` is too large for a number of 64 bits")),
            };
        }
    };
    if unsigned.len() > 1 && unsigned.starts_with('0') {
        return Plain::Remark(value.clone(), format!("`{text}` is the number {value}: leading zeros do not mean octal"));
    }
    Plain::Value(value)
}

/// Returns whether a text without sign is a float: digits with a point or an exponent.
fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
    digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_follow_the_core_schema_of_yaml_1_2() {
        let table = [
            ("", json!(null)),
            ("~", json!(null)),
            ("NULL", json!(null)),
            ("nuLL", json!("nuLL")),
            ("True", json!(true)),
            ("no", json!("no")),
            ("on", json!("on")),
            ("Yes", json!("Yes")),
            ("y", json!("y")),
            ("0", json!(0)),
            ("-7", json!(-7)),
            ("+7", json!(7)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("0x", json!("0x")),
            ("0b11", json!("0b11")),
            ("1_000", json!("1_000")),
            ("1:30", json!("1:30")),
            ("2024-01-02", json!("2024-01-02")),
            ("1.50", json!(1.5)),
            (".5", json!(0.5)),
            ("5.", json!(5.0)),
            ("1e3", json!(1000.0)),
            ("-1.5E-2", json!(-0.015)),
            (".", json!(".")),
            ("-", json!("-")),
            ("1e", json!("1e")),
            ("1.2.3", json!("1.2.3")),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("-9223372036854775808", json!(i64::MIN)),
        ];
        for (text, value) in table {
            assert_eq!(resolve(text), Plain::Value(value), "{text}");
        }
        assert!(matches!(resolve("010"), Plain::Remark(value, _) if value == json!(10)));
        assert!(matches!(resolve("18446744073709551616"), Plain::Remark(value, _) if value == json!(1.844_674_407_370_955_2e19)));
        for text in [".inf", "-.INF", ".nan", "1e999", "0xFFFFFFFFFFFFFFFFF"] {
            assert!(matches!(resolve(text), Plain::Refused(_)), "{text}");
        }
    }
}
