//! A disk that fails on demand: a library in C that the loader puts in front of the C library's own calls.
//!
//! Compiled by the test with `cc`. `SHIM_SYNC_FAILS=n` makes the n-th sync of a database file fail with EIO (and the later ones
//! succeed, as a kernel does that has dropped the dirty pages). `SHIM_TEAR=n` writes half of the n-th page into the write-ahead log and
//! kills the process. `SHIM_READ_FAILS=n` makes the n-th read of a page of the database fail with EIO, `SHIM_READ_BROKEN=n` that one and
//! all later ones, and `SHIM_READ_SHORT=n` ends the n-th in the middle of the page.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long syncs, writes;

static int is_ours(int fd, const char *end) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  char *name = strrchr(path, '/');
  if (!name || strncmp(name, "/onward.db", 10) || strstr(name, ".new")) return 0;
  return !end || (strlen(name) >= strlen(end) && !strcmp(name + strlen(name) - strlen(end), end));
}

static int sync_fails(int fd) {
  const char *at = getenv("SHIM_SYNC_FAILS");
  return at && is_ours(fd, 0) && __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST) == atol(at);
}

int fsync(int fd) {
  if (sync_fails(fd)) { errno = EIO; return -1; }
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
  if (sync_fails(fd)) { errno = EIO; return -1; }
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

static int tears(int fd, size_t length) {
  const char *at = getenv("SHIM_TEAR");
  return at && length >= 4096 && is_ours(fd, "-wal") && __atomic_add_fetch(&writes, 1, __ATOMIC_SEQ_CST) == atol(at);
}

ssize_t write(int fd, const void *bytes, size_t length) {
  ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
  if (tears(fd, length)) { real(fd, bytes, length / 2); kill(getpid(), SIGKILL); }
  return real(fd, bytes, length);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t at) {
  ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
  if (tears(fd, length)) { real(fd, bytes, length / 2, at); kill(getpid(), SIGKILL); }
  return real(fd, bytes, length, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return pwrite64(fd, bytes, length, at); }

static long reads;
static __thread int cut;

/* 0: as it is, 1: EIO, 2: half of it, 3: nothing. */
static int read_fault(int fd, size_t length) {
  const char *fails = getenv("SHIM_READ_FAILS"), *broken = getenv("SHIM_READ_BROKEN"), *shorter = getenv("SHIM_READ_SHORT");
  if ((!fails && !broken && !shorter) || length < 4096 || !is_ours(fd, ".db")) return 0;
  if (cut) { cut = 0; return 3; }
  long number = __atomic_add_fetch(&reads, 1, __ATOMIC_SEQ_CST);
  if ((fails && number == atol(fails)) || (broken && number >= atol(broken))) return 1;
  if (shorter && number == atol(shorter)) { cut = 1; return 2; }
  return 0;
}

ssize_t pread64(int fd, void *bytes, size_t length, off_t at) {
  ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");
  switch (read_fault(fd, length)) {
    case 1: errno = EIO; return -1;
    case 2: return real(fd, bytes, length / 2, at);
    case 3: return 0;
  }
  return real(fd, bytes, length, at);
}

ssize_t pread(int fd, void *bytes, size_t length, off_t at) { return pread64(fd, bytes, length, at); }

ssize_t read(int fd, void *bytes, size_t length) {
  ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
  switch (read_fault(fd, length)) {
    case 1: errno = EIO; return -1;
    case 2: return real(fd, bytes, length / 2);
    case 3: return 0;
  }
  return real(fd, bytes, length);
}
"#;

/// The path of the compiled library.
pub fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            let directory = std::env::temp_dir().join(format!("onward-shim-{}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            let (source, library) = (directory.join("shim.c"), directory.join("shim.so"));
            std::fs::write(&source, SOURCE).unwrap();
            let done = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
            assert!(done.expect("the tests need a C compiler named `cc`").success());
            library
        })
        .clone()
}
