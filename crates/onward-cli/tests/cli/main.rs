//! Tests of the CLI as a real process: its streams and its exit code.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod chat;
mod check;
mod completions;
mod config;
mod crash;
mod damaged;
mod databases;
mod definitions;
mod demo;
mod dev;
mod doctor;
mod faults;
mod flow;
mod json;
mod keys;
mod kit;
mod mistakes;
mod models;
mod moving;
mod once;
mod over;
mod pressure;
mod queues;
mod quotas;
mod replay;
mod schedule;
mod servers;
mod talking;
mod tls;
mod torture;
mod transfer_waits;
mod verbs;
mod webhooks;
