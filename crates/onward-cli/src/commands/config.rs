//! `onward config show`: effective settings with their origin, and a check that each is valid.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;

use super::{dev, server};
use crate::args::Global;
use crate::builtin_agents::BuiltinAgents;
use crate::config::{KEYS, SettingKey, Value};
use crate::output::{Cell, Style, TextTable, escape, print, print_json, print_stderr};
use crate::serving::{StoreLocation, TraceArgs};

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show the effective value of every setting
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Show where each value comes from
    #[arg(long)]
    origin: bool,
}

pub fn execute(command: ConfigCommand, global: &Global) -> Result<()> {
    let ConfigCommand::Show(args) = command;
    let shown: Vec<(&SettingKey, Option<Value>)> =
        KEYS.iter().map(|key| (key, global.config.get(key.name).map(|value| mask(key, value)))).collect();
    if global.json {
        let setting = |(key, value): &(&SettingKey, Option<Value>)| {
            let (text, origin) = value.as_ref().map(|value| (&value.text, value.origin.to_string())).unzip();
            json!({"name": key.name, "value": text, "origin": origin, "environment": key.variable(), "description": key.what})
        };
        let settings: Vec<_> = shown.iter().map(setting).collect();
        let file = global.config.file().map(|path| path.to_string_lossy().into_owned());
        let tables = global.config.tables();
        let models: Vec<&String> = tables.iter().flat_map(|tables| tables.models.keys()).collect();
        let agents: Vec<&String> = tables.iter().flat_map(|tables| tables.agents.keys()).collect();
        print_json(&json!({"file": file, "settings": settings, "models": models, "agents": agents}))?;
        return check(global).map(drop);
    }
    print(&format_settings(&shown, args.origin))?;
    match global.config.file() {
        Some(path) => print_stderr(&format!("from {}", path.display())),
        None => print_stderr("no settings file found; `onward.toml` in the working directory would be used"),
    }
    if let Some(builtin) = check(global)? {
        let list =
            |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { escape::text(&names.join(", ")).into_owned() };
        print_stderr(&format!("models: {}; agents: {}", list(builtin.models().collect()), list(builtin.agents().collect())));
    }
    Ok(())
}

/// Parses every value like the command that uses it, and fails with the same error.
fn check(global: &Global) -> Result<Option<BuiltinAgents>> {
    let config = &global.config;
    let namespace = global.named_namespace()?;
    if let Some(url) = config.text("url") {
        onward::connect_http(&url, namespace.as_ref(), None)?;
    }
    dev::set_port(config)?;
    server::set_address(config)?;
    if let Some(store) = config.text("server.store") {
        server::parse_store(&store)?;
    }
    TraceArgs::default().trace(config)?;
    config.limits()?;
    config.lease()?;
    Ok(BuiltinAgents::open(config)?)
}

fn format_settings(shown: &[(&SettingKey, Option<Value>)], origin: bool) -> String {
    let header: &[&str] = if origin { &["SETTING", "VALUE", "ORIGIN"] } else { &["SETTING", "VALUE"] };
    let mut table = TextTable::new(header);
    for (key, value) in shown {
        let mut row: Vec<Cell> = vec![key.name.into()];
        match value {
            Some(value) => row.push(value.text.as_str().into()),
            None => row.push(Cell::new("-").paint(Style::dim)),
        }
        if origin {
            row.push(Cell::new(value.as_ref().map(|value| value.origin.to_string()).unwrap_or_default()).paint(Style::dim));
        }
        table.row(row);
    }
    table.take()
}

/// Masks secrets: keeps the id of an API key, which identifies it without authenticating, and removes passwords from the store
/// URL.
fn mask(key: &SettingKey, value: Value) -> Value {
    if key.name == "server.store" {
        return Value { text: shown_store(&value.text), ..value };
    }
    if !key.is_secret {
        return value;
    }
    let id = value.text.strip_prefix("onw_").and_then(|rest| rest.split_once('_')).map_or("", |(id, _)| id);
    Value { text: format!("onw_{id}_********"), ..value }
}

/// Removes passwords from a store URL. Masks all of it if it does not parse, because the password may be anywhere.
fn shown_store(text: &str) -> String {
    match server::parse_store(text) {
        Ok(location @ StoreLocation::Databases(_)) => location.to_string(),
        Ok(_) => text.to_owned(),
        Err(_) => "********".to_owned(),
    }
}

#[cfg(test)]
mod tests;
