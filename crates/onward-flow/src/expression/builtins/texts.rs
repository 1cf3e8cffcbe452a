//! Filters and tests of texts: case, parts, lines, and JSON as a text.

use serde_json::Value;

use super::{Given, shown, type_fault};
use crate::expression::eval::{Eval, Outcome};
use crate::expression::operators::concat;
use crate::expression::value::{EvalValue, Number, Text};
use crate::expression::{ExpressionErrorKind as Kind, ExpressionFault, limits};

/// Reads the text of a value; a number or boolean counts as its text.
fn text_of<'s>(eval: &mut Eval<'s>, value: &EvalValue<'s>) -> Outcome<Text<'s>> {
    match value {
        EvalValue::Text(_) | EvalValue::Number(_) | EvalValue::Bool(_) => eval.as_text(value),
        other => Err(type_fault(format!("the filter needs a text, not {}", other.kind()))),
    }
}

fn needs_text<'a>(value: &'a EvalValue<'_>) -> Outcome<&'a str> {
    value.as_text().ok_or_else(|| type_fault(format!("the filter needs a text, not {}", value.kind())))
}

pub(super) fn capitalize<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = text_of(eval, &value)?;
    let mut chars = text.chars();
    let first: String = chars.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    eval.text(&(first + &chars.as_str().to_lowercase()))
}

pub(super) fn title<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = text_of(eval, &value)?;
    let mut out = String::with_capacity(text.len());
    let mut begins = true;
    for char in text.chars() {
        match begins {
            true => out.extend(char.to_uppercase()),
            false => out.extend(char.to_lowercase()),
        }
        begins = !char.is_alphanumeric() && char != '\'';
    }
    eval.text(&out)
}

pub(super) fn lower<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = text_of(eval, &value)?;
    eval.text(&text.to_lowercase())
}

pub(super) fn upper<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = text_of(eval, &value)?;
    eval.text(&text.to_uppercase())
}

pub(super) fn trim<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = text_of(eval, &value)?;
    match given.text(0, "chars")? {
        None => eval.text(text.trim()),
        Some(chars) => {
            eval.spend_bytes(text.len().saturating_mul(chars.len()))?;
            let chars: Vec<char> = chars.chars().collect();
            eval.text(text.trim_matches(chars.as_slice()))
        }
    }
}

pub(super) fn replace<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = text_of(eval, &value)?;
    let (old, new) = (given.take(0).unwrap_or(EvalValue::Null), given.take(1).unwrap_or(EvalValue::Null));
    let (old, new) = (eval.as_text(&old)?, eval.as_text(&new)?);
    let count = given.count(2, "count")?.unwrap_or(usize::MAX);
    let found = text.matches(&*old).take(count).count();
    eval.check_text((text.len() - found * old.len()).saturating_add(found.saturating_mul(new.len())))?;
    Ok(EvalValue::Text(Text::Shared(text.replacen(&*old, &new, found).into())))
}

pub(super) fn indent<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = text_of(eval, &value)?;
    let prefix = match given.take(0) {
        None | Some(EvalValue::Null) => "    ".to_owned(),
        Some(EvalValue::Text(prefix)) => prefix.to_string(),
        Some(EvalValue::Number(Number::Int(width))) if (0..=1000).contains(&width) => " ".repeat(width as usize),
        Some(other) => return Err(type_fault(format!("`width` is a number up to 1000 or a text, not {}", shown(&other)))),
    };
    let (first, blank) = (given.flag(1), given.flag(2));
    let lines = text.split('\n').count();
    eval.check_text(text.len().saturating_add(lines.saturating_mul(prefix.len())))?;
    let mut out = String::with_capacity(text.len() + lines);
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let is_indented = if index == 0 { first } else { blank || !line.trim().is_empty() };
        if is_indented {
            out.push_str(&prefix);
        }
        out.push_str(line);
    }
    Ok(EvalValue::Text(Text::Shared(out.into())))
}

pub(super) fn truncate<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = text_of(eval, &value)?;
    let length = given.count(0, "length")?.unwrap_or(255);
    let kill_words = given.flag(1);
    let end = given.text(2, "end")?.unwrap_or(Text::Borrowed("..."));
    let leeway = given.count(3, "leeway")?.unwrap_or(5);
    if text.chars().nth(length.saturating_add(leeway)).is_none() {
        return Ok(EvalValue::Text(text));
    }
    let kept = length.saturating_sub(end.chars().count());
    let cut = text.char_indices().nth(kept).map_or(&*text, |(offset, _)| &text[..offset]);
    let cut = match cut.rsplit_once(' ') {
        Some((words, _)) if !kill_words => words,
        _ => cut,
    };
    concat(eval, cut, &end)
}

pub(super) fn word_count<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = text_of(eval, &value)?;
    Ok(EvalValue::int(text.split_whitespace().count()))
}

pub(super) fn split<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = text_of(eval, &value)?;
    let separator = given.text(0, "sep")?;
    let most = given.count(1, "maxsplit")?.map_or(usize::MAX, |count| count.saturating_add(1));
    // One more than the fuel can pay for is an error already.
    let most_parts = most.min(limits::FUEL + 1);
    let parts: Vec<&str> = match &separator {
        None if most == usize::MAX => text.split_whitespace().take(most_parts).collect(),
        None => split_words(&text, most_parts),
        Some(separator) if separator.is_empty() => return Err(type_fault("`split` needs a separator that is not empty")),
        Some(separator) => text.splitn(most_parts, &**separator).collect(),
    };
    let parts = parts.into_iter().map(|part| eval.text(part)).collect::<Outcome<Vec<_>>>()?;
    eval.list(parts)
}

fn split_words(text: &str, most: usize) -> Vec<&str> {
    let mut rest = text.trim();
    let mut words = Vec::new();
    while !rest.is_empty() && words.len() + 1 < most {
        let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        words.push(word);
        rest = after.trim_start();
    }
    if !rest.is_empty() {
        words.push(rest);
    }
    words
}

pub(super) fn lines<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = text_of(eval, &value)?;
    let lines = text.lines().take(limits::FUEL + 1).map(|line| eval.text(line)).collect::<Outcome<Vec<_>>>()?;
    eval.list(lines)
}

pub(super) fn to_json<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, mut given: Given<'s>) -> Outcome<EvalValue<'s>> {
    let indent = match given.take(0) {
        None | Some(EvalValue::Null | EvalValue::Bool(false)) => None,
        Some(EvalValue::Bool(true)) => Some(2),
        Some(EvalValue::Number(Number::Int(width))) if (0..=16).contains(&width) => Some(width as usize),
        Some(other) => return Err(type_fault(format!("`indent` is a number up to 16, not {}", shown(&other)))),
    };
    let text = eval.json_text(&value, indent)?;
    Ok(EvalValue::Text(Text::Shared(text.into())))
}

pub(super) fn from_json<'s>(eval: &mut Eval<'s>, value: EvalValue<'s>, _: Given<'s>) -> Outcome<EvalValue<'s>> {
    let text = needs_text(&value)?;
    if text.len() > limits::OUTPUT_BYTES {
        let message = format!("`fromjson` reads {} MiB at most", limits::OUTPUT_BYTES >> 20);
        return Err(ExpressionFault::new(Kind::TooLarge, message));
    }
    eval.spend_bytes(text.len())?;
    let value: Value = serde_json::from_str(text).map_err(|error| type_fault(format!("the text is not JSON: {error}")))?;
    eval.own(&value)
}

pub(super) fn affix<'s>(
    eval: &mut Eval<'s>,
    value: EvalValue<'s>,
    mut given: Given<'s>,
    test: fn(&str, &str) -> bool,
) -> Outcome<EvalValue<'s>> {
    let part = given.text(0, "other")?.unwrap_or(Text::Borrowed(""));
    eval.spend_bytes(part.len())?;
    Ok(EvalValue::Bool(test(needs_text(&value)?, &part)))
}

pub(super) fn is_case<'s>(eval: &mut Eval<'s>, value: &EvalValue<'s>, other_case: fn(char) -> bool) -> Outcome<EvalValue<'s>> {
    let text = needs_text(value)?;
    eval.spend_bytes(text.len())?;
    Ok(EvalValue::Bool(!text.chars().any(other_case)))
}
