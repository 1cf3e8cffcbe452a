//! One process: a runtime over its store, and an engine that executes runs on demand. Nothing happens in the background, so a case has
//! one order of store calls. A tap in front of the shell of flows notes what the code of each run got.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::flow::FlowShell;
use onward::prelude::*;
use onward::shell::{Activation, Query, Shell, ShellCode};
use onward::{Payload, RunId};
use onward_core::WorkerId;
use onward_flow::document::Flow;
use onward_flow::machine::{MachineLimits, Plan};
use onward_runtime::{Options, Runtime};
use onward_store::{Clock, ManualClock};
use serde_json::Value;

use super::effects::{Effects, Watch};
use super::mutants::Mutant;
use super::random_flows::reference;
use super::store::MortalStore;
use super::wrong;

/// The kind of the flow.
pub const FLOW: &str = "random";

/// The limits of the cases: a loop that waits for nothing outside ends early.
pub const LIMITS: MachineLimits = MachineLimits { begins: 30, ..reference::LIMITS };

/// The answer that the code of a run got for the call of a number.
pub type Given = (u32, Result<Payload>);

/// What the code of each run got, by the last code object of the run.
#[derive(Default)]
pub struct Taps {
    runs: Mutex<BTreeMap<RunId, (u64, Vec<Given>)>>,
}

impl Taps {
    pub fn of(&self, run: &RunId) -> Vec<Given> {
        self.runs.lock().unwrap().get(run).map(|(_, given)| given.clone()).unwrap_or_default()
    }
}

struct Tap {
    flow: FlowShell,
    taps: Arc<Taps>,
    mutant: Option<Mutant>,
    is_spent: Arc<AtomicBool>,
}

impl Tap {
    fn note(&self, code: &ShellCode, activation: &Activation) {
        let run = code.read(|ctx| ctx.run_id()).unwrap();
        let mut runs = self.taps.runs.lock().unwrap();
        match activation {
            Activation::Start(_) => drop(runs.insert(run, (code.number(), Vec::new()))),
            Activation::Answer { call, result } => match runs.get_mut(&run) {
                Some((number, given)) if *number == code.number() => given.push((*call, result.clone())),
                _ => {} // code of a dead process
            },
            Activation::Update(_) => {}
        }
    }

    fn mutates(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant) && !self.is_spent.swap(true, Ordering::SeqCst)
    }
}

impl Shell for Tap {
    fn activate(&self, code: &Arc<ShellCode>, activation: Activation) {
        self.note(code, &activation);
        let activation = match activation {
            Activation::Answer { .. } if self.mutates(Mutant::AnswerIsForgotten) => return code.hand_back(None),
            Activation::Answer { call, result: Ok(_) } if self.mutates(Mutant::AnswerIsChanged) => {
                Activation::Answer { call, result: Ok(wrong()) }
            }
            Activation::Answer { call, result: Ok(_) } if self.mutates(Mutant::AnswerIsFailure) => {
                Activation::Answer { call, result: Err(Failure::fatal("not what was recorded")) }
            }
            activation => activation,
        };
        self.flow.activate(code, activation);
    }

    fn query(&self, code: &Arc<ShellCode>, query: Query) {
        self.flow.query(code, query);
    }

    fn close(&self, code: &Arc<ShellCode>) {
        self.flow.close(code);
    }
}

/// What all processes of a case share.
#[derive(Clone)]
pub struct Shared {
    pub flow: Arc<Flow>,
    pub clock: Arc<ManualClock>,
    pub effects: Arc<Effects>,
    pub taps: Arc<Taps>,
    pub mutant: Option<Mutant>,
    pub is_spent: Arc<AtomicBool>,
}

pub struct Process {
    pub store: MortalStore,
    pub runtime: Runtime,
    pub onward: Onward,
    /// The worker that executes tasks.
    pub tasks: WorkerId,
}

impl Process {
    pub async fn begin(shared: &Shared, store: MortalStore, number: u32) -> Process {
        let clock: Arc<dyn Clock> = shared.clock.clone();
        let options = Options { lease: Duration::from_secs(3_600), ..Options::default() };
        let runtime = Runtime::new(Arc::new(store.clone()), clock, options);
        let plan = Plan::new(&shared.flow).unwrap().limited(LIMITS);
        let (taps, mutant, is_spent) = (shared.taps.clone(), shared.mutant, shared.is_spent.clone());
        let tap = Tap { flow: FlowShell::of(plan), taps, mutant, is_spent };
        let child = |is_agent| {
            let effects = shared.effects.clone();
            move |ctx: Ctx, _: Value| std::future::ready(effects.child(&ctx.run_id(), is_agent))
        };
        let builder = Onward::within(runtime.clone()).on_demand().threads(1).check_replay(onward::ReplayCheck::Off);
        let builder = builder.foreign(FLOW, false, Arc::new(tap)).middleware(Watch(shared.effects.clone()));
        let builder = builder.workflow("other", child(false)).workflow("writer", child(true));
        let onward = builder.start().await.unwrap();
        Process { store, runtime, onward, tasks: WorkerId::new(format!("tasks-{number}")).unwrap() }
    }
}
