//! Tests of the parent module.

use super::*;

#[test]
fn the_first_foreign_frames_are_named_with_what_to_use_instead() {
    let trace = "   0: onward::host::cell::RunCell::foreign_await\n             at src/cell.rs:1\n   1: core::task::wake::Waker::clone\n   \
                 2: tokio::time::driver::park\n   3: tokio::time::sleep::Sleep::poll\n   4: my_app::fulfil::{{closure}}\n             \
                 at src/fulfil.rs:7\n   5: onward::host::code::Code::poll_future\n   6: my_app::main\n";
    let (who, instead) = explain(trace);
    assert_eq!(who, "tokio::time::sleep::Sleep::poll, called by my_app::fulfil, at src/fulfil.rs:7");
    assert_eq!(instead, "use `ctx.sleep` or `ctx.timeout`");
}
