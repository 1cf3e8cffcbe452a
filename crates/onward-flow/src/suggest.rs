//! Names in messages: shortened, and the one that was probably meant.

/// Maximum number of letters that are compared.
const LETTERS_MAX: usize = 64;

/// Returns the candidate that is most like the name, if one is like enough: a third of its letters may differ.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (name, length) = (name.to_lowercase(), name.chars().count());
    if length == 0 || length > LETTERS_MAX {
        return None;
    }
    let most = (length / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates.into_iter().filter(|candidate| candidate.chars().count().abs_diff(length) <= most) {
        let distance = distance(&name, &candidate.to_lowercase());
        if distance <= most && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Counts the letters to insert, remove, replace or swap with the next one, among the first of both names.
pub fn distance(left: &str, right: &str) -> usize {
    strsim::osa_distance(beginning(left), beginning(right))
}

fn beginning(name: &str) -> &str {
    name.char_indices().nth(LETTERS_MAX).map_or(name, |(end, _)| &name[..end])
}

/// Returns a name, or its beginning if it is long.
pub fn shown(name: &str) -> String {
    match name.char_indices().nth(60) {
        Some((end, _)) => format!("{}..", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_no_other() {
        let names = ["shorten", "review", "apologize", "plan"];
        assert_eq!(nearest("shortn", names), Some("shorten"));
        assert_eq!(nearest("reveiw", names), Some("review"));
        assert_eq!(nearest("Plan", names), Some("plan"));
        assert_eq!(nearest("apologise", names), Some("apologize"));
        assert_eq!(nearest("publish", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"x".repeat(100_000), names), None);
    }
}
