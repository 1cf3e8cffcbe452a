//! Kinds that a worker declares in its hello.

use onward_core::{ErrorCode, KindSchemas, Name, Namespace};
use onward_runtime::Runtime;
use onward_wire::worker::{Hello, KindOffer, TaskSchemas, VersionSchemas};

use super::{SessionKey, Sessions};
use crate::Problem;
use crate::verbs::Principal;

/// Maximum number of kinds with schemas per worker; each schema is compiled once for validation.
const SCHEMAS_MAX: usize = 1_000;

impl Sessions {
    /// Registers the schemas of a worker's kinds on its first connection only, so that a reconnect cannot overwrite the schemas
    /// of a newer worker.
    pub async fn register(&self, runtime: &Runtime, by: &Principal, hello: &Hello) -> Result<(), Problem> {
        by.caller.bounds.check_hello(hello)?;
        if self.find(&SessionKey::new(by, &hello.worker)).is_some() {
            return Ok(());
        }
        let schemas = schemas_of(&by.namespace, hello)?;
        if schemas.iter().filter(|kind| kind.has_schemas()).count() > SCHEMAS_MAX {
            let detail = format!("the worker has schemas for more than {SCHEMAS_MAX} kinds");
            return Err(Problem::new(ErrorCode::SchemaInvalid, detail, None));
        }
        Ok(runtime.register_kinds(&by.namespace, schemas).await?)
    }
}

/// Returns an entry for every kind and version of the worker, also without schemas.
fn schemas_of(namespace: &Namespace, hello: &Hello) -> Result<Vec<KindSchemas>, Problem> {
    let mut all = Vec::new();
    for offer in &hello.kinds {
        for version in &offer.versions {
            let version = if version.is_empty() { None } else { Some(Name::new(version)?) };
            all.push(of_version(namespace, offer, version));
        }
    }
    all.extend(hello.task_kinds.iter().map(|kind| of_task(namespace, hello, kind)));
    Ok(all)
}

fn of_version(namespace: &Namespace, offer: &KindOffer, version: Option<Name>) -> KindSchemas {
    let is_current = version.is_none() || version == offer.current;
    let own = offer.version_schemas.iter().find(|own| Some(&own.version) == version.as_ref());
    let is_internal = offer.is_internal;
    let empty = KindSchemas { is_internal, ..KindSchemas::empty(namespace.clone(), offer.kind.clone(), version) };
    match own.cloned() {
        Some(own) => {
            let VersionSchemas { input_schema: input, output_schema: output, defaults, signals, updates, update_answers, .. } =
                own;
            KindSchemas { input, output, defaults, signals, updates, update_answers, ..empty }
        }
        None if is_current => {
            let KindOffer { input_schema: input, output_schema: output, defaults, .. } = offer.clone();
            let KindOffer { signals, updates, update_answers, .. } = offer.clone();
            KindSchemas { input, output, defaults, signals, updates, update_answers, ..empty }
        }
        None => empty,
    }
}

fn of_task(namespace: &Namespace, hello: &Hello, kind: &Name) -> KindSchemas {
    let empty = KindSchemas { is_task: true, ..KindSchemas::empty(namespace.clone(), kind.clone(), None) };
    match hello.task_schemas.iter().find(|own| own.kind == *kind).cloned() {
        Some(TaskSchemas { input_schema: input, output_schema: output, is_internal, defaults, .. }) => {
            KindSchemas { input, output, is_internal, defaults, ..empty }
        }
        None => empty,
    }
}
