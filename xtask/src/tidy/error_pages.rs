//! Every error code has a page in `docs/errors`, and every page a code, of an error or of a recorded failure.

use std::collections::BTreeSet;

use super::Sources;

const PAGES: &str = "docs/errors/";
const INDEX: &str = "docs/errors/README.md";

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    let (mut codes, mut failures): (BTreeSet<&str>, BTreeSet<&str>) = Default::default();
    for (path, text) in sources.crate_sources() {
        failures.extend(text.split("Failure::new(\"").skip(1).filter_map(|rest| rest.split('"').next()));
        for code in codes_in(text) {
            codes.insert(code);
            let page = format!("{PAGES}{code}.md");
            if sources.text(&page).is_none() {
                problems.push(format!("{path}: the error code `{code}` has no page {page}"));
            }
        }
    }
    let index = sources.text(INDEX).unwrap_or_default();
    for (path, text) in sources.texts(|path| path.starts_with(PAGES) && path != INDEX) {
        let code = path.trim_start_matches(PAGES).trim_end_matches(".md");
        if !codes.contains(code) && !failures.contains(code) {
            problems.push(format!("{path} matches no error code"));
        }
        if !text.starts_with(&format!("# {code}\n")) {
            problems.push(format!("{path} does not begin with its code as a heading"));
        }
        if !index.contains(&format!("({code}.md)")) {
            problems.push(format!("{path} is not listed in {INDEX}"));
        }
    }
}

/// Returns the strings that functions named `code` return, and the codes of mistakes that the command line and the client detect
/// themselves.
fn codes_in(text: &str) -> Vec<&str> {
    let mut codes = Vec::new();
    for mistake in ["Mistake { code: \"", "Mistake::usage(\"", "Elsewhere { code: \"", "Told { code: \""] {
        codes.extend(text.split(mistake).skip(1).filter_map(|rest| rest.split('"').next()));
    }
    for (_, rest) in text.match_indices("fn code(&self) -> &'static str {").map(|(at, _)| text.split_at(at)) {
        let body = rest.split("\n    }\n").next().unwrap_or_default();
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
        assert_eq!(codes_in("Err(Mistake::usage(\"d\", text)) Mistake { code: \"e\", exit }"), ["e", "d"]);
    }
}
