//! What can be set.

use onward_server::Limits;

/// One setting.
pub struct Key {
    /// `table.key` as the file has it.
    pub name: &'static str,
    pub what: &'static str,
    pub default: Option<fn() -> String>,
    /// A path: in a file it counts from where the file is.
    pub is_path: bool,
    /// Shown without its secret part, and never read from a file.
    pub is_secret: bool,
}

const fn key(name: &'static str, what: &'static str) -> Key {
    Key { name, what, default: None, is_path: false, is_secret: false }
}

impl Key {
    const fn default(self, default: fn() -> String) -> Key {
        Key { default: Some(default), ..self }
    }

    const fn path(self) -> Key {
        Key { is_path: true, ..self }
    }

    const fn secret(self) -> Key {
        Key { is_secret: true, ..self }
    }

    pub fn of(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// `server.listen` is ONWARD_SERVER__LISTEN.
    pub fn variable(&self) -> String {
        format!("ONWARD_{}", self.name.replace('.', "__").to_uppercase())
    }
}

fn seconds(of: fn(Limits) -> std::time::Duration) -> String {
    format!("{}s", of(Limits::default()).as_secs())
}

/// All settings, in the order in which they are shown.
pub static KEYS: &[Key] = &[
    key("url", "the server that verbs work on"),
    key("data", "the directory that verbs work on, and that `dev` and `server` serve")
        .path()
        .default(|| "./onward-data".to_owned()),
    key("namespace", "the namespace of verbs").default(|| "default".to_owned()),
    key("key", "the key that the server asks for").secret(),
    key("key_file", "a file with that key in it").path(),
    key("dev.port", "the port of `onward dev`").default(|| crate::serving::PORT.to_string()),
    key("server.listen", "the address of `onward server`").default(|| format!("127.0.0.1:{}", crate::serving::PORT)),
    key("server.store", "the store of `onward server`: `postgres://…`, `embedded:DIR` or `memory:`"),
    key("server.lease", "how long a worker may be silent before its runs and tasks go to others")
        .default(|| format!("{}s", onward_runtime::Options::default().lease.as_secs())),
    key("server.namespaces", "the namespaces, apart by commas, for which the models and agents of the file work")
        .default(|| "default".to_owned()),
    key("server.attachments", "the folder with attachments that messages name by their hash").path(),
    key("server.keys", "the file with the keys that a server lets in").path(),
    key("tls_cert", "the certificate of `onward server` with its chain, PEM").path(),
    key("tls_key", "the certificate's private key, PEM").path(),
    key("log.format", "`pretty` or `json`"),
    key("log.level", "`error`, `warn`, `info` or `debug`").default(|| "info".to_owned()),
    key("limits.connections_max", "connections at a time").default(|| Limits::default().connections_max.to_string()),
    key("limits.streams_max", "requests at a time on one connection").default(|| Limits::default().streams_max.to_string()),
    key("limits.body_bytes_max", "the largest body").default(|| Limits::default().body_bytes_max.to_string()),
    key("limits.body_memory_max", "bytes of large bodies in memory at a time")
        .default(|| Limits::default().body_memory_max.to_string()),
    key("limits.body_rate_min", "bytes in a second with which a large body arrives, at least")
        .default(|| Limits::default().body_rate_min.to_string()),
    key("limits.hook_bytes_max", "the largest body of a hook").default(|| Limits::default().hook_bytes_max.to_string()),
    key("limits.hook_memory_max", "bytes of large bodies of hooks in memory at a time")
        .default(|| Limits::default().hook_memory_max.to_string()),
    key("limits.header_bytes_max", "the first line and all headers").default(|| Limits::default().header_bytes_max.to_string()),
    key("limits.headers_max", "headers of a request").default(|| Limits::default().headers_max.to_string()),
    key("limits.header_timeout", "how long the headers may take").default(|| seconds(|limits| limits.header_timeout)),
    key("limits.body_timeout", "how long a body may take").default(|| seconds(|limits| limits.body_timeout)),
    key("limits.hook_timeout", "how long the body of a hook may take").default(|| seconds(|limits| limits.hook_timeout)),
    key("limits.idle_timeout", "how long a connection may rest").default(|| seconds(|limits| limits.idle_timeout)),
    key("limits.write_timeout", "how long an answer may stay unread").default(|| seconds(|limits| limits.write_timeout)),
    key("limits.shutdown_timeout", "how long requests may go on at the end")
        .default(|| seconds(|limits| limits.shutdown_timeout)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_said_once_and_follow_the_rule() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..at].iter().all(|other| other.name != key.name), "{}", key.name);
            assert!(key.name.split('.').count() <= 2 && !key.what.is_empty());
        }
        assert_eq!(Key::of("url").unwrap().variable(), "ONWARD_URL");
        assert_eq!(Key::of("limits.body_timeout").unwrap().variable(), "ONWARD_LIMITS__BODY_TIMEOUT");
    }
}
