//! Filters that order items by keys: `sort`, `unique`, `groupby`, `min` and `max`. A key is the item, or one of its fields.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::maps::{field_of, field_or_fault};
use super::{Given, type_fault};
use crate::expression::eval::{Eval, Outcome};
use crate::expression::value::EvalValue;
use crate::expression::{ExpressionErrorKind as Kind, ExpressionFault};

pub(super) fn sort<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let (reverse, case_sensitive, attribute) = (given.flag(0), given.flag(1), given.take(2));
    let items = eval.items(&value)?;
    let keys = keys_of(eval, &items, &attribute)?;
    let items = sorted(eval, keys, items, case_sensitive, reverse)?;
    eval.list(items)
}

pub(super) fn unique<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let (case_sensitive, attribute) = (given.flag(0), given.take(1));
    let items = eval.items(&value)?;
    let keys = keys_of(eval, &items, &attribute)?;
    let keys = folded(eval, keys, case_sensitive)?;
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for (key, item) in keys.into_iter().zip(items) {
        if seen.insert(eval.json_text(&key, None)?) {
            out.push(item);
        }
    }
    eval.list(out)
}

pub(super) fn group_by<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let (attribute, default) = (given.take(0).unwrap_or(EvalValue::Null), given.take(1));
    let items = eval.items(&value)?;
    let mut keys = Vec::with_capacity(items.len());
    for item in &items {
        keys.push(match (field_of(eval, item, &attribute)?, &default) {
            (Some(key), _) => key,
            (None, Some(default)) => default.clone(),
            (None, None) => field_or_fault(eval, item, &attribute)?,
        });
    }
    let pairs: Vec<_> = keys.iter().cloned().zip(items).collect();
    let mut groups: Vec<(EvalValue<'s>, Vec<EvalValue<'s>>)> = Vec::new();
    for (key, item) in sorted(eval, keys, pairs, true, false)? {
        match groups.last_mut() {
            Some((last, group)) if order_keys(last, &key).is_eq() => group.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let mut out = Vec::with_capacity(groups.len());
    for (key, group) in groups {
        let group = eval.list(group)?;
        out.push(eval.list(vec![key, group])?);
    }
    eval.list(out)
}

pub(super) fn least<'s>(
    eval: &mut Eval<'s>,
    value: EvalValue<'s>,
    mut given: Given<'s>,
    wanted: Ordering,
) -> Outcome<EvalValue<'s>> {
    let attribute = given.take(0);
    let items = eval.items(&value)?;
    let keys = keys_of(eval, &items, &attribute)?;
    let mut best: Option<usize> = None;
    for index in 0..items.len() {
        let is_better = match best {
            None => true,
            Some(best) => eval.order(&keys[index], &keys[best])? == wanted,
        };
        if is_better {
            best = Some(index);
        }
    }
    let empty = || ExpressionFault::new(Kind::Undefined, format!("{} is empty and has no least or greatest item", value.kind()));
    best.map(|index| items[index].clone()).ok_or_else(empty)
}

/// Returns the values by which items are sorted: the items, or one of their fields.
pub(super) fn keys_of<'s>(
    eval: &mut Eval<'s>,
    items: &[EvalValue<'s>],
    attribute: &Option<EvalValue<'s>>,
) -> Outcome<Vec<EvalValue<'s>>> {
    match attribute {
        None => Ok(items.to_vec()),
        Some(attribute) => items.iter().map(|item| field_or_fault(eval, item, attribute)).collect(),
    }
}

/// Checks that all keys are numbers, or texts, or booleans, and pays for sorting them. Afterwards [`order_keys`] is a total order.
fn check_keys(eval: &mut Eval<'_>, keys: &[EvalValue<'_>]) -> Outcome<()> {
    let rounds = keys.len().checked_ilog2().unwrap_or(0) as usize + 1;
    eval.spend(keys.len() * rounds)?;
    for key in keys {
        if !matches!(key, EvalValue::Number(_) | EvalValue::Text(_) | EvalValue::Bool(_)) {
            return Err(type_fault(format!("{} has no order; sort by an attribute", key.kind())));
        }
        if key.kind() != keys[0].kind() {
            return Err(type_fault(format!("{} and {} have no order", keys[0].kind(), key.kind())));
        }
        eval.spend_bytes(key.as_text().map_or(0, str::len) * rounds)?;
    }
    Ok(())
}

fn order_keys(left: &EvalValue<'_>, right: &EvalValue<'_>) -> Ordering {
    match (left, right) {
        (EvalValue::Number(left), EvalValue::Number(right)) => left.compare(*right),
        (EvalValue::Text(left), EvalValue::Text(right)) => left.cmp(right),
        (EvalValue::Bool(left), EvalValue::Bool(right)) => left.cmp(right),
        _ => Ordering::Equal,
    }
}

fn folded<'s>(eval: &mut Eval<'s>, keys: Vec<EvalValue<'s>>, case_sensitive: bool) -> Outcome<Vec<EvalValue<'s>>> {
    let mut out = Vec::with_capacity(keys.len());
    for key in keys {
        out.push(match &key {
            EvalValue::Text(text) if !case_sensitive => eval.text(&text.to_lowercase())?,
            _ => key,
        });
    }
    Ok(out)
}

/// Sorts by keys. Equal keys keep their order.
pub(super) fn sorted<'s, T>(
    eval: &mut Eval<'s>,
    keys: Vec<EvalValue<'s>>,
    items: Vec<T>,
    case_sensitive: bool,
    reverse: bool,
) -> Outcome<Vec<T>> {
    let keys = folded(eval, keys, case_sensitive)?;
    check_keys(eval, &keys)?;
    let mut pairs: Vec<_> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|left, right| {
        let order = order_keys(&left.0, &right.0);
        if reverse { order.reverse() } else { order }
    });
    Ok(pairs.into_iter().map(|(_, item)| item).collect())
}
