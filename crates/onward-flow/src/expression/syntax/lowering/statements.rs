//! Lowers the statements of templates.

use minijinja::machinery::ast;

use super::Lowering;
use crate::expression::syntax::Part;
use crate::expression::{ExpressionErrorKind, ExpressionFault};

impl Lowering {
    pub(in crate::expression::syntax) fn parts(&mut self, statements: &[ast::Stmt<'_>]) -> Result<Vec<Part>, ExpressionFault> {
        statements.iter().map(|statement| self.part(statement)).collect()
    }

    fn part(&mut self, statement: &ast::Stmt<'_>) -> Result<Part, ExpressionFault> {
        let (name, offset) = match statement {
            ast::Stmt::EmitRaw(raw) => return Ok(Part::Raw(raw.raw.into())),
            ast::Stmt::EmitExpr(emit) => return Ok(Part::Emit(self.node(&emit.expr, true)?)),
            ast::Stmt::IfCond(condition) => {
                return Ok(Part::If {
                    test: self.node(&condition.expr, true)?,
                    yes: self.parts(&condition.true_body)?,
                    no: self.parts(&condition.false_body)?,
                });
            }
            ast::Stmt::ForLoop(each) => return self.each(each, each.span().start_offset as usize),
            ast::Stmt::Set(set) => {
                let value = self.node(&set.expr, true)?;
                let names = targets(&set.target)?;
                self.bound.extend(names.iter().map(|name| name.to_string()));
                return Ok(Part::Set { names, value });
            }
            ast::Stmt::SetBlock(set) if set.filter.is_none() => {
                let body = self.parts(&set.body)?;
                let mut names = targets(&set.target)?;
                if names.len() == 1 {
                    let name = names.remove(0);
                    self.bound.push(name.to_string());
                    return Ok(Part::Capture { name, body });
                }
                ("set", set.span().start_offset)
            }
            ast::Stmt::SetBlock(set) => ("set with a filter", set.span().start_offset),
            ast::Stmt::WithBlock(with) => ("with", with.span().start_offset),
            ast::Stmt::AutoEscape(escape) => ("autoescape", escape.span().start_offset),
            ast::Stmt::FilterBlock(filter) => ("filter", filter.span().start_offset),
            ast::Stmt::Do(call) => ("do", call.span().start_offset),
            // Other crates may turn on features of minijinja that have more statements.
            #[allow(unreachable_patterns)]
            _ => ("this statement", 0),
        };
        let message = format!("`{{% {name} %}}` does not exist here; the statements are `if`, `for`, `set` and `raw`");
        Err(ExpressionFault::at(ExpressionErrorKind::Syntax, message, offset as usize))
    }

    fn each(&mut self, each: &ast::ForLoop<'_>, offset: usize) -> Result<Part, ExpressionFault> {
        if each.recursive {
            return Err(ExpressionFault::at(ExpressionErrorKind::Syntax, "a loop cannot be `recursive`", offset));
        }
        let items = self.node(&each.iter, true)?;
        let names = targets(&each.target)?;
        let bound_before = self.bound.len();
        self.bound.extend(names.iter().map(|name| name.to_string()));
        let filter = each.filter_expr.as_ref().map(|filter| self.node(filter, true)).transpose()?;
        self.loops += 1;
        let body = self.parts(&each.body);
        self.loops -= 1;
        let body = body?;
        self.bound.truncate(bound_before);
        let otherwise = self.parts(&each.else_body)?;
        Ok(Part::For { names, items, filter, body, otherwise })
    }
}

/// Returns the names that a `for` or `set` binds.
fn targets(target: &ast::Expr<'_>) -> Result<Vec<Box<str>>, ExpressionFault> {
    let refuse = || {
        let offset = target.span().start_offset as usize;
        ExpressionFault::at(ExpressionErrorKind::Syntax, "only names, and lists of names, can be set", offset)
    };
    let name = |expression: &ast::Expr<'_>| match expression {
        ast::Expr::Var(name) => Ok(name.id.into()),
        _ => Err(refuse()),
    };
    match target {
        ast::Expr::List(list) => list.items.iter().map(name).collect(),
        other => Ok(vec![name(other)?]),
    }
}
