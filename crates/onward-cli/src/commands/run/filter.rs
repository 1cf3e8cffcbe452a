//! The filter of commands that select runs, and parsing of attributes.

use clap::Args;
use onward_core::api::RunQuery;
use onward_core::{Attribute, AttributeMatch, AttributeValue, Name, NameError, Namespace, Status};
use onward_runtime::RuntimeError;

use crate::args::one_of;

#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Select runs of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Select runs of this version (repeatable)
    #[arg(long)]
    version: Vec<String>,
    /// Select runs with this status (repeatable)
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = one_of(Status::ALL, Status::as_str))]
    status: Vec<Status>,
    /// Select runs with this attribute value (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    attr: Vec<String>,
}

impl FilterArgs {
    pub fn query(&self, namespace: Namespace, limit: usize) -> Result<RunQuery, RuntimeError> {
        Ok(RunQuery {
            namespace,
            kind: self.kind.as_deref().map(Name::new).transpose()?,
            versions: self.version.iter().map(|version| Name::new(version).map(Some)).collect::<Result<_, _>>()?,
            statuses: self.status.clone(),
            attributes: self.attr.iter().map(|text| wanted(text)).collect::<Result<_, _>>()?,
            limit,
            ..RunQuery::default()
        })
    }
}

/// Parses `NAME=VALUE` of a filter: the value may have any type.
pub fn wanted(text: &str) -> Result<AttributeMatch, NameError> {
    split(text).map(|(name, value)| AttributeMatch::typed(name, value))
}

/// Parses `NAME=VALUE` of a new run: numbers, booleans and times get their type; quoted text is always text.
pub fn attribute(text: &str) -> Result<Attribute, NameError> {
    let (name, value) = split(text)?;
    let quoted = serde_json::from_str::<String>(value).ok().map(AttributeValue::Text);
    let meant = || AttributeValue::readings(value).pop().expect("every value can be read as text");
    Ok(Attribute { name, value: quoted.unwrap_or_else(meant) })
}

/// Splits `NAME=VALUE`. The value is empty if it is missing.
fn split(text: &str) -> Result<(Name, &str), NameError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    Ok((Name::new(name)?, value))
}

#[cfg(test)]
mod tests;
