//! Schemas of the signals and updates that callers send to runs.
//!
//! Signals that runs send each other are not checked: they pass from code to code. A payload that is not JSON may be encrypted
//! and is not checked either.
//!
//! Invariant KI5: a signal or update of a caller that does not fit its schema in the kind and version of the run is not recorded.

use onward_core::{Name, Namespace, Payload, RunKey};

use crate::schemas::kinds::KindKey;
use crate::{Runtime, RuntimeError, Signal};

/// A signal or update on its way to a run.
struct CallerMessage<'a> {
    is_update: bool,
    name: &'a Name,
    payload: &'a Payload,
}

impl<'a> From<&'a Signal> for CallerMessage<'a> {
    fn from(signal: &'a Signal) -> CallerMessage<'a> {
        CallerMessage { is_update: false, name: &signal.name, payload: &signal.payload }
    }
}

impl Runtime {
    /// Fails for a signal that does not fit its schema in the kind of the run (KI5).
    pub(crate) async fn check_signal(&self, run: &RunKey, signal: &Signal) -> Result<(), RuntimeError> {
        self.check_to(run, signal.into()).await
    }

    /// Fails for an update that does not fit its schema in the kind of the run (KI5).
    pub(crate) async fn check_update(&self, run: &RunKey, name: &Name, payload: &Payload) -> Result<(), RuntimeError> {
        self.check_to(run, CallerMessage { is_update: true, name, payload }).await
    }

    /// Fails for a signal that comes with the start of a run and does not fit its schema (KI5).
    pub(crate) async fn check_first_signal(
        &self,
        namespace: &Namespace,
        kind: &KindKey,
        signal: &Signal,
    ) -> Result<(), RuntimeError> {
        self.check_against(namespace, kind, signal.into()).await
    }

    async fn check_to(&self, run: &RunKey, message: CallerMessage<'_>) -> Result<(), RuntimeError> {
        if !self.known_kinds(&run.namespace).await?.has_messages {
            return Ok(());
        }
        // The store decides about a run that does not exist.
        let Some(head) = self.store().read_run(run.clone(), None).await? else { return Ok(()) };
        self.check_against(&run.namespace, &(false, head.kind, head.version), message).await
    }

    async fn check_against(&self, namespace: &Namespace, key: &KindKey, message: CallerMessage<'_>) -> Result<(), RuntimeError> {
        let CallerMessage { is_update, name, payload } = message;
        let known = self.known_kinds(namespace).await?;
        let Some(schema) = known.message_schema(key, is_update, name) else { return Ok(()) };
        let (kind, which) = (key.1.clone(), if is_update { "update" } else { "signal" });
        let invalid = |why| RuntimeError::SchemaInvalid { kind: kind.clone(), which, why };
        let violations = schema.violations(payload).await.map_err(invalid)?;
        let name = name.clone();
        match (violations.is_empty(), is_update) {
            (true, _) => Ok(()),
            (false, true) => Err(RuntimeError::UpdateInvalid { kind, name, violations }),
            (false, false) => Err(RuntimeError::SignalInvalid { kind, name, violations }),
        }
    }
}
