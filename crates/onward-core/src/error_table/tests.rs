//! Tests of the parent module.

use std::collections::BTreeSet;

use super::*;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/README.md");

/// Returns the first line of a code's section in the documentation.
fn head(code: ErrorCode) -> String {
    let consequence = match code.consequence() {
        Consequence::Fail => String::new(),
        other => format!(" (`{other:?}`)"),
    };
    format!("{}{consequence}: {}.", code.status(), code.meaning())
}

#[test]
fn every_code_has_a_section_that_begins_with_its_row_and_no_section_is_left_over() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let sections: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let codes: BTreeSet<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(sections, codes);
    for code in ErrorCode::ALL {
        let wanted = format!("### {}\n\n{}\n", code.as_str(), head(*code));
        assert!(page.contains(&wanted), "{PAGE} lacks\n{wanted}");
    }
}

#[test]
fn codes_are_distinct_and_statuses_are_errors() {
    for (at, code) in ErrorCode::ALL.iter().enumerate() {
        assert_eq!(*code as usize, at);
        assert_eq!(ErrorCode::find(code.as_str()), Some(*code));
        assert!((400..600).contains(&code.status()), "{code:?}");
    }
    assert_eq!(ErrorCode::find("no_such_code"), None);
}

/// Codes without a hint in the table.
const WITHOUT_HINT: &[ErrorCode] = &[
    // The hint depends on the case, and the error that maps to the code has it.
    ErrorCode::NotConfirmed,
    ErrorCode::WaitTimedOut,
    ErrorCode::RegisterInvalid,
    ErrorCode::ListenRefused,
    ErrorCode::ListenFailed,
    ErrorCode::StoreUnsupported,
    ErrorCode::TlsFilesUnusable,
    ErrorCode::KeyFileUnusable,
    ErrorCode::KeyFileNotWritten,
    ErrorCode::WebhookFileUnusable,
    ErrorCode::WebhookFileNotWritten,
    ErrorCode::WebhookSecretInvalid,
    ErrorCode::Usage,
    ErrorCode::Io,
    ErrorCode::Failed,
    ErrorCode::LogUnreadable,
    ErrorCode::ConfigInvalid,
    ErrorCode::DirectoryMissing,
    ErrorCode::ServerUnreachable,
    // onward-llm and onward-mcp have the hints.
    ErrorCode::ModelRateLimited,
    ErrorCode::ModelQuotaExhausted,
    ErrorCode::ModelOverloaded,
    ErrorCode::ModelFailed,
    ErrorCode::EmptyModelResponse,
    ErrorCode::ModelRequestRefused,
    ErrorCode::ModelKeyRefused,
    ErrorCode::ContextTooLong,
    ErrorCode::ModelAnswerBroken,
    ErrorCode::ModelAnswerTooLarge,
    ErrorCode::ModelTimedOut,
    ErrorCode::ModelDisconnected,
    ErrorCode::ModelUnreachable,
    ErrorCode::AttachmentMissing,
    ErrorCode::AttachmentDamaged,
    ErrorCode::AttachmentUnreadable,
    ErrorCode::UnknownModel,
    ErrorCode::ModelKeyMissing,
    ErrorCode::McpServerUnreachable,
    ErrorCode::McpServerGone,
    ErrorCode::ToolTimedOut,
    ErrorCode::ToolResultTooLarge,
    ErrorCode::ToolCallRefused,
    ErrorCode::ToolKeyRefused,
    ErrorCode::McpServerBroken,
];

#[test]
fn every_code_has_a_hint_or_is_listed_as_one_without() {
    let without: Vec<ErrorCode> = ErrorCode::ALL.iter().copied().filter(|code| code.hint().is_none()).collect();
    assert_eq!(without, WITHOUT_HINT, "add a hint to the row, or list the code here with the reason");
}
