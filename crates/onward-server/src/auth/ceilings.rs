//! Ceilings of namespaces and keys: upper limits of the budgets that callers set.
//!
//! Invariants:
//! - CB1 (S17): no run is started or resumed with a limit above the ceiling of its namespace or of the caller's key, whatever the
//!   scope.
//! - CB2: a run that is started without a limit gets the ceiling as its limit.
//! - CB3: a fork, a reset and a retry continue with the lower one of the run's limits and the ceiling, whatever the original may
//!   spend.

use onward_core::Namespace;
use onward_core::budget::{Allowance, Budget};

use crate::auth::Scope;
use crate::http::problem::{Problem, RequestError};
use crate::server::Server;
use crate::verbs::Principal;

/// Returns the budget of a run that is started without limits of its own.
pub(crate) fn of_namespace(namespace: &Namespace, server: &Server) -> Option<Allowance> {
    let limit = server.options().ceilings.of(namespace);
    (!limit.is_unlimited()).then_some(Allowance { limit, granted: Budget::default() })
}

/// Returns the budget of a run that the caller starts. Requested limits may exceed the ones that the run's code sets only if the
/// caller has the scope `operate`. Fails if a requested limit is above the ceiling (CB1).
pub(crate) async fn of_start(requested: Option<Budget>, by: &Principal, server: &Server) -> Result<Option<Allowance>, Problem> {
    let ceiling = ceiling(by, server);
    let requested = requested.unwrap_or_default();
    check(&requested, &ceiling)?;
    let mut granted = Budget::default();
    if !requested.is_unlimited() {
        let may_raise = by.check_also(Scope::Operate, server).await.is_ok();
        granted = if may_raise { requested } else { granted };
    }
    let limit = ceiling.changed_by(requested);
    Ok((!limit.is_unlimited()).then_some(Allowance { limit, granted }))
}

/// Fails if a run is resumed with a limit above the ceiling (CB1).
pub(crate) fn check_resume(requested: Option<Budget>, by: &Principal, server: &Server) -> Result<(), Problem> {
    check(&requested.unwrap_or_default(), &ceiling(by, server))
}

/// Fails if the caller lets another credential's schedule start a run that may spend more than the caller's own runs (CB1).
pub(crate) fn check_granted(granted: Option<Budget>, by: &Principal, server: &Server) -> Result<(), Problem> {
    let (granted, ceiling) = (granted.unwrap_or_default(), ceiling(by, server));
    match granted.lowered_by(ceiling) == granted {
        true => Ok(()),
        false => Err(RequestError::BudgetTooLarge { what: "schedule", ceiling: ceiling.to_string() }.into()),
    }
}

/// Returns the ceiling of a run that continues from a copy; the copy gets the lower limits (CB3).
pub(crate) fn of_copy(by: &Principal, server: &Server) -> Option<Budget> {
    Some(ceiling(by, server)).filter(|ceiling| !ceiling.is_unlimited())
}

fn ceiling(by: &Principal, server: &Server) -> Budget {
    server.options().ceilings.of(&by.namespace).lowered_by(by.caller.budget_max.unwrap_or_default())
}

fn check(requested: &Budget, ceiling: &Budget) -> Result<(), Problem> {
    match requested.exceeds(ceiling) {
        Some(what) => Err(RequestError::BudgetTooLarge { what, ceiling: ceiling.to_string() }.into()), // CB1
        None => Ok(()),
    }
}
