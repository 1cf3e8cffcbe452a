//! The script: responses and rules.

use serde::{Deserialize, Serialize};

use crate::conversation::{ScriptedConversation, ScriptedRole};

/// One response: its parts, and its fault.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedReply {
    pub parts: Vec<ReplyPart>,
    pub fault: Option<Fault>,
    /// Delay before each chunk of a stream.
    pub chunk_delay_ms: u64,
    /// The response ends at the token limit.
    pub cut: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyPart {
    Text(String),
    Reasoning(String),
    Call {
        name: String,
        /// Sent unchanged, JSON or not.
        arguments: String,
    },
    Refusal(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// 429.
    RateLimited { retry_after_seconds: Option<u64> },
    /// 500.
    ServerError,
    /// 503 or 529, depending on the API format.
    Overloaded,
    /// 401.
    KeyRefused,
    /// 400.
    ContextTooLong,
    /// 400, for another reason.
    RequestRefused,
    /// A success without content and tokens.
    Empty,
    /// A success with an error in its body.
    ErrorInside,
    /// The connection ends after so many chunks.
    BreakAfter { chunks: usize },
    /// Nothing follows after so many chunks, and the connection stays open.
    StallAfter { chunks: usize },
    /// Invalid JSON follows after so many chunks.
    MalformedAfter { chunks: usize },
    /// Fragments of several calls are interleaved.
    Interleaved,
    /// Calls have no ids; only in OpenAI's format.
    WithoutIds,
}

/// A response for every matching conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    #[serde(default)]
    pub when: When,
    pub answer: ScriptedReply,
    /// How often the rule applies; always if absent.
    #[serde(default)]
    pub times: Option<u32>,
}

/// Conditions that must all hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Part of the last user message.
    pub user_says: Option<String>,
    /// True if the conversation ends with tool results.
    pub after_tools: Option<bool>,
    /// Number of the model's messages so far.
    pub turn: Option<usize>,
    pub model: Option<String>,
    /// The input has more tokens than this, like a context window.
    pub tokens_over: Option<u64>,
    /// Part of the URL or base64 data of an attachment.
    pub attached: Option<String>,
}

/// Token counts by a simple rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCounts {
    /// The whole input, including cached tokens.
    pub input: u64,
    pub cached: u64,
    pub output: u64,
    pub reasoning: u64,
}

impl ScriptedReply {
    pub fn text(text: &str) -> ScriptedReply {
        ScriptedReply::default().and(ReplyPart::Text(text.to_owned()))
    }

    pub fn reasoning(text: &str) -> ScriptedReply {
        ScriptedReply::default().and(ReplyPart::Reasoning(text.to_owned()))
    }

    pub fn refusal(text: &str) -> ScriptedReply {
        ScriptedReply::default().and(ReplyPart::Refusal(text.to_owned()))
    }

    pub fn call(name: &str, arguments: &str) -> ScriptedReply {
        ScriptedReply::default().and_call(name, arguments)
    }

    pub fn fault(fault: Fault) -> ScriptedReply {
        ScriptedReply::default().with_fault(fault)
    }

    pub fn and(mut self, part: ReplyPart) -> ScriptedReply {
        self.parts.push(part);
        self
    }

    pub fn and_text(self, text: &str) -> ScriptedReply {
        self.and(ReplyPart::Text(text.to_owned()))
    }

    pub fn and_call(self, name: &str, arguments: &str) -> ScriptedReply {
        self.and(ReplyPart::Call { name: name.to_owned(), arguments: arguments.to_owned() })
    }

    pub fn with_fault(self, fault: Fault) -> ScriptedReply {
        ScriptedReply { fault: Some(fault), ..self }
    }

    pub fn has_calls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, ReplyPart::Call { .. }))
    }

    pub fn refuses(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, ReplyPart::Refusal(_)))
    }

    /// Counts tokens as a function of the conversation and the response (SM1): four characters are a token, and everything up
    /// to the model's last message is cached.
    pub fn tokens(&self, conversation: &ScriptedConversation) -> TokenCounts {
        if matches!(self.fault, Some(Fault::Empty)) {
            return TokenCounts::default();
        }
        let turns: Vec<u64> = conversation.turns.iter().map(|turn| count(&turn.text) + turn.calls.len() as u64).collect();
        let head = count(&conversation.system) + conversation.tools.len() as u64 * 10;
        let last = conversation.turns.iter().rposition(|turn| turn.role == ScriptedRole::Assistant);
        let cached = last.map_or(0, |last| head + turns[..=last].iter().sum::<u64>());
        let sizes = self.parts.iter().map(|part| match part {
            ReplyPart::Text(text) | ReplyPart::Refusal(text) => (count(text), 0),
            ReplyPart::Reasoning(text) => (count(text), count(text)),
            ReplyPart::Call { name, arguments } => (count(name) + count(arguments), 0),
        });
        let (output, reasoning) = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        TokenCounts { input: head + turns.iter().sum::<u64>(), cached, output, reasoning }
    }
}

impl Rule {
    pub fn always(answer: ScriptedReply) -> Rule {
        Rule { when: When::default(), answer, times: None }
    }

    pub fn when_user_says(words: &str, answer: ScriptedReply) -> Rule {
        Rule { when: When { user_says: Some(words.to_owned()), ..When::default() }, answer, times: None }
    }
}

impl When {
    pub fn fits(&self, conversation: &ScriptedConversation) -> bool {
        let says = self.user_says.as_ref().is_none_or(|words| conversation.last_user().contains(words.as_str()));
        let after_tools = self.after_tools.is_none_or(|after| after != conversation.results().is_empty());
        let turn = self.turn.is_none_or(|turn| turn == conversation.turn());
        let tokens = self.tokens_over.is_none_or(|window| ScriptedReply::default().tokens(conversation).input > window);
        let attached =
            self.attached.as_ref().is_none_or(|part| conversation.attached.iter().any(|sent| sent.contains(part.as_str())));
        says && after_tools && turn && tokens && attached && self.model.as_ref().is_none_or(|model| *model == conversation.model)
    }
}

fn count(text: &str) -> u64 {
    text.chars().count().div_ceil(4) as u64
}
