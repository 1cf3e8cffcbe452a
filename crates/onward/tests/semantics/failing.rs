//! Which failure a join fails with: the one that came first in the log.

use onward::prelude::*;
use onward::testing::World;
use onward_core::CallId;
use onward_core::event::TaskFailed;

use crate::{complete_nth, crash_and_pump, task_call_ids};

fn fail_nth(world: &mut World, nth: usize, message: &str) {
    let call_id = CallId::parse(&task_call_ids(world)[nth]).unwrap();
    world.input(TaskFailed { call_id, failure: Failure::fatal(message), attempts: 1, ran: None }).unwrap();
}

/// Both were answered before they are awaited: the log decides which failed first, not the list.
#[test]
fn join_all_fails_with_what_failed_first_in_the_log() {
    async fn plain(ctx: Ctx, _: ()) -> Result<Vec<u32>> {
        let tasks: Vec<_> = (0..3).map(|n| ctx.task("t", &n)).collect();
        ctx.signal("go").recv::<()>().await?;
        join_all(tasks).await
    }
    /// The same inside async blocks, which the log does not show.
    async fn hidden(ctx: Ctx, _: ()) -> Result<Vec<u32>> {
        let tasks: Vec<_> = (0..3).map(|n| ctx.task::<u32>("t", &n)).collect();
        ctx.signal("go").recv::<()>().await?;
        join_all(tasks.into_iter().map(|task| async move { Ok(task.await? + 1) })).await
    }
    for mut world in [World::new(plain, &()), World::new(hidden, &())] {
        world.run_until_idle().unwrap();
        for (nth, failure) in [(2, "last of the list"), (0, "first of the list")] {
            fail_nth(&mut world, nth, failure);
        }
        world.signal("go", &());
        crash_and_pump(&mut world);
        complete_nth(&mut world, 1, "7");
        crash_and_pump(&mut world);
        assert_eq!(world.output(), "failed: last of the list");
    }
}

#[test]
fn what_fails_without_an_answer_has_failed_before_what_needs_one() {
    async fn code(ctx: Ctx, _: ()) -> Result<Vec<u32>> {
        let task = ctx.task::<u32>("t", &());
        ctx.signal("go").recv::<()>().await?;
        let task: LaneFuture<'_> = Box::pin(task);
        join_all([task, Box::pin(async { Err(Failure::fatal("at once")) })]).await
    }
    type LaneFuture<'a> = std::pin::Pin<Box<dyn Future<Output = Result<u32>> + Send + 'a>>;
    let mut world = World::new(code, &());
    world.run_until_idle().unwrap();
    fail_nth(&mut world, 0, "the task");
    world.signal("go", &());
    crash_and_pump(&mut world);
    assert_eq!(world.output(), "failed: at once");
}
