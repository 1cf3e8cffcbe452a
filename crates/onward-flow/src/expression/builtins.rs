//! The filters, tests and functions of expressions. Each is deterministic, and checks the size of its result before it makes it.
//!
//! Owns the tables of names and parameters, and how arguments are bound; the functions are in the modules below, by the kind of value.

mod lists;
mod maps;
mod numbers;
mod selection;
mod sorting;
mod texts;

use std::cmp::Ordering;
use std::fmt;

use super::eval::{Eval, Outcome};
use super::syntax::Comparison;
use super::value::{EvalValue, Number, Text};
use super::{ExpressionErrorKind as Kind, ExpressionFault, near};

type BuiltinFn = for<'e, 's> fn(&'e mut Eval<'s>, EvalValue<'s>, Given<'s>) -> Outcome<EvalValue<'s>>;

/// A filter, test or function.
pub(super) struct Builtin {
    pub name: &'static str,
    pub other_name: &'static str,
    pub params: Params,
    pub run: BuiltinFn,
}

/// What a filter, test or function takes beside its value.
#[derive(Clone, Copy)]
pub(super) struct Params {
    pub names: &'static [&'static str],
    /// How many of `names` must be given.
    pub required: usize,
    /// Names that are only given by name; they follow `names` in [`Given::values`].
    pub by_name: &'static [&'static str],
    /// Whether more values are allowed.
    pub rest: bool,
}

/// The arguments of one call.
pub(super) struct Given<'s> {
    values: Vec<Option<EvalValue<'s>>>,
    rest: Vec<EvalValue<'s>>,
    others: Vec<(String, EvalValue<'s>)>,
}

impl Params {
    pub const NONE: Params = Params { names: &[], required: 0, by_name: &[], rest: false };

    const fn of(required: usize, names: &'static [&'static str]) -> Params {
        Params { names, required, by_name: &[], rest: false }
    }
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Builtin {
    pub fn is(&self, name: &str) -> bool {
        self.name == name || (!self.other_name.is_empty() && self.other_name == name)
    }

    /// Returns whether `default(..)` and `is defined` apply to the result, as for the first item of an empty list.
    pub fn may_be_undefined(&self) -> bool {
        matches!(self.name, "first" | "last" | "min" | "max" | "attr")
    }

    /// Checks the number and the names of arguments.
    pub fn check(&self, positional: usize, named: &[&str]) -> Result<(), String> {
        let params = &self.params;
        if positional > params.names.len() && !params.rest {
            return Err(format!("takes {} arguments at most, not {positional}", params.names.len()));
        }
        let is_open = self.name == "dict";
        for name in named {
            let known = params.names.iter().chain(params.by_name).copied();
            if !is_open && !known.clone().any(|param| param == *name) {
                return Err(format!("has no argument `{name}`{}", near(name, known)));
            }
            if params.names.iter().take(positional).any(|param| param == name) {
                return Err(format!("has two values for `{name}`"));
            }
        }
        match params.names.iter().take(params.required).skip(positional).find(|param| !named.contains(param)) {
            Some(missing) => Err(format!("needs the argument `{missing}`")),
            None => Ok(()),
        }
    }

    /// Sorts arguments, which have been checked, by parameters.
    pub fn bind<'s>(&self, positional: Vec<EvalValue<'s>>, named: Vec<(&str, EvalValue<'s>)>) -> Given<'s> {
        let params = &self.params;
        let mut given =
            Given { values: vec![None; params.names.len() + params.by_name.len()], rest: Vec::new(), others: Vec::new() };
        for (index, value) in positional.into_iter().enumerate() {
            match given.values.get_mut(index).filter(|_| index < params.names.len()) {
                Some(place) => *place = Some(value),
                None => given.rest.push(value),
            }
        }
        for (name, value) in named {
            match params.names.iter().chain(params.by_name).position(|param| *param == name) {
                Some(index) => given.values[index] = Some(value),
                None => given.others.push((name.to_owned(), value)),
            }
        }
        given
    }
}

impl<'s> Given<'s> {
    pub fn take(&mut self, index: usize) -> Option<EvalValue<'s>> {
        self.values.get_mut(index).and_then(Option::take)
    }

    fn text(&mut self, index: usize, name: &str) -> Outcome<Option<Text<'s>>> {
        match self.take(index) {
            None | Some(EvalValue::Null) => Ok(None),
            Some(EvalValue::Text(text)) => Ok(Some(text)),
            Some(other) => Err(type_fault(format!("`{name}` is a text, not {}", other.kind()))),
        }
    }

    fn count(&mut self, index: usize, name: &str) -> Outcome<Option<usize>> {
        match self.take(index) {
            None | Some(EvalValue::Null) => Ok(None),
            Some(EvalValue::Number(Number::Int(int))) if int >= 0 => Ok(Some(usize::try_from(int).unwrap_or(usize::MAX))),
            Some(other) => Err(type_fault(format!("`{name}` is a whole number from 0, not {}", shown(&other)))),
        }
    }

    fn flag(&mut self, index: usize) -> bool {
        self.take(index).is_some_and(|value| value.is_true())
    }
}

macro_rules! builtins {
    ($list:ident: $($name:literal $(| $other:literal)? ($params:expr) => $run:expr;)*) => {
        pub(super) static $list: &[Builtin] = &[$(
            Builtin { name: $name, other_name: concat!($($other)?), params: $params, run: $run },
        )*];
    };
}

const NO: Params = Params::NONE;
const MAP: Params = Params { names: &["filter"], required: 0, by_name: &["attribute", "default"], rest: true };
const SELECT: Params = Params { names: &["test"], required: 0, by_name: &[], rest: true };
const SELECT_ATTRIBUTE: Params = Params { names: &["attribute", "test"], required: 1, by_name: &[], rest: true };
const BY: Params = Params::of(0, &["attribute"]);

builtins! { FILTERS:
    "abs" (NO) => numbers::absolute;
    "attr" (Params::of(1, &["name"])) => maps::attribute;
    "batch" (Params::of(1, &["linecount", "fill_with"])) => lists::batch;
    "bool" (NO) => |_, value, _| Ok(EvalValue::Bool(value.is_true()));
    "capitalize" (NO) => texts::capitalize;
    "default" | "d" (Params::of(0, &["default_value", "boolean"])) => |_, value, _| Ok(value);
    "dictsort" (Params::of(0, &["case_sensitive", "by", "reverse"])) => maps::dictsort;
    "first" (NO) => lists::first;
    "float" (Params::of(0, &["default"])) => numbers::float;
    "fromjson" (NO) => texts::from_json;
    "groupby" (Params::of(1, &["attribute", "default"])) => sorting::group_by;
    "indent" (Params::of(0, &["width", "first", "blank"])) => texts::indent;
    "int" (Params::of(0, &["default"])) => numbers::int;
    "items" (NO) => maps::items;
    "join" (Params::of(0, &["d", "attribute"])) => lists::join;
    "keys" (NO) => maps::keys;
    "last" (NO) => lists::last;
    "length" | "count" (NO) => lists::length;
    "lines" (NO) => texts::lines;
    "list" (NO) => lists::list;
    "lower" (NO) => texts::lower;
    "map" (MAP) => selection::map;
    "max" (BY) => |eval, value, given| sorting::least(eval, value, given, Ordering::Greater);
    "min" (BY) => |eval, value, given| sorting::least(eval, value, given, Ordering::Less);
    "reject" (SELECT) => |eval, value, given| selection::select(eval, value, given, false);
    "rejectattr" (SELECT_ATTRIBUTE) => |eval, value, given| selection::select_attribute(eval, value, given, false);
    "replace" (Params::of(2, &["old", "new", "count"])) => texts::replace;
    "reverse" (NO) => lists::reverse;
    "round" (Params::of(0, &["precision", "method"])) => numbers::round;
    "select" (SELECT) => |eval, value, given| selection::select(eval, value, given, true);
    "selectattr" (SELECT_ATTRIBUTE) => |eval, value, given| selection::select_attribute(eval, value, given, true);
    "slice" (Params::of(1, &["slices", "fill_with"])) => lists::slice;
    "sort" (Params::of(0, &["reverse", "case_sensitive", "attribute"])) => sorting::sort;
    "split" (Params::of(0, &["sep", "maxsplit"])) => texts::split;
    "string" (NO) => |eval, value, _| eval.as_text(&value).map(EvalValue::Text);
    "sum" (Params::of(0, &["attribute", "start"])) => lists::sum;
    "title" (NO) => texts::title;
    "tojson" (Params::of(0, &["indent"])) => texts::to_json;
    "trim" (Params::of(0, &["chars"])) => texts::trim;
    "truncate" (Params::of(0, &["length", "killwords", "end", "leeway"])) => texts::truncate;
    "unique" (Params::of(0, &["case_sensitive", "attribute"])) => sorting::unique;
    "upper" (NO) => texts::upper;
    "values" (NO) => maps::values;
    "wordcount" (NO) => texts::word_count;
}

const OTHER: Params = Params::of(1, &["other"]);

builtins! { TESTS:
    "boolean" (NO) => |_, value, _| Ok(EvalValue::Bool(matches!(value, EvalValue::Bool(_))));
    "defined" (NO) => |_, _, _| Ok(EvalValue::Bool(true));
    "undefined" (NO) => |_, _, _| Ok(EvalValue::Bool(false));
    "divisibleby" (OTHER) => numbers::divisible_by;
    "endingwith" (OTHER) => |eval, value, given| texts::affix(eval, value, given, |text, part| text.ends_with(part));
    "even" (NO) => |_, value, _| numbers::parity(&value, 0);
    "odd" (NO) => |_, value, _| numbers::parity(&value, 1);
    "eq" | "equalto" (OTHER) => |eval, value, given| compare(eval, value, given, Comparison::Equal);
    "==" (OTHER) => |eval, value, given| compare(eval, value, given, Comparison::Equal);
    "ne" | "!=" (OTHER) => |eval, value, given| compare(eval, value, given, Comparison::NotEqual);
    "lt" | "lessthan" (OTHER) => |eval, value, given| compare(eval, value, given, Comparison::Less);
    "<" (OTHER) => |eval, value, given| compare(eval, value, given, Comparison::Less);
    "le" | "<=" (OTHER) => |eval, value, given| compare(eval, value, given, Comparison::LessOrEqual);
    "gt" | "greaterthan" (OTHER) => |eval, value, given| compare(eval, value, given, Comparison::Greater);
    ">" (OTHER) => |eval, value, given| compare(eval, value, given, Comparison::Greater);
    "ge" | ">=" (OTHER) => |eval, value, given| compare(eval, value, given, Comparison::GreaterOrEqual);
    "in" (OTHER) => |eval, value, given| compare(eval, value, given, Comparison::In);
    "false" (NO) => |_, value, _| Ok(EvalValue::Bool(matches!(value, EvalValue::Bool(false))));
    "true" (NO) => |_, value, _| Ok(EvalValue::Bool(matches!(value, EvalValue::Bool(true))));
    "float" (NO) => |_, value, _| Ok(EvalValue::Bool(matches!(value, EvalValue::Number(Number::Float(_)))));
    "integer" | "int" (NO) => |_, value, _| Ok(EvalValue::Bool(matches!(value, EvalValue::Number(Number::Int(_)))));
    "iterable" (NO) => |_, value, _| Ok(EvalValue::Bool(matches!(value, EvalValue::List(_) | EvalValue::Map(_) | EvalValue::Text(_))));
    "lower" (NO) => |eval, value, _| texts::is_case(eval, &value, char::is_uppercase);
    "upper" (NO) => |eval, value, _| texts::is_case(eval, &value, char::is_lowercase);
    "mapping" (NO) => |_, value, _| Ok(EvalValue::Bool(matches!(value, EvalValue::Map(_))));
    "none" | "null" (NO) => |_, value, _| Ok(EvalValue::Bool(matches!(value, EvalValue::Null)));
    "number" (NO) => |_, value, _| Ok(EvalValue::Bool(matches!(value, EvalValue::Number(_))));
    "sequence" (NO) => |_, value, _| Ok(EvalValue::Bool(matches!(value, EvalValue::List(_))));
    "startingwith" (OTHER) => |eval, value, given| texts::affix(eval, value, given, |text, part| text.starts_with(part));
    "string" (NO) => |_, value, _| Ok(EvalValue::Bool(matches!(value, EvalValue::Text(_))));
}

builtins! { FUNCTIONS:
    "range" (Params::of(1, &["start", "stop", "step"])) => numbers::range;
    "dict" (NO) => maps::dict;
}

/// Stands for a function that is never called.
pub(super) fn no_function<'s>(_: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    Ok(value)
}

/// Finds a filter, test or function by name.
pub(super) fn find(what: &str, name: &str, list: &'static [Builtin], offset: usize) -> Result<&'static Builtin, ExpressionFault> {
    list.iter().find(|builtin| builtin.is(name)).ok_or_else(|| {
        let message = format!("the {what} `{name}` does not exist{}", near(name, list.iter().map(|builtin| builtin.name)));
        ExpressionFault::at(Kind::Undefined, message, offset)
    })
}

fn compare<'s>(
    eval: &mut Eval<'s>,
    value: EvalValue<'s>,
    mut given: Given<'s>,
    comparison: Comparison,
) -> Outcome<EvalValue<'s>> {
    let other = given.take(0).unwrap_or(EvalValue::Null);
    eval.compare(comparison, &value, &other).map(EvalValue::Bool)
}

pub(super) fn type_fault(message: impl Into<String>) -> ExpressionFault {
    ExpressionFault::new(Kind::Type, message)
}

fn shown(value: &EvalValue<'_>) -> String {
    match value {
        EvalValue::Number(number) => number.to_json().to_string(),
        other => other.kind().to_owned(),
    }
}
