//! Why an agent has stopped, in words. Owns the sentence; the reasons are the agent's, and one that is not known here is told as it is.

/// The reason, and what it means.
pub fn words(stop: &str) -> String {
    let meaning = match stop {
        "refused" => "the model would not answer",
        "max_turns" => "so many turns were not enough",
        "max_tokens" => "the answer had to end before the model was done",
        "repeated_call" => "the model asked for the same again and again",
        "no_answer" => "the model has thought, and said nothing",
        "max_handoffs" => "agents handed the conversation over again and again",
        "budget_exhausted" => "the run has spent what it may, or has called as many tools as it may",
        other => return other.to_owned(),
    };
    format!("{stop} ({meaning})")
}
