//! The approval of the demo: asks at the terminal and decides like `onward approval decide`.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};
use onward_core::{Namespace, RunKey};
use onward_runtime::{CallRef, Decide};
use onward_store::WaitQuery;

use crate::directory::{open_to_read, open_to_write};
use crate::output::{escape, print};

/// An open approval.
pub struct OpenApproval {
    pub id: String,
    pub title: String,
}

pub struct ApprovalReply {
    pub approved: bool,
    pub note: String,
}

/// Reads the only approval of the run.
pub async fn open_approval(data: &Path, key: &RunKey) -> Result<OpenApproval> {
    let query = WaitQuery { run: Some(key.clone()), ..WaitQuery::default() };
    let waits = open_to_read(data)?.list_approvals(query).await?;
    let wait = waits.first().context("the order has no open approval")?;
    Ok(OpenApproval { id: CallRef::from(wait).to_string(), title: escape::text(&wait.title).into_owned() })
}

/// Asks at the terminal. Approves without a terminal or at the end of its input.
pub async fn ask(title: &str) -> Result<ApprovalReply> {
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        // On its own thread: a blocking read cannot be canceled and must not delay Ctrl-C.
        let (sender, decision) = tokio::sync::oneshot::channel();
        let title = title.to_owned();
        std::thread::spawn(move || drop(sender.send(ask_terminal(&title))));
        if let Some(approved) = decision.await?? {
            let note =
                if approved { "Approved. The same decision as a command:" } else { "Rejected. The same decision as a command:" };
            return Ok(ApprovalReply { approved, note: format!("\n{note}") });
        }
    }
    let note = format!("{title} There is no answer from a terminal; the demo approves with:");
    Ok(ApprovalReply { approved: true, note })
}

/// Asks until the answer is yes or no. Returns `None` at the end of the input.
fn ask_terminal(title: &str) -> Result<Option<bool>> {
    loop {
        let mut out = std::io::stdout().lock();
        write!(out, "{title} [y/n] ")?;
        out.flush()?;
        drop(out);
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            print("")?;
            return Ok(None);
        }
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(Some(true)),
            "n" | "no" => return Ok(Some(false)),
            _ => {}
        }
    }
}

pub async fn decide(data: &Path, id: &str, approved: bool, decision_id: String) -> Result<()> {
    let call = CallRef::parse(&Namespace::default(), id)?;
    let decide = Decide { approved, feedback: None, decided_by: None, answer: None, decision_id };
    open_to_write(data)?.decide_approval(&call, decide).await?;
    Ok(())
}
