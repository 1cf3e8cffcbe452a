//! Registrations of kinds on a condition: one database decides, and all others copy what it has decided (RK1).

use onward_core::queue::QueueSettings;
use onward_core::{KindSchemas, RunId, RunKey, Timestamp};
use onward_store::{KindCondition, Registration, Store, StoreError};

use crate::sharded::merge::{Request, join_all};
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

    /// Registers settings of queues in all databases, each with its part of the limits; fails if one is down.
    pub(crate) async fn register_limits(
        &self,
        kinds: Vec<KindSchemas>,
        registration: Registration,
    ) -> Result<Timestamp, StoreError> {
        let count = self.databases.len() as u32;
        let parts = (0..count).map(|position| kinds.iter().map(|kind| limit_part(kind, position, count)).collect());
        let parts: Vec<Vec<KindSchemas>> = parts.collect::<Result<_, StoreError>>()?;
        let requests = self.databases.iter().zip(parts).map(|(database, kinds)| {
            let registration = registration.clone();
            let answer = database.request(move |store| store.register_kinds(kinds, registration));
            Box::pin(answer) as Request<'_, Result<Timestamp, StoreError>>
        });
        let answers: Result<Vec<Timestamp>, StoreError> = join_all(requests.collect()).await.into_iter().collect();
        Ok(answers?.into_iter().max().unwrap_or_default())
    }
}

/// Returns the row that one database stores: settings of a queue with its part of the limits.
fn limit_part(kind: &KindSchemas, position: u32, count: u32) -> Result<KindSchemas, StoreError> {
    let part = |settings: &QueueSettings| settings.part(position, count).map(Box::new);
    let queue = kind.queue.as_deref().map(part).transpose();
    Ok(KindSchemas { queue: queue.map_err(|field| StoreError::LimitTooSmall { field, count })?, ..kind.clone() })
}
