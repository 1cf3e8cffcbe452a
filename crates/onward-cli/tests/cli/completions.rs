//! Shell completion scripts.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::kit::{onward, ran};

fn script(shell: &str) -> String {
    let output = ran(onward().args(["completions", shell]));
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    output.out
}

/// Returns whether the shell accepts the script; `None` if it is not installed.
fn accepts(shell: &str, check: &str, script: &str) -> Option<bool> {
    let mut child = Command::new(shell).arg(check).stdin(Stdio::piped()).spawn().ok()?;
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    Some(child.wait().unwrap().success())
}

#[test]
fn every_shell_gets_a_script_that_it_accepts_and_that_knows_the_verbs() {
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = script(shell);
        for word in ["attach", "decide", "resolve", "completions", "key-file"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
        assert_ne!(accepts(shell, check, &script), Some(false), "{shell} refuses its script");
    }
    assert_eq!(accepts("bash", "-n", "if then"), Some(false), "bash is installed and rejects errors");
}

#[test]
fn bash_completes_verbs() {
    let line = r#"COMP_WORDS=(onward run at) COMP_CWORD=2 COMP_LINE="onward run at" COMP_POINT=13; _onward onward at run; echo "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let input = format!("{}\n{line}\n", script("bash"));
    bash.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let answered = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(answered.stdout).unwrap().trim(), "attach");
}
