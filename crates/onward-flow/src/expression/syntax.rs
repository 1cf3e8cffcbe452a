//! Turns the text of an expression or template into nodes.
//!
//! minijinja reads the text. Before it does, the tokens are counted: parsers, this one included, recurse for each level of nesting
//! and for each operator in a chain, and the stack of a thread is small.

mod lowering;

use minijinja::machinery::{Token, ast, parse, parse_expr, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::builtins::Builtin;
use super::value::EvalValue;
use super::{ExpressionErrorKind, ExpressionFault, NamePath, limits};
use lowering::Lowering;

/// An expression, at its byte offset in the text.
#[derive(Debug)]
pub(super) struct ExprNode {
    pub kind: ExprKind,
    pub offset: usize,
}

#[derive(Debug)]
pub(super) enum ExprKind {
    Constant(EvalValue<'static>),
    Name(Box<str>),
    Field(Box<ExprNode>, Box<str>),
    Index(Box<ExprNode>, Box<ExprNode>),
    Slice(Box<ExprNode>, Box<[Option<ExprNode>; 3]>),
    Not(Box<ExprNode>),
    Negative(Box<ExprNode>),
    And(Box<ExprNode>, Box<ExprNode>),
    Or(Box<ExprNode>, Box<ExprNode>),
    Binary(Operator, Box<ExprNode>, Box<ExprNode>),
    Compare(Box<ExprNode>, Vec<(Comparison, ExprNode)>),
    If(Box<[ExprNode; 2]>, Option<Box<ExprNode>>),
    Filter(&'static Builtin, Box<ExprNode>, Arguments),
    Test(&'static Builtin, Box<ExprNode>, Arguments),
    Call(&'static Builtin, Arguments),
    Loop(LoopField),
    Cycle(Vec<ExprNode>),
    List(Vec<ExprNode>),
    Map(Vec<(ExprNode, ExprNode)>),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    DivideWhole,
    Remainder,
    Power,
    Concat,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

/// What `loop` knows about the current iteration.
#[derive(Debug, Clone, Copy)]
pub(super) enum LoopField {
    Index,
    Index0,
    ReverseIndex,
    ReverseIndex0,
    First,
    Last,
    Length,
}

#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub positional: Vec<ExprNode>,
    pub named: Vec<(Box<str>, ExprNode)>,
}

/// A part of a template.
#[derive(Debug)]
pub(super) enum Part {
    Raw(Box<str>),
    Emit(ExprNode),
    If { test: ExprNode, yes: Vec<Part>, no: Vec<Part> },
    For { names: Vec<Box<str>>, items: ExprNode, filter: Option<ExprNode>, body: Vec<Part>, otherwise: Vec<Part> },
    Set { names: Vec<Box<str>>, value: ExprNode },
    Capture { name: Box<str>, body: Vec<Part> },
}

/// Reads an expression. Returns it with the names that it reads.
pub(super) fn expression(source: &str) -> Result<(ExprNode, Vec<NamePath>), ExpressionFault> {
    if source.len() > limits::EXPRESSION_BYTES {
        return Err(too_long(0));
    }
    count_tokens(source, true)?;
    let parsed = parse_expr(source).map_err(|error| syntax_fault(&error))?;
    let mut lowering = Lowering::default();
    let node = lowering.node(&parsed, true)?;
    Ok((node, lowering.into_names()))
}

/// Reads a template. Returns its parts with the names that they read.
pub(super) fn template(source: &str) -> Result<(Vec<Part>, Vec<NamePath>), ExpressionFault> {
    if source.len() > limits::TEMPLATE_BYTES {
        let message = format!("the template is longer than {} bytes", limits::TEMPLATE_BYTES);
        return Err(ExpressionFault::at(ExpressionErrorKind::TooLarge, message, 0));
    }
    // minijinja counts columns with 16 bits and overflows behind the last one.
    if let Some(line) = source.split('\n').find(|line| line.len() > limits::LINE_BYTES) {
        let message = format!("a line of the template is longer than {} bytes", limits::LINE_BYTES);
        return Err(ExpressionFault::at(
            ExpressionErrorKind::TooLarge,
            message,
            line.as_ptr() as usize - source.as_ptr() as usize,
        ));
    }
    count_tokens(source, false)?;
    let parsed = parse(source, "", syntax()).map_err(|error| syntax_fault(&error))?;
    let ast::Stmt::Template(root) = parsed else {
        return Err(ExpressionFault::new(ExpressionErrorKind::Syntax, "this is not a template"));
    };
    let mut lowering = Lowering::default();
    let parts = lowering.parts(&root.children)?;
    Ok((parts, lowering.into_names()))
}

/// Returns the syntax of Jinja, except that the line break at the end of a text stays.
fn syntax() -> SyntaxConfig {
    let mut builder = SyntaxConfig::builder();
    builder.keep_trailing_newline(true);
    builder.build().unwrap_or_default()
}

fn syntax_fault(error: &minijinja::Error) -> ExpressionFault {
    let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    ExpressionFault { kind: ExpressionErrorKind::Syntax, message, offset: error.range().map(|range| range.start) }
}

fn too_long(offset: usize) -> ExpressionFault {
    let message = format!("the expression is longer than {} bytes", limits::EXPRESSION_BYTES);
    ExpressionFault::at(ExpressionErrorKind::TooLarge, message, offset)
}

/// Refuses a text whose parsing or evaluation would recurse too deeply.
fn count_tokens(source: &str, in_expression: bool) -> Result<(), ExpressionFault> {
    let mut start = 0;
    // The operators in a row, for each open bracket and outside.
    let mut chains = vec![0_usize];
    let mut blocks = Vec::<usize>::new();
    let (mut is_keyword, mut is_set, mut has_value) = (false, false, false);
    for token in tokenize(source, in_expression, syntax()) {
        let (token, span) = token.map_err(|error| syntax_fault(&error))?;
        let offset = span.start_offset as usize;
        let was_keyword = std::mem::take(&mut is_keyword);
        let mut operators = 0;
        match token {
            Token::TemplateData(_) => {}
            Token::VariableStart | Token::BlockStart => {
                start = offset;
                chains = vec![0];
                is_keyword = matches!(token, Token::BlockStart);
            }
            Token::VariableEnd | Token::BlockEnd => {
                if offset - start > limits::EXPRESSION_BYTES {
                    return Err(too_long(start));
                }
                // A `set` without a value ends with `endset`.
                if std::mem::take(&mut is_set) && !has_value {
                    blocks.push(1);
                }
            }
            Token::Ident("if" | "for" | "filter" | "with") if was_keyword => blocks.push(1),
            Token::Ident("elif") if was_keyword => blocks.last_mut().into_iter().for_each(|levels| *levels += 1),
            Token::Ident("set") if was_keyword => (is_set, has_value) = (true, false),
            Token::Ident("endif" | "endfor" | "endset") if was_keyword => {
                blocks.pop();
            }
            Token::Assign => has_value = true,
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => chains.push(0),
            Token::ParenClose | Token::BracketClose | Token::BraceClose if chains.len() > 1 => {
                chains.pop();
                operators = 1;
            }
            Token::Comma | Token::Colon => chains.last_mut().into_iter().for_each(|chain| *chain = 0),
            Token::Ident("not" | "and" | "or" | "if" | "else" | "is" | "in") => operators = 1,
            Token::Ident(_) => {}
            Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Int128(_) | Token::Float(_) => {}
            _ => operators = 1,
        }
        chains.last_mut().into_iter().for_each(|chain| *chain += operators);
        if chains.len() > limits::NESTING + 1 || blocks.iter().sum::<usize>() > limits::NESTING {
            let message = format!("there are more than {} levels", limits::NESTING);
            return Err(ExpressionFault::at(ExpressionErrorKind::TooLarge, message, offset));
        }
        if chains.iter().sum::<usize>() > limits::OPERATORS {
            let message = format!("there are more than {} operators in a row", limits::OPERATORS);
            return Err(ExpressionFault::at(ExpressionErrorKind::TooLarge, message, offset));
        }
    }
    Ok(())
}
