//! Error codes as text: each is a row of the table of error codes, and each row is used.
//!
//! A test of onward-core compares the table with the documentation.

use super::Sources;

const TABLE: &str = "crates/onward-core/src/error_table.rs";

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    let rows = rows_in(sources.text(TABLE).unwrap_or_default());
    let mut used = Vec::new();
    for (path, text) in sources.crate_sources() {
        let is_used = |name: &str| text.contains(&format!("ErrorCode::{name}")) || names_in(text).any(|used| used == name);
        used.extend(rows.iter().filter(|(name, _)| is_used(name)).map(|(_, code)| *code));
        for code in codes_in(text) {
            used.push(code);
            if !rows.iter().any(|(_, row)| *row == code) {
                problems.push(format!("{path}: the error code `{code}` has no row in {TABLE}"));
            }
        }
    }
    let unused = rows.iter().filter(|(_, code)| !used.contains(code));
    problems.extend(unused.map(|(_, code)| format!("{TABLE}: no error has the code `{code}`")));
}

/// Returns the variants and codes of the table.
fn rows_in(text: &str) -> Vec<(&str, &str)> {
    let row = |line| {
        let mut words = str::split_whitespace(line);
        let (name, code, status) = (words.next()?, words.next()?, words.next()?);
        let code = code.strip_prefix('"')?.strip_suffix('"')?;
        status.parse::<u16>().is_ok().then_some((name, code))
    };
    text.lines().filter_map(row).collect()
}

/// Returns the rows that variants of the macro `error_enum` name: the word after `=>`.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let enums = text.split("error_enum! {").skip(1).filter_map(|rest| rest.split("\n}\n").next());
    enums.flat_map(|body| body.split(" => ").skip(1)).filter_map(|rest| rest.split([',', ' ', '\n']).next())
}

/// Returns the strings that functions named `code` return, and the codes of errors that the command line detects itself.
fn codes_in(text: &str) -> Vec<&str> {
    let mut codes = Vec::new();
    for mistake in ["Mistake::new(\"", "Mistake::usage(\""] {
        codes.extend(text.split(mistake).skip(1).filter_map(|rest| rest.split('"').next()));
    }
    for (at, _) in text.match_indices("fn code(&self) -> &'static str {") {
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        let end = format!("\n{}}}\n", &line[..line.len() - line.trim_start().len()]);
        let body = text[at..].split(&*end).next().unwrap_or_default();
        codes.extend(body.split('"').skip(1).step_by(2));
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_texts_of_the_function_and_of_no_other() {
        let text = "impl E {\n    pub fn code(&self) -> &'static str {\n        match self {\n            E::A => \"a_b\",\n            \
                    E::B(inner) => match inner {\n                C => \"c\",\n            },\n        }\n    }\n\n    \
                    fn hint() { \"no\" }\n}\n";
        assert_eq!(codes_in(text), ["a_b", "c"]);
        assert_eq!(codes_in(&text.replace('\n', "\n    ")), ["a_b", "c"], "inside of a macro");
        assert_eq!(codes_in("Err(Mistake::usage(\"d\", text)) Mistake::new(\"e\", text)"), ["e", "d"]);
        let names = names_in("error_enum! {\n    A { x: u8 } => B hint() \"c\",\n    D => E,\n}\nF => G,\n");
        assert_eq!(names.collect::<Vec<_>>(), ["B", "E"]);
        assert_eq!(rows_in("error_table! {\n    AB \"a_b\" 404 Retry \"Text\"\n        => \"hint\";\n"), [("AB", "a_b")]);
    }
}
