//! Ceilings of namespaces and keys: upper limits of the budgets that callers set.
//!
//! Invariants:
//! - CB1 (S17): no run is started or resumed with a limit above the ceiling of its namespace or of the caller's key, whatever the
//!   scope.
//! - CB2: a run that is started without a limit gets the ceiling as its limit.
//! - CB3: a fork, a reset and a retry continue with the lower one of the run's limits and the ceiling, whatever the original may
//!   spend.

use std::collections::BTreeMap;

use onward_core::Namespace;
use onward_core::budget::{Allowance, Budget};

use crate::auth::{Caller, Pass, Scope};
use crate::http::problem::{Problem, RequestError};
use crate::server::Server;

/// Ceilings of all namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ceilings {
    /// Ceiling of every namespace.
    pub all: Budget,
    pub namespaces: BTreeMap<Namespace, Budget>,
}

impl Ceilings {
    fn of(&self, namespace: &Namespace) -> Budget {
        self.all.lowered_by(self.namespaces.get(namespace).copied().unwrap_or_default())
    }
}

/// Returns the budget of a run that is started without limits of its own.
pub(crate) fn of_namespace(namespace: &Namespace, server: &Server) -> Option<Allowance> {
    let limit = server.options().ceilings.of(namespace);
    (!limit.is_unlimited()).then_some(Allowance { limit, granted: Budget::default() })
}

/// Returns the budget of a run that the caller starts. Requested limits may exceed the ones that the run's code sets only if the
/// caller has the scope `operate`. Fails if a requested limit is above the ceiling (CB1).
pub(crate) async fn of_start(
    asked: Option<Budget>,
    namespace: &Namespace,
    caller: &Caller,
    pass: Option<&Pass>,
    server: &Server,
) -> Result<Option<Allowance>, Problem> {
    let ceiling = ceiling(namespace, caller, server);
    let asked = asked.unwrap_or_default();
    check(&asked, &ceiling)?;
    let mut granted = Budget::default();
    if !asked.is_unlimited() {
        let may_raise = match pass {
            Some(pass) => pass.check_also(Scope::Operate, server).await.is_ok(),
            None => true,
        };
        granted = if may_raise { asked } else { granted };
    }
    let limit = ceiling.changed_by(asked);
    Ok((!limit.is_unlimited()).then_some(Allowance { limit, granted }))
}

/// Returns the limits that a run is resumed with. Fails if one is above the ceiling (CB1).
pub(crate) fn of_resume(
    asked: Option<Budget>,
    namespace: &Namespace,
    caller: &Caller,
    server: &Server,
) -> Result<Option<Budget>, Problem> {
    check(&asked.unwrap_or_default(), &ceiling(namespace, caller, server))?;
    Ok(asked)
}

/// Returns the ceiling of a run that continues from a copy; the copy gets the lower limits (CB3).
pub(crate) fn of_copy(namespace: &Namespace, caller: &Caller, server: &Server) -> Option<Budget> {
    Some(ceiling(namespace, caller, server)).filter(|ceiling| !ceiling.is_unlimited())
}

fn ceiling(namespace: &Namespace, caller: &Caller, server: &Server) -> Budget {
    server.options().ceilings.of(namespace).lowered_by(caller.budget_max.unwrap_or_default())
}

fn check(asked: &Budget, ceiling: &Budget) -> Result<(), Problem> {
    match asked.exceeds(ceiling) {
        Some(what) => Err(RequestError::BudgetTooLarge { what, ceiling: ceiling.to_string() }.into()), // CB1
        None => Ok(()),
    }
}
