//! Processes whose clock on the wall is wrong.

use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Moves the clock of whatever process it is loaded into by as many seconds as ONWARD_CLOCK_OFF says, or the file of ONWARD_CLOCK_FILE at
/// that moment; other clocks stay.
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
        const char *said = getenv("ONWARD_CLOCK_OFF");
        off = said ? atol(said) : 0;
        path = getenv("ONWARD_CLOCK_FILE");
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int answer = real(id, to);
    if (answer == 0 && id == CLOCK_REALTIME) to->tv_sec += path ? from_file(path) : off;
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

    /// Lets the clock of a process that is to be started go so many seconds ahead, or behind.
    pub fn set<'c>(&self, command: &'c mut Command, seconds: i64) -> &'c mut Command {
        command.env("LD_PRELOAD", self.library()).env("ONWARD_CLOCK_OFF", seconds.to_string())
    }

    /// Lets the clock of a process that is to be started follow [`WrongClock::turn`].
    pub fn follow<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("LD_PRELOAD", self.library()).env("ONWARD_CLOCK_FILE", self.directory.join("off"))
    }

    /// Sets the clocks of the processes that follow it so many seconds ahead, or behind, from now on.
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
