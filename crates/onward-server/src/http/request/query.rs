//! Query parameters. Unknown parameters are refused, so that a misspelled filter is not ignored.

use std::str::FromStr;
use std::time::Duration;

use onward_core::Timestamp;
use onward_store::PAGE_DEFAULT;

use crate::http::limits::{LIMIT_MAX, WAIT_MAX};
use crate::http::problem::RequestError;
use crate::http::routes::Parameter;

#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: Option<&str>, known: &[Parameter]) -> Result<Query, RequestError> {
        let mut query = Query::default();
        for (name, value) in form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
            let Some(parameter) = known.iter().find(|parameter| parameter.fits(&name)) else {
                return Err(unknown(&name, known));
            };
            if !parameter.repeats && query.get(&name).is_some() {
                return Err(invalid(&format!("`{}` is given twice", parameter.name)));
            }
            query.0.push((name.into_owned(), value.into_owned()));
        }
        Ok(query)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    pub fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns the parameters whose names begin with `prefix`, without it.
    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }

    pub fn number<N: FromStr>(&self, name: &str) -> Result<Option<N>, RequestError> {
        let parse = |text: &str| text.parse().map_err(|_| invalid(&format!("`{name}` is not a valid number")));
        self.get(name).map(parse).transpose()
    }

    /// Returns whether a parameter is `true`; it is `false` by default.
    pub fn flag(&self, name: &str) -> Result<bool, RequestError> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(invalid(&format!("`{name}` must be `true` or `false`"))),
        }
    }

    /// Returns the page size, between 1 and [`LIMIT_MAX`].
    pub fn limit(&self) -> Result<usize, RequestError> {
        self.within("limit", PAGE_DEFAULT, LIMIT_MAX)
    }

    /// Returns a number between 1 and `max`.
    pub fn within(&self, name: &str, default: usize, max: usize) -> Result<usize, RequestError> {
        match self.number(name)? {
            None => Ok(default),
            Some(number) if (1..=max).contains(&number) => Ok(number),
            Some(_) => Err(invalid(&format!("`{name}` must be from 1 to {max}"))),
        }
    }

    pub fn time(&self, name: &str) -> Result<Option<Timestamp>, RequestError> {
        let parse = |text: &str| {
            let time = is_time(text).then(|| Timestamp::parse(text)).flatten();
            time.ok_or_else(|| invalid(&format!("`{name}` is not a time like 2026-11-15T08:00:00Z")))
        };
        self.get(name).map(parse).transpose()
    }

    /// Returns the time to wait.
    pub fn wait(&self, default: Duration) -> Result<Duration, RequestError> {
        match self.number("wait_ms")?.map(Duration::from_millis) {
            None => Ok(default),
            Some(wait) if wait <= WAIT_MAX => Ok(wait),
            Some(_) => Err(invalid(&format!("`wait_ms` must be at most {}", WAIT_MAX.as_millis()))),
        }
    }
}

fn invalid(why: &str) -> RequestError {
    RequestError::QueryInvalid { why: why.to_owned() }
}

fn unknown(name: &str, known: &[Parameter]) -> RequestError {
    let name: String = name.chars().take(100).collect();
    let known: Vec<String> = known.iter().map(|parameter| format!("`{}`", parameter.name)).collect();
    match known.is_empty() {
        true => invalid(&format!("`{name}` is unknown: this route has no parameters")),
        false => invalid(&format!("`{name}` is unknown; known are {}", known.join(", "))),
    }
}

/// Returns whether the text has the form of a time; its numbers are then small enough for arithmetic.
fn is_time(text: &str) -> bool {
    let shape = b"0000-00-00T00:00:00";
    let fits = |(byte, wanted): (&u8, &u8)| if *wanted == b'0' { byte.is_ascii_digit() } else { byte == wanted };
    let Some((head, tail)) = text.as_bytes().split_at_checked(shape.len()) else { return false };
    let fraction = tail.strip_prefix(b".").unwrap_or(tail);
    let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
    head.iter().zip(shape).all(fits) && fraction.get(digits..) == Some(b"Z") && digits <= 9
}

#[cfg(test)]
mod tests;
