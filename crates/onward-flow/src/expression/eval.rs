//! Computes nodes: every operation is counted, and every text and list is bounded before it is made.

mod access;
mod comparison;
mod conversion;
mod statements;

use std::sync::Arc;

use super::builtins::{Builtin, Given};
use super::operators::calculate;
use super::syntax::{Arguments, Comparison, ExprKind, ExprNode, LoopField, Operator};
use super::value::{EvalFields, EvalList, EvalMap, EvalValue, Made, Text};
use super::{ExpressionErrorKind as Kind, ExpressionFault, Scope, limits};

pub(super) type Outcome<T> = Result<T, ExpressionFault>;

/// One evaluation, with what it may still spend.
pub(super) struct Eval<'s> {
    scope: &'s Scope,
    /// Names that `for` and `set` have bound; the last one counts.
    locals: Vec<(&'s str, EvalValue<'s>)>,
    /// Where the names of the current iteration begin in `locals`.
    frame: usize,
    /// The index and length of the loops around.
    loops: Vec<(usize, usize)>,
    /// The operations that are granted, and those of them that are left.
    granted: usize,
    fuel: usize,
    bytes: usize,
    /// The values of results.
    values: usize,
}

impl Drop for Eval<'_> {
    /// Takes what was spent from the budget.
    fn drop(&mut self) {
        if let Some(budget) = &self.scope.budget {
            let bytes = limits::WORK_BYTES - self.bytes;
            let values = self.values / limits::VALUES_OF_OPERATION;
            budget.spend(self.granted - self.fuel + bytes / limits::BYTES_OF_OPERATION + values);
        }
    }
}

impl<'s> Eval<'s> {
    pub fn new(scope: &'s Scope) -> Eval<'s> {
        let granted = scope.budget.as_ref().map_or(limits::FUEL, |budget| budget.grant());
        let bytes = limits::WORK_BYTES;
        Eval { scope, locals: Vec::new(), frame: 0, loops: Vec::new(), granted, fuel: granted, bytes, values: 0 }
    }

    /// Spends operations.
    pub fn spend(&mut self, operations: usize) -> Outcome<()> {
        match self.fuel.checked_sub(operations) {
            Some(rest) => {
                self.fuel = rest;
                Ok(())
            }
            None => {
                if let Some(budget) = self.scope.budget.as_ref().filter(|_| self.granted < limits::FUEL) {
                    budget.exceed();
                }
                let message = format!("the evaluation takes more than {} operations", self.granted);
                Err(ExpressionFault::new(Kind::OutOfFuel, message))
            }
        }
    }

    /// Spends bytes of texts that are read or written.
    pub fn spend_bytes(&mut self, bytes: usize) -> Outcome<()> {
        match self.bytes.checked_sub(bytes) {
            Some(rest) => {
                self.bytes = rest;
                Ok(())
            }
            None => {
                let message = format!("the evaluation works on more than {} MiB", limits::WORK_BYTES >> 20);
                Err(ExpressionFault::new(Kind::OutOfFuel, message))
            }
        }
    }

    /// Checks the size of a text before it is made.
    pub fn check_text(&mut self, bytes: usize) -> Outcome<()> {
        if bytes > limits::VALUE_BYTES {
            return Err(ExpressionFault::new(Kind::TooLarge, format!("a text has more than {} MiB", limits::VALUE_BYTES >> 20)));
        }
        self.spend_bytes(bytes)
    }

    pub fn text(&mut self, text: &str) -> Outcome<EvalValue<'s>> {
        self.check_text(text.len())?;
        Ok(EvalValue::Text(Text::Shared(text.into())))
    }

    pub fn list(&mut self, items: Vec<EvalValue<'s>>) -> Outcome<EvalValue<'s>> {
        self.spend(items.len())?;
        let depth = made_depth(items.iter())?;
        Ok(EvalValue::List(EvalList::Made(Arc::new(Made { depth, content: items }))))
    }

    pub fn map(&mut self, fields: EvalFields<'s>) -> Outcome<EvalValue<'s>> {
        self.spend(fields.len())?;
        let depth = made_depth(fields.values())?;
        Ok(EvalValue::Map(EvalMap::Made(Arc::new(Made { depth, content: fields }))))
    }

    /// Computes a node.
    pub fn eval(&mut self, node: &'s ExprNode) -> Outcome<EvalValue<'s>> {
        self.spend(1).and_then(|()| self.eval_kind(node)).map_err(|fault| fault.or_at(node.offset))
    }

    fn eval_kind(&mut self, node: &'s ExprNode) -> Outcome<EvalValue<'s>> {
        match &node.kind {
            ExprKind::Constant(constant) => Ok(constant.clone()),
            ExprKind::Name(name) => self.name(name).ok_or_else(|| self.unknown_name(name)),
            ExprKind::Field(base, field) => self.eval_field(base, field),
            ExprKind::Index(base, key) => self.eval_index(base, key),
            ExprKind::Slice(base, bounds) => self.eval_slice(base, bounds),
            ExprKind::Not(operand) => Ok(EvalValue::Bool(!self.eval(operand)?.is_true())),
            ExprKind::Negative(operand) => self.eval_binary(Operator::Subtract, None, operand),
            ExprKind::And(left, right) => self.eval_logic(left, right, false),
            ExprKind::Or(left, right) => self.eval_logic(left, right, true),
            ExprKind::Binary(operator, left, right) => self.eval_binary(*operator, Some(left), right),
            ExprKind::Compare(first, others) => self.eval_compare(first, others),
            ExprKind::If(both, no) => self.eval_if(both, no.as_deref()),
            ExprKind::Filter(filter, operand, arguments) => self.eval_filter(filter, operand, arguments),
            ExprKind::Test(test, operand, arguments) => self.eval_test(test, operand, arguments),
            ExprKind::Call(function, arguments) => self.eval_call(function, arguments),
            ExprKind::Loop(field) => Ok(self.loop_field(*field)),
            ExprKind::Cycle(values) => {
                let index = self.loops.last().map_or(0, |(index, _)| *index);
                self.eval(&values[index % values.len()])
            }
            ExprKind::List(items) => self.eval_list(items),
            ExprKind::Map(entries) => self.eval_map(entries),
        }
    }

    #[inline(never)]
    fn eval_logic(&mut self, left: &'s ExprNode, right: &'s ExprNode, ends_if: bool) -> Outcome<EvalValue<'s>> {
        let left = self.eval(left)?;
        if left.is_true() == ends_if { Ok(left) } else { self.eval(right) }
    }

    #[inline(never)]
    fn eval_binary(&mut self, operator: Operator, left: Option<&'s ExprNode>, right: &'s ExprNode) -> Outcome<EvalValue<'s>> {
        let left = left.map_or(Ok(EvalValue::int(0)), |left| self.eval(left))?;
        let right = self.eval(right)?;
        calculate(self, operator, left, right)
    }

    #[inline(never)]
    fn eval_if(&mut self, both: &'s [ExprNode; 2], no: Option<&'s ExprNode>) -> Outcome<EvalValue<'s>> {
        let [test, yes] = both;
        if self.eval(test)?.is_true() {
            return self.eval(yes);
        }
        no.map_or(Ok(EvalValue::Text(Text::Borrowed(""))), |no| self.eval(no))
    }

    #[inline(never)]
    fn eval_call(&mut self, function: &'static Builtin, arguments: &'s Arguments) -> Outcome<EvalValue<'s>> {
        let given = self.arguments(function, arguments)?;
        (function.run)(self, EvalValue::Null, given)
    }

    #[inline(never)]
    fn eval_list(&mut self, items: &'s [ExprNode]) -> Outcome<EvalValue<'s>> {
        let items = items.iter().map(|item| self.eval(item)).collect::<Outcome<Vec<_>>>()?;
        self.list(items)
    }

    #[inline(never)]
    fn eval_compare(&mut self, first: &'s ExprNode, others: &'s [(Comparison, ExprNode)]) -> Outcome<EvalValue<'s>> {
        let mut left = self.eval(first)?;
        for (comparison, right) in others {
            let right = self.eval(right)?;
            if !self.compare(*comparison, &left, &right)? {
                return Ok(EvalValue::Bool(false));
            }
            left = right;
        }
        Ok(EvalValue::Bool(true))
    }

    #[inline(never)]
    fn eval_map(&mut self, entries: &'s [(ExprNode, ExprNode)]) -> Outcome<EvalValue<'s>> {
        let mut fields = EvalFields::new();
        for (key, value) in entries {
            match self.eval(key)? {
                EvalValue::Text(key) => fields.insert(key, self.eval(value)?),
                other => {
                    let message = format!("the keys of a map are texts, not {}", other.kind());
                    return Err(ExpressionFault::at(Kind::Type, message, key.offset));
                }
            };
        }
        self.map(fields)
    }

    #[inline(never)]
    fn eval_filter(
        &mut self,
        filter: &'static Builtin,
        operand: &'s ExprNode,
        arguments: &'s Arguments,
    ) -> Outcome<EvalValue<'s>> {
        if filter.name == "default" {
            let value = self.eval_if_defined(operand)?;
            let mut given = self.arguments(filter, arguments)?;
            let otherwise = given.take(0);
            let also_false = given.take(1).is_some_and(|flag| flag.is_true());
            return Ok(match value {
                Some(value) if value.is_true() || !also_false => value,
                _ => otherwise.unwrap_or(EvalValue::Text(Text::Borrowed(""))),
            });
        }
        let operand = self.eval(operand)?;
        let given = self.arguments(filter, arguments)?;
        (filter.run)(self, operand, given)
    }

    #[inline(never)]
    fn eval_test(&mut self, test: &'static Builtin, operand: &'s ExprNode, arguments: &'s Arguments) -> Outcome<EvalValue<'s>> {
        match test.name {
            "defined" => Ok(EvalValue::Bool(self.eval_if_defined(operand)?.is_some())),
            "undefined" => Ok(EvalValue::Bool(self.eval_if_defined(operand)?.is_none())),
            _ => {
                let operand = self.eval(operand)?;
                let given = self.arguments(test, arguments)?;
                (test.run)(self, operand, given)
            }
        }
    }

    fn arguments(&mut self, builtin: &'static Builtin, arguments: &'s Arguments) -> Outcome<Given<'s>> {
        let positional = arguments.positional.iter().map(|value| self.eval(value)).collect::<Outcome<Vec<_>>>()?;
        let mut named = Vec::with_capacity(arguments.named.len());
        for (name, value) in &arguments.named {
            named.push((&**name, self.eval(value)?));
        }
        Ok(builtin.bind(positional, named))
    }

    fn loop_field(&self, field: LoopField) -> EvalValue<'s> {
        let (index, length) = self.loops.last().copied().unwrap_or((0, 1));
        match field {
            LoopField::Index => EvalValue::int(index + 1),
            LoopField::Index0 => EvalValue::int(index),
            LoopField::ReverseIndex => EvalValue::int(length - index),
            LoopField::ReverseIndex0 => EvalValue::int(length - index - 1),
            LoopField::First => EvalValue::Bool(index == 0),
            LoopField::Last => EvalValue::Bool(index + 1 == length),
            LoopField::Length => EvalValue::int(length),
        }
    }
}

fn made_depth<'a, 's: 'a>(items: impl Iterator<Item = &'a EvalValue<'s>>) -> Outcome<usize> {
    let depth = items.map(EvalValue::depth).max().unwrap_or(0) + 1;
    if depth > limits::DEPTH {
        return Err(ExpressionFault::new(Kind::TooLarge, format!("the value has more than {} levels", limits::DEPTH)));
    }
    Ok(depth)
}
