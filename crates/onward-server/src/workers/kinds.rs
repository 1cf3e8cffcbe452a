//! Kinds that a worker declares in its hello.

use onward_core::{ErrorCode, KindSchemas, Name, Namespace, Payload, Timestamp};
use onward_runtime::Runtime;
use onward_wire::worker::Hello;

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
    let entry =
        |is_task: bool, kind: &Name, version: Option<Name>, schemas: (&Option<Payload>, &Option<Payload>), is_internal: bool| {
            KindSchemas {
                namespace: namespace.clone(),
                is_task,
                kind: kind.clone(),
                version,
                input: schemas.0.clone(),
                output: schemas.1.clone(),
                registered_at: Timestamp(0),
                is_internal,
            }
        };
    let mut all = Vec::new();
    for offer in &hello.kinds {
        for version in &offer.versions {
            let version = if version.is_empty() { None } else { Some(Name::new(version)?) };
            let is_current = version.is_none() || version == offer.current;
            let own = offer.version_schemas.iter().find(|own| Some(&own.version) == version.as_ref());
            let schemas = match own {
                Some(own) => (&own.input_schema, &own.output_schema),
                None if is_current => (&offer.input_schema, &offer.output_schema),
                None => (&None, &None),
            };
            all.push(entry(false, &offer.kind, version, schemas, offer.is_internal));
        }
    }
    for kind in &hello.task_kinds {
        let own = hello.task_schemas.iter().find(|own| own.kind == *kind);
        let schemas = own.map_or((&None, &None), |own| (&own.input_schema, &own.output_schema));
        all.push(entry(true, kind, None, schemas, own.is_some_and(|own| own.is_internal)));
    }
    Ok(all)
}
