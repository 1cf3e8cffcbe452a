//! The socket through which threads of the bridge wake an event loop.

use std::io::{ErrorKind, Read, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// A pair of sockets: a byte in `reader` says that there is work.
pub struct Wake {
    reader: UnixStream,
    writer: UnixStream,
}

impl Wake {
    pub fn new() -> Result<Wake> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Wake { reader, writer })
    }

    /// Returns the file descriptor that an event loop watches.
    pub fn fd(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    /// Makes the descriptor readable. A full socket is readable already, and a closed one has no reader.
    pub fn wake(&self) {
        drop((&self.writer).write(&[1]));
    }

    /// Takes all bytes, so that the next one wakes again.
    pub fn clear(&self) {
        let mut bytes = [0; 64];
        loop {
            match (&self.reader).read(&mut bytes) {
                Ok(64) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }
}
