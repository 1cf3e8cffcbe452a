//! Live defaults of kinds.

use onward_core::Name;
use onward_core::api::{DefaultsQuery, PutDefaultsRequest, SourcedDefaults};

use super::Onward;
use crate::builder::Defaults;
use crate::error::Error;

impl Onward {
    /// Replaces the live defaults of a kind, for tasks and runs that start from now on; other servers apply them within a
    /// second. Without any option they are removed. Returns the defaults from all sources, in order of precedence.
    pub async fn put_defaults(&self, kind: &str, set: impl FnOnce(Defaults) -> Defaults) -> Result<Vec<SourcedDefaults>, Error> {
        let (namespace, kind) = (self.namespace().clone(), Name::new(kind)?);
        let defaults = set(Defaults::default()).stored()?;
        let put = PutDefaultsRequest { namespace, kind, defaults };
        Ok(self.call(self.inner.client.put_defaults(put)).await?.defaults)
    }

    /// Lists the defaults of a kind from all sources, in order of precedence.
    pub async fn list_defaults(&self, kind: &str) -> Result<Vec<SourcedDefaults>, Error> {
        let query = DefaultsQuery { namespace: self.namespace().clone(), kind: Some(Name::new(kind)?) };
        Ok(self.call(self.inner.client.list_defaults(query)).await?.defaults)
    }
}
