//! Compares values: equality, order and containment.

use std::cmp::Ordering;

use super::{Eval, Outcome};
use crate::expression::syntax::Comparison;
use crate::expression::value::EvalValue;
use crate::expression::{ExpressionErrorKind as Kind, ExpressionFault};

impl<'s> Eval<'s> {
    /// Compares two values with an operator.
    pub fn compare(&mut self, comparison: Comparison, left: &EvalValue<'s>, right: &EvalValue<'s>) -> Outcome<bool> {
        Ok(match comparison {
            Comparison::Equal => self.is_equal(left, right)?,
            Comparison::NotEqual => !self.is_equal(left, right)?,
            Comparison::Less => self.order(left, right)? == Ordering::Less,
            Comparison::LessOrEqual => self.order(left, right)? != Ordering::Greater,
            Comparison::Greater => self.order(left, right)? == Ordering::Greater,
            Comparison::GreaterOrEqual => self.order(left, right)? != Ordering::Less,
            Comparison::In => self.contains(right, left)?,
            Comparison::NotIn => !self.contains(right, left)?,
        })
    }

    pub fn is_equal(&mut self, left: &EvalValue<'s>, right: &EvalValue<'s>) -> Outcome<bool> {
        self.spend(1)?;
        match (left, right) {
            (EvalValue::Null, EvalValue::Null) => Ok(true),
            (EvalValue::Bool(left), EvalValue::Bool(right)) => Ok(left == right),
            (EvalValue::Number(left), EvalValue::Number(right)) => Ok(left.compare(*right) == Ordering::Equal),
            (EvalValue::Text(left), EvalValue::Text(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                self.spend_bytes(left.len())?;
                Ok(left == right)
            }
            (EvalValue::List(left), EvalValue::List(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (left, right) in left.iter().zip(right.iter()) {
                    if !self.is_equal(&left, &right)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (EvalValue::Map(left), EvalValue::Map(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                self.spend(left.len())?;
                for (key, left) in left.entries() {
                    match right.get(&key) {
                        Some(right) if self.is_equal(&left, &right)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Orders numbers, texts, booleans, and lists of them.
    pub fn order(&mut self, left: &EvalValue<'s>, right: &EvalValue<'s>) -> Outcome<Ordering> {
        self.spend(1)?;
        match (left, right) {
            (EvalValue::Bool(left), EvalValue::Bool(right)) => Ok(left.cmp(right)),
            (EvalValue::Number(left), EvalValue::Number(right)) => Ok(left.compare(*right)),
            (EvalValue::Text(left), EvalValue::Text(right)) => {
                self.spend_bytes(left.len().min(right.len()))?;
                Ok(left.cmp(right))
            }
            (EvalValue::List(left), EvalValue::List(right)) => {
                for (left, right) in left.iter().zip(right.iter()) {
                    let order = self.order(&left, &right)?;
                    if order.is_ne() {
                        return Ok(order);
                    }
                }
                Ok(left.len().cmp(&right.len()))
            }
            (left, right) => Err(ExpressionFault::new(Kind::Type, format!("{} and {} have no order", left.kind(), right.kind()))),
        }
    }

    pub fn contains(&mut self, whole: &EvalValue<'s>, part: &EvalValue<'s>) -> Outcome<bool> {
        match (whole, part) {
            (EvalValue::Text(whole), EvalValue::Text(part)) => {
                self.spend_bytes(whole.len())?;
                Ok(whole.contains(&**part))
            }
            (EvalValue::Map(map), EvalValue::Text(key)) => Ok(map.get(key).is_some()),
            (EvalValue::List(list), part) => {
                for item in list.iter() {
                    if self.is_equal(&item, part)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (whole, part) => Err(ExpressionFault::new(Kind::Type, format!("{} cannot contain {}", whole.kind(), part.kind()))),
        }
    }
}
