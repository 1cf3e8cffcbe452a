//! Limits of a server from the settings.

use std::time::Duration;

use onward_server::Limits;

use crate::config::Config;
use crate::error::Mistake;
use crate::span;

pub fn limits(config: &Config) -> Result<Limits, Mistake> {
    let defaults = Limits::default();
    let count = |name: &str, default: usize| Ok::<_, Mistake>(config.parsed(name, positive)?.unwrap_or(default));
    let time = |name: &str, default: Duration| Ok::<_, Mistake>(config.parsed(name, span::parse_positive)?.unwrap_or(default));
    Ok(Limits {
        connections_max: count("limits.connections_max", defaults.connections_max)?,
        streams_max: u32::try_from(count("limits.streams_max", defaults.streams_max as usize)?).unwrap_or(u32::MAX),
        body_bytes_max: count("limits.body_bytes_max", defaults.body_bytes_max)?,
        body_memory_max: count("limits.body_memory_max", defaults.body_memory_max)?,
        body_rate_min: count("limits.body_rate_min", defaults.body_rate_min as usize)? as u64,
        webhook_bytes_max: count("limits.webhook_bytes_max", defaults.webhook_bytes_max)?,
        webhook_memory_max: count("limits.webhook_memory_max", defaults.webhook_memory_max)?,
        header_bytes_max: count("limits.header_bytes_max", defaults.header_bytes_max)?,
        headers_max: count("limits.headers_max", defaults.headers_max)?,
        header_timeout: time("limits.header_timeout", defaults.header_timeout)?,
        body_timeout: time("limits.body_timeout", defaults.body_timeout)?,
        webhook_timeout: time("limits.webhook_timeout", defaults.webhook_timeout)?,
        idle_timeout: time("limits.idle_timeout", defaults.idle_timeout)?,
        write_timeout: time("limits.write_timeout", defaults.write_timeout)?,
        shutdown_timeout: time("limits.shutdown_timeout", defaults.shutdown_timeout)?,
        ..defaults
    })
}

/// Returns the lease duration: a worker without contact for longer loses its runs and tasks.
pub fn lease(config: &Config) -> Result<Duration, Mistake> {
    let default = onward_runtime::Options::default().lease;
    Ok(config.parsed("server.lease", span::parse_positive)?.unwrap_or(default))
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "must be an integer greater than 0".to_owned())
}

#[cfg(test)]
mod tests;
