//! Registrations of kinds on a condition: one database decides, and all others copy what it has decided (RK1).

use onward_core::{KindSchemas, RunId, RunKey, Timestamp};
use onward_store::{KindCondition, Registration, Store, StoreError};

use crate::sharded::routing::ShardedStore;

impl ShardedStore {
    /// Registers in the database to which a run with the name of the condition's kind would belong; fails while it is down.
    pub(crate) async fn register_at_home(
        &self,
        kinds: Vec<KindSchemas>,
        condition: KindCondition,
    ) -> Result<Timestamp, StoreError> {
        let id = RunId::new(condition.kind.as_str()).map_err(|error| StoreError::Unavailable { why: error.to_string() })?;
        let home = RunKey::new(condition.namespace.clone(), id);
        let register = |kinds, registration| self.request_one(&home, |store| store.register_kinds(kinds, registration));
        match register(kinds.clone(), Registration::If(condition.clone())).await {
            Err(StoreError::KindChanged { .. }) => {}
            registered => return registered,
        }
        // It may have missed the last registration, which another database has.
        let known = self.list_kinds(condition.namespace.clone()).await?;
        if let Some(latest) = condition.latest(&known).cloned() {
            let at = latest.registered_at;
            register(vec![latest], Registration::Copy { at }).await?;
        }
        register(kinds, Registration::If(condition)).await
    }
}
