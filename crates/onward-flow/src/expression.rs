//! Expressions and templates of flows: Jinja, strict about names, bounded and deterministic.
//!
//! Owns the language: which filters, functions and statements exist, how values become text, and how much an evaluation may cost.
//! Must never read a clock, draw random numbers or load other templates: a replay must compute the same values.
//!
//! minijinja reads the texts; the evaluation is here, because that of minijinja counts instructions but not memory: `x ~ x`, filters
//! and captured texts may grow without a limit.
//!
//! What differs from Jinja in Python:
//!
//! - Names and fields that do not exist are errors that name them, except below `is defined` and `default(..)`.
//! - A text that is exactly one `{{ expression }}` keeps the type of its value. In a longer text, texts are written as they are, and
//!   all other values as JSON: `true`, `1.0`, `null`, `["a"]`. The line break at the end of a text stays.
//! - Values are those of JSON. Integers have 64 bits; a result that does not fit is an error. Keys of maps are texts and sorted.
//! - Only values of one kind have an order, and `true` is not equal to `1`. `+` joins two texts, `~` joins any values as texts.
//! - `int` and `float` fail for a text that is no number, unless they have a default.
//! - The statements are `if`, `for`, `set` and `raw`. The functions are `range` and `dict`; values have no methods.

mod builtins;
mod eval;
mod operators;
mod syntax;
#[cfg(test)]
mod tests;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use eval::Eval;
use syntax::{ExprNode, Part};
use value::EvalValue;

use crate::suggest::distance;

/// A name with the fields that are read from it: `state.page` is `["state", "page"]`.
pub type NamePath = Vec<String>;

/// How large texts and values may be, and how much one evaluation may cost.
mod limits {
    /// Bytes of one expression.
    pub const EXPRESSION_BYTES: usize = 10_000;
    /// Bytes of one template.
    pub const TEMPLATE_BYTES: usize = 1 << 20;
    /// Bytes of one line of a template.
    pub const LINE_BYTES: usize = 65_000;
    /// Levels of brackets, and of statements.
    pub const NESTING: usize = 20;
    /// Operators in a row, filters and fields included: they recurse like brackets. Commas begin again.
    pub const OPERATORS: usize = 120;
    /// Operations of one evaluation: nodes, items and keys.
    pub const FUEL: usize = 100_000;
    /// Bytes of texts that one evaluation reads and writes.
    pub const WORK_BYTES: usize = 64 << 20;
    /// Bytes that cost a [`Budget`](super::Budget) as much as an operation if they are read, written or copied.
    pub const BYTES_OF_OPERATION: usize = 128;
    /// Values of a result that cost a budget as much as an operation.
    pub const VALUES_OF_OPERATION: usize = 4;
    /// Bytes of the output of a text with several parts.
    pub const OUTPUT_BYTES: usize = 1 << 20;
    /// Bytes of a value.
    pub const VALUE_BYTES: usize = 16 << 20;
    /// Levels of lists and maps that an expression makes.
    pub const DEPTH: usize = 64;
    /// Levels of lists and maps of a result. What is stored must be read again, and parsers of JSON stop at 128 levels.
    pub const JSON_DEPTH: usize = 100;
    /// Numbers of `range`.
    pub const RANGE: usize = 10_000;
}

/// An expression, compiled once and evaluated with different names.
#[derive(Debug, Clone)]
pub struct Expression {
    source: Arc<str>,
    node: Arc<ExprNode>,
    /// Where the expression begins in the source.
    offset: usize,
    names: Arc<[NamePath]>,
}

impl Expression {
    /// Compiles a bare expression, or one in `{{ }}`.
    pub fn compile(source: &str) -> Result<Expression, ExpressionError> {
        let (inner, offset) = bare(source);
        let (node, names) = syntax::expression(inner).map_err(|fault| fault.into_error(source, offset))?;
        Ok(Expression { source: source.into(), node: Arc::new(node), offset, names: names.into() })
    }

    /// Returns the text that was compiled.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Computes the value.
    pub fn eval(&self, scope: &Scope) -> Result<Value, ExpressionError> {
        let mut eval = Eval::new(scope);
        let value = eval.eval(&self.node).and_then(|value| eval.json(&value));
        value.map_err(|fault| fault.into_error(&self.source, self.offset))
    }

    /// Computes the value and returns whether it counts as true: all but `false`, `null`, `0` and empty texts, lists and maps.
    pub fn is_true(&self, scope: &Scope) -> Result<bool, ExpressionError> {
        let value = Eval::new(scope).eval(&self.node).map(|value| value.is_true());
        value.map_err(|fault| fault.into_error(&self.source, self.offset))
    }

    /// Returns the names that the scope must have, without names that the expression binds itself, and without those that it tests
    /// with `is defined` or `default(..)`.
    pub fn names(&self) -> &[NamePath] {
        &self.names
    }
}

/// Removes `{{ }}` around an expression. Returns it with its offset.
fn bare(source: &str) -> (&str, usize) {
    let inner = source.trim();
    let inner = match inner.strip_prefix("{{").and_then(|inner| inner.strip_suffix("}}")) {
        Some(inner) => inner.strip_prefix('-').unwrap_or(inner),
        None => inner,
    };
    let inner = match source.trim_end().ends_with("-}}") {
        true => inner.strip_suffix('-').unwrap_or(inner),
        false => inner,
    };
    (inner, inner.as_ptr() as usize - source.as_ptr() as usize)
}

/// A value whose texts are templates, in lists and maps too. Keys of maps are not templates.
#[derive(Debug, Clone)]
pub struct Template {
    root: Arc<Shape>,
    names: Arc<[NamePath]>,
}

/// A value of JSON with compiled texts.
#[derive(Debug)]
enum Shape {
    Constant(Value),
    /// A text that is exactly one expression.
    Native {
        source: String,
        node: ExprNode,
    },
    Text {
        source: String,
        parts: Vec<Part>,
    },
    List(Vec<Shape>),
    Map(Vec<(String, Shape)>),
}

impl Template {
    /// Compiles all texts of a value.
    pub fn compile(value: &Value) -> Result<Template, ExpressionError> {
        let mut names = BTreeSet::new();
        let root = Shape::compile(value, &mut names, 0)?;
        Ok(Template { root: Arc::new(root), names: names.into_iter().collect() })
    }

    /// Compiles a text.
    pub fn of_text(source: &str) -> Result<Template, ExpressionError> {
        let mut names = BTreeSet::new();
        let root = Shape::of_text(source, &mut names)?;
        Ok(Template { root: Arc::new(root), names: names.into_iter().collect() })
    }

    /// Renders the value. A text that is exactly one `{{ expression }}` becomes the value of the expression.
    pub fn render(&self, scope: &Scope) -> Result<Value, ExpressionError> {
        let mut rest = limits::VALUE_BYTES;
        self.root.render(&mut Eval::new(scope), &mut rest, 0)
    }

    /// Renders the value as a text: texts as they are, all other values as JSON.
    pub fn text(&self, scope: &Scope) -> Result<String, ExpressionError> {
        match self.render(scope)? {
            Value::String(text) => Ok(text),
            other => Ok(other.to_string()),
        }
    }

    /// Returns the names that the scope must have, without names that the template binds itself, and without those that it tests
    /// with `is defined` or `default(..)`.
    pub fn names(&self) -> &[NamePath] {
        &self.names
    }

    /// Returns whether the value has no expressions and always renders to itself.
    pub fn is_constant(&self) -> bool {
        matches!(*self.root, Shape::Constant(_))
    }
}

impl Shape {
    fn compile(value: &Value, names: &mut BTreeSet<NamePath>, depth: usize) -> Result<Shape, ExpressionError> {
        if depth > limits::JSON_DEPTH {
            let message = format!("the value has more than {} levels", limits::JSON_DEPTH);
            return Err(ExpressionFault::new(ExpressionErrorKind::TooLarge, message).into_error("", 0));
        }
        match value {
            Value::String(text) => Shape::of_text(text, names),
            Value::Array(items) => {
                let shapes = items.iter().map(|item| Shape::compile(item, names, depth + 1)).collect::<Result<Vec<_>, _>>()?;
                let is_constant = shapes.iter().all(|shape| matches!(shape, Shape::Constant(_)));
                Ok(if is_constant { Shape::Constant(value.clone()) } else { Shape::List(shapes) })
            }
            Value::Object(fields) => {
                let mut shapes = Vec::with_capacity(fields.len());
                for (key, value) in fields {
                    shapes.push((key.clone(), Shape::compile(value, names, depth + 1)?));
                }
                shapes.sort_by(|left, right| left.0.cmp(&right.0));
                let is_constant = shapes.iter().all(|(_, shape)| matches!(shape, Shape::Constant(_)));
                Ok(if is_constant { Shape::Constant(value.clone()) } else { Shape::Map(shapes) })
            }
            other => Ok(Shape::Constant(other.clone())),
        }
    }

    fn of_text(text: &str, names: &mut BTreeSet<NamePath>) -> Result<Shape, ExpressionError> {
        if !["{{", "{%", "{#"].iter().any(|start| text.contains(start)) {
            return Ok(Shape::Constant(Value::String(text.to_owned())));
        }
        let (mut parts, found) = syntax::template(text).map_err(|fault| fault.into_error(text, 0))?;
        names.extend(found);
        let source = text.to_owned();
        // A block of YAML ends with a line break.
        let is_native = match parts.as_slice() {
            [Part::Emit(_)] => true,
            [Part::Emit(_), Part::Raw(end)] => matches!(&**end, "\n" | "\r\n"),
            _ => false,
        };
        if is_native && let Part::Emit(node) = parts.swap_remove(0) {
            return Ok(Shape::Native { source, node });
        }
        Ok(Shape::Text { source, parts })
    }

    fn render<'s>(&'s self, eval: &mut Eval<'s>, rest: &mut usize, depth: usize) -> Result<Value, ExpressionError> {
        match self {
            Shape::Constant(value) => {
                let value = EvalValue::of_json(value);
                eval.json_within(&value, rest, depth).map_err(|fault| fault.into_error("", 0))
            }
            Shape::Native { source, node } => {
                let value = eval.eval(node).and_then(|value| eval.json_within(&value, rest, depth));
                value.map_err(|fault| fault.into_error(source, 0))
            }
            Shape::Text { source, parts } => {
                let mut text = String::new();
                eval.render(parts, &mut text).map_err(|fault| fault.into_error(source, 0))?;
                eval.forget_names();
                let too_large =
                    || ExpressionFault::new(ExpressionErrorKind::TooLarge, "the value is too large").into_error(source, 0);
                *rest = rest.checked_sub(text.len() + 8).ok_or_else(too_large)?;
                Ok(Value::String(text))
            }
            Shape::List(shapes) => {
                shapes.iter().map(|shape| shape.render(eval, rest, depth + 1)).collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
            Shape::Map(shapes) => {
                let mut fields = serde_json::Map::new();
                for (key, shape) in shapes {
                    fields.insert(key.clone(), shape.render(eval, rest, depth + 1)?);
                }
                Ok(Value::Object(fields))
            }
        }
    }
}

/// The names that an expression can read. A copy is cheap.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    names: BTreeMap<Arc<str>, Arc<Value>>,
    budget: Option<Arc<Budget>>,
}

impl Scope {
    pub fn new() -> Scope {
        Scope::default()
    }

    /// Adds a name, or replaces its value.
    #[must_use]
    pub fn with(self, name: &str, value: &Value) -> Scope {
        self.share(name, Arc::new(value.clone()))
    }

    /// Adds a name, or replaces its value, without a copy of the value.
    #[must_use]
    pub fn share(mut self, name: &str, value: Arc<Value>) -> Scope {
        self.names.insert(name.into(), value);
        self
    }

    /// Makes the evaluations with these names spend from a budget.
    #[must_use]
    pub fn within(mut self, budget: Arc<Budget>) -> Scope {
        self.budget = Some(budget);
        self
    }
}

/// The operations that several evaluations may take together. What they read and write counts too.
#[derive(Debug)]
pub struct Budget {
    operations: usize,
    spent: AtomicUsize,
}

impl Budget {
    pub fn new(operations: usize) -> Budget {
        Budget { operations, spent: AtomicUsize::new(0) }
    }

    /// Returns the operations that are spent.
    pub fn spent(&self) -> usize {
        self.spent.load(Ordering::Relaxed)
    }

    /// Returns whether more was needed than the budget has.
    pub fn is_exceeded(&self) -> bool {
        self.spent() > self.operations
    }

    /// Returns whether more than half of the budget is spent.
    pub fn is_half_spent(&self) -> bool {
        self.spent() > self.operations / 2
    }

    /// Spends operations, even more than the budget has.
    pub fn spend(&self, operations: usize) {
        self.spent.store(self.spent().saturating_add(operations), Ordering::Relaxed);
    }

    /// Spends what the copy of a value with so many bytes of JSON costs.
    pub fn spend_copy(&self, bytes: usize) {
        self.spend(bytes / limits::BYTES_OF_OPERATION);
    }

    /// Begins with the full budget again.
    pub fn renew(&self) {
        self.spent.store(0, Ordering::Relaxed);
    }

    /// Returns the operations that an evaluation may take.
    fn grant(&self) -> usize {
        self.operations.saturating_sub(self.spent()).min(limits::FUEL)
    }

    /// Notes that an evaluation has needed more than was left.
    fn exceed(&self) {
        self.spend(self.operations.saturating_add(1).saturating_sub(self.spent()));
    }
}

/// Why an expression could not be compiled or evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionError {
    /// The text of the expression or template.
    pub source: String,
    pub message: String,
    /// The byte offset in the text.
    pub offset: Option<usize>,
    pub kind: ExpressionErrorKind,
}

impl ExpressionError {
    /// Returns the line of the text, from 1, if the text has several lines.
    pub fn line(&self) -> Option<usize> {
        let before = self.source.get(..self.offset?)?;
        self.source.trim_end().contains('\n').then(|| before.matches('\n').count() + 1)
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        let at = self.offset.and_then(|offset| self.source.get(offset..)).unwrap_or(&self.source);
        let at = at.lines().next().unwrap_or("").trim();
        match (at.chars().nth(60), at) {
            (_, "") => {}
            (None, at) => write!(f, ", at `{at}`")?,
            (Some(_), at) => write!(f, ", at `{}..`", at.chars().take(58).collect::<String>())?,
        }
        match self.line() {
            Some(line) => write!(f, " in line {line} of the text"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ExpressionError {}

/// The kinds of errors of expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpressionErrorKind {
    /// The text does not follow the syntax.
    Syntax,
    /// A name, field, filter, test or function does not exist.
    Undefined,
    /// The operation does not exist for such values.
    Type,
    /// The evaluation takes too many operations.
    OutOfFuel,
    /// A text or value is too large, or too deep.
    TooLarge,
}

/// An error on its way to the place that knows the text.
#[derive(Debug)]
struct ExpressionFault {
    kind: ExpressionErrorKind,
    message: String,
    offset: Option<usize>,
}

impl ExpressionFault {
    fn new(kind: ExpressionErrorKind, message: impl Into<String>) -> ExpressionFault {
        ExpressionFault { kind, message: message.into(), offset: None }
    }

    fn at(kind: ExpressionErrorKind, message: impl Into<String>, offset: usize) -> ExpressionFault {
        ExpressionFault { kind, message: message.into(), offset: Some(offset) }
    }

    /// Adds an offset if there is none yet: the innermost place counts.
    fn or_at(mut self, offset: usize) -> ExpressionFault {
        self.offset.get_or_insert(offset);
        self
    }

    fn without_offset(mut self) -> ExpressionFault {
        self.offset = None;
        self
    }

    fn into_error(self, source: &str, base: usize) -> ExpressionError {
        let offset = self.offset.map(|offset| {
            let mut offset = (base + offset).min(source.len());
            while !source.is_char_boundary(offset) {
                offset -= 1;
            }
            offset
        });
        ExpressionError { source: source.to_owned(), message: self.message, offset, kind: self.kind }
    }
}

/// Returns a hint with the name that is nearest to the wanted one: `; did you mean ..?`, or the few names that exist.
fn near<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.take(1000).collect();
    let length = wanted.chars().count();
    let most = (length / 3).clamp(1, 3).min(length.saturating_sub(1));
    let nearest = names.iter().map(|name| (distance(wanted, name), *name)).min();
    match nearest {
        Some((distance, name)) if distance <= most => format!("; did you mean `{name}`?"),
        Some(_) if names.len() <= 6 => {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("; there is {}", names.join(", "))
        }
        _ => String::new(),
    }
}
