//! Reads documents of Dive, as its documentation describes them: workflows become flows, agents and MCP servers become settings.

mod fields;
mod settings;
#[cfg(test)]
mod tests;
mod translate;
mod workflow;

use std::collections::BTreeSet;

use super::{ImportError, Imported};
use crate::document::problem::Problems;
use crate::document::source::Source;
use crate::document::yaml;
use fields::{DiveFields, Notes};
use workflow::DiveFlow;

/// Reads a document of Dive.
pub fn dive(text: &str, file_name: &str) -> Result<Imported, ImportError> {
    let mut problems = Problems::new(file_name);
    let source = Source::new(text, &mut problems);
    let root = source.as_ref().and_then(|source| yaml::read(source, &mut problems));
    let problems = problems.finish();
    let (Some(source), Some(root)) = (&source, root) else { return Err(ImportError { problems }) };
    if problems.iter().any(|problem| problem.is_error()) {
        return Err(ImportError { problems });
    }
    let mut notes = Notes { source, list: Vec::new() };
    let Some(mut document) = DiveFields::of(&root, "", &mut notes) else {
        return Ok(Imported { unmapped: notes.list, ..Imported::default() });
    };
    let title = document.text("Name", &mut notes);
    let description = document.plain_text("Description", &mut notes);
    let settings = settings::read(&mut document, &mut notes);
    let mut taken = BTreeSet::new();
    let mut flows = Vec::new();
    for workflow in document.maps("Workflows", &mut notes) {
        let name = unique(&slug(&workflow_name(&workflow, title.as_deref())), &mut taken);
        let flow = DiveFlow { name: &name, agents: &settings.agents, model: settings.default_model.as_deref() };
        let text = flow.write(workflow, description.as_deref(), &mut notes);
        flows.push((name, text));
    }
    leftovers(&mut document, &mut notes);
    document.finish(&mut notes);
    notes.list.sort_by_key(|note| note.line);
    Ok(Imported { flows, settings: settings.text, unmapped: notes.list })
}

fn workflow_name(workflow: &DiveFields<'_>, title: Option<&str>) -> String {
    workflow.peek_text("Name").or_else(|| title.map(str::to_owned)).unwrap_or_else(|| "flow".to_owned())
}

/// Notes the parts of a document that are no flows and no settings.
fn leftovers(document: &mut DiveFields<'_>, notes: &mut Notes<'_>) {
    for mut schedule in document.maps("Schedules", notes) {
        let (name, cron) = (schedule.text("Name", notes), schedule.text("Cron", notes));
        let what = format!("the schedule `{}` ({})", name.unwrap_or_default(), cron.unwrap_or_default());
        let why = "flows have no schedules yet";
        notes.add(schedule.line, &schedule.path, what, why, Some("start the runs with cron: `onward run start FLOW`"));
    }
    for mut document in document.maps("Documents", notes) {
        let name = document.text("Name", notes).or_else(|| document.text("ID", notes)).unwrap_or_default();
        let hint = "put the file below the root of documents, and read it with `action: read`";
        notes.add(document.line, &document.path, format!("the document `{name}`"), "there are no named documents", Some(hint));
    }
    for mut tool in document.maps("Tools", notes) {
        let name = tool.text("Name", notes).unwrap_or_default();
        let hint = "add an MCP server with such a tool to the settings, or write the agent in code";
        notes.add(
            tool.line,
            &tool.path,
            format!("the tool `{name}`"),
            "agents of the settings have tools of MCP servers only",
            Some(hint),
        );
    }
}

/// Makes a name of a flow, step or agent: small letters, digits and `-`.
fn slug(name: &str) -> String {
    let mut out = String::new();
    for char in name.trim().chars().flat_map(char::to_lowercase) {
        match char {
            char if char.is_ascii_alphanumeric() || char == '_' => out.push(char),
            _ if out.ends_with('-') || out.is_empty() => {}
            _ => out.push('-'),
        }
    }
    let out = out.trim_end_matches('-');
    if out.is_empty() { "step".to_owned() } else { out.chars().take(80).collect() }
}

/// Makes a name that expressions can read: letters, digits and `_`.
fn identifier(name: &str) -> String {
    let mut out: String = name.trim().chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect();
    if out.is_empty() || out.starts_with(|char: char| char.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}

fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut candidate = name.to_owned();
    let mut number = 2;
    while !taken.insert(candidate.clone()) {
        candidate = format!("{name}-{number}");
        number += 1;
    }
    candidate
}
