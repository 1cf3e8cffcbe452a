//! Processes with a wrong system clock.

use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Preloaded library that shifts the system clock of a process by the seconds in ONWARD_CLOCK_OFF, or in the file
/// ONWARD_CLOCK_FILE at each call; other clocks are unchanged.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static long from_file(const char *path) {
    char text[32] = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? atol(text) : 0;
}
int clock_gettime(clockid_t id, struct timespec *to) {
    static int (*real)(clockid_t, struct timespec *);
    static long off;
    static const char *path;
    if (!real) {
        const char *offset = getenv("ONWARD_CLOCK_OFF");
        off = offset ? atol(offset) : 0;
        path = getenv("ONWARD_CLOCK_FILE");
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int answer = real(id, to);
    if (answer == 0 && id == CLOCK_REALTIME) to->tv_sec += path ? from_file(path) : off;
    return answer;
}
"#;

/// The library for processes with a wrong clock; its files are removed on drop.
pub struct WrongClock {
    directory: PathBuf,
}

impl WrongClock {
    /// Builds the library. Needs a C compiler, as the bundled SQLite does.
    pub fn build() -> io::Result<WrongClock> {
        let directory = crate::cluster::make_directory(None)?;
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

    /// Sets the clock of a process to be started ahead by `seconds`, or behind.
    pub fn set<'c>(&self, command: &'c mut Command, seconds: i64) -> &'c mut Command {
        command.env("LD_PRELOAD", self.library()).env("ONWARD_CLOCK_OFF", seconds.to_string())
    }

    /// Makes the clock of a process to be started follow [`WrongClock::turn`].
    pub fn follow<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("LD_PRELOAD", self.library()).env("ONWARD_CLOCK_FILE", self.directory.join("off"))
    }

    /// Sets the clocks of the processes that follow it ahead by `seconds`, or behind.
    pub fn turn(&self, seconds: i64) -> io::Result<()> {
        let (off, new) = (self.directory.join("off"), self.directory.join("off.new"));
        std::fs::write(&new, seconds.to_string())?;
        std::fs::rename(new, off)
    }
}

impl Drop for WrongClock {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.directory));
    }
}
