//! Filters, tests and functions of numbers, and the conversions to them.

use super::{Given, shown, type_fault};
use crate::expression::eval::{Eval, Outcome};
use crate::expression::value::{EvalValue, Number};
use crate::expression::{ExpressionErrorKind as Kind, ExpressionFault, limits};

pub(super) fn absolute<'s>(_: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    match value {
        EvalValue::Number(Number::Int(int)) => Ok(EvalValue::Number(Number::Int(int.abs()))),
        EvalValue::Number(Number::Float(float)) => Ok(EvalValue::Number(Number::Float(float.abs()))),
        other => Err(type_fault(format!("`abs` needs a number, not {}", other.kind()))),
    }
}

pub(super) fn int<'s>(_: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let int = match &value {
        EvalValue::Bool(value) => Some(i128::from(*value)),
        EvalValue::Number(Number::Int(int)) => Some(*int),
        EvalValue::Number(Number::Float(float)) => Some(float.trunc() as i128),
        EvalValue::Text(text) => {
            let text = text.trim();
            text.parse::<i128>().ok().or_else(|| {
                let float = text.parse::<f64>().ok().filter(|float| float.is_finite())?;
                Some(float.trunc() as i128)
            })
        }
        _ => None,
    };
    let otherwise =
        || given.take(0).ok_or_else(|| type_fault(format!("{} is no integer; `int(0)` has a default", quoted(&value))));
    int.and_then(Number::of_int).map_or_else(otherwise, |number| Ok(EvalValue::Number(number)))
}

pub(super) fn float<'s>(_: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let float = match &value {
        EvalValue::Bool(value) => Some(f64::from(u8::from(*value))),
        EvalValue::Number(number) => Some(number.as_float()),
        EvalValue::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    let otherwise =
        || given.take(0).ok_or_else(|| type_fault(format!("{} is no number; `float(0.0)` has a default", quoted(&value))));
    float.and_then(Number::of_float).map_or_else(otherwise, |number| Ok(EvalValue::Number(number)))
}

fn quoted(value: &EvalValue<'_>) -> String {
    match value {
        EvalValue::Text(text) => format!("`{}`", text.chars().take(40).collect::<String>()),
        other => shown(other),
    }
}

pub(super) fn round<'s>(_: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let precision = match given.take(0) {
        None | Some(EvalValue::Null) => 0,
        Some(EvalValue::Number(Number::Int(precision))) => precision.clamp(-300, 300) as i32,
        Some(other) => return Err(type_fault(format!("`precision` is a number, not {}", other.kind()))),
    };
    let method = given.text(1, "method")?;
    match value {
        EvalValue::Number(Number::Int(int)) if precision >= 0 => Ok(EvalValue::Number(Number::Int(int))),
        EvalValue::Number(number) => {
            let scaled = number.as_float() * 10_f64.powi(precision);
            let rounded = match method.as_deref() {
                None | Some("common") => scaled.round(),
                Some("ceil") => scaled.ceil(),
                Some("floor") => scaled.floor(),
                Some(other) => {
                    return Err(type_fault(format!("`method` is `common`, `ceil` or `floor`, not `{other}`")));
                }
            };
            // A number with fewer digits than wanted stays as it is.
            let result = Number::of_float(rounded / 10_f64.powi(precision)).unwrap_or(number);
            match number {
                Number::Int(_) => Ok(EvalValue::Number(Number::of_int(result.as_float() as i128).unwrap_or(number))),
                Number::Float(_) => Ok(EvalValue::Number(result)),
            }
        }
        other => Err(type_fault(format!("`round` needs a number, not {}", other.kind()))),
    }
}

pub(super) fn divisible_by<'s>(_: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    match (value, given.take(0)) {
        (EvalValue::Number(Number::Int(value)), Some(EvalValue::Number(Number::Int(by)))) if by != 0 => {
            Ok(EvalValue::Bool(value % by == 0))
        }
        _ => Err(type_fault("`divisibleby` needs two integers, the second one not 0")),
    }
}

pub(super) fn parity<'s>(value: &EvalValue<'s>, wanted: i128) -> Outcome<EvalValue<'s>> {
    match value {
        EvalValue::Number(Number::Int(int)) => Ok(EvalValue::Bool(int.rem_euclid(2) == wanted)),
        other => Err(type_fault(format!("only integers are even or odd, not {}", other.kind()))),
    }
}

pub(super) fn range<'s>(eval: &mut Eval<'s>, _: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let mut number = |index: usize| match given.take(index) {
        None => Ok(None),
        Some(EvalValue::Number(Number::Int(int))) => Ok(Some(int)),
        Some(other) => Err(type_fault(format!("`range` takes integers, not {}", shown(&other)))),
    };
    let (first, second, step) = (number(0)?, number(1)?, number(2)?.unwrap_or(1));
    let (start, stop) = second.map_or((0, first.unwrap_or(0)), |stop| (first.unwrap_or(0), stop));
    if step == 0 {
        return Err(type_fault("the step of `range` is not 0"));
    }
    let distance = if step > 0 { stop - start } else { start - stop };
    let count = if distance <= 0 { 0 } else { (distance - 1) / step.abs() + 1 };
    if count > limits::RANGE as i128 {
        return Err(ExpressionFault::new(Kind::TooLarge, format!("`range` has more than {} numbers", limits::RANGE)));
    }
    eval.spend(count as usize)?;
    eval.list((0..count).map(|index| EvalValue::Number(Number::Int(start + index * step))).collect())
}
