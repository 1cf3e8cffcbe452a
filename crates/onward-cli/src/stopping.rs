//! Descriptions of agent stop reasons. An unknown reason is shown as it is.

/// Returns the reason with its description.
pub fn words(stop: &str) -> String {
    let meaning = match stop {
        "refused" => "the model refused to answer",
        "max_turns" => "the turn limit was reached",
        "max_tokens" => "the answer was cut off by a token limit",
        "repeated_call" => "the model repeated the same tool call",
        "no_answer" => "the model produced only reasoning",
        "max_handoffs" => "the handoff limit was reached",
        "budget_exhausted" => "the budget or the limit of tool calls was reached",
        other => return other.to_owned(),
    };
    format!("{stop} ({meaning})")
}
