//! Versions of a piece of code: which branch a run takes, permanently.

use super::{Engine, Fault};
use crate::log::event::{Divergence, VersionChosen};
use crate::{Event, Name};

impl Engine {
    /// Returns the version of `change` for this run.
    ///
    /// A run that gets here for the first time takes `max` and records it. A run that passed this point before the change existed
    /// has no record here and takes `min`. A recorded version outside `min..=max` is a fault.
    pub fn version(&mut self, change: Name, min: u32, max: u32) -> u32 {
        if min > max {
            self.misuse(format!("version `{change}`: min {min} is above max {max}"));
            return max;
        }
        let known = self.versions.get(&change).copied();
        let version = known.or_else(|| self.recorded_version(&change)).unwrap_or(if self.is_live() { max } else { min });
        if known.is_none() {
            self.versions.insert(change.clone(), version);
            if self.is_live() {
                self.polled = true; // the choice must be durable before any effect of it
                self.out.push(VersionChosen { change: change.clone(), version }.into());
            } else if self.recorded_version(&change).is_some() {
                self.out.push(VersionChosen { change: change.clone(), version }.into());
            }
        }
        if version < min || version > max {
            self.version_lost(&change, version, min, max);
        }
        version
    }

    /// Returns the version in the commit that the code is being compared with.
    fn recorded_version(&self, change: &Name) -> Option<u32> {
        self.expected.as_ref()?.events.iter().find_map(|event| match event {
            Event::VersionChosen(chosen) if chosen.change == *change => Some(chosen.version),
            _ => None,
        })
    }

    fn version_lost(&mut self, change: &Name, version: u32, min: u32, max: u32) {
        let hint = if version < min {
            format!("restore the code for version {version} of `{change}`, or end this run")
        } else {
            format!(
                "this code is older than the code that chose version {version} of `{change}`: deploy that one again, or a newer one"
            )
        };
        let report = Box::new(Divergence {
            index: self.delivered.unwrap_or_default(),
            recorded: format!("version {version} of `{change}`"),
            attempted: format!("a version from {min} to {max}"),
            nearest: self.nearest(),
            hint,
        });
        self.set_fault(if version < min { Fault::VersionTooOld(report) } else { Fault::Diverged(report) });
    }
}
