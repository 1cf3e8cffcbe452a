//! Which runs are meant: the filter of every command that is about many, and attributes as they are typed.

use clap::Args;
use clap::builder::PossibleValue;
use onward_core::{Attribute, AttributeMatch, AttributeValue, Name, NameError, Namespace, Status};
use onward_store::RunQuery;

#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Only runs of this workflow
    #[arg(long)]
    kind: Option<String>,
    /// Only runs of this version; may be given several times
    #[arg(long)]
    version: Vec<String>,
    /// Only runs of this status; may be given several times
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Vec<WantedStatus>,
    /// Only runs with this value of an attribute; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    attr: Vec<String>,
}

impl FilterArgs {
    pub fn query(&self, namespace: Namespace, limit: usize) -> Result<RunQuery, NameError> {
        let wanted = |text: &String| split(text).map(|(name, value)| AttributeMatch::typed(name, value));
        Ok(RunQuery {
            namespace,
            kind: self.kind.as_deref().map(Name::new).transpose()?,
            versions: self.version.iter().map(|version| Name::new(version).map(Some)).collect::<Result<_, _>>()?,
            statuses: self.status.iter().map(|status| status.0).collect(),
            attributes: self.attr.iter().map(wanted).collect::<Result<_, _>>()?,
            limit,
            ..RunQuery::default()
        })
    }
}

/// `NAME=VALUE` of a run to be: a number, `true` or `false` and a time are what they look like, and a text in quotes is a text.
pub fn attribute(text: &str) -> Result<Attribute, NameError> {
    let (name, value) = split(text)?;
    let quoted = serde_json::from_str::<String>(value).ok().map(AttributeValue::Text);
    let meant = || AttributeValue::readings(value).pop().expect("everything can be read as a text");
    Ok(Attribute { name, value: quoted.unwrap_or_else(meant) })
}

/// Without a value, the empty text.
fn split(text: &str) -> Result<(Name, &str), NameError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    Ok((Name::new(name)?, value))
}

#[derive(Debug, Clone, Copy)]
struct WantedStatus(Status);

impl clap::ValueEnum for WantedStatus {
    fn value_variants<'a>() -> &'a [Self] {
        use Status::*;
        &[
            WantedStatus(Pending),
            WantedStatus(Running),
            WantedStatus(Waiting),
            WantedStatus(Paused),
            WantedStatus(Completed),
            WantedStatus(Failed),
            WantedStatus(Canceled),
            WantedStatus(Terminated),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_what_it_looks_like_and_a_text_in_quotes_is_a_text() {
        let value = |text: &str| attribute(text).unwrap().value;
        let text = |text: &str| AttributeValue::Text(text.to_owned());
        assert_eq!(value("n=42"), AttributeValue::Int(42));
        assert_eq!(value("n=\"42\""), text("42"));
        assert_eq!(value("n=042"), text("042"));
        assert_eq!(value("n=true"), AttributeValue::Bool(true));
        assert_eq!(value("n=a=b"), text("a=b"));
        assert_eq!(value("n"), text(""));
        assert!(matches!(value("n=2026-11-15T05:00:00Z"), AttributeValue::Time(_)));
        assert!(attribute("=1").is_err());
    }
}
