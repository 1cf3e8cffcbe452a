//! Processes whose clock on the wall is wrong.

use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Moves the clock of whatever process it is loaded into by as many seconds as ONWARD_CLOCK_OFF says; other clocks stay.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *to) {
    static int (*real)(clockid_t, struct timespec *);
    static long off;
    if (!real) {
        const char *said = getenv("ONWARD_CLOCK_OFF");
        off = said ? atol(said) : 0;
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int answer = real(id, to);
    if (answer == 0 && id == CLOCK_REALTIME) to->tv_sec += off;
    return answer;
}
"#;

/// A library for processes whose clock is to be wrong; its files go with this value.
pub struct WrongClock {
    directory: PathBuf,
}

impl WrongClock {
    /// Needs a C compiler, which the bundled SQLite needs too.
    pub fn build() -> io::Result<WrongClock> {
        let directory = crate::make_directory(None)?;
        let clock = WrongClock { directory };
        let source = clock.directory.join("clock.c");
        std::fs::write(&source, SHIM)?;
        let mut cc = Command::new("cc");
        let built = cc.args(["-shared", "-fPIC", "-o"]).arg(clock.library()).arg(&source).arg("-ldl").status()?;
        if built.success() { Ok(clock) } else { Err(io::Error::other("the clock could not be built")) }
    }

    fn library(&self) -> PathBuf {
        self.directory.join("clock.so")
    }

    /// Lets the clock of a process that is to be started go so many seconds ahead, or behind.
    pub fn set<'c>(&self, command: &'c mut Command, seconds: i64) -> &'c mut Command {
        command.env("LD_PRELOAD", self.library()).env("ONWARD_CLOCK_OFF", seconds.to_string())
    }
}

impl Drop for WrongClock {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.directory));
    }
}
