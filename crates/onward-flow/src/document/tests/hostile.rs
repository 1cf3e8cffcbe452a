//! Hostile documents (S24) are refused or bounded: no panic, no endless work, and always a problem with the reason.

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::*;
use crate::document::parse_bytes;

/// Checks a hostile document (FY1), which must take seconds at most even in a debug build on a busy machine, and returns the codes.
fn codes(name: &str, text: &str) -> Vec<&'static str> {
    let start = Instant::now();
    let mut codes: Vec<&str> = problems(text).iter().map(|problem| problem.code).collect();
    println!("{name}: {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(120), "{name} took {:?}", start.elapsed());
    codes.sort_unstable();
    codes.dedup();
    codes
}

fn flow_with(value: &str) -> String {
    format!("flow: f\nsteps:\n  - name: a\n    set: {{ x: {value} }}\n")
}

#[test]
fn documents_beyond_the_limits_are_refused() {
    let items = format!("[{}]", "1,".repeat(10_000_000));
    let aliases =
        (0..9).fold("a0: &a0 [x]\n".to_owned(), |text, n| format!("{text}a{}: &a{} [*a{n}, *a{n}, *a{n}]\n", n + 1, n + 1));
    let anchors: String = (0..80_000).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "- &a{n} x");
        text
    });
    let keys = (0..90_000).fold(String::new(), |text, n| text + &format!("{n:x}: 1\n"));
    let table = [
        ("10 million items", flow_with(&items), "too_large"),
        ("many items", flow_with(&format!("[{}]", "1,".repeat(200_000))), "too_many_nodes"),
        ("many keys", keys, "too_many_nodes"),
        ("lists in lists", flow_with(&"[".repeat(200)), "too_deep"),
        ("many lists in lists", flow_with(&"[".repeat(500_000)), "invalid_yaml"),
        ("items in items", "- ".repeat(400_000), "too_deep"),
        ("maps in maps", "{a: ".repeat(250), "too_deep"),
        ("keys in keys", "? ".repeat(400_000), "invalid_key"),
        ("a bomb of aliases", aliases, "anchor"),
        ("a million of anchors", anchors, "anchor"),
        ("an open quote", flow_with(&format!("\"{}", "\\n".repeat(400_000))), "invalid_yaml"),
        ("colons", ":".repeat(1_000_000), "invalid_yaml"),
        ("a zero byte", flow_with("a\0b"), "control_character"),
        ("an alias of itself", flow_with("&a [*a]"), "anchor"),
    ];
    for (name, text, code) in table {
        let codes = codes(name, &text);
        assert!(codes.contains(&code), "{name}: {codes:?}");
    }
}

#[test]
fn large_parts_of_valid_documents_are_refused_or_bounded() {
    let expression = format!("\"{{{{ {} }}}}\"", "1 + ".repeat(250_000) + "1");
    let nested = format!("\"{{{{ {}1{} }}}}\"", "(".repeat(50_000), ")".repeat(50_000));
    let table = [
        ("an expression of a megabyte", flow_with(&expression), "invalid_expression"),
        ("a nested expression", flow_with(&nested), "invalid_expression"),
        ("a long name", format!("flow: f\nsteps:\n  - name: {}\n    set: {{}}\n", "a".repeat(900_000)), "invalid_name"),
        (
            "a recursive schema",
            "flow: f\ninputs:\n  a: { default: [], items: { $ref: '#' } }\nsteps: []\n".to_owned(),
            "invalid_schema",
        ),
        ("a cyclic goto", "flow: f\nsteps:\n  - { name: a, set: {}, next: a }\n".to_owned(), "cycle_without_wait"),
        ("many steps", format!("flow: f\nsteps: [{}]", "{},".repeat(11_000)), "too_many_steps"),
    ];
    for (name, text, code) in table {
        let codes = codes(name, &text);
        assert!(codes.contains(&code), "{name}: {codes:?}");
    }
}

/// Every step forks to others, and stores a name of its own.
#[test]
fn flows_with_too_many_ways_are_not_followed_to_the_end() {
    let mut text = "flow: f\nsteps:\n".to_owned();
    for n in 0..3_000 {
        let (a, b) = ((n * 7 + 1) % 3_000, (n * 13 + 5) % 3_000);
        let _ = writeln!(
            text,
            "  - {{name: s{n}, task: t, store: v{n}, next: {{all: [{{goto: s{a}}}, {{goto: s{b}, branch: b}}]}}}}"
        );
    }
    let forks = codes("forks", &text);
    // It cannot be prepared for runs either.
    assert!(forks.contains(&"not_checked") && forks.contains(&"plan"), "{forks:?}");
    let mut text = "flow: f\nsteps:\n".to_owned();
    for n in (0..4_000).rev() {
        let next = if n == 0 { 3_999 } else { n - 1 };
        let _ = writeln!(text, "  - {{name: s{n}, task: t, store: v{n}, when: \"1\", next: s{next}}}");
    }
    codes("a long loop", &text);
}

#[test]
fn bytes_that_are_not_utf_8_are_refused_with_their_place() {
    let bytes = b"flow: f\nsteps:\n  - name: \xff\n";
    let parsed = parse_bytes(bytes, "flow.yaml");
    assert!(parsed.flow.is_none());
    let texts: Vec<String> = check(&parsed, &Known::default()).iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["flow.yaml:3:11: error[invalid_utf8]: the document is not UTF-8; save the file as UTF-8"]);
    let utf_16: Vec<u8> = "flow: f".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(parse_bytes(&[&[0xff, 0xfe], utf_16.as_slice()].concat(), "f").problems[0].code, "invalid_utf8");
    assert_eq!(parse_bytes(EXAMPLE.as_bytes(), "f").problems, []);
}

#[test]
fn line_ends_and_a_byte_order_mark_change_nothing() {
    let broken = EXAMPLE.replace("goto: shorten", "goto: shortn");
    let wanted = found(&broken);
    assert_eq!(wanted, ["26:54 unknown_step"]);
    assert_eq!(found(&broken.replace('\n', "\r\n")), wanted);
    assert_eq!(found(&format!("\u{feff}{broken}")), wanted);
}

/// Numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

#[test]
fn mutated_documents_never_panic() {
    let seed = std::env::var("ONWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_f10e_u64);
    println!("ONWARD_SEED={seed}");
    let branches = "flow: g\nsteps:\n  - name: p\n    parallel: { l: [{ name: a, set: { x: 1 } }], r: [{ name: b, sleep: 1s }] }\n  \
                    - name: j\n    join: { take: { y: l.x } }\n  - name: f\n    task: t\n    next: { all: [{ goto: g }, { goto: h, when: state.y }] }\n  \
                    - name: g\n    set: { s: \"{{ state.y }}\" }\n    next: k\n  - name: h\n    wait: 'it''s'\n  - name: k\n    join: { branches: [g] }\n";
    let json = r#"{"flow": "f", "steps": [{"name": "a", "set": {"x": "\ud83d\ude00 {{ state.x }}", "n": 1.5e3}}]}"#;
    let pieces = [
        "{{", "}}", "- ", ": ", "\n", "  ", "\t", "\"", "'", "[", "]", "{", "}", "&a ", "*a", "|", ">", "!t ", "#", "goto", "é",
        "😀", "\\u", "\u{0}", "---\n", "state.", "name", "set", "1", "end",
    ];
    let mut random = Random(seed);
    for round in 0..1_500 {
        let base = [EXAMPLE, branches, json][round % 3];
        let mut characters: Vec<char> = base.chars().collect();
        for _ in 0..=random.below(4) {
            let at = random.below(characters.len());
            match random.below(4) {
                0 => drop(characters.drain(at..(at + 1 + random.below(8)).min(characters.len()))),
                1 => drop(characters.splice(at..at, pieces[random.below(pieces.len())].chars())),
                2 => {
                    let from = random.below(characters.len());
                    let part: Vec<char> = characters[from..(from + random.below(60)).min(characters.len())].to_vec();
                    drop(characters.splice(at..at, part));
                }
                _ => characters.truncate(at.max(characters.len() * 3 / 4)),
            }
            if characters.is_empty() {
                break;
            }
        }
        let text: String = characters.into_iter().collect();
        let parsed = parse(&text, "flow.yaml");
        let all = check(&parsed, &Known::default());
        assert_eq!(parsed.flow.is_none(), parsed.problems.iter().any(Problem::is_error), "{text}");
        let lines = text.lines().count() + 1;
        assert!(all.iter().all(|problem| (1..=lines + 1).contains(&problem.line) && problem.column > 0), "{all:?}\n{text}");
    }
}

/// The aim of a release build is 100 ms; the limit of the test is generous.
#[test]
fn a_thousand_steps_are_checked_at_once() {
    let mut text = "flow: f\ninputs:\n  topic: { type: string }\nsteps:\n".to_owned();
    for n in 0..1_000 {
        let before = if n == 0 { "inputs.topic".to_owned() } else { format!("state.v{}", n - 1) };
        let _ = writeln!(
            text,
            "  - name: s{n}\n    task: t\n    with: {{ q: \"{{{{ {before} }}}} and {{{{ inputs.topic | upper }}}}\" }}\n    output: {{ type: string }}\n    \
             timeout: 30s\n    store: v{n}\n    next: [{{ when: \"result == 'x'\", goto: end }}]"
        );
    }
    let start = Instant::now();
    assert_eq!(found(&text), Vec::<String>::new());
    println!("1,000 steps, {} bytes: {:?}", text.len(), start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(60));
}

/// A position is found in a time that does not depend on the length of its line.
#[test]
fn documents_on_one_line_with_many_escapes_and_problems_are_bounded() {
    let emoji = "\\ud83d\\ude00".repeat(40_000);
    let step = |n: usize| format!("{{\"name\": \"s{n}\", \"set\": {{\"x\": \"{{{{ none{n} }}}}\"}}}}");
    let steps: Vec<String> = (0..8_000).map(step).collect();
    let text = format!("{{\"flow\": \"f\", \"description\": \"{emoji}\", \"steps\": [{}]}}", steps.join(", "));
    assert!(codes("one line", &text).contains(&"unknown_name"));
}
