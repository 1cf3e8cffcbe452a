//! Colors, fonts and glyphs of the picture.

use super::NodeKind;

/// The rules, for light pages and for dark ones.
pub const STYLE: &str = "\
.onward-flow{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
.onward-flow text{fill:#1f2328;font-size:11px}
.onward-flow .name{font-size:13.5px;font-weight:600}
.onward-flow .detail{font-size:11.5px;fill:#59636e}
.onward-flow .mark{font-size:10.5px;fill:#424a53}
.onward-flow .mid{text-anchor:middle}
.onward-flow .ground{fill:#fbfcfd}
.onward-flow .card{fill:#fff;stroke:#d1d9e0;stroke-width:1.2}
.onward-flow .badge{fill:#eff2f5}
.onward-flow .glyph{fill:none;stroke:#57606a;stroke-width:1.7;stroke-linecap:round;stroke-linejoin:round}
.onward-flow .tile{fill:#eff2f5}
.onward-flow .model .tile{fill:#f3ecff}.onward-flow .model .glyph{stroke:#7c3aed}
.onward-flow .work .tile{fill:#e3f0ff}.onward-flow .work .glyph{stroke:#0969da}
.onward-flow .person .tile{fill:#fff3d1}.onward-flow .person .glyph{stroke:#9a6700}
.onward-flow .time .tile{fill:#dcf5ec}.onward-flow .time .glyph{stroke:#0f7b6c}
.onward-flow .unknown .tile{fill:#ffebe9}.onward-flow .unknown .glyph{stroke:#cf222e}
.onward-flow .unknown .card{stroke:#cf222e;stroke-dasharray:4 3}
.onward-flow .bound .card{fill:#eff2f5;stroke:#c3cbd3}
.onward-flow .edge path{fill:none;stroke:#8c959f;stroke-width:1.5}
.onward-flow .edge .head{fill:#8c959f;stroke:none}
.onward-flow .catch path{stroke:#d1555c;stroke-dasharray:5 4}
.onward-flow .catch .head{fill:#d1555c}
.onward-flow .skip path{stroke-dasharray:2 4}
.onward-flow .label rect{fill:#fbfcfd;stroke:#e1e6eb}
.onward-flow .label text{fill:#424a53}
.onward-flow .node.open,.onward-flow .edge.open,.onward-flow .label.open text{opacity:.55}
.onward-flow .taken path{stroke:#1a7f37;stroke-width:2.2;stroke-dasharray:none}
.onward-flow .taken .head{fill:#1a7f37}
.onward-flow .taken.catch path{stroke:#cf222e}.onward-flow .taken.catch .head{fill:#cf222e}
.onward-flow .done .card{stroke:#1a7f37}
.onward-flow .running .card{stroke:#0969da;stroke-width:2.2}
.onward-flow .failed .card{stroke:#cf222e;stroke-width:1.8}
.onward-flow .skipped .card,.onward-flow .canceled .card{stroke-dasharray:4 3}
.onward-flow .skipped .tile,.onward-flow .skipped .glyph,.onward-flow .skipped .name{opacity:.5}
.onward-flow .state circle{fill:#1a7f37;stroke:#fbfcfd;stroke-width:2}
.onward-flow .state path{fill:none;stroke:#fff;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}
.onward-flow .running .state circle{fill:#0969da}
.onward-flow .failed .state circle{fill:#cf222e}
.onward-flow .skipped .state circle,.onward-flow .canceled .state circle{fill:#818b98}
.onward-flow .count rect{fill:#fff;stroke:#c3cbd3}
.onward-flow .running .count rect{stroke:#0969da}
@media (prefers-reduced-motion:no-preference){
.onward-flow .running .state path{animation:onward-flow-turn 1.2s linear infinite}
@keyframes onward-flow-turn{to{transform:rotate(360deg)}}
}
@media (prefers-color-scheme:dark){
.onward-flow text{fill:#e6edf3}
.onward-flow .detail{fill:#9198a1}
.onward-flow .mark,.onward-flow .label text{fill:#b7bdc8}
.onward-flow .ground{fill:#0d1117}
.onward-flow .card{fill:#161b22;stroke:#3d444d}
.onward-flow .badge,.onward-flow .tile{fill:#262c36}
.onward-flow .glyph{stroke:#b7bdc8}
.onward-flow .model .tile{fill:#2d2150}.onward-flow .model .glyph{stroke:#c4a5ff}
.onward-flow .work .tile{fill:#12305a}.onward-flow .work .glyph{stroke:#79b8ff}
.onward-flow .person .tile{fill:#41300c}.onward-flow .person .glyph{stroke:#e3b341}
.onward-flow .time .tile{fill:#0f3a33}.onward-flow .time .glyph{stroke:#4fd1b5}
.onward-flow .unknown .tile{fill:#4a1a1e}.onward-flow .unknown .glyph{stroke:#ff7b72}
.onward-flow .unknown .card{stroke:#f85149}
.onward-flow .bound .card{fill:#212830;stroke:#4b535d}
.onward-flow .edge path{stroke:#6e7681}
.onward-flow .edge .head{fill:#6e7681}
.onward-flow .catch path{stroke:#d9656b}.onward-flow .catch .head{fill:#d9656b}
.onward-flow .label rect{fill:#0d1117;stroke:#2a313a}
.onward-flow .taken path{stroke:#3fb950}.onward-flow .taken .head{fill:#3fb950}
.onward-flow .taken.catch path{stroke:#f85149}.onward-flow .taken.catch .head{fill:#f85149}
.onward-flow .done .card{stroke:#3fb950}
.onward-flow .running .card{stroke:#58a6ff}
.onward-flow .failed .card{stroke:#f85149}
.onward-flow .state circle{fill:#238636;stroke:#0d1117}
.onward-flow .running .state circle{fill:#1f6feb}
.onward-flow .failed .state circle{fill:#da3633}
.onward-flow .skipped .state circle,.onward-flow .canceled .state circle{fill:#656c76}
.onward-flow .count rect{fill:#161b22;stroke:#4b535d}
.onward-flow .running .count rect{stroke:#58a6ff}
}
";

/// The glyph of each kind, drawn with lines on a field of 24.
pub const GLYPHS: &[(NodeKind, &str)] = &[
    (
        NodeKind::Prompt,
        "M5 6h14a1.5 1.5 0 0 1 1.5 1.5v7a1.5 1.5 0 0 1-1.5 1.5h-8l-4 3.5v-3.5h-2a1.5 1.5 0 0 1-1.5-1.5v-7a1.5 1.5 0 0 1 1.5-1.5z",
    ),
    (
        NodeKind::Agent,
        "M12 4.5v3M7 7.5h10a2 2 0 0 1 2 2v6a2 2 0 0 1-2 2h-10a2 2 0 0 1-2-2v-6a2 2 0 0 1 2-2zM9.5 11.5v1.5M14.5 11.5v1.5M3 11.5v2.5M21 11.5v2.5",
    ),
    (NodeKind::Task, "M13 4l-7 9h5l-1 7 7-9h-5z"),
    (NodeKind::Action, "M9 8l-4.5 4 4.5 4M15 8l4.5 4-4.5 4M13 6l-2 12"),
    (
        NodeKind::Approval,
        "M10 11a3.2 3.2 0 1 0 0-6.4 3.2 3.2 0 0 0 0 6.4zM4 19.5c0-3.6 2.6-5.5 6-5.5 1.2 0 2.3.2 3.2.7M14 18l2.2 2.2 4.3-4.7",
    ),
    (NodeKind::Wait, "M6 16.5h12l-1.6-2.3v-3.7a4.4 4.4 0 0 0-8.8 0v3.7zM10.3 19.3h3.4M12 4.5v1.5"),
    (NodeKind::Sleep, "M12 4.5a7.5 7.5 0 1 0 0 15 7.5 7.5 0 0 0 0-15zM12 8v4.2l2.8 1.8"),
    (NodeKind::Child, "M5 5h8.5v8.5h-8.5zM10.5 17v2h8.5v-8.5h-2"),
    (NodeKind::Set, "M6 9.5h12M6 14.5h12"),
    (NodeKind::Parallel, "M12 4v4M12 8c0 5-6 3.5-6 8v3.5M12 8c0 5 6 3.5 6 8v3.5M12 8v11.5"),
    (NodeKind::Join, "M12 20v-4M12 16c0-5-6-3.5-6-8v-3.5M12 16c0-5 6-3.5 6-8v-3.5M12 16v-11.5"),
    (NodeKind::Switch, "M12 4l8 8-8 8-8-8z"),
    (NodeKind::Unknown, "M8.8 9.2a3.2 3.2 0 1 1 4.6 3c-1 .5-1.4 1.1-1.4 2.3M12 18.3v.2"),
];

/// Returns the class that colors a kind.
pub fn color(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Prompt | NodeKind::Agent => "model",
        NodeKind::Task | NodeKind::Action | NodeKind::Child => "work",
        NodeKind::Approval => "person",
        NodeKind::Wait | NodeKind::Sleep => "time",
        NodeKind::Set | NodeKind::Parallel | NodeKind::Join | NodeKind::Switch => "control",
        NodeKind::Unknown => "unknown",
        NodeKind::Start | NodeKind::End => "bound",
    }
}
