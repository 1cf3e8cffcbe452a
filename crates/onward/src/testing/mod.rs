//! A test kit: workflows in memory, in virtual time, with crashes at every commit and random schedules.
//!
//! ```
//! use onward::prelude::*;
//! use onward::testing::Script;
//!
//! async fn remind(ctx: Ctx, name: String) -> Result<String> {
//!     ctx.sleep(days(30)).await?;
//!     ctx.step("mail", async || Ok::<_, Failure>(format!("hello {name}"))).await
//! }
//!
//! let script = Script::new(remind, &"Ada");
//! assert_eq!(script.run().output::<String>(), "hello Ada"); // thirty days in a millisecond
//! script.crash_everywhere(); // before and after every commit: same result, nothing recorded twice
//! script.assert_deterministic();
//! ```

mod outcome;
mod play;
mod replay;
mod script;
mod steps;
pub(crate) mod world;

pub use outcome::ScriptOutcome;
pub use replay::Replay;
pub use script::Script;
pub use world::World;
