//! Differences between two texts, line by line.

use crate::output::{Style, escape};

/// Maximum number of compared pairs of lines; beyond it, all lines between the common beginning and end count as changed.
const PAIRS_MAX: usize = 4_000_000;

/// Number of unchanged lines shown around changes.
const CONTEXT: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineChange {
    Same,
    Removed,
    Added,
}

impl LineChange {
    pub fn sign(self) -> char {
        match self {
            LineChange::Same => ' ',
            LineChange::Removed => '-',
            LineChange::Added => '+',
        }
    }
}

/// One line of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub struct DiffLine<'a> {
    pub change: LineChange,
    pub text: &'a str,
}

/// Compares two texts. Removed lines come before added ones.
pub fn lines<'a>(old: &'a str, new: &'a str) -> Vec<DiffLine<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let same = |text: &&'a str| DiffLine { change: LineChange::Same, text };
    let mut lines: Vec<DiffLine<'a>> = old[..start].iter().map(same).collect();
    between(&old[start..old.len() - end], &new[start..new.len() - end], &mut lines);
    lines.extend(old[old.len() - end..].iter().map(same));
    lines
}

/// Compares the lines between the common beginning and end, by their longest common subsequence.
fn between<'a>(old: &[&'a str], new: &[&'a str], lines: &mut Vec<DiffLine<'a>>) {
    let mut push = |change, text| lines.push(DiffLine { change, text });
    let width = new.len() + 1;
    let mut common = vec![0u32; if old.len() * new.len() > PAIRS_MAX { 0 } else { (old.len() + 1) * width }];
    if !common.is_empty() {
        for (i, a) in old.iter().enumerate().rev() {
            for (j, b) in new.iter().enumerate().rev() {
                let (below, right) = (common[(i + 1) * width + j], common[i * width + j + 1]);
                common[i * width + j] = if a == b { common[(i + 1) * width + j + 1] + 1 } else { below.max(right) };
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        let length = |i: usize, j: usize| common.get(i * width + j).copied().unwrap_or_default();
        if i < old.len() && j < new.len() && old[i] == new[j] && !common.is_empty() {
            push(LineChange::Same, old[i]);
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common.is_empty() || length(i + 1, j) >= length(i, j + 1)) {
            push(LineChange::Removed, old[i]);
            i += 1;
        } else {
            push(LineChange::Added, new[j]);
            j += 1;
        }
    }
}

/// Formats a comparison for a terminal; unchanged lines far from a change are left out.
pub fn text(lines: &[DiffLine<'_>], style: Style) -> String {
    let is_near = |at: usize| {
        let (from, to) = (at.saturating_sub(CONTEXT), (at + CONTEXT + 1).min(lines.len()));
        lines[from..to].iter().any(|line| line.change != LineChange::Same)
    };
    let mut text = String::new();
    let mut skipped = false;
    for (at, line) in lines.iter().enumerate() {
        if !is_near(at) {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            text.push_str(&style.cyan("…"));
            text.push('\n');
        }
        let shown = format!("{}{}", line.change.sign(), escape::text(line.text));
        text.push_str(&match line.change {
            LineChange::Same => shown,
            LineChange::Removed => style.red(&shown),
            LineChange::Added => style.green(&shown),
        });
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(old: &str, new: &str) -> String {
        lines(old, new).iter().map(|line| format!("{}{}", line.change.sign(), line.text)).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn a_changed_line_is_removed_and_added_between_equal_ones() {
        assert_eq!(signs("a\nb\nc", "a\nx\nc"), " a,-b,+x, c");
        assert_eq!(signs("", "a"), "+a");
        assert_eq!(signs("a\nb", "b"), "-a, b");
        assert_eq!(signs("a\nb\nc\nd", "b\nd\ne"), "-a, b,-c, d,+e");
        assert_eq!(signs("same", "same"), " same");
    }

    #[test]
    fn long_texts_without_common_lines_are_compared_as_a_whole() {
        let (old, new): (Vec<String>, Vec<String>) = (0..3_000).map(|n| (format!("a{n}"), format!("b{n}"))).unzip();
        let (old, new) = (old.join("\n"), new.join("\n"));
        let compared = lines(&old, &new);
        assert_eq!(compared.len(), 6_000);
        assert!(compared[..3_000].iter().all(|line| line.change == LineChange::Removed));
    }
}
