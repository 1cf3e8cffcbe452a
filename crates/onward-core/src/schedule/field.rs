//! One field of a cron expression or calendar: its syntax and the values that it selects.
//!
//! A field is a list of items, separated by commas: `*`, a value, a range `a-b`, each with an optional step `/n`. Days also have `L`
//! (the last), `L-n`, `nW` (the weekday nearest to n) and `LW`; weekdays `nL` (the last of the month) and `n#k` (the k-th).

use super::spec::SpecError;

/// The values and names of a field.
pub(super) struct FieldType {
    name: &'static str,
    least: u32,
    most: u32,
    /// Names of the values, beginning with the least.
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

pub(super) const SECOND: FieldType = FieldType { name: "second", least: 0, most: 59, names: &[] };
pub(super) const MINUTE: FieldType = FieldType { name: "minute", least: 0, most: 59, names: &[] };
pub(super) const HOUR: FieldType = FieldType { name: "hour", least: 0, most: 23, names: &[] };
const DAY: FieldType = FieldType { name: "day", least: 1, most: 31, names: &[] };
pub(super) const MONTH: FieldType = FieldType { name: "month", least: 1, most: 12, names: MONTHS };
/// 7 is Sunday, like 0.
const WEEKDAY: FieldType = FieldType { name: "weekday", least: 0, most: 7, names: WEEKDAYS };
pub(super) const YEAR: FieldType = FieldType { name: "year", least: 1970, most: 2199, names: &[] };

/// The text of a field, with its place in the part of the specification that errors name.
#[derive(Clone, Copy)]
pub(super) struct FieldText<'a> {
    pub part: &'a str,
    pub text: &'a str,
    /// The number of characters before it.
    pub at: usize,
}

impl<'a> FieldText<'a> {
    fn error(self, message: String, hint: &'static str) -> SpecError {
        SpecError { position: Some(self.at + 1), ..SpecError::new(self.part, message, hint) }
    }

    /// Splits the text at each separator, which is one character, with the place of each piece.
    pub(super) fn split(self, separator: impl Fn(char) -> bool) -> impl Iterator<Item = FieldText<'a>> {
        let mut at = self.at;
        self.text.split(separator).map(move |text| {
            let piece = FieldText { text, at, ..self };
            at += text.chars().count() + 1;
            piece
        })
    }

    /// Splits the text at the first separator.
    fn split_once(self, separator: char) -> Option<(FieldText<'a>, FieldText<'a>)> {
        let (left, right) = self.text.split_once(separator)?;
        let at = self.at + left.chars().count() + 1;
        Some((FieldText { text: left, ..self }, FieldText { text: right, at, ..self }))
    }

    fn number(self, what: &str, least: u32, most: u32) -> Result<u32, SpecError> {
        let is_number = !self.text.is_empty() && self.text.bytes().all(|byte| byte.is_ascii_digit());
        let number = self.text.parse().ok().filter(|_| is_number);
        match number {
            Some(number) if (least..=most).contains(&number) => Ok(number),
            Some(_) => Err(self.error(format!("`{}` is no {what} between {least} and {most}", self.text), VALUE_HINT)),
            None if self.text.is_empty() => Err(self.error(format!("a {what} is missing"), SYNTAX_HINT)),
            None => Err(self.error(format!("`{}` is no {what}", self.text), SYNTAX_HINT)),
        }
    }
}

const VALUE_HINT: &str = "use a value within the range of the field";
const SYNTAX_HINT: &str =
    "a field has values, ranges `a-b`, `*` and steps `/n`, separated by commas; months and weekdays have names";
const WRAP_HINT: &str = "write a range that wraps around as two, such as `22-23,0-5`";
const STEP_HINT: &str = "a step is at least 1 and smaller than the range that it divides";

impl FieldType {
    fn value(&self, text: FieldText<'_>) -> Result<u32, SpecError> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text.text));
        match named.and_then(|at| u32::try_from(at).ok()) {
            Some(at) => Ok(self.least + at),
            None => text.number(self.name, self.least, self.most),
        }
    }

    /// Parses an item into first value, last value and step.
    fn range(&self, item: FieldText<'_>) -> Result<(u32, u32, u32), SpecError> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (item, None),
        };
        let may_be_any = matches!(self.name, "day" | "weekday");
        let (first, last) = match range.split_once('-') {
            _ if range.text == "*" || (range.text == "?" && may_be_any) => (self.least, self.most),
            Some((first, last)) => {
                let (first, end) = (self.value(first)?, self.value(last)?);
                // `FRI-SUN` ends with the Sunday after it.
                let end = if self.most == 7 && end == 0 && first > 0 { 7 } else { end };
                if end < first {
                    return Err(range.error(format!("the range `{}` ends before it begins", range.text), WRAP_HINT));
                }
                (first, end)
            }
            None => (self.value(range)?, if step.is_some() { self.most } else { self.value(range)? }),
        };
        let Some(step) = step else { return Ok((first, last, 1)) };
        let number = step.number("step", 1, u32::MAX)?;
        if number > (last - first).max(1) {
            return Err(step.error(format!("the step {number} is larger than the range {first}-{last}"), STEP_HINT));
        }
        Ok((first, last, number))
    }

    fn items<'a>(&self, text: FieldText<'a>) -> Result<impl Iterator<Item = FieldText<'a>>, SpecError> {
        match text.text {
            "" => Err(text.error(format!("the field for the {} is empty", self.name), SYNTAX_HINT)),
            _ => Ok(text.split(|character| character == ',')),
        }
    }

    /// Parses a field of plain values into one bit for each, from value 0.
    pub(super) fn bits(&self, text: FieldText<'_>) -> Result<u64, SpecError> {
        let mut bits = 0;
        for item in self.items(text)? {
            let (first, last, step) = self.range(item)?;
            bits |= (first..=last).step_by(step as usize).fold(0, |bits, value| bits | 1u64 << value);
        }
        Ok(bits)
    }

    /// Parses the field of years into ranges with steps.
    pub(super) fn ranges(&self, text: FieldText<'_>) -> Result<Vec<(u32, u32, u32)>, SpecError> {
        self.items(text)?.map(|item| self.range(item)).collect()
    }
}

/// The days of a month that a field selects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Days {
    /// Days from 1.
    pub days: u32,
    /// Days before the last one, from 0.
    pub before_last: u32,
    /// Days whose nearest weekday is selected.
    pub nearest: u32,
    pub last_weekday: bool,
}

impl Days {
    pub(super) fn is_any(&self) -> bool {
        self.days == 0xffff_fffe
    }

    pub(super) fn parse(text: FieldText<'_>) -> Result<Days, SpecError> {
        let mut selected = Days::default();
        for item in DAY.items(text)? {
            let upper = item.text.to_ascii_uppercase();
            match upper.as_str() {
                "LW" | "WL" => selected.last_weekday = true,
                "L" => selected.before_last |= 1,
                _ if upper.starts_with("L-") => {
                    let before = FieldText { text: &item.text[2..], at: item.at + 2, ..item };
                    selected.before_last |= 1 << before.number("number of days before the last", 0, 30)?;
                }
                _ if upper.ends_with('W') => {
                    let day = FieldText { text: &item.text[..item.text.len() - 1], ..item };
                    selected.nearest |= 1 << day.number("day", 1, 31)?;
                }
                _ => {
                    let (first, last, step) = DAY.range(item)?;
                    selected.days |= (first..=last).step_by(step as usize).fold(0, |bits, day| bits | 1u32 << day);
                }
            }
        }
        Ok(selected)
    }
}

/// The weekdays that a field selects; bit 0 is Sunday.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Weekdays {
    pub weekdays: u8,
    /// The last of the month.
    pub last: u8,
    /// The first, second, … of the month.
    pub nth: [u8; 5],
}

const NTH_HINT: &str = "`FRI#2` is the second Friday of a month, `FRI#L` or `FRIL` the last one";

impl Weekdays {
    pub(super) fn is_any(&self) -> bool {
        self.weekdays == 0x7f
    }

    pub(super) fn parse(text: FieldText<'_>) -> Result<Weekdays, SpecError> {
        let mut selected = Weekdays::default();
        for item in WEEKDAY.items(text)? {
            if let Some((day, nth)) = item.split_once('#') {
                let day = 1u8 << (WEEKDAY.value(day)? % 7);
                match nth.text {
                    "L" | "l" => selected.last |= day,
                    _ => {
                        let nth = nth.number("number of a weekday in its month", 1, 5);
                        let nth = nth.map_err(|error| SpecError { hint: NTH_HINT, ..error })?;
                        selected.nth[nth as usize - 1] |= day;
                    }
                }
                continue;
            }
            if matches!(item.text, "L" | "l") {
                return Err(item.error("`L` needs a weekday".to_owned(), NTH_HINT));
            }
            if let Some(day) = item.text.strip_suffix(['L', 'l']) {
                selected.last |= 1u8 << (WEEKDAY.value(FieldText { text: day, ..item })? % 7);
                continue;
            }
            let (first, last, step) = WEEKDAY.range(item)?;
            // A range without an end, as in `*/2` and `1/2`, has Sunday only at its beginning.
            let has_end = item.text.contains('-') || first == last;
            let last = if has_end { last } else { last.min(6) };
            selected.weekdays |= (first..=last).step_by(step as usize).fold(0, |bits, day| bits | 1u8 << (day % 7));
        }
        Ok(selected)
    }
}
