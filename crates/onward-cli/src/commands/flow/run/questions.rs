//! Approvals that are decided in this terminal: one question at a time, answered with a line.

use onward_runtime::Decide;
use tokio::sync::mpsc;

use crate::new_id;

/// The answer to a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Answered {
    Decision {
        approved: bool,
        feedback: Option<String>,
    },
    /// Neither yes nor no.
    Unclear,
    /// There are no more lines.
    Closed,
}

/// The open question, and the lines of the terminal.
pub struct Questions {
    can_ask: bool,
    asked: Option<String>,
    /// The thread that reads the terminal begins with the first question.
    lines: Option<mpsc::UnboundedReceiver<String>>,
}

impl Questions {
    /// Creates the questions. They are put only if `wanted`, and only if stdin is a terminal.
    pub fn new(wanted: bool) -> Questions {
        let can_ask = wanted && std::io::IsTerminal::is_terminal(&std::io::stdin());
        Questions { can_ask, asked: None, lines: None }
    }

    pub fn can_ask(&self) -> bool {
        self.can_ask
    }

    /// Returns the id of the approval whose question is open.
    pub fn asked(&self) -> Option<&str> {
        self.asked.as_deref()
    }

    pub fn ask(&mut self, id: String) {
        self.asked = Some(id);
        // What was typed before the question answers nothing.
        let _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
        let lines = self.lines.get_or_insert_with(read_lines);
        while lines.try_recv().is_ok() {}
    }

    /// Ends the question.
    pub fn withdraw(&mut self) {
        self.asked = None;
    }

    /// Waits for the answer to the question; for ever without a question.
    pub async fn answered(&mut self) -> Answered {
        let (Some(_), Some(lines)) = (&self.asked, &mut self.lines) else { return std::future::pending().await };
        match lines.recv().await {
            Some(line) => parse(&line),
            None => {
                self.can_ask = false;
                Answered::Closed
            }
        }
    }
}

/// Reads lines in a thread, which must not delay the exit.
fn read_lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Parses `y` or `n`, with feedback after it.
fn parse(line: &str) -> Answered {
    let separators = [' ', ',', ':'];
    let (word, rest) = line.trim().split_once(separators).unwrap_or((line.trim(), ""));
    let approved = match word.to_lowercase().as_str() {
        "y" | "yes" => true,
        "n" | "no" => false,
        _ => return Answered::Unclear,
    };
    let feedback = Some(rest.trim_start_matches(separators).to_owned()).filter(|feedback| !feedback.is_empty());
    Answered::Decision { approved, feedback }
}

/// Returns the decision to send.
pub fn decision(approved: bool, feedback: Option<String>, by: Option<String>) -> Decide {
    Decide { approved, feedback, decided_by: by, answer: None, decision_id: new_id::unique() }
}

#[cfg(test)]
mod tests;
