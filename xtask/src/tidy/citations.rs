//! Numbers that comments cite must be explained where a reader can find them.

use std::collections::BTreeSet;

use super::Sources;

/// The page that explains L, CE, F, A and rule numbers.
const PAGE: &str = "docs/guide/guarantees.md";

pub fn check(sources: &Sources, problems: &mut Vec<String>) {
    let defined: BTreeSet<String> = sources.text(PAGE).unwrap_or_default().lines().filter_map(definition).collect();
    let mut missing: BTreeSet<(String, &str)> = BTreeSet::new();
    for (path, text) in sources.texts(|path| path.starts_with("crates/") && path.ends_with(".rs")) {
        let comments = text.lines().filter_map(|line| line.split_once("//").map(|(_, comment)| comment));
        for number in comments.flat_map(cited) {
            if !defined.contains(&number) {
                missing.insert((number, path));
            }
        }
    }
    problems.extend(missing.iter().map(|(number, path)| format!("{path} cites {number}, which {PAGE} does not explain")));
}

/// Returns the number in a row of one of the page's tables: `| L3 | … |`.
fn definition(line: &str) -> Option<String> {
    let cell = line.strip_prefix("| ")?.split(" |").next()?;
    is_number(cell).then(|| cell.to_owned())
}

fn cited(comment: &str) -> Vec<String> {
    let words: Vec<&str> = comment.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let rules = words.windows(2).filter(|pair| matches!(pair[0], "rule" | "rules")).map(|pair| format!("rule {}", pair[1]));
    let numbers = words.iter().map(|word| (*word).to_owned());
    rules.chain(numbers).filter(|number| is_number(number)).collect()
}

fn is_number(text: &str) -> bool {
    ["L", "CE", "F", "A", "rule "].iter().any(|prefix| {
        let digits = text.strip_prefix(prefix);
        digits.is_some_and(|digits| !digits.is_empty() && digits.len() <= 2 && digits.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn citations_are_found_in_prose() {
        assert_eq!(cited(" its slot is looked at first (L11, CE8); see rule 9 and H4, F7"), ["rule 9", "L11", "CE8", "F7"]);
        assert_eq!(definition("| L3 | one wins |"), Some("L3".to_owned()));
        assert_eq!(definition("| rule 12 | time |"), Some("rule 12".to_owned()));
        assert_eq!(definition("| word | meaning |"), None);
    }
}
