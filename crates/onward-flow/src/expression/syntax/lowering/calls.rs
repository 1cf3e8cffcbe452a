//! Lowers calls of filters, tests and functions: finds them by name, and checks their arguments.

use minijinja::machinery::ast;

use super::{Lowering, is_loop};
use crate::expression::builtins::{self, Builtin, FILTERS, FUNCTIONS, Params, TESTS, find};
use crate::expression::syntax::{Arguments, ExprKind, ExprNode};
use crate::expression::value::EvalValue;
use crate::expression::{ExpressionErrorKind, ExpressionFault};

impl Lowering {
    pub(super) fn filter(&mut self, filter: &ast::Filter<'_>, offset: usize) -> Result<ExprKind, ExpressionFault> {
        let builtin = find("filter", filter.name, FILTERS, offset)?;
        let Some(operand) = &filter.expr else {
            return Err(ExpressionFault::at(ExpressionErrorKind::Syntax, "the filter has no value", offset));
        };
        let operand = self.guarded_node(operand, builtin.name == "default")?;
        let arguments = self.arguments(&filter.args, builtin, "filter", offset)?;
        self.check_inner_name(builtin, &arguments, offset)?;
        Ok(ExprKind::Filter(builtin, Box::new(operand), arguments))
    }

    pub(super) fn test(&mut self, test: &ast::Test<'_>, offset: usize) -> Result<ExprKind, ExpressionFault> {
        let builtin = find("test", test.name, TESTS, offset)?;
        let operand = self.guarded_node(&test.expr, matches!(builtin.name, "defined" | "undefined"))?;
        let arguments = self.arguments(&test.args, builtin, "test", offset)?;
        Ok(ExprKind::Test(builtin, Box::new(operand), arguments))
    }

    /// Lowers the value of `is defined` or `default(..)`, which need not exist.
    fn guarded_node(&mut self, operand: &ast::Expr<'_>, is_guarded: bool) -> Result<ExprNode, ExpressionFault> {
        match self.path(operand) {
            Some(path) if is_guarded => {
                self.guarded.insert(path);
                self.node(operand, false)
            }
            _ => self.node(operand, true),
        }
    }

    /// Checks the names of filters and tests that are arguments, as in `map("upper")` and `select("even")`.
    fn check_inner_name(&self, builtin: &Builtin, arguments: &Arguments, offset: usize) -> Result<(), ExpressionFault> {
        let (what, list, position) = match builtin.name {
            "map" => ("filter", FILTERS, 0),
            "select" | "reject" => ("test", TESTS, 0),
            "selectattr" | "rejectattr" => ("test", TESTS, 1),
            _ => return Ok(()),
        };
        match arguments.positional.get(position).map(|argument| &argument.kind) {
            Some(ExprKind::Constant(EvalValue::Text(name))) => find(what, name, list, offset).map(|_| ()),
            _ => Ok(()),
        }
    }

    pub(super) fn call(&mut self, call: &ast::Call<'_>, offset: usize) -> Result<ExprKind, ExpressionFault> {
        let undefined = |message: String| ExpressionFault::at(ExpressionErrorKind::Undefined, message, offset);
        match &call.expr {
            ast::Expr::Var(function) => {
                let builtin = find("function", function.id, FUNCTIONS, offset)?;
                Ok(ExprKind::Call(builtin, self.arguments(&call.args, builtin, "function", offset)?))
            }
            ast::Expr::GetAttr(method) if is_loop(&method.expr) && method.name == "cycle" && self.loops > 0 => {
                let builtin = &Builtin::ANY;
                let arguments = self.arguments(&call.args, builtin, "function", offset)?;
                match arguments.positional.is_empty() {
                    true => Err(undefined("`loop.cycle` has at least one value".to_owned())),
                    false => Ok(ExprKind::Cycle(arguments.positional)),
                }
            }
            ast::Expr::GetAttr(method) => {
                let known = FILTERS.iter().any(|filter| filter.is(method.name));
                let hint = if known { format!("; use the filter: `| {}`", method.name) } else { String::new() };
                Err(undefined(format!("values have no methods, and no `{}`{hint}", method.name)))
            }
            _ => Err(undefined("only functions can be called: `range` and `dict`".to_owned())),
        }
    }

    fn arguments(
        &mut self,
        given: &[ast::CallArg<'_>],
        builtin: &Builtin,
        what: &str,
        offset: usize,
    ) -> Result<Arguments, ExpressionFault> {
        let mut arguments = Arguments::default();
        for argument in given {
            match argument {
                ast::CallArg::Pos(value) => arguments.positional.push(self.node(value, true)?),
                ast::CallArg::Kwarg(name, value) => arguments.named.push(((*name).into(), self.node(value, true)?)),
                ast::CallArg::PosSplat(_) | ast::CallArg::KwargSplat(_) => {
                    return Err(ExpressionFault::at(
                        ExpressionErrorKind::Syntax,
                        "`*` and `**` in arguments do not exist",
                        offset,
                    ));
                }
            }
        }
        let named: Vec<&str> = arguments.named.iter().map(|(name, _)| &**name).collect();
        builtin.check(arguments.positional.len(), &named).map_err(|problem| {
            let message = format!("the {what} `{}` {problem}", builtin.name);
            ExpressionFault::at(ExpressionErrorKind::Type, message, offset)
        })?;
        Ok(arguments)
    }
}

impl Builtin {
    /// What takes any number of values.
    const ANY: Builtin =
        Builtin { name: "cycle", other_name: "", params: Params { rest: true, ..Params::NONE }, run: builtins::no_function };
}
