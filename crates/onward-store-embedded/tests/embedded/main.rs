//! The embedded store: the suite every store passes, and what only a directory on a disk can go through.

mod conformance;
