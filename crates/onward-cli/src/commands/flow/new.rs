//! `onward flow new`: writes a flow file to start from.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use onward_core::ErrorCode;
use onward_flow::document::parse;

use super::run::inputs;
use crate::args::{Global, one_of};
use crate::directory::{own_command, shell_path};
use crate::error::Mistake;
use crate::output::{escape, print_json, print_stderr};

/// The place of the name in templates.
const NAME: &str = "FLOW_NAME";

/// The longest name.
const NAME_MAX: usize = 100;

#[derive(Debug, Args)]
pub struct NewArgs {
    /// Name of the flow: letters, digits, `-` and `_`
    #[arg(value_name = "NAME", value_parser = flow_name)]
    name: String,
    /// What the file contains
    #[arg(long, value_name = "TEMPLATE", default_value = "prompt", value_parser = one_of(FlowTemplate::ALL, FlowTemplate::as_str))]
    template: FlowTemplate,
    /// File to write [default: NAME.yaml]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
enum FlowTemplate {
    Prompt,
    Research,
    Approval,
    Parallel,
    Saga,
}

impl FlowTemplate {
    const ALL: &'static [FlowTemplate] =
        &[FlowTemplate::Prompt, FlowTemplate::Research, FlowTemplate::Approval, FlowTemplate::Parallel, FlowTemplate::Saga];

    fn as_str(self) -> &'static str {
        match self {
            FlowTemplate::Prompt => "prompt",
            FlowTemplate::Research => "research",
            FlowTemplate::Approval => "approval",
            FlowTemplate::Parallel => "parallel",
            FlowTemplate::Saga => "saga",
        }
    }

    fn text(self) -> &'static str {
        match self {
            FlowTemplate::Prompt => include_str!("templates/prompt.yaml"),
            FlowTemplate::Research => include_str!("templates/research.yaml"),
            FlowTemplate::Approval => include_str!("templates/approval.yaml"),
            FlowTemplate::Parallel => include_str!("templates/parallel.yaml"),
            FlowTemplate::Saga => include_str!("templates/saga.yaml"),
        }
    }

    /// Returns the file for a flow of this name. YAML reads some names as other values, so these are quoted.
    fn render(self, name: &str) -> String {
        let is_value = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&name.to_lowercase().as_str());
        self.text().replace(NAME, &if is_value { format!("\"{name}\"") } else { name.to_owned() })
    }
}

/// Accepts names that are also names of files.
fn flow_name(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let begins_well = text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic());
    if is_plain && begins_well && text.len() <= NAME_MAX {
        return Ok(text.to_owned());
    }
    Err(format!("a name has letters, digits, `-` and `_`, begins with a letter and has at most {NAME_MAX} characters"))
}

/// Writes the file; never over an existing one.
pub fn execute(args: &NewArgs, global: &Global) -> Result<()> {
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.yaml", args.name)));
    let shown = path.display().to_string();
    let mut file = match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let message = format!("{shown} exists");
            return Err(Mistake::usage(ErrorCode::Usage, message, "choose another name, or another file with `-o FILE`").into());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot write {shown}")),
    };
    let text = args.template.render(&args.name);
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
    if global.json {
        return print_json(&serde_json::json!({"file": shown, "template": args.template.as_str()}));
    }
    let (command, file) = (own_command(), shell_path(&path));
    print_stderr(&format!("wrote {}", escape::text(&shown)));
    print_stderr(&format!("check it with: {command} flow validate {file}"));
    print_stderr(&format!("run it with:   {command} flow run {file}{}", options(&text)));
    Ok(())
}

/// Returns the options for the inputs that a run of the flow needs.
fn options(text: &str) -> String {
    let flow = parse(text, "template").flow;
    let options = flow.map(|flow| inputs::options(inputs::required(&flow))).filter(|options| !options.is_empty());
    options.map(|options| format!(" {options}")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
