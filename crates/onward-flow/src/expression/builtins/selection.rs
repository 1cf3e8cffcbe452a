//! Filters that apply another filter or a test to each item: `map`, `select`, `reject`, `selectattr` and `rejectattr`.

use super::maps::{field_of, field_or_fault};
use super::{Builtin, FILTERS, Given, TESTS, find, type_fault};
use crate::expression::ExpressionFault;
use crate::expression::eval::{Eval, Outcome};
use crate::expression::value::{EvalValue, Text};

pub(super) fn map<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let (filter, attribute, default) = (given.text(0, "filter")?, given.take(1), given.take(2));
    let items = eval.items(&value)?;
    let mut out = Vec::with_capacity(items.len());
    match (filter, attribute) {
        (None, Some(attribute)) => {
            for item in &items {
                out.push(match (field_of(eval, item, &attribute)?, &default) {
                    (Some(found), _) => found,
                    (None, Some(default)) => default.clone(),
                    (None, None) => field_or_fault(eval, item, &attribute)?,
                });
            }
        }
        (Some(name), None) => {
            let filter = find("filter", &name, FILTERS, 0).map_err(ExpressionFault::without_offset)?;
            check_rest(filter, "filter", &given.rest)?;
            // Filters of filters would recurse as deeply as their arguments say.
            if matches!(filter.name, "map" | "select" | "reject" | "selectattr" | "rejectattr") {
                return Err(type_fault(format!("`map` does not take the filter `{}`", filter.name)));
            }
            for item in items {
                eval.spend(1)?;
                let given = filter.bind(given.rest.clone(), Vec::new());
                out.push((filter.run)(eval, item, given)?);
            }
        }
        _ => return Err(type_fault("`map` needs the name of a filter, or `attribute=`")),
    }
    eval.list(out)
}

pub(super) fn select<'s>(
    eval: &mut Eval<'s>,
    value: EvalValue<'s>,
    mut given: Given<'s>,
    wanted: bool,
) -> Outcome<EvalValue<'s>> {
    let test = test_of(given.text(0, "test")?, &given.rest)?;
    let mut out = Vec::new();
    for item in eval.items(&value)? {
        if passes(eval, test, Some(item.clone()), &given.rest)? == wanted {
            out.push(item);
        }
    }
    eval.list(out)
}

pub(super) fn select_attribute<'s>(
    eval: &mut Eval<'s>,
    value: EvalValue<'s>,
    mut given: Given<'s>,
    wanted: bool,
) -> Outcome<EvalValue<'s>> {
    let attribute = given.take(0).unwrap_or(EvalValue::Null);
    let test = test_of(given.text(1, "test")?, &given.rest)?;
    let mut out = Vec::new();
    for item in eval.items(&value)? {
        let field = field_of(eval, &item, &attribute)?;
        if passes(eval, test, field, &given.rest)? == wanted {
            out.push(item);
        }
    }
    eval.list(out)
}

/// Applies a test to a value, or checks whether the value counts as true.
fn passes<'s>(
    eval: &mut Eval<'s>,
    test: Option<&'static Builtin>,
    value: Option<EvalValue<'s>>,
    rest: &[EvalValue<'s>],
) -> Outcome<bool> {
    eval.spend(1)?;
    match (test, value) {
        (None, value) => Ok(value.is_some_and(|value| value.is_true())),
        (Some(test), value) if test.name == "defined" => Ok(value.is_some()),
        (Some(test), value) if test.name == "undefined" => Ok(value.is_none()),
        (Some(_), None) => Ok(false),
        (Some(test), Some(value)) => {
            let given = test.bind(rest.to_vec(), Vec::new());
            Ok((test.run)(eval, value, given)?.is_true())
        }
    }
}

fn test_of(name: Option<Text<'_>>, rest: &[EvalValue<'_>]) -> Outcome<Option<&'static Builtin>> {
    let Some(name) = name else { return Ok(None) };
    let test = find("test", &name, TESTS, 0).map_err(ExpressionFault::without_offset)?;
    check_rest(test, "test", rest)?;
    Ok(Some(test))
}

fn check_rest(builtin: &Builtin, what: &str, rest: &[EvalValue<'_>]) -> Outcome<()> {
    builtin.check(rest.len(), &[]).map_err(|problem| type_fault(format!("the {what} `{}` {problem}", builtin.name)))
}
