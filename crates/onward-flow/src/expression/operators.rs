//! The operators of numbers, texts and lists.

use super::builtins::type_fault;
use super::eval::{Eval, Outcome};
use super::syntax::Operator;
use super::value::{EvalValue, Number, Text};
use super::{ExpressionErrorKind as Kind, ExpressionFault};

/// Computes `left operator right`.
pub(super) fn calculate<'s>(
    eval: &mut Eval<'s>,
    operator: Operator,
    left: EvalValue<'s>,
    right: EvalValue<'s>,
) -> Outcome<EvalValue<'s>> {
    match (operator, &left, &right) {
        (_, EvalValue::Number(left), EvalValue::Number(right)) if !matches!(operator, Operator::Concat) => {
            calculate_numbers(operator, *left, *right)
        }
        (Operator::Add, EvalValue::Text(left), EvalValue::Text(right)) => concat(eval, left, right),
        (Operator::Add, EvalValue::List(left), EvalValue::List(right)) => {
            eval.spend(left.len() + right.len())?;
            eval.list(left.iter().chain(right.iter()).collect())
        }
        (Operator::Multiply, EvalValue::Text(text), EvalValue::Number(Number::Int(times)))
        | (Operator::Multiply, EvalValue::Number(Number::Int(times)), EvalValue::Text(text)) => {
            let times = usize::try_from(*times).unwrap_or(0);
            eval.check_text(text.len().saturating_mul(times))?;
            Ok(EvalValue::Text(Text::Shared(text.repeat(times).into())))
        }
        (Operator::Multiply, EvalValue::List(list), EvalValue::Number(Number::Int(times))) => {
            let times = usize::try_from(*times).unwrap_or(0);
            eval.spend(list.len().saturating_mul(times))?;
            eval.list((0..times).take_while(|_| list.len() > 0).flat_map(|_| list.iter()).collect())
        }
        (Operator::Concat, left, right) => {
            let (left, right) = (eval.as_text(left)?, eval.as_text(right)?);
            concat(eval, &left, &right)
        }
        (Operator::Add, left, right) if left.as_text().is_some() || right.as_text().is_some() => {
            Err(type_fault(format!("`+` does not add {} and {}; `~` joins them as texts", left.kind(), right.kind())))
        }
        (_, left, right) => {
            let sign = sign(operator);
            Err(type_fault(format!("`{sign}` does not work on {} and {}", left.kind(), right.kind())))
        }
    }
}

fn sign(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::DivideWhole => "//",
        Operator::Remainder => "%",
        Operator::Power => "**",
        Operator::Concat => "~",
    }
}

pub(super) fn concat<'s>(eval: &mut Eval<'s>, left: &str, right: &str) -> Outcome<EvalValue<'s>> {
    eval.check_text(left.len() + right.len())?;
    Ok(EvalValue::Text(Text::Shared([left, right].concat().into())))
}

fn calculate_numbers<'s>(operator: Operator, left: Number, right: Number) -> Outcome<EvalValue<'s>> {
    let is_division = matches!(operator, Operator::Divide | Operator::DivideWhole | Operator::Remainder);
    if is_division && right.as_float() == 0.0 {
        return Err(type_fault("a number is divided by zero"));
    }
    let result = match (operator, left, right) {
        (Operator::Divide, left, right) => Number::of_float(left.as_float() / right.as_float()),
        (Operator::Power, Number::Int(base), Number::Int(exponent)) if exponent >= 0 => {
            u32::try_from(exponent).ok().and_then(|exponent| base.checked_pow(exponent)).and_then(Number::of_int)
        }
        (Operator::Power, base, exponent) => Number::of_float(base.as_float().powf(exponent.as_float())),
        (_, Number::Int(left), Number::Int(right)) => {
            let exact = match operator {
                Operator::Add => left.checked_add(right),
                Operator::Subtract => left.checked_sub(right),
                Operator::Multiply => left.checked_mul(right),
                Operator::DivideWhole => {
                    // Rounds down, as in Python.
                    let is_exact = left % right == 0 || (left < 0) == (right < 0);
                    Some(left / right - if is_exact { 0 } else { 1 })
                }
                _ => Some(((left % right) + right) % right),
            };
            exact.and_then(Number::of_int)
        }
        (_, left, right) => {
            let (left, right) = (left.as_float(), right.as_float());
            Number::of_float(match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                Operator::DivideWhole => (left / right).floor(),
                _ => left - right * (left / right).floor(),
            })
        }
    };
    result
        .map(EvalValue::Number)
        .ok_or_else(|| ExpressionFault::new(Kind::TooLarge, format!("the result of `{}` is too large", sign(operator))))
}
