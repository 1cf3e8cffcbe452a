//! Lets the linker leave the functions of Node.js undefined on systems where that is an error.

fn main() {
    napi_build::setup();
}
