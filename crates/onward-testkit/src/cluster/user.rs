//! The user that runs the server: PostgreSQL refuses root.
#![allow(unsafe_code, reason = "the kernel is asked for the user, and a child process changes it")]

use std::ffi::CString;
use std::io;

#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    pub uid: u32,
    pub gid: u32,
}

impl User {
    /// Returns an unprivileged user if this process runs as root; `None` otherwise.
    pub fn unprivileged() -> io::Result<Option<User>> {
        // SAFETY: takes nothing and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return Ok(None);
        }
        let found = ["postgres", "nobody"].iter().find_map(|name| User::named(name));
        found
            .map(Some)
            .ok_or_else(|| io::Error::other("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`"))
    }

    fn named(name: &str) -> Option<User> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name is a C string; the static result is read before another call can overwrite it.
        unsafe {
            let entry = libc::getpwnam(name.as_ptr());
            entry.as_ref().map(|entry| User { uid: entry.pw_uid, gid: entry.pw_gid })
        }
    }
}
