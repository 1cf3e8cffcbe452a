//! The table of settings.

use onward_server::Limits;

/// One setting.
pub struct SettingKey {
    /// `table.key` as in the file.
    pub name: &'static str,
    pub what: &'static str,
    pub default: Option<fn() -> String>,
    /// A path; in a file, relative to the file.
    pub is_path: bool,
    /// Masked in output, and never read from a file.
    pub is_secret: bool,
    /// Comma-separated texts; a file may have a list of them.
    pub is_list: bool,
}

const fn key(name: &'static str, what: &'static str) -> SettingKey {
    SettingKey { name, what, default: None, is_path: false, is_secret: false, is_list: false }
}

impl SettingKey {
    const fn default(self, default: fn() -> String) -> SettingKey {
        SettingKey { default: Some(default), ..self }
    }

    const fn path(self) -> SettingKey {
        SettingKey { is_path: true, ..self }
    }

    const fn secret(self) -> SettingKey {
        SettingKey { is_secret: true, ..self }
    }

    const fn list(self) -> SettingKey {
        SettingKey { is_list: true, ..self }
    }

    pub fn of(name: &str) -> Option<&'static SettingKey> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// Returns the environment variable: ONWARD_SERVER__LISTEN for `server.listen`.
    pub fn variable(&self) -> String {
        format!("ONWARD_{}", self.name.replace('.', "__").to_uppercase())
    }
}

fn seconds(of: fn(Limits) -> std::time::Duration) -> String {
    format!("{}s", of(Limits::default()).as_secs())
}

/// All settings, in display order.
pub static KEYS: &[SettingKey] = &[
    key("url", "URL of the server for commands"),
    key("data", "data directory for commands without a server, and of `dev` and `server`")
        .path()
        .default(|| "./onward-data".to_owned()),
    key("namespace", "namespace for commands").default(|| "default".to_owned()),
    key("key", "API key for the server").secret(),
    key("key_file", "file with the API key").path(),
    key("dev.port", "port of `onward dev`").default(|| crate::serving::PORT.to_string()),
    key("server.listen", "address of `onward server`").default(|| format!("127.0.0.1:{}", crate::serving::PORT)),
    key("server.store", "store of `onward server`: `postgres://…`, `embedded:DIR` or `memory:`"),
    key("server.lease", "time without contact after which a worker loses its runs and tasks")
        .default(|| format!("{}s", onward_runtime::Options::default().lease.as_secs())),
    key("server.pause_after_lost_workers", "workers that a run loses in a row before it is paused; 0 is no limit")
        .default(|| onward_core::run::lost_workers::PAUSE_AFTER_LOST_WORKERS.to_string()),
    key("server.namespaces", "comma-separated namespaces in which flows, and the models and agents of the file, run")
        .list()
        .default(|| "default".to_owned()),
    key("server.attachments", "directory of attachments that messages reference by hash").path(),
    key("flows.dir", "directory of flows, whose documents `onward dev` and `onward server` store when they change").path(),
    key("flows.http", "comma-separated hosts that the action `http` of flows may reach").list(),
    key("flows.documents", "directory below which the actions `read` and `write` of flows use files").path(),
    key("flows.model", "model of prompts of flows that name none"),
    key("server.keys", "key file of a server").path(),
    key("server.cors_origins", "comma-separated origins whose web pages may call a server; `*` is every origin").list(),
    key("tls_cert", "certificate of `onward server` with its chain, PEM").path(),
    key("tls_key", "private key of the certificate, PEM").path(),
    key("log.format", "log format: `pretty` or `json`"),
    key("log.level", "log level: `error`, `warn`, `info` or `debug`").default(|| "info".to_owned()),
    key("limits.connections_max", "concurrent connections").default(|| Limits::default().connections_max.to_string()),
    key("limits.streams_max", "concurrent requests per connection").default(|| Limits::default().streams_max.to_string()),
    key("limits.body_bytes_max", "maximum request body in bytes").default(|| Limits::default().body_bytes_max.to_string()),
    key("limits.body_memory_max", "bytes of large bodies in memory at a time")
        .default(|| Limits::default().body_memory_max.to_string()),
    key("limits.body_rate_min", "minimum rate of a large body in bytes per second")
        .default(|| Limits::default().body_rate_min.to_string()),
    key("limits.webhook_bytes_max", "maximum webhook body in bytes").default(|| Limits::default().webhook_bytes_max.to_string()),
    key("limits.webhook_memory_max", "bytes of large webhook bodies in memory at a time")
        .default(|| Limits::default().webhook_memory_max.to_string()),
    key("limits.header_bytes_max", "maximum request head in bytes").default(|| Limits::default().header_bytes_max.to_string()),
    key("limits.headers_max", "maximum number of headers").default(|| Limits::default().headers_max.to_string()),
    key("limits.header_timeout", "time for the headers of a request").default(|| seconds(|limits| limits.header_timeout)),
    key("limits.body_timeout", "time for a body").default(|| seconds(|limits| limits.body_timeout)),
    key("limits.webhook_timeout", "time for a webhook body").default(|| seconds(|limits| limits.webhook_timeout)),
    key("limits.idle_timeout", "time that a connection may be idle").default(|| seconds(|limits| limits.idle_timeout)),
    key("limits.write_timeout", "time that a response may stay unread").default(|| seconds(|limits| limits.write_timeout)),
    key("limits.shutdown_timeout", "time for open requests at shutdown").default(|| seconds(|limits| limits.shutdown_timeout)),
];

#[cfg(test)]
mod tests;
