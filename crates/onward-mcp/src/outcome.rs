//! Results of tools, in the types of `onward-llm`.

use onward_llm::{Attachment, Block, JsonText, Source, ToolResult, ToolSchema};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, Tool};

use crate::error::{ToolCause, ToolError};

/// The result of a tool call. A failed tool is a result too, for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOutcome {
    /// Texts and attachments.
    pub blocks: Vec<Block>,
    pub is_error: bool,
    /// The structured result, if the tool returns one.
    pub structured: Option<JsonText>,
}

impl CallOutcome {
    /// Returns the outcome as a tool result for the model.
    pub fn into_result(self, call_id: impl Into<String>) -> ToolResult {
        ToolResult { call_id: call_id.into(), blocks: self.blocks, is_error: self.is_error }
    }

    pub(crate) fn of(result: CallToolResult) -> Result<CallOutcome, ToolError> {
        let structured = result.structured_content.as_ref().map(json).transpose()?;
        let mut blocks: Vec<Block> = result.content.into_iter().map(block).collect();
        // A tool may return only structured data, and a model reads text.
        if blocks.is_empty() {
            blocks.extend(structured.iter().map(|json| Block::text(json.as_str())));
        }
        Ok(CallOutcome { blocks, is_error: result.is_error.unwrap_or(false), structured })
    }
}

/// A tool that a server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedTool {
    pub schema: ToolSchema,
    pub hints: ToolHints,
}

/// A server's claims about repeated calls. They may be wrong: only the operator knows which servers to trust.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolHints {
    /// The tool changes nothing.
    pub is_read_only: bool,
    /// A repeated call has no further effect.
    pub is_idempotent: bool,
}

impl OfferedTool {
    pub(crate) fn of(tool: Tool) -> Result<OfferedTool, ToolError> {
        let input = json(&*tool.input_schema)?;
        let annotations = tool.annotations.unwrap_or_default();
        let hints = ToolHints {
            is_read_only: annotations.read_only_hint == Some(true),
            is_idempotent: annotations.idempotent_hint == Some(true),
        };
        let schema =
            ToolSchema { name: tool.name.into_owned(), description: tool.description.unwrap_or_default().into_owned(), input };
        Ok(OfferedTool { schema, hints })
    }
}

fn json(value: &impl serde::Serialize) -> Result<JsonText, ToolError> {
    JsonText::of(value).map_err(|error| ToolError::new(ToolCause::Broken, error.to_string(), true))
}

fn block(content: ContentBlock) -> Block {
    let attachment =
        |media_type: String, data: String| Block::Attachment(Attachment { media_type, source: Source::Base64(data) });
    match content {
        ContentBlock::Text(text) => Block::text(text.text),
        ContentBlock::Image(image) => attachment(image.mime_type, image.data),
        ContentBlock::Audio(audio) => attachment(audio.mime_type, audio.data),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => Block::text(text),
            ResourceContents::BlobResourceContents { mime_type, blob, .. } => {
                attachment(mime_type.unwrap_or_else(|| "application/octet-stream".to_owned()), blob)
            }
            other => Block::text(shown(&other)),
        },
        ContentBlock::ResourceLink(link) => Block::text(format!("{} ({})", link.uri, link.name)),
        other => Block::text(shown(&other)), // future types
    }
}

fn shown(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
