//! Translates templates (`${..}`) and expressions (`$(..)`) into Jinja, as far as they have an equivalent.

use std::collections::BTreeMap;

/// The names that an expression may read.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    /// Names of the document, and how they are read here: `page` is `state.page`.
    pub known: BTreeMap<String, String>,
}

/// A part of a text.
enum TextPiece<'a> {
    Text(&'a str),
    Expression(&'a str),
    /// The rest of a text whose expression does not end.
    Unclosed(&'a str),
}

/// Translates a text with `${..}`. Returns it with the expressions that have no equivalent, which stay as they are.
pub(super) fn text(source: &str, names: &Names) -> (String, Vec<(String, String)>) {
    if let Some(inner) = whole(source) {
        return match expression(inner, names) {
            Ok(translated) => (format!("{{{{ {translated} }}}}"), Vec::new()),
            Err(why) => (escaped(source), vec![(source.to_owned(), why)]),
        };
    }
    let (mut out, mut unmapped) = (String::new(), Vec::new());
    for piece in pieces(source) {
        match piece {
            TextPiece::Unclosed(rest) => {
                out.push_str(&escaped(rest));
                let beginning: String = rest.chars().take(40).collect();
                unmapped.push((beginning, "the expression does not end".to_owned()));
            }
            TextPiece::Text(text) => out.push_str(&escaped(text)),
            TextPiece::Expression(inner) => match expression(inner, names) {
                Ok(translated) => out.push_str(&format!("{{{{ {translated} }}}}")),
                Err(why) => {
                    let original = format!("${{{inner}}}");
                    out.push_str(&escaped(&original));
                    unmapped.push((original, why));
                }
            },
        }
    }
    (out, unmapped)
}

/// Returns the expression of a text that is exactly `$(..)`.
pub(super) fn whole(source: &str) -> Option<&str> {
    let inner = source.trim().strip_prefix("$(")?;
    let end = closing(inner, '(', ')')?;
    (end + 1 == inner.len()).then(|| &inner[..end])
}

/// Keeps Jinja from reading a text that looks like it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = ["{{", "{%", "{#"].iter().filter_map(|start| rest.find(start)).min() {
        out.push_str(&rest[..at]);
        out.push_str(&format!("{{{{ '{}' }}}}", &rest[at..at + 2]));
        rest = &rest[at + 2..];
    }
    // A brace right before an expression would begin another one.
    out.push_str(rest);
    if out.ends_with('{') {
        out.pop();
        out.push_str("{{ '{' }}");
    }
    out
}

fn pieces(source: &str) -> Vec<TextPiece<'_>> {
    let mut out = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find("${") {
        if at > 0 {
            out.push(TextPiece::Text(&rest[..at]));
        }
        let inner = &rest[at + 2..];
        match closing(inner, '{', '}') {
            Some(end) => {
                out.push(TextPiece::Expression(&inner[..end]));
                rest = &inner[end + 1..];
            }
            None => {
                out.push(TextPiece::Unclosed(&rest[at..]));
                return out;
            }
        }
    }
    if !rest.is_empty() {
        out.push(TextPiece::Text(rest));
    }
    out
}

/// Finds the bracket that closes, outside of quotes.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    let mut escaped = false;
    for (at, char) in text.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if char == '\\' => escaped = true,
            Some(end) if char == end => quote = None,
            Some(_) => {}
            None if char == '"' || char == '\'' => quote = Some(char),
            None if char == open => depth += 1,
            None if char == close && depth == 0 => return Some(at),
            None if char == close => depth -= 1,
            None => {}
        }
    }
    None
}

/// Translates an expression, or returns why it has no equivalent.
pub(super) fn expression(source: &str, names: &Names) -> Result<String, String> {
    let tokens = tokens(source)?;
    let mut parser = Parser { tokens: &tokens, at: 0, names, depth: 0 };
    let translated = parser.choice()?;
    match parser.peek() {
        None => Ok(translated),
        Some(token) => Err(format!("`{}` is not expected", token.text())),
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    Number(String),
    Text(String),
    Sign(&'static str),
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Name(text) | Token::Number(text) | Token::Text(text) => text,
            Token::Sign(sign) => sign,
        }
    }
}

const SIGNS: [&str; 26] = [
    "&&", "||", "==", "!=", "<=", ">=", "**", "<", ">", "!", "+", "-", "*", "/", "%", "(", ")", "[", "]", ".", ",", "?", ":",
    "|", "{", "}",
];

fn tokens(source: &str) -> Result<Vec<Token>, String> {
    let mut out = Vec::new();
    let mut rest = source.trim_start();
    while let Some(char) = rest.chars().next() {
        let length = if char.is_ascii_alphabetic() || char == '_' {
            let length = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(rest.len());
            out.push(Token::Name(rest[..length].to_owned()));
            length
        } else if char.is_ascii_digit() {
            let length = rest.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(rest.len());
            out.push(Token::Number(rest[..length].to_owned()));
            length
        } else if char == '"' || char == '\'' {
            let (text, length) = string(rest, char)?;
            out.push(Token::Text(text));
            length
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign)).ok_or_else(|| format!("`{char}` has no equivalent"))?;
            out.push(Token::Sign(sign));
            sign.len()
        };
        if out.len() > 500 {
            return Err("it is too long".to_owned());
        }
        rest = rest[length..].trim_start();
    }
    Ok(out)
}

/// Reads a string in quotes. Returns it with its length in the source.
fn string(source: &str, quote: char) -> Result<(String, usize), String> {
    let mut out = String::new();
    let mut chars = source.char_indices().skip(1);
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => match chars.next().map(|(_, char)| char) {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(char @ ('\\' | '"' | '\'')) => out.push(char),
                _ => return Err("a string has an escape without an equivalent".to_owned()),
            },
            char if char == quote => return Ok((out, at + 1)),
            char => out.push(char),
        }
    }
    Err("a string does not end".to_owned())
}

/// Writes a string of Jinja.
fn literal(text: &str) -> String {
    let mut out = String::from("'");
    for char in text.chars() {
        match char {
            '\'' => out.push_str("\\'"),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            char => out.push(char),
        }
    }
    out.push('\'');
    out
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    names: &'a Names,
    depth: usize,
}

type Translated = Result<String, String>;

/// Functions of one value, and the filter that does the same.
const FILTERS: [(&str, &str); 7] = [
    ("len", "length"),
    ("string", "string"),
    ("int", "int"),
    ("float", "float"),
    ("strings.to_lower", "lower"),
    ("strings.to_upper", "upper"),
    ("strings.trim_space", "trim"),
];

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn sign(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        let Some(Token::Sign(sign)) = self.peek() else { return None };
        let sign = *signs.iter().find(|wanted| *wanted == sign)?;
        self.at += 1;
        Some(sign)
    }

    fn word(&mut self, words: &[&'static str]) -> Option<&'static str> {
        let Some(Token::Name(name)) = self.peek() else { return None };
        let word = *words.iter().find(|wanted| *wanted == name)?;
        self.at += 1;
        Some(word)
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), String> {
        match self.sign(&[sign]) {
            Some(_) => Ok(()),
            None => Err(format!("`{sign}` is missing")),
        }
    }

    fn choice(&mut self) -> Translated {
        self.depth += 1;
        if self.depth > 30 {
            return Err("it is nested too deeply".to_owned());
        }
        let test = self.or()?;
        let translated = match self.sign(&["?"]) {
            Some(_) => {
                let yes = self.choice()?;
                self.expect(":")?;
                let no = self.choice()?;
                format!("({yes} if {test} else {no})")
            }
            None => test,
        };
        self.depth -= 1;
        Ok(translated)
    }

    fn or(&mut self) -> Translated {
        let mut left = self.and()?;
        while self.sign(&["||"]).is_some() || self.word(&["or"]).is_some() {
            left = format!("{left} or {}", self.and()?);
        }
        Ok(left)
    }

    fn and(&mut self) -> Translated {
        let mut left = self.not()?;
        while self.sign(&["&&"]).is_some() || self.word(&["and"]).is_some() {
            left = format!("{left} and {}", self.not()?);
        }
        Ok(left)
    }

    fn not(&mut self) -> Translated {
        let mut count = 0;
        while self.sign(&["!"]).is_some() || self.word(&["not"]).is_some() {
            count += 1;
        }
        let operand = self.comparison()?;
        Ok(format!("{}{operand}", "not ".repeat(count)))
    }

    fn comparison(&mut self) -> Translated {
        let left = self.sum()?;
        if let Some(sign) = self.sign(&["==", "!=", "<=", ">=", "<", ">"]) {
            return Ok(format!("{left} {sign} {}", self.sum()?));
        }
        if self.word(&["in"]).is_some() {
            return Ok(format!("{left} in {}", self.sum()?));
        }
        if matches!(self.peek(), Some(Token::Name(name)) if name == "not") {
            self.at += 1;
            return match self.word(&["in"]) {
                Some(_) => Ok(format!("{left} not in {}", self.sum()?)),
                None => Err("`not` is not expected".to_owned()),
            };
        }
        Ok(left)
    }

    fn sum(&mut self) -> Translated {
        let mut left = self.product()?;
        while let Some(sign) = self.sign(&["+", "-"]) {
            left = format!("{left} {sign} {}", self.product()?);
        }
        Ok(left)
    }

    fn product(&mut self) -> Translated {
        let mut left = self.negative()?;
        while let Some(sign) = self.sign(&["*", "/", "%"]) {
            if sign == "/" {
                return Err("`/` divides integers to an integer there, and to a fraction here".to_owned());
            }
            left = format!("{left} {sign} {}", self.negative()?);
        }
        Ok(left)
    }

    fn negative(&mut self) -> Translated {
        match self.sign(&["-"]) {
            Some(_) => Ok(format!("-{}", self.postfix()?)),
            None => self.postfix(),
        }
    }

    fn postfix(&mut self) -> Translated {
        let mut value = self.primary()?;
        loop {
            if self.sign(&["."]).is_some() {
                let Some(Token::Name(name)) = self.peek().cloned() else { return Err("a field has no name".to_owned()) };
                self.at += 1;
                if matches!(self.peek(), Some(Token::Sign("("))) {
                    return Err(format!("the method `{name}` has no equivalent"));
                }
                value = format!("{value}.{name}");
            } else if self.sign(&["["]).is_some() {
                let index = self.choice()?;
                if self.sign(&[":"]).is_some() {
                    return Err("slices are written by hand".to_owned());
                }
                self.expect("]")?;
                value = format!("{value}[{index}]");
            } else if self.sign(&["|"]).is_some() {
                return Err("`|` has no equivalent".to_owned());
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Translated {
        let token = self.peek().cloned().ok_or("it is empty, or ends too early")?;
        self.at += 1;
        match token {
            Token::Number(number) => Ok(number),
            Token::Text(text) => Ok(literal(&text)),
            Token::Sign("(") => {
                let inner = self.choice()?;
                self.expect(")")?;
                Ok(format!("({inner})"))
            }
            Token::Sign("[") => Ok(format!("[{}]", self.list("]")?.join(", "))),
            Token::Sign(sign) => Err(format!("`{sign}` is not expected")),
            Token::Name(name) => self.name(&name),
        }
    }

    fn name(&mut self, name: &str) -> Translated {
        match name {
            "true" | "false" => return Ok(name.to_owned()),
            "nil" | "null" | "none" | "None" => return Ok("none".to_owned()),
            _ => {}
        }
        let mut function = name.to_owned();
        if name == "strings"
            && let (Some(Token::Sign(".")), Some(Token::Name(method))) = (self.tokens.get(self.at), self.tokens.get(self.at + 1))
        {
            function = format!("strings.{method}");
            self.at += 2;
        }
        if self.sign(&["("]).is_some() {
            let arguments = self.list(")")?;
            return call(&function, &arguments);
        }
        match self.names.known.get(name) {
            Some(known) => Ok(known.clone()),
            None if function != name => Err(format!("`{function}` has no equivalent")),
            None => Err(format!("`{name}` is no input, and no step before stores it")),
        }
    }

    fn list(&mut self, end: &'static str) -> Result<Vec<String>, String> {
        let mut items = Vec::new();
        while self.sign(&[end]).is_none() {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(self.choice()?);
        }
        Ok(items)
    }
}

fn call(function: &str, arguments: &[String]) -> Translated {
    match (function, arguments) {
        (_, [value]) if FILTERS.iter().any(|(name, _)| *name == function) => {
            let filter = FILTERS.iter().find(|(name, _)| *name == function).map_or("", |(_, filter)| filter);
            Ok(format!("({} | {filter})", operand(value)))
        }
        ("strings.contains", [text, part]) => Ok(format!("({part} in {})", operand(text))),
        ("strings.has_prefix", [text, part]) => Ok(format!("({} is startingwith({part}))", operand(text))),
        ("strings.has_suffix", [text, part]) => Ok(format!("({} is endingwith({part}))", operand(text))),
        ("strings.split", [text, separator]) => Ok(format!("({} | split({separator}))", operand(text))),
        ("strings.join", [list, separator]) => Ok(format!("({} | join({separator}))", operand(list))),
        ("strings.replace_all", [text, old, new]) => Ok(format!("({} | replace({old}, {new}))", operand(text))),
        _ => Err(format!("the function `{function}` has no equivalent")),
    }
}

/// Puts brackets around what a filter or test would take apart.
fn operand(value: &str) -> String {
    let is_simple = value.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '.'));
    if is_simple { value.to_owned() } else { format!("({value})") }
}
