//! Registration of flows, and what their actions may use.

use std::path::Path;
use std::sync::Arc;

use onward_flow::document::{self, Flow, Known, Severity, input_schema};

use super::Builder;
use crate::RegisterError;
use crate::flow::{DefaultModel, Documents, FlowShell, HttpHosts};

impl Builder {
    /// Registers a flow under its name. New runs are pinned to its version ([`Flow::version`]), and a start with an input that it
    /// does not accept is refused like that of [`Builder::input_schema`].
    ///
    /// Register its models and tasks on this builder or on those of other workers.
    pub fn flow(self, flow: &Flow) -> Builder {
        self.register_flow(flow, |builder, shell| {
            builder.foreign(&flow.flow, false, shell).version(&flow.version()).input_schema(input_schema(flow))
        })
    }

    /// Registers the flow of a YAML or JSON document; [`Builder::start`] fails if it has errors.
    pub fn flow_text(mut self, text: &str) -> Builder {
        let parsed = document::parse(text, "the document");
        let problems = document::check(&parsed, &Known::default());
        let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
        let errors: Vec<String> = errors.map(ToString::to_string).collect();
        match parsed.flow {
            Some(flow) if errors.is_empty() => self.flow(&flow),
            flow => {
                let name = flow.map(|flow| flow.flow).unwrap_or_default();
                self.registry.wrong(RegisterError::Flow { flow: name, problems: errors.join("; ") });
                self
            }
        }
    }

    /// Registers an earlier document of the flow just registered, for the runs that are pinned to it.
    pub fn previous_flow(self, flow: &Flow) -> Builder {
        self.register_flow(flow, |builder, shell| {
            builder.previous_foreign(&flow.version(), false, shell).input_schema(input_schema(flow))
        })
    }

    /// Registers a document only for the runs that are pinned to it: the flow has no current document here, and new runs of it
    /// wait.
    pub fn pinned_flow(self, flow: &Flow) -> Builder {
        self.register_flow(flow, |builder, shell| {
            builder.pinned_foreign(&flow.flow, &flow.version(), shell).input_schema(input_schema(flow))
        })
    }

    fn register_flow(mut self, flow: &Flow, register: impl FnOnce(Builder, Arc<FlowShell>) -> Builder) -> Builder {
        match FlowShell::new(flow) {
            Ok(shell) => register(self, Arc::new(shell)),
            Err(problems) => {
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                self.registry.wrong(RegisterError::Flow { flow: flow.flow.clone(), problems: problems.join("; ") });
                self
            }
        }
    }

    /// Sets the model of prompts that name none. A flow that names its models does not change when this does.
    pub fn flow_model(self, model: &str) -> Builder {
        self.dep(DefaultModel(model.to_owned()))
    }

    /// Sets the hosts that the action `http` of flows may reach; default none. An entry is `HOST`, `HOST:PORT` or `*.DOMAIN`, with
    /// `http://` or `https://` before it to allow only that.
    pub fn flow_http<S: AsRef<str>>(mut self, allowed: impl IntoIterator<Item = S>) -> Builder {
        match HttpHosts::new(allowed) {
            Ok(hosts) => self.dep(hosts),
            Err(error) => {
                self.registry.wrong(error.into());
                self
            }
        }
    }

    /// Sets the folder below which the actions `read` and `write` of flows use files; default none.
    pub fn flow_documents(mut self, folder: impl AsRef<Path>) -> Builder {
        match Documents::new(folder.as_ref()) {
            Ok(documents) => self.dep(documents),
            Err(error) => {
                self.registry.wrong(error.into());
                self
            }
        }
    }
}
