//! Documents after the format that Dive documents, and what becomes of them.

use crate::document::{Known, check, parse};
use crate::import::{Imported, dive};

/// Imports a document whose flows must be valid. Returns it with its notes as text.
fn import(text: &str) -> (Imported, String) {
    let imported = dive(text, "dive.yaml").unwrap_or_else(|error| panic!("{error}"));
    for (name, flow) in &imported.flows {
        let parsed = parse(flow, name);
        let problems = check(&parsed, &Known::default());
        let errors: Vec<String> = problems
            .iter()
            .filter(|problem| problem.is_error())
            .map(|problem| format!("{}: {}", problem.line, problem.message))
            .collect();
        assert!(errors.is_empty() && parsed.flow.is_some(), "{errors:#?}\n{flow}");
    }
    let notes = imported.unmapped.iter().map(|note| note.to_string()).collect::<Vec<_>>().join("\n");
    (imported, notes)
}

fn check_flow(text: &str, expected: &str, expected_notes: &str) {
    let (imported, notes) = import(text);
    assert_eq!(imported.flows[0].1, expected);
    assert_eq!(notes, expected_notes);
}

#[test]
fn prompts_inputs_and_results_become_templates() {
    check_flow(
        r#"
Name: Trip planner
Description: Plans a trip.
Config:
  DefaultProvider: anthropic
  DefaultModel: claude-sonnet
Workflows:
  - Name: Weekend Trip
    Inputs:
      - Name: city
        Type: string
        Description: Where to go
        Required: true
      - Name: days
        Type: int
        Default: 2
    Steps:
      # Think first.
      - Name: Collect Ideas
        Prompt: |
          List ideas for ${inputs.days} days in ${inputs.city}.
          Use {{braces}} if you like.
        Store: ideas
      - Name: Choose
        Prompt: "Choose the best of: ${ideas}"
        Store: choice
      - Name: Save
        Action: Document.Write
        Parameters:
          Path: "trips/${inputs.city}.md"
          Content: ${choice}
"#,
        r#"flow: weekend-trip
description: Plans a trip.
inputs:
  city: { description: Where to go, type: string }
  days: { default: 2, type: integer }
steps:
  # Think first.
  - name: collect-ideas
    prompt: |
      List ideas for {{ inputs.days }} days in {{ inputs.city }}.
      Use {{ '{{' }}braces}} if you like.
    model: claude-sonnet
    store: ideas
  - name: choose
    prompt: "Choose the best of: {{ state.ideas }}"
    model: claude-sonnet
    store: choice
  - name: save
    action: write
    with:
      path: "trips/{{ inputs.city }}.md"
      text: "{{ state.choice }}"
"#,
        "",
    );
}

#[test]
fn loops_and_conditions_become_expressions() {
    check_flow(
        r#"
name: Reviews
workflows:
  - name: reviews
    inputs:
      - { name: limit, type: number, default: 3 }
    steps:
      - name: Find
        action: Reviews.Find
        parameters: { product: lamp, limit: "$(inputs.limit * 2)" }
        store: reviews
      - name: Judge
        prompt: "Is this friendly? ${review.text} (${review.tags[0]})"
        each: { items: $(reviews), as: review }
        store: verdicts
        next:
          - { step: Answer, condition: "$(len(verdicts) > 0 && !strings.contains(verdicts[0], \"no\"))" }
          - { step: Stop, condition: "$(len(verdicts) == 0)" }
      - name: Answer
        prompt: "Thank for ${len(reviews)} reviews, ${verdicts[0] + \"!\"}."
        next: [{ step: Stop }]
      - name: Stop
        action: Print
        parameters: { message: done }
        end: true
"#,
        r#"flow: reviews
inputs:
  limit: { default: 3, type: number }
steps:
  - name: find
    task: Reviews.Find
    with: { limit: "{{ inputs.limit * 2 }}", product: lamp }
    store: reviews
  - name: judge
    prompt: "Is this friendly? {{ review.text }} ({{ review.tags[0] }})"
    model: default
    each: { as: review, in: state.reviews }
    store: verdicts
    next:
      - when: "(state.verdicts | length) > 0 and not ('no' in (state.verdicts[0]))"
        goto: answer
      - when: "(state.verdicts | length) == 0"
        goto: stop
      - goto: end
  - name: answer
    prompt: "Thank for {{ (state.reviews | length) }} reviews, {{ state.verdicts[0] + '!' }}."
    model: default
    next: stop
  - name: stop
    action: print
    with:
      message: done
    next: end
"#,
        "line 9: the action `Reviews.Find`: it is not built in; serve a task of this kind with a worker\n\
         line 12: the conditions of `Next`: all edges that match were followed, each as a path; now only the first is; if several \
         can match, use `next: { all: [..] }` with a `join`",
    );
}

#[test]
fn agents_models_and_servers_become_settings() {
    let (imported, notes) = import(
        r#"
Config:
  DefaultProvider: anthropic
  DefaultModel: big
  LogLevel: debug
Agents:
  - Name: Head Librarian
    Goal: Find books
    Instructions: |
      Answer briefly.
      Cite the shelf.
    Tools: [find_book, Web.Search]
    ToolIterationLimit: 8
    ModelSettings: { MaxTokens: 900, Temperature: 0.2 }
  - Name: clerk
    Model: ${CLERK_MODEL:-small}
    IsSupervisor: true
    Subordinates: [Head Librarian]
MCPServers:
  - Type: stdio
    Name: Shelf
    Command: shelf-server
    Args: [--quiet]
    Env: { SHELF: main, SHELF_TOKEN: "${SHELF_TOKEN}", OTHER_KEY: secret-1 }
    ToolConfiguration: { AllowedTools: [find_book, lend_book], ApprovalFilter: { Always: [lend_book] } }
  - Type: url
    Name: city
    URL: https://city.example/mcp
    Headers: { Authorization: "Bearer ${CITY_KEY}", X-Branch: north }
    ToolConfiguration: { AllowedTools: [open_hours], ApprovalMode: always }
  - { Type: url, Name: old, URL: "https://old.example/mcp", AuthorizationToken: secret-2, OAuth: { ClientID: x } }
Schedules:
  - { Name: nightly, Cron: "0 3 * * *", Workflow: lend }
Documents:
  - { Name: rules, Path: rules.md }
Workflows:
  - Name: lend
    Steps:
      - { Name: ask, Agent: Head Librarian, Prompt: "Which book?" }
"#,
    );
    let settings = imported.settings.unwrap();
    let expected = r#"[models.big]
provider = "anthropic"
max_tokens = 900

[models.small]
provider = "anthropic"

[mcp.shelf]
command = "shelf-server"
arguments = ["--quiet"]
environment = { SHELF = "main" }
inherits = ["SHELF_TOKEN", "OTHER_KEY"]
tools = ["find_book", "lend_book"]
needs_approval = ["lend_book"]

[mcp.city]
url = "https://city.example/mcp"
headers = { X-Branch = "north" }
key_env = "CITY_KEY"
tools = ["open_hours"]
needs_approval = true

[mcp.old]
url = "https://old.example/mcp"
key_env = "OLD_KEY"

[agents.head-librarian]
model = "big"
system = '''
Your goal: Find books

Answer briefly.
Cite the shelf.'''
max_turns = 8
mcp = ["old", "shelf"]

[agents.clerk]
model = "small"
"#;
    assert_eq!(settings, expected);
    assert!(imported.flows[0].1.contains("agent: head-librarian"));
    for note in [
        "`LogLevel`: ",
        "`Temperature`: ",
        "the tool `Web.Search`: ",
        "`IsSupervisor`: ",
        "`Subordinates`: ",
        "`Model: ${CLERK_MODEL:-small}`: ",
        "the variable `OTHER_KEY` of `shelf`: ",
        "the key of `old`: ",
        "`OAuth`: ",
        "the schedule `nightly` (0 3 * * *): ",
        "the document `rules`: ",
    ] {
        assert!(notes.contains(note), "{note} is missing in\n{notes}");
    }
    assert_eq!(notes.lines().count(), 11, "{notes}");
    assert!(!settings.contains("secret-") && !notes.contains("secret-"));
}

#[test]
fn what_has_no_equivalent_is_listed() {
    let (imported, notes) = import(
        r#"
Workflows:
  - Name: odd
    Triggers: [{ Name: t, Type: webhook }]
    Output: { Format: markdown, Document: out.md }
    Color: blue
    Steps:
      - Name: Compute
        Type: script
        Script: |
          x := 1
          x + 1
        Store: number
      - Name: Ask
        Prompt: "Say ${missing} and ${number | upper} and ${number.round()}"
        Content: [{ Text: "More: ${number}" }, { Path: notes.md }]
        Next:
          - { Step: Compute, Condition: "$(number / 2 > 1)" }
          - { Step: Nowhere, Condition: "$(true)" }
      - Name: Wait
        Seconds: 1.5
      - Name: Walk
        Each: { Items: "$(numbers())" }
        Prompt: "${item}"
"#,
    );
    let expected = r#"flow: odd
steps:
  - name: compute
    # x := 1
    # x + 1
    action: fail
    with: { code: not_mapped, message: "This step was a script, which is not mapped." }
    store: number
  - name: ask
    prompt: |-
      Say ${missing} and ${number | upper} and ${number.round()}

      More: {{ state.number }}
    model: default
    next:
      - when: "false"
        goto: compute
      - goto: end
  - name: wait
    sleep: "1s500ms"
  - name: walk
    prompt: "{{ item }}"
    model: default
    each: { as: item, in: [] }
"#;
    assert_eq!(imported.flows[0].1, expected);
    for note in [
        "line 4: a trigger: ",
        "line 5: `Output`: ",
        "line 6: `Color`: it is not a field that is known here",
        "line 10: `Script`: ",
        "line 15: `${missing}`: `missing` is no input, and no step before stores it",
        "line 15: `${number | upper}`: `|` has no equivalent",
        "line 15: `${number.round()}`: the method `round` has no equivalent",
        "line 16: `Path`: ",
        "line 18: the condition `$(number / 2 > 1)`: `/` divides",
        "line 19: the step `Nowhere`: ",
        "line 23: `Each` over `$(numbers())`: the function `numbers` has no equivalent",
    ] {
        assert!(notes.contains(note), "{note} is missing in\n{notes}");
    }
    assert_eq!(notes.lines().count(), 11, "{notes}");
}

#[test]
fn several_edges_become_branches() {
    check_flow(
        r#"
Workflows:
  - Name: fork
    Steps:
      - Name: Start
        Prompt: Begin
        Store: text
        Next: [{ Step: Left }, { Step: Right, Condition: "text != ''" }]
      - { Name: Left, Prompt: "L ${text}", End: true }
      - { Name: Right, Prompt: "R ${state.text}", End: true }
"#,
        r#"flow: fork
steps:
  - name: start
    prompt: Begin
    model: default
    store: text
    next:
      all:
        - goto: left
        - when: "state.text != ''"
          goto: right
  - name: left
    prompt: "L {{ state.text }}"
    model: default
    next: end
  - name: right
    prompt: "R {{ state.text }}"
    model: default
    next: end
"#,
        "line 5: several edges of `Next`: the paths of several edges run at the same time, and their state is not joined; add a \
         `join` where the paths meet",
    );
}

#[test]
fn exclusive_conditions_need_no_note() {
    for conditions in [["x == 'a'", "x == 'b'"], ["x > 1", "x <= 1"], ["x", "!x"], ["x == 'a'", "x != 'a'"]] {
        let text = format!(
            "Workflows:\n- Name: w\n  Steps:\n  - {{ Name: a, Prompt: p, Store: x, Next: [{{ Step: b, Condition: \"{}\" }}, {{ Step: c, Condition: \"{}\" }}] }}\n  - {{ Name: b, Prompt: p, End: true }}\n  - {{ Name: c, Prompt: p }}\n",
            conditions[0], conditions[1]
        );
        let (_, notes) = import(&text);
        assert_eq!(notes, "", "{conditions:?}");
    }
}

#[test]
fn a_text_that_is_no_document_is_refused() {
    assert!(dive("a: [", "x.yaml").unwrap_err().to_string().starts_with("x.yaml:"));
    let imported = dive("just text", "x.yaml").unwrap();
    assert_eq!((imported.flows.len(), imported.unmapped.len()), (0, 1));
    let hostile = format!("Workflows:\n- Steps:\n  - Prompt: \"${{{}1{}}}\"\n", "(".repeat(5_000), ")".repeat(5_000));
    assert_eq!(dive(&hostile, "x.yaml").unwrap().unmapped.len(), 1);
    let hostile = format!("Workflows:\n- Steps:\n  - Prompt: \"{}\"\n", "${".repeat(50_000));
    assert_eq!(dive(&hostile, "x.yaml").unwrap().unmapped.len(), 1);
}

#[test]
fn the_example_of_the_guide_is_true() {
    let guide = include_str!("../../../../../docs/guide/flows-from-dive.md");
    let blocks: Vec<&str> = guide.split("```").skip(1).step_by(2).collect();
    let block = |language: &str, index: usize| {
        let mut found = blocks.iter().filter_map(|block| block.strip_prefix(&format!("{language}\n")));
        found.nth(index).unwrap()
    };
    let (imported, notes) = import(block("yaml", 0));
    assert_eq!(imported.flows[0].1, block("yaml", 1));
    assert_eq!(imported.settings.unwrap(), block("toml", 0));
    assert_eq!(notes, "");
}

#[test]
fn optional_inputs_and_expressions_in_plain_texts_are_listed() {
    let (imported, notes) = import(
        r#"
Name: notes
Description: About ${topic}.
Config: { LogLevel: debug }
Agents:
  - Name: writer
    Goal: Write about ${topic}
    Instructions: Use ${style}.
Workflows:
  - Name: notes
    Description: Notes on ${inputs.topic}
    Inputs:
      - { Name: topic, Type: string, Required: true }
      - { Name: style, Type: string, Required: false, Description: "Not ${topic}" }
      - { Name: pages, Type: int, Required: false, Default: 1 }
    Steps:
      - { Name: write, Agent: writer, Prompt: "${inputs.topic}" }
"#,
    );
    let plain = |line: usize, field: &str| {
        format!("line {line}: `${{..}}` in `{field}`: the text has no expressions here; write the value into the text")
    };
    let expected = [
        plain(3, "Description"),
        "line 4: `LogLevel`: the level of the log is not in a document; use `--log-level`".to_owned(),
        plain(7, "Goal"),
        plain(8, "Instructions"),
        plain(11, "Description"),
        "line 14: `Required`: an input without a default is required; add a `default`".to_owned(),
        plain(14, "Description"),
    ];
    for note in &expected {
        assert!(notes.contains(note), "{note} is missing in\n{notes}");
    }
    assert_eq!(notes.matches("`Required`").count(), 1, "{notes}");
    assert!(imported.settings.unwrap().contains("Use ${style}."));
}
