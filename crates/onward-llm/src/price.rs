//! Exact prices of tokens: integers without division.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Usage;

/// Dollars per million tokens, in millionths of a dollar, which represents providers' price lists exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PerMillion(u64);

/// An amount of money in millionths of a millionth of a dollar: the price of one token is an integer.
///
/// The maximum is 18 million dollars; sums saturate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PicoDollars(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub input: PerMillion,
    /// As `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_read: Option<PerMillion>,
    /// As `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_write: Option<PerMillion>,
    pub output: PerMillion,
}

impl Price {
    pub fn cost(&self, usage: &Usage) -> PicoDollars {
        let parts = [
            (usage.input, self.input),
            (usage.cached_read, self.cached_read.unwrap_or(self.input)),
            (usage.cached_write, self.cached_write.unwrap_or(self.input)),
            (usage.output, self.output),
        ];
        let costs = parts.map(|(tokens, price)| PicoDollars(tokens.saturating_mul(price.0)));
        costs.into_iter().fold(PicoDollars(0), PicoDollars::plus)
    }
}

impl PicoDollars {
    pub fn plus(self, other: PicoDollars) -> PicoDollars {
        PicoDollars(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for PicoDollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, 12)
    }
}

impl PerMillion {
    pub const fn micro_dollars(micro_dollars: u64) -> PerMillion {
        PerMillion(micro_dollars)
    }

    /// Parses dollars such as `2.50`. Refuses more than six decimal places, which would not be exact.
    pub fn parse(text: &str) -> Option<PerMillion> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 {
            return None;
        }
        let (whole, part): (u64, u64) = (whole.parse().ok()?, format!("{part:0<6}").parse().ok()?);
        whole.checked_mul(1_000_000)?.checked_add(part).map(PerMillion)
    }
}

impl fmt::Display for PerMillion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, 6)
    }
}

fn decimal(f: &mut fmt::Formatter<'_>, value: u64, digits: u32) -> fmt::Result {
    let unit = 10_u64.pow(digits);
    let part = format!("{:0width$}", value % unit, width = digits as usize);
    let part = part.trim_end_matches('0');
    write!(f, "{}{}{part}", value / unit, if part.is_empty() { "" } else { "." })
}

impl Serialize for PerMillion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PerMillion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PerMillion, D::Error> {
        // A number would have passed through a float.
        let text = String::deserialize(deserializer)?;
        PerMillion::parse(&text).ok_or_else(|| {
            de::Error::custom(format_args!("`{text}` is not a price: write dollars per million tokens, such as \"2.50\""))
        })
    }
}

#[cfg(test)]
mod tests;
