//! Colors, on terminals unless NO_COLOR is set or TERM is `dumb`. No information is in the color alone.

use std::io::IsTerminal;

#[derive(Debug, Clone, Copy)]
pub struct Style {
    on: bool,
}

impl Style {
    pub fn stdout() -> Style {
        Style { on: wanted() && std::io::stdout().is_terminal() }
    }

    pub fn stderr() -> Style {
        Style { on: wanted() && std::io::stderr().is_terminal() }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

macro_rules! styles {
    ($($name:ident $code:literal)*) => {
        impl Style {
            $(pub fn $name(self, text: &str) -> String {
                self.paint($code, text)
            })*
        }
    };
}

styles! { bold "1" dim "2" red "1;31" green "32" yellow "33" cyan "36" reverse "7" }

fn wanted() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
