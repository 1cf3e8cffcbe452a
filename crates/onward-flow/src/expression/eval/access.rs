//! Reads names, fields, items and slices, and reports the ones that do not exist.

use super::{Eval, Outcome};
use crate::expression::syntax::{ExprKind, ExprNode};
use crate::expression::value::{EvalMap, EvalValue, Number, Text};
use crate::expression::{ExpressionErrorKind as Kind, ExpressionFault, near};

impl<'s> Eval<'s> {
    #[inline(never)]
    pub(super) fn eval_field(&mut self, base: &'s ExprNode, field: &str) -> Outcome<EvalValue<'s>> {
        match &self.eval(base)? {
            EvalValue::Map(map) => map.get(field).ok_or_else(|| unknown_field(base, field, map)),
            other => Err(no_fields(base, field, other)),
        }
    }

    pub(super) fn eval_index(&mut self, base: &'s ExprNode, key: &'s ExprNode) -> Outcome<EvalValue<'s>> {
        let (value, key) = (self.eval(base)?, self.eval(key)?);
        self.spend_bytes(value.as_text().map_or(0, str::len))?;
        if let Some(item) = index(&value, &key) {
            return Ok(item);
        }
        match (&value, &key) {
            (EvalValue::Map(map), EvalValue::Text(key)) => Err(unknown_field(base, key, map)),
            (EvalValue::List(list), EvalValue::Number(number)) => {
                let message =
                    format!("{} has {} items, and none at {}", describe(base, "the list"), list.len(), number.to_json());
                Err(ExpressionFault::new(Kind::Undefined, message))
            }
            (EvalValue::Text(_), EvalValue::Number(_)) => {
                Err(ExpressionFault::new(Kind::Undefined, format!("{} is not that long", describe(base, "the text"))))
            }
            (value, key) => {
                let message = format!("{} is {} and has no item of {}", describe(base, "the value"), value.kind(), key.kind());
                Err(ExpressionFault::new(Kind::Type, message))
            }
        }
    }

    #[inline(never)]
    pub(super) fn eval_slice(&mut self, base: &'s ExprNode, bounds: &'s [Option<ExprNode>; 3]) -> Outcome<EvalValue<'s>> {
        let value = self.eval(base)?;
        let mut numbers = [None; 3];
        for (number, bound) in numbers.iter_mut().zip(bounds) {
            *number = match bound.as_ref().map(|bound| self.eval(bound)).transpose()? {
                None | Some(EvalValue::Null) => None,
                Some(EvalValue::Number(Number::Int(number))) => Some(number),
                Some(other) => {
                    let message = format!("the bounds of a slice are integers, not {}", other.kind());
                    return Err(ExpressionFault::new(Kind::Type, message));
                }
            };
        }
        let [start, stop, step] = numbers;
        if step == Some(0) {
            return Err(ExpressionFault::new(Kind::Type, "the step of a slice is not 0"));
        }
        match &value {
            EvalValue::Text(text) => {
                self.spend_bytes(text.len())?;
                if step.is_none() && start.is_none_or(|start| start >= 0) {
                    let (start, stop) = (start.unwrap_or(0), stop.filter(|stop| *stop >= 0));
                    if stop.is_some() || numbers[1].is_none() {
                        let byte = |index: i128| {
                            let index = usize::try_from(index).unwrap_or(usize::MAX);
                            text.char_indices().nth(index).map_or(text.len(), |(offset, _)| offset)
                        };
                        let (start, stop) = (byte(start), stop.map_or(text.len(), byte));
                        return self.text(text.get(start..stop.max(start)).unwrap_or(""));
                    }
                }
                let length = text.chars().count();
                self.spend(length)?;
                let chars: Vec<char> = text.chars().collect();
                let cut: String = slice_indexes(length, start, stop, step).map(|index| chars[index]).collect();
                self.text(&cut)
            }
            EvalValue::List(list) => {
                let items = slice_indexes(list.len(), start, stop, step).filter_map(|index| list.get(index));
                let items: Vec<_> = items.take(self.fuel + 1).collect();
                self.list(items)
            }
            other => Err(ExpressionFault::new(
                Kind::Type,
                format!("{} is {}, not a list or text", describe(base, "the value"), other.kind()),
            )),
        }
    }

    /// Computes a value that need not exist: `state.page` below `is defined` and `default(..)`.
    pub(super) fn eval_if_defined(&mut self, node: &'s ExprNode) -> Outcome<Option<EvalValue<'s>>> {
        self.spend(1)?;
        match &node.kind {
            ExprKind::Name(name) => Ok(self.name(name)),
            ExprKind::Field(base, field) => Ok(match self.eval_if_defined(base)? {
                Some(EvalValue::Map(map)) => map.get(field),
                _ => None,
            }),
            ExprKind::Index(base, key) => match self.eval_if_defined(base)? {
                Some(base) => {
                    let key = self.eval(key)?;
                    self.spend_bytes(base.as_text().map_or(0, str::len))?;
                    Ok(index(&base, &key))
                }
                None => Ok(None),
            },
            ExprKind::Filter(filter, operand, arguments) if filter.may_be_undefined() => {
                let operand = self.eval(operand)?;
                let given = self.arguments(filter, arguments)?;
                match (filter.run)(self, operand, given) {
                    Err(fault) if fault.kind == Kind::Undefined => Ok(None),
                    outcome => outcome.map(Some),
                }
            }
            _ => self.eval(node).map(Some),
        }
    }

    pub(super) fn name(&self, name: &str) -> Option<EvalValue<'s>> {
        if let Some((_, value)) = self.locals.iter().rev().find(|(local, _)| *local == name) {
            return Some(value.clone());
        }
        self.scope.names.get(name).map(|value| EvalValue::of_json(value))
    }

    pub(super) fn unknown_name(&self, name: &str) -> ExpressionFault {
        let known = self.locals.iter().map(|(local, _)| *local).chain(self.scope.names.keys().map(|name| &**name));
        ExpressionFault::new(Kind::Undefined, format!("`{name}` does not exist{}", near(name, known)))
    }
}

fn index<'s>(value: &EvalValue<'s>, key: &EvalValue<'s>) -> Option<EvalValue<'s>> {
    match (value, key) {
        (EvalValue::Map(map), EvalValue::Text(key)) => map.get(key),
        (EvalValue::List(list), EvalValue::Number(Number::Int(index))) => list.get(position(*index, list.len())?),
        (EvalValue::Text(text), EvalValue::Number(Number::Int(index))) => {
            let position = match *index < 0 {
                true => position(*index, text.chars().count())?,
                false => usize::try_from(*index).ok()?,
            };
            let char = text.chars().nth(position)?;
            Some(EvalValue::Text(Text::Shared(char.to_string().into())))
        }
        _ => None,
    }
}

fn position(index: i128, length: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index + length as i128 } else { index }).ok()
}

/// Returns the indexes of a slice as Python counts them.
fn slice_indexes(length: usize, start: Option<i128>, stop: Option<i128>, step: Option<i128>) -> impl Iterator<Item = usize> {
    let (length, step) = (length as i128, step.unwrap_or(1));
    let (least, greatest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let bound = |given: i128| if given < 0 { given + length } else { given }.clamp(least, greatest);
    let start = start.map_or(if step > 0 { 0 } else { length - 1 }, bound);
    let stop = stop.map_or(if step > 0 { length } else { -1 }, bound);
    let mut next = start;
    std::iter::from_fn(move || {
        let is_inside = if step > 0 { next < stop } else { next > stop };
        let index = next;
        next = next.saturating_add(step);
        is_inside.then(|| usize::try_from(index).ok()).flatten()
    })
}

/// Returns the text of a chain of names, for messages.
fn path(node: &ExprNode) -> Option<String> {
    match &node.kind {
        ExprKind::Name(name) => Some(name.to_string()),
        ExprKind::Field(base, field) => Some(format!("{}.{field}", path(base)?)),
        ExprKind::Index(base, key) => match &key.kind {
            ExprKind::Constant(key) => Some(format!("{}[{}]", path(base)?, serde_json::to_string(key).ok()?)),
            _ => Some(format!("{}[..]", path(base)?)),
        },
        _ => None,
    }
}

fn describe(node: &ExprNode, otherwise: &str) -> String {
    path(node).map_or_else(|| otherwise.to_owned(), |path| format!("`{path}`"))
}

fn unknown_field(base: &ExprNode, field: &str, map: &EvalMap<'_>) -> ExpressionFault {
    let entries = map.entries();
    let hint = near(field, entries.iter().map(|(key, _)| &**key));
    let message = match path(base) {
        Some(base) => format!("`{base}.{field}` does not exist{hint}"),
        None => format!("the map has no `{field}`{hint}"),
    };
    ExpressionFault::new(Kind::Undefined, message)
}

fn no_fields(base: &ExprNode, field: &str, value: &EvalValue<'_>) -> ExpressionFault {
    let hint = match value {
        EvalValue::List(_) if field == "length" => "; use the filter: `| length`",
        EvalValue::Text(_) if field == "length" => "; use the filter: `| length`",
        _ => "",
    };
    let message = format!("{} is {} and has no field `{field}`{hint}", describe(base, "the value"), value.kind());
    ExpressionFault::new(Kind::Undefined, message)
}
