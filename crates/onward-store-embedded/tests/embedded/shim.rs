//! A disk that fails on demand: a C library that the loader puts in front of the C library's own calls.
//!
//! Compiled by the test with `cc`. `SHIM_SYNC_FAILS=n` makes the n-th sync of a database file fail with EIO (later ones succeed,
//! as in a kernel that has dropped the dirty pages). `SHIM_TEAR=n` writes half of the n-th page into the write-ahead log and
//! kills the process. `SHIM_READ_FAILS=n` makes the n-th read of a page of the database fail with EIO, `SHIM_READ_BROKEN=n` that
//! one and all later ones, and `SHIM_READ_SHORT=n` ends the n-th in the middle of the page.
//!
//! `SHIM_KILL=n` kills the process before the n-th write, truncation or sync of a file of the directory. `SHIM_RECORD=path`
//! records every write, truncation, sync, rename and removal of these files, in order and with their bytes, and each line that
//! begins with `answered`; with `SHIM_UNSYNCED=all` no sync is recorded, as with `synchronous = OFF`, and with
//! `SHIM_UNSYNCED=-wal` none of the write-ahead log.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

static const char *name_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, 4095);
  if (length < 0) return 0;
  path[length] = 0;
  char *name = strrchr(path, '/');
  if (!name || strncmp(name, "/onward.", 8) || strstr(name, "-shm") || strstr(name, "onward.lock")) return 0;
  return name + 1;
}

static pthread_mutex_t record_lock = PTHREAD_MUTEX_INITIALIZER;

/* One entry: what, length of the name, the name, offset, length of the bytes, the bytes. Numbers have eight bytes. */
static void record(char what, const char *name, unsigned long offset, const void *bytes, unsigned long length) {
  static int out = -1;
  static ssize_t (*real)(int, const void *, size_t);
  const char *path = getenv("SHIM_RECORD");
  if (!path) return;
  if (!real) real = dlsym(RTLD_NEXT, "write");
  if (out < 0) out = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  unsigned long named = strlen(name), size = 25 + named + length;
  char *entry = malloc(size), *at = entry;
  *at++ = what;
  memcpy(at, &named, 8); at += 8;
  memcpy(at, name, named); at += named;
  memcpy(at, &offset, 8); at += 8;
  memcpy(at, &length, 8); at += 8;
  if (length) memcpy(at, bytes, length);
  if (real(out, entry, size) != (ssize_t)size) abort();
  free(entry);
}

static int wants_names(void) { return getenv("SHIM_RECORD") || getenv("SHIM_KILL"); }

static void count_to_kill(const char *name) {
  static long count;
  const char *at = getenv("SHIM_KILL");
  if (at && name && __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) == atol(at)) kill(getpid(), SIGKILL);
}

static int synced(int fd, int (*real)(int)) {
  char path[4096];
  const char *name = wants_names() ? name_of(fd, path) : 0;
  count_to_kill(name);
  pthread_mutex_lock(&record_lock);
  int done = real(fd);
  const char *unsynced = getenv("SHIM_UNSYNCED");
  int told = !unsynced || (strcmp(unsynced, "all") && !(name && strstr(name, unsynced)));
  if (name && !done && told) record('S', name, 0, 0, 0);
  pthread_mutex_unlock(&record_lock);
  return done;
}

static int sync_fails(int fd) {
  const char *at = getenv("SHIM_SYNC_FAILS");
  return at && is_ours(fd, 0) && __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST) == atol(at);
}

int fsync(int fd) {
  if (sync_fails(fd)) { errno = EIO; return -1; }
  return synced(fd, (int (*)(int))dlsym(RTLD_NEXT, "fsync"));
}

int fdatasync(int fd) {
  if (sync_fails(fd)) { errno = EIO; return -1; }
  return synced(fd, (int (*)(int))dlsym(RTLD_NEXT, "fdatasync"));
}

static int tears(int fd, size_t length) {
  const char *at = getenv("SHIM_TEAR");
  return at && length >= 4096 && is_ours(fd, "-wal") && __atomic_add_fetch(&writes, 1, __ATOMIC_SEQ_CST) == atol(at);
}

ssize_t write(int fd, const void *bytes, size_t length) {
  ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
  if (tears(fd, length)) { real(fd, bytes, length / 2); kill(getpid(), SIGKILL); }
  if (!wants_names()) return real(fd, bytes, length);
  char path[4096];
  const char *name = fd > 2 ? name_of(fd, path) : 0;
  count_to_kill(name);
  pthread_mutex_lock(&record_lock);
  off_t at = name ? lseek(fd, 0, SEEK_CUR) : 0;
  ssize_t done = real(fd, bytes, length);
  if (name && done > 0) record('W', name, at, bytes, done);
  if (fd == 1 && length > 9 && !memcmp(bytes, "answered ", 9)) record('A', "", 0, bytes, length);
  pthread_mutex_unlock(&record_lock);
  return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t at) {
  ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
  if (tears(fd, length)) { real(fd, bytes, length / 2, at); kill(getpid(), SIGKILL); }
  if (!wants_names()) return real(fd, bytes, length, at);
  char path[4096];
  const char *name = name_of(fd, path);
  count_to_kill(name);
  pthread_mutex_lock(&record_lock);
  ssize_t done = real(fd, bytes, length, at);
  if (name && done > 0) record('W', name, at, bytes, done);
  pthread_mutex_unlock(&record_lock);
  return done;
}

int ftruncate64(int fd, off_t length) {
  int (*real)(int, off_t) = dlsym(RTLD_NEXT, "ftruncate64");
  char path[4096];
  const char *name = wants_names() ? name_of(fd, path) : 0;
  count_to_kill(name);
  pthread_mutex_lock(&record_lock);
  int done = real(fd, length);
  if (name && !done) record('T', name, length, 0, 0);
  pthread_mutex_unlock(&record_lock);
  return done;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

static const char *last_name(const char *path) {
  const char *name = strrchr(path, '/');
  return name && !strncmp(name, "/onward.", 8) ? name + 1 : 0;
}

int unlink(const char *path) {
  int (*real)(const char *) = dlsym(RTLD_NEXT, "unlink");
  pthread_mutex_lock(&record_lock);
  int done = real(path);
  if (!done && last_name(path)) record('U', last_name(path), 0, 0, 0);
  pthread_mutex_unlock(&record_lock);
  return done;
}

int rename(const char *from, const char *to) {
  int (*real)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
  pthread_mutex_lock(&record_lock);
  int done = real(from, to);
  if (!done && last_name(from) && last_name(to)) record('R', last_name(from), 0, last_name(to), strlen(last_name(to)));
  pthread_mutex_unlock(&record_lock);
  return done;
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

/// Returns the path of the compiled library.
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
