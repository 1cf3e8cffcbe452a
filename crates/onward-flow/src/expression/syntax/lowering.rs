//! Lowers the expressions that minijinja has read to nodes, and collects the names that they read.

mod calls;
mod statements;

use std::collections::BTreeSet;

use minijinja::machinery::ast;

use super::{Comparison, ExprKind, ExprNode, LoopField, Operator};
use crate::expression::value::{EvalValue, Number, Text};
use crate::expression::{ExpressionErrorKind, ExpressionFault, NamePath, near};

const LOOP_FIELDS: [(&str, LoopField); 7] = [
    ("index", LoopField::Index),
    ("index0", LoopField::Index0),
    ("revindex", LoopField::ReverseIndex),
    ("revindex0", LoopField::ReverseIndex0),
    ("first", LoopField::First),
    ("last", LoopField::Last),
    ("length", LoopField::Length),
];

/// Turns what minijinja has read into nodes, and collects the names.
#[derive(Default)]
pub(super) struct Lowering {
    names: BTreeSet<NamePath>,
    /// Names that the text tests before it reads them.
    guarded: BTreeSet<NamePath>,
    /// Names that the text binds itself.
    bound: Vec<String>,
    loops: usize,
}

impl Lowering {
    pub(super) fn into_names(self) -> Vec<NamePath> {
        let guarded = self.guarded;
        self.names.into_iter().filter(|name| !guarded.iter().any(|guard| name.starts_with(guard))).collect()
    }

    /// Lowers an expression. `record` is false below a chain of fields that is recorded as a whole.
    pub(super) fn node(&mut self, expression: &ast::Expr<'_>, record: bool) -> Result<ExprNode, ExpressionFault> {
        let mut offset = expression.span().start_offset as usize;
        if let (true, Some(path)) = (record, self.path(expression)) {
            self.names.insert(path);
            return self.node(expression, false);
        }
        // One function for each form: the frames of this recursion are small.
        let kind = match expression {
            ast::Expr::Const(constant) => ExprKind::Constant(constant_of(constant, offset)?),
            ast::Expr::Var(name) if name.id == "loop" => {
                let message = "`loop` exists in a `for` only, with `index`, `index0`, `first`, `last`, `length`, `cycle(..)`";
                return Err(ExpressionFault::at(ExpressionErrorKind::Undefined, message, offset));
            }
            ast::Expr::Var(name) => ExprKind::Name(name.id.into()),
            ast::Expr::GetAttr(field) => self.field(field, record, offset)?,
            ast::Expr::GetItem(item) => self.item(item, record)?,
            ast::Expr::Slice(slice) => self.slice(slice)?,
            ast::Expr::UnaryOp(operation) => self.unary(operation)?,
            ast::Expr::BinOp(operation) => self.binary(operation)?,
            ast::Expr::Compare(compare) => self.comparisons(compare)?,
            ast::Expr::IfExpr(choice) => self.choice(choice)?,
            ast::Expr::Filter(filter) => self.filter(filter, offset)?,
            ast::Expr::Test(test) => self.test(test, offset)?,
            ast::Expr::Call(call) => {
                offset = call.expr.span().start_offset as usize;
                self.call(call, offset)?
            }
            ast::Expr::List(list) => ExprKind::List(self.nodes(&list.items)?),
            ast::Expr::Tuple(tuple) => ExprKind::List(self.nodes(&tuple.items)?),
            ast::Expr::Map(map) => self.map(map)?,
        };
        Ok(ExprNode { kind, offset })
    }

    fn boxed(&mut self, expression: &ast::Expr<'_>) -> Result<Box<ExprNode>, ExpressionFault> {
        self.node(expression, true).map(Box::new)
    }

    fn field(&mut self, field: &ast::GetAttr<'_>, record: bool, offset: usize) -> Result<ExprKind, ExpressionFault> {
        if is_loop(&field.expr) && self.loops > 0 {
            return loop_field(field.name, offset).map(ExprKind::Loop);
        }
        let base = self.node(&field.expr, record)?;
        Ok(ExprKind::Field(Box::new(base), field.name.into()))
    }

    fn item(&mut self, item: &ast::GetItem<'_>, record: bool) -> Result<ExprKind, ExpressionFault> {
        let base = self.node(&item.expr, record)?;
        Ok(ExprKind::Index(Box::new(base), self.boxed(&item.subscript_expr)?))
    }

    fn slice(&mut self, slice: &ast::Slice<'_>) -> Result<ExprKind, ExpressionFault> {
        let base = self.boxed(&slice.expr)?;
        let mut bounds = [None, None, None];
        for (bound, given) in bounds.iter_mut().zip([&slice.start, &slice.stop, &slice.step]) {
            *bound = given.as_ref().map(|given| self.node(given, true)).transpose()?;
        }
        Ok(ExprKind::Slice(base, Box::new(bounds)))
    }

    fn unary(&mut self, operation: &ast::UnaryOp<'_>) -> Result<ExprKind, ExpressionFault> {
        let operand = self.boxed(&operation.expr)?;
        Ok(match operation.op {
            ast::UnaryOpKind::Not => ExprKind::Not(operand),
            ast::UnaryOpKind::Neg => ExprKind::Negative(operand),
        })
    }

    fn comparisons(&mut self, compare: &ast::Compare<'_>) -> Result<ExprKind, ExpressionFault> {
        let first = self.boxed(&compare.expr)?;
        let mut others = Vec::with_capacity(compare.ops.len());
        for other in &compare.ops {
            others.push((comparison(other.op), self.node(&other.expr, true)?));
        }
        Ok(ExprKind::Compare(first, others))
    }

    fn choice(&mut self, choice: &ast::IfExpr<'_>) -> Result<ExprKind, ExpressionFault> {
        let both = [self.node(&choice.test_expr, true)?, self.node(&choice.true_expr, true)?];
        let no = choice.false_expr.as_ref().map(|no| self.boxed(no)).transpose()?;
        Ok(ExprKind::If(Box::new(both), no))
    }

    fn map(&mut self, map: &ast::Map<'_>) -> Result<ExprKind, ExpressionFault> {
        let mut entries = Vec::with_capacity(map.keys.len());
        for (key, value) in map.keys.iter().zip(&map.values) {
            entries.push((self.node(key, true)?, self.node(value, true)?));
        }
        Ok(ExprKind::Map(entries))
    }

    fn nodes(&mut self, expressions: &[ast::Expr<'_>]) -> Result<Vec<ExprNode>, ExpressionFault> {
        expressions.iter().map(|expression| self.node(expression, true)).collect()
    }

    /// Returns the path of a name with fields, unless the text binds the name itself.
    fn path(&self, expression: &ast::Expr<'_>) -> Option<NamePath> {
        match expression {
            ast::Expr::Var(name) => {
                let is_free = name.id != "loop" && !self.bound.iter().any(|bound| bound == name.id);
                is_free.then(|| vec![name.id.to_owned()])
            }
            ast::Expr::GetAttr(field) => {
                let mut path = self.path(&field.expr)?;
                path.push(field.name.to_owned());
                Some(path)
            }
            ast::Expr::GetItem(item) => {
                let ast::Expr::Const(key) = &item.subscript_expr else { return None };
                let key = key.value.as_str()?.to_owned();
                let mut path = self.path(&item.expr)?;
                path.push(key);
                Some(path)
            }
            _ => None,
        }
    }

    fn binary(&mut self, operation: &ast::BinOp<'_>) -> Result<ExprKind, ExpressionFault> {
        let (left, right) = (self.boxed(&operation.left)?, self.boxed(&operation.right)?);
        let compare = |comparison, left, right: Box<ExprNode>| ExprKind::Compare(left, vec![(comparison, *right)]);
        let operator = match operation.op {
            ast::BinOpKind::ScAnd => return Ok(ExprKind::And(left, right)),
            ast::BinOpKind::ScOr => return Ok(ExprKind::Or(left, right)),
            ast::BinOpKind::Eq => return Ok(compare(Comparison::Equal, left, right)),
            ast::BinOpKind::Ne => return Ok(compare(Comparison::NotEqual, left, right)),
            ast::BinOpKind::Lt => return Ok(compare(Comparison::Less, left, right)),
            ast::BinOpKind::Lte => return Ok(compare(Comparison::LessOrEqual, left, right)),
            ast::BinOpKind::Gt => return Ok(compare(Comparison::Greater, left, right)),
            ast::BinOpKind::Gte => return Ok(compare(Comparison::GreaterOrEqual, left, right)),
            ast::BinOpKind::In => return Ok(compare(Comparison::In, left, right)),
            ast::BinOpKind::Add => Operator::Add,
            ast::BinOpKind::Sub => Operator::Subtract,
            ast::BinOpKind::Mul => Operator::Multiply,
            ast::BinOpKind::Div => Operator::Divide,
            ast::BinOpKind::FloorDiv => Operator::DivideWhole,
            ast::BinOpKind::Rem => Operator::Remainder,
            ast::BinOpKind::Pow => Operator::Power,
            ast::BinOpKind::Concat => Operator::Concat,
        };
        Ok(ExprKind::Binary(operator, left, right))
    }
}

/// Reads a constant, whose numbers must fit into JSON.
fn constant_of(constant: &ast::Const, offset: usize) -> Result<EvalValue<'static>, ExpressionFault> {
    let value = &constant.value;
    if value.is_none() {
        Ok(EvalValue::Null)
    } else if let Some(text) = value.as_str() {
        Ok(EvalValue::Text(Text::Shared(text.into())))
    } else if let Ok(bool) = bool::try_from(value.clone())
        && value.kind() == minijinja::value::ValueKind::Bool
    {
        Ok(EvalValue::Bool(bool))
    } else {
        let number = match value.is_integer() {
            true => i128::try_from(value.clone()).ok().and_then(Number::of_int),
            false => f64::try_from(value.clone()).ok().and_then(Number::of_float),
        };
        let too_large = || ExpressionFault::at(ExpressionErrorKind::TooLarge, "the number does not fit into 64 bits", offset);
        number.map(EvalValue::Number).ok_or_else(too_large)
    }
}

fn is_loop(expression: &ast::Expr<'_>) -> bool {
    matches!(expression, ast::Expr::Var(name) if name.id == "loop")
}

fn loop_field(name: &str, offset: usize) -> Result<LoopField, ExpressionFault> {
    LOOP_FIELDS.iter().find(|(field, _)| *field == name).map(|(_, field)| *field).ok_or_else(|| {
        let message = format!("`loop.{name}` does not exist{}", near(name, LOOP_FIELDS.iter().map(|(field, _)| *field)));
        ExpressionFault::at(ExpressionErrorKind::Undefined, message, offset)
    })
}

fn comparison(op: ast::CompareOpKind) -> Comparison {
    match op {
        ast::CompareOpKind::Eq => Comparison::Equal,
        ast::CompareOpKind::Ne => Comparison::NotEqual,
        ast::CompareOpKind::Lt => Comparison::Less,
        ast::CompareOpKind::Lte => Comparison::LessOrEqual,
        ast::CompareOpKind::Gt => Comparison::Greater,
        ast::CompareOpKind::Gte => Comparison::GreaterOrEqual,
        ast::CompareOpKind::In => Comparison::In,
        ast::CompareOpKind::NotIn => Comparison::NotIn,
    }
}
