//! The summary of the demo: how often each step ran, and which event recorded its result.

use std::collections::BTreeMap;

use super::stage::Stage;
use crate::output::{Style, TextTable};

/// The one step that was running when its worker was killed.
const INTERRUPTED: &str = "reserve";

pub struct Summary {
    pub text: String,
    /// Each step ran as often as expected: the interrupted one twice, all others once.
    pub holds: bool,
}

pub fn tell(stage: &Stage) -> Summary {
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    stage.done.iter().for_each(|effect| *times.entry(&effect.name).or_default() += 1);
    let mut recorded: Vec<_> = stage.recorded().into_iter().collect();
    recorded.sort_by_key(|(_, (index, _))| *index);
    let mut table = TextTable::new(&["STEP", "TIMES RUN", "RECORDED", "WHY"]).indent("  ");
    let mut holds = true;
    for (name, (index, at)) in &recorded {
        let count = times.get(name.as_str()).copied().unwrap_or_default();
        let expected = if name == INTERRUPTED { 2 } else { 1 };
        holds &= count == expected;
        table.row(vec![
            name.as_str().into(),
            count.to_string().into(),
            format!("event {index}, after {}", stage.seconds(*at)).into(),
            why(count).into(),
        ]);
    }
    let style = Style::stdout();
    let verdict = "Two kills, four processes, one order: no recorded step ran again.";
    Summary { text: format!("\n{}\n\n{}", style.bold(verdict), table.take()), holds }
}

fn why(count: u32) -> &'static str {
    if count > 1 { "was running when killed" } else { "" }
}
