//! Filters of lists as a whole: length, ends, order, chunks, text and sum.

use super::sorting::keys_of;
use super::{Given, type_fault};
use crate::expression::eval::{Eval, Outcome};
use crate::expression::operators::calculate;
use crate::expression::syntax::Operator;
use crate::expression::value::{EvalValue, Text};
use crate::expression::{ExpressionErrorKind as Kind, ExpressionFault, limits};

fn needs_items<'s>(eval: &mut Eval<'s>, value: &EvalValue<'s>) -> Outcome<Vec<EvalValue<'s>>> {
    match value {
        EvalValue::List(_) | EvalValue::Map(_) => eval.items(value),
        other => Err(type_fault(format!("the filter needs a list, not {}", other.kind()))),
    }
}

pub(super) fn length<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    match &value {
        EvalValue::Text(text) => {
            eval.spend_bytes(text.len())?;
            Ok(EvalValue::int(text.chars().count()))
        }
        EvalValue::List(list) => Ok(EvalValue::int(list.len())),
        EvalValue::Map(map) => Ok(EvalValue::int(map.len())),
        other => Err(type_fault(format!("{} has no length", other.kind()))),
    }
}

pub(super) fn first<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let found = match &value {
        EvalValue::List(list) => list.get(0),
        EvalValue::Text(text) => text.chars().next().map(|char| EvalValue::Text(Text::Shared(char.to_string().into()))),
        _ => needs_items(eval, &value)?.into_iter().next(),
    };
    found.ok_or_else(|| ExpressionFault::new(Kind::Undefined, format!("{} is empty and has no first item", value.kind())))
}

pub(super) fn last<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let found = match &value {
        EvalValue::List(list) => list.len().checked_sub(1).and_then(|index| list.get(index)),
        EvalValue::Text(text) => text.chars().next_back().map(|char| EvalValue::Text(Text::Shared(char.to_string().into()))),
        _ => needs_items(eval, &value)?.pop(),
    };
    found.ok_or_else(|| ExpressionFault::new(Kind::Undefined, format!("{} is empty and has no last item", value.kind())))
}

pub(super) fn list<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let items = eval.items(&value)?;
    eval.list(items)
}

pub(super) fn reverse<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    if let EvalValue::Text(text) = &value {
        return eval.text(&text.chars().rev().collect::<String>());
    }
    let mut items = needs_items(eval, &value)?;
    items.reverse();
    eval.list(items)
}

pub(super) fn join<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let separator = given.take(0).unwrap_or(EvalValue::Text(Text::Borrowed("")));
    let separator = eval.as_text(&separator)?;
    let attribute = given.take(1);
    let items = eval.items(&value)?;
    let mut out = String::new();
    for (index, item) in keys_of(eval, &items, &attribute)?.iter().enumerate() {
        let text = eval.as_text(item)?;
        let separator = if index > 0 { &*separator } else { "" };
        if out.len() + separator.len() + text.len() > limits::VALUE_BYTES {
            eval.check_text(usize::MAX)?;
        }
        eval.spend_bytes(separator.len())?;
        out.push_str(separator);
        out.push_str(&text);
    }
    eval.text(&out)
}

pub(super) fn batch<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let size = given.count(0, "linecount")?.unwrap_or(0);
    let fill = given.take(1);
    let items = needs_items(eval, &value)?;
    if size == 0 {
        return Err(type_fault("`batch` needs a size of at least 1"));
    }
    let mut batches = Vec::new();
    for chunk in items.chunks(size) {
        let mut batch = chunk.to_vec();
        if let Some(fill) = &fill {
            eval.spend(size - chunk.len())?;
            batch.resize(size, fill.clone());
        }
        batches.push(eval.list(batch)?);
    }
    eval.list(batches)
}

pub(super) fn slice<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let count = given.count(0, "slices")?.unwrap_or(0);
    let fill = given.take(1);
    let items = needs_items(eval, &value)?;
    if count == 0 {
        return Err(type_fault("`slice` needs at least 1 slice"));
    }
    eval.spend(count)?;
    let (each, more) = (items.len() / count, items.len() % count);
    let mut items = items.into_iter();
    let mut slices = Vec::with_capacity(count);
    for index in 0..count {
        let mut slice: Vec<_> = items.by_ref().take(each + usize::from(index < more)).collect();
        if let Some(fill) = fill.as_ref().filter(|_| more > 0 && index >= more) {
            slice.push(fill.clone());
        }
        slices.push(eval.list(slice)?);
    }
    eval.list(slices)
}

pub(super) fn sum<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let (attribute, start) = (given.take(0), given.take(1).unwrap_or(EvalValue::int(0)));
    let items = eval.items(&value)?;
    let mut total = start;
    for item in keys_of(eval, &items, &attribute)? {
        match (&total, &item) {
            (EvalValue::Number(_), EvalValue::Number(_)) => total = calculate(eval, Operator::Add, total, item)?,
            (_, other) => return Err(type_fault(format!("`sum` adds numbers, not {}", other.kind()))),
        }
    }
    Ok(total)
}
