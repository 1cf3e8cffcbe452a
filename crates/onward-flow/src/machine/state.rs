//! The state of a path, which is limited in size.

use std::io;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::plan::MachineLimits;
use super::turn::FlowFailure;

/// The state of a path. A copy is cheap: it is shared until one of the copies changes.
#[derive(Debug, Clone)]
pub struct PathState {
    names: Arc<Value>,
    /// The size as JSON.
    bytes: usize,
}

impl Default for PathState {
    fn default() -> PathState {
        PathState { names: Arc::new(Value::Object(Map::new())), bytes: 2 }
    }
}

impl PathState {
    /// Sets a name, unless the state becomes too large.
    pub fn set(&mut self, name: &str, value: Value, limits: &MachineLimits) -> Result<(), FlowFailure> {
        if depth(&value) > limits.depth {
            return Err(too_large(format!("the value of `{name}` has more than {} levels", limits.depth)));
        }
        let old = self.names.get(name).map_or(0, |old| entry_bytes(name, old));
        let bytes = self.bytes - old + entry_bytes(name, &value);
        if bytes > limits.state_bytes {
            return Err(too_large(format!("with `{name}` the state has {bytes} bytes, more than {}", limits.state_bytes)));
        }
        if let Value::Object(names) = Arc::make_mut(&mut self.names) {
            names.insert(name.to_owned(), value);
        }
        self.bytes = bytes;
        Ok(())
    }

    pub fn share(&self) -> Arc<Value> {
        self.names.clone()
    }

    pub fn to_value(&self) -> Value {
        Value::clone(&self.names)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns a failure for a value that is too large for the state.
pub fn too_large(message: String) -> FlowFailure {
    FlowFailure::permanent("value_too_large", message)
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Returns the bytes of an entry as JSON, with its separators.
fn entry_bytes(name: &str, value: &Value) -> usize {
    2 + written_bytes(name) + json_bytes(value)
}

/// Returns the bytes of a value as JSON.
pub fn json_bytes(value: &Value) -> usize {
    written_bytes(value)
}

fn written_bytes(value: &(impl serde::Serialize + ?Sized)) -> usize {
    let mut count = Count(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// A writer that counts bytes.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
