//! The model of the examples: OpenAI's if there is a key, otherwise a scripted one.

use onward::agent::{Key, Provider};
use onward_llm_scripted::ScriptedModel;

pub struct Talker {
    pub name: &'static str,
    pub provider: Provider,
    /// Lives as long as the example.
    #[allow(dead_code, reason = "few examples script its answers")]
    pub scripted: Option<ScriptedModel>,
}

pub async fn talker() -> anyhow::Result<Talker> {
    if let Ok(key) = std::env::var("OPENAI_API_KEY") {
        let provider = Provider::openai("https://api.openai.com/v1", Some(Key::new(key)))?;
        return Ok(Talker { name: "gpt-4o-mini", provider, scripted: None });
    }
    let scripted = ScriptedModel::start().await?;
    let provider = Provider::openai(&format!("{}/v1", scripted.url()), None)?;
    Ok(Talker { name: "scripted", provider, scripted: Some(scripted) })
}
