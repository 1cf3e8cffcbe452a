//! Filters and functions of maps: their fields, keys, values and entries.

use super::sorting::sorted;
use super::{Given, type_fault};
use crate::expression::eval::{Eval, Outcome};
use crate::expression::value::{EvalFields, EvalValue, Number, Text};
use crate::expression::{ExpressionErrorKind as Kind, ExpressionFault, near};

pub(super) fn attribute<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let name = given.take(0).unwrap_or(EvalValue::Null);
    field_or_fault(eval, &value, &name)
}

/// Follows the path of an attribute, as in `author.name` or `0`.
pub(super) fn field_of<'s>(eval: &mut Eval<'s>, value: &EvalValue<'s>, path: &EvalValue<'s>) -> Outcome<Option<EvalValue<'s>>> {
    let path = match path {
        EvalValue::Text(path) => path.to_string(),
        EvalValue::Number(Number::Int(index)) => index.to_string(),
        other => return Err(type_fault(format!("an attribute is a text, not {}", other.kind()))),
    };
    let mut value = value.clone();
    for part in path.split('.') {
        eval.spend(1)?;
        let next = match &value {
            EvalValue::Map(map) => map.get(part),
            EvalValue::List(list) => part.parse().ok().and_then(|index| list.get(index)),
            _ => None,
        };
        match next {
            Some(next) => value = next,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

pub(super) fn field_or_fault<'s>(eval: &mut Eval<'s>, value: &EvalValue<'s>, path: &EvalValue<'s>) -> Outcome<EvalValue<'s>> {
    if let Some(found) = field_of(eval, value, path)? {
        return Ok(found);
    }
    let path = eval.as_text(path)?;
    let hint = match value {
        EvalValue::Map(map) => near(&path, map.entries().iter().map(|(key, _)| &**key)),
        other => format!("; it is {}", other.kind()),
    };
    Err(ExpressionFault::new(Kind::Undefined, format!("an item has no `{}`{hint}", &*path)))
}

pub(super) fn items<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let entries = entries_of(eval, &value)?;
    pairs(eval, entries)
}

pub(super) fn keys<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let keys = entries_of(eval, &value)?.into_iter().map(|(key, _)| EvalValue::Text(key)).collect();
    eval.list(keys)
}

pub(super) fn values<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let values = entries_of(eval, &value)?.into_iter().map(|(_, value)| value).collect();
    eval.list(values)
}

pub(super) fn dictsort<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let case_sensitive = given.flag(0);
    let by = given.text(1, "by")?;
    let reverse = given.flag(2);
    let entries = entries_of(eval, &value)?;
    let keys = match by.as_deref() {
        None | Some("key") => entries.iter().map(|(key, _)| EvalValue::Text(key.clone())).collect(),
        Some("value") => entries.iter().map(|(_, value)| value.clone()).collect(),
        Some(other) => return Err(type_fault(format!("`by` is `key` or `value`, not `{other}`"))),
    };
    let entries = sorted(eval, keys, entries, case_sensitive, reverse)?;
    pairs(eval, entries)
}

pub(super) fn dict<'s>(eval: &mut Eval<'s>, _: EvalValue<'s>, given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let fields: EvalFields<'s> = given.others.into_iter().map(|(name, value)| (Text::Shared(name.into()), value)).collect();
    eval.map(fields)
}

fn entries_of<'s>(eval: &mut Eval<'s>, value: &EvalValue<'s>) -> Outcome<Vec<(Text<'s>, EvalValue<'s>)>> {
    match value {
        EvalValue::Map(map) => {
            eval.spend(map.len())?;
            Ok(map.entries())
        }
        other => Err(type_fault(format!("the filter needs a map, not {}", other.kind()))),
    }
}

fn pairs<'s>(eval: &mut Eval<'s>, entries: Vec<(Text<'s>, EvalValue<'s>)>) -> Outcome<EvalValue<'s>> {
    let mut out = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        out.push(eval.list(vec![EvalValue::Text(key), value])?);
    }
    eval.list(out)
}
