//! Parses durations: `90d`, `24h`, `30m`, `10s`.

use std::time::Duration;

pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a duration like 90d, 24h, 30m or 10s".to_owned();
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        'd' => 86_400,
        'h' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let count = &text[..text.len() - 1];
    if !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    // Limited so that the resulting time can still be formatted.
    let count = count.parse::<u64>().map_err(|_| wrong())?;
    let span = count.checked_mul(seconds).filter(|span| *span <= 36_500 * 86_400).ok_or("must be at most 36500d")?;
    Ok(Duration::from_secs(span))
}

/// Parses a duration greater than zero.
pub fn parse_positive(text: &str) -> Result<Duration, String> {
    parse(text).and_then(|span| if span.is_zero() { Err("must be greater than 0s".to_owned()) } else { Ok(span) })
}

#[cfg(test)]
mod tests;
