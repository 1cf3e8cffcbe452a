//! The operator's table of models: which may be called, where they are, and what they cost.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{CallError, TableError};
use crate::formats::response::Sink;
use crate::price::Price;
use crate::provider::{ApiFormat, Key, Limits, Provider};
use crate::transport::http::Http;
use crate::{JsonText, ModelReply, ModelRequest, ModelRetries};

/// The table as an operator writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelTable {
    #[serde(default)]
    pub providers: BTreeMap<String, ProviderSettings>,
    #[serde(default)]
    pub models: BTreeMap<String, ModelSettings>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSettings {
    pub api_format: ApiFormat,
    pub base_url: String,
    /// The environment variable that has the key; the key itself is never in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// Sent with every request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The field name for the token limit in OpenAI's format: `max_tokens` or `max_completion_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_bytes_max: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<RetrySettings>,
}

/// [`ModelRetries`] as an operator writes it; absent fields have their defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetrySettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_delay_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_max_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_max_seconds: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    pub provider: String,
    /// The provider's name of the model, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Dollars per million tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Default for requests without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Fields of the provider's own request, as JSON; those of a request override them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extras: BTreeMap<String, JsonText>,
}

impl ProviderSettings {
    pub fn new(api_format: ApiFormat, base_url: &str) -> ProviderSettings {
        ProviderSettings {
            api_format,
            base_url: base_url.to_owned(),
            key_env: None,
            headers: BTreeMap::new(),
            max_tokens_name: None,
            call_timeout_seconds: None,
            idle_timeout_seconds: None,
            answer_bytes_max: None,
            retries: None,
        }
    }

    pub(crate) fn retries(&self) -> ModelRetries {
        let (settings, usual) = (self.retries.unwrap_or_default(), ModelRetries::default());
        ModelRetries {
            busy_max: settings.busy_max.unwrap_or(usual.busy_max),
            outage_max: settings.outage_max.unwrap_or(usual.outage_max),
            answer_max: settings.answer_max.unwrap_or(usual.answer_max),
            first_delay: settings.first_delay_seconds.map_or(usual.first_delay, Duration::from_secs),
            delay_max: settings.delay_max_seconds.map_or(usual.delay_max, Duration::from_secs),
            wait_max: settings.wait_max_seconds.map_or(usual.wait_max, Duration::from_secs),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        let usual = Limits::default();
        Limits {
            call_timeout: self.call_timeout_seconds.map_or(usual.call_timeout, Duration::from_secs),
            idle_timeout: self.idle_timeout_seconds.map_or(usual.idle_timeout, Duration::from_secs),
            answer_bytes_max: self.answer_bytes_max.unwrap_or(usual.answer_bytes_max),
        }
    }
}

/// The opened table: every provider has its key and its connections.
#[derive(Debug)]
pub struct Models {
    models: BTreeMap<String, Result<Model, TableError>>,
}

/// A model that may be called.
#[derive(Debug, Clone)]
pub struct Model {
    pub provider: Provider,
    pub settings: ModelSettings,
    /// The name that callers use.
    pub name: String,
}

impl Models {
    /// Opens a table and reads keys with `env`. A missing key is an error only of the models that need it, when they are
    /// called.
    pub fn open(table: &ModelTable, http: &Http, env: impl Fn(&str) -> Option<String>) -> Result<Models, TableError> {
        let mut providers = BTreeMap::new();
        for (name, settings) in &table.providers {
            let key = settings.key_env.as_ref().map(|variable| (variable, env(variable).filter(|key| !key.is_empty())));
            let provider = match key {
                Some((variable, None)) => Err(variable.clone()),
                Some((_, Some(key))) => Ok(Provider::new(name, settings, Some(Key::new(key)), http)?),
                None => Ok(Provider::new(name, settings, None, http)?),
            };
            providers.insert(name.as_str(), provider);
        }
        let mut models = BTreeMap::new();
        for (name, settings) in &table.models {
            let why = || format!("model `{name}`: unknown provider `{}`", settings.provider);
            let provider = providers.get(settings.provider.as_str()).ok_or_else(|| TableError::Invalid { why: why() })?;
            let model = match provider {
                Ok(provider) => Ok(Model { provider: provider.clone(), settings: settings.clone(), name: name.clone() }),
                Err(variable) => Err(TableError::KeyMissing { model: name.clone(), variable: variable.clone() }),
            };
            models.insert(name.clone(), model);
        }
        Ok(Models { models })
    }

    pub fn find(&self, model: &str) -> Result<&Model, TableError> {
        match self.models.get(model) {
            Some(found) => found.as_ref().map_err(Clone::clone),
            None => Err(TableError::UnknownModel { model: model.to_owned() }),
        }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(String::as_str)
    }
}

impl Model {
    /// Returns a model without a price that has the same name at its provider.
    pub fn new(name: &str, provider: Provider) -> Model {
        let settings = ModelSettings { provider: provider.name().to_owned(), ..ModelSettings::default() };
        Model { provider, settings, name: name.to_owned() }
    }

    /// Makes one attempt with this model; the model name in the request is ignored.
    pub async fn call(&self, request: &ModelRequest, sink: Sink<'_>) -> Result<ModelReply, CallError> {
        self.provider.call(&self.prepare(request), sink).await
    }

    /// Returns the request with the settings of the table applied.
    fn prepare(&self, request: &ModelRequest) -> ModelRequest {
        let ModelSettings { name, max_tokens, extras, .. } = &self.settings;
        let mut request = request.clone();
        request.model = name.clone().unwrap_or_else(|| self.name.clone());
        request.max_tokens = request.max_tokens.or(*max_tokens);
        let own = std::mem::replace(&mut request.extras, extras.clone());
        request.extras.extend(own);
        request
    }
}

#[cfg(test)]
mod tests;
