//! A server with a slow disk (F20) or a changing clock (F9), with a connected worker.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onward::Status;
use onward::prelude::*;
use onward_testkit::WrongClock;
use tokio::sync::Notify;

use crate::dev::{Served, serve};
use crate::kit::{onward, with_code};

/// Timeout against hanging.
const HANG: Duration = Duration::from_secs(180);

/// Delays every sync of the database's files.
const SLOW_DISK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static void delay(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return;
  path[length] = 0;
  if (strstr(path, "/onward.db")) usleep(200000);
}
int fsync(int fd) { delay(fd); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { delay(fd); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
"#;

fn build(directory: &Path) -> PathBuf {
    let (source, library) = (directory.join("slow.c"), directory.join("slow.so"));
    std::fs::write(&source, SLOW_DISK).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status().unwrap();
    assert!(built.success());
    library
}

fn dev_with(directory: &Path, lease: &str, change: impl FnOnce(&mut Command)) -> Served {
    let mut command = onward();
    command.env("ONWARD_SERVER__LEASE", lease).args(["dev", "--port", "0", "--data"]).arg(directory);
    change(&mut command);
    serve(&mut command)
}

/// Number of started steps.
#[derive(Clone, Default)]
struct Began(Arc<AtomicU64>);

async fn steady(ctx: Ctx, steps: u64) -> Result<u64> {
    let began = ctx.dep::<Began>();
    for _ in 0..steps {
        ctx.step("step", async || {
            began.0.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Failure>(())
        })
        .await?;
    }
    Ok(steps)
}

/// F20: every sync takes 200 ms. Everything takes longer, and no lease is lost.
#[test]
fn a_slow_disk_costs_time_and_no_lease() {
    let (directory, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let library = build(tools.path());
    let served = dev_with(directory.path(), "1s", |command| {
        command.env("LD_PRELOAD", library);
    });
    let began = Began::default();
    let begun = Instant::now();
    let took = with_code(Onward::connect(&*served.url).dep(began.clone()).workflow("steady", steady), async |onward| {
        let started = Instant::now();
        let mut runs = Vec::new();
        for number in 0..4 {
            runs.push(onward.start::<u64, _>("steady", &8u64).id(format!("run-{number}")).await.unwrap());
        }
        let took = started.elapsed();
        for run in runs {
            assert_eq!(tokio::time::timeout(HANG, run.result()).await.unwrap().unwrap(), 8);
        }
        took
    });
    assert!(took >= Duration::from_millis(800), "each of four starts waited for its sync: {took:?}");
    assert!(begun.elapsed() > Duration::from_secs(1), "it took longer than a lease");
    assert_eq!(began.0.load(Ordering::SeqCst), 32, "no step began twice, so no lease was lost");
}

/// Releases a step.
#[derive(Clone, Default)]
struct Go(Arc<Notify>);

async fn patient(ctx: Ctx, (): ()) -> Result<()> {
    let (began, go) = (ctx.dep::<Began>(), ctx.dep::<Go>());
    ctx.step("wait", async || {
        began.0.fetch_add(1, Ordering::SeqCst);
        go.0.notified().await;
        Ok::<_, Failure>(())
    })
    .await
}

async fn sleeper(ctx: Ctx, (): ()) -> Result<()> {
    ctx.sleep(Duration::from_secs(3_600)).await
}

/// F9: the clock of a server jumps a day forward and an hour back while a worker runs a step.
#[test]
fn a_clock_that_is_set_fires_timers_and_takes_no_lease() {
    let directory = tempfile::tempdir().unwrap();
    let clock = WrongClock::build().unwrap();
    let lease = Duration::from_secs(1);
    let served = dev_with(directory.path(), "1s", |command| {
        clock.follow(command);
    });
    let (began, go) = (Began::default(), Go::default());
    let builder = Onward::connect(&*served.url).dep(began.clone()).dep(go.clone());
    let builder = builder.workflow("patient", patient).workflow("sleeper", sleeper).workflow("steady", steady);
    with_code(builder, async |onward| {
        let sleeping = onward.start::<(), _>("sleeper", &()).id("sleeper").await.unwrap();
        tokio::time::timeout(HANG, sleeping.until(|view| view.head.status == Status::Waiting)).await.unwrap().unwrap();
        let working = onward.start::<(), _>("patient", &()).id("patient").await.unwrap();
        let until_begun = async {
            while began.0.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(HANG, until_begun).await.unwrap();
        for off in [86_400, 82_800] {
            clock.turn(off).unwrap();
            // A lease by that clock would end now, or never.
            tokio::time::sleep(lease * 2).await;
        }
        tokio::time::timeout(HANG, sleeping.result()).await.expect("a timer follows the clock").unwrap();
        go.0.notify_one();
        tokio::time::timeout(HANG, working.result()).await.unwrap().unwrap();
        assert_eq!(began.0.load(Ordering::SeqCst), 1, "the worker had its lease all the time");
        let after = onward.start::<u64, _>("steady", &3u64).await.unwrap();
        assert_eq!(tokio::time::timeout(HANG, after.result()).await.unwrap().unwrap(), 3);
    });
}
