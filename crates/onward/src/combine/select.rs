//! `select!`: the first of several futures, in log order.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use onward_core::Index;

use super::{Scope, ours};
use crate::ctx::Durable;
use crate::host::wake::Limit;

/// One arm of a `select!`: its future, and a function that returns the index of its answer.
pub struct Arm<F> {
    future: Pin<Box<F>>,
    ready_at: fn(&F) -> Option<Index>,
}

impl<F: Future> Arm<F> {
    pub fn new<I: IntoFuture<IntoFuture = F>>(future: I, ready_at: fn(&F) -> Option<Index>) -> Arm<F> {
        Arm { future: Box::pin(future.into_future()), ready_at }
    }

    fn ready_at(&self) -> Option<Index> {
        (self.ready_at)(&self.future)
    }
}

/// Autoref specialization: returns the index of the answer for a durable future, and `None` for any other, such as an async
/// block.
pub struct Probe<'a, F>(pub &'a F);

pub trait ViaDurable {
    fn ready_at(&self) -> Option<Index>;
}

impl<F: Durable> ViaDurable for Probe<'_, F> {
    fn ready_at(&self) -> Option<Index> {
        self.0.ready_at()
    }
}

pub trait ViaOpaque {
    fn ready_at(&self) -> Option<Index>;
}

impl<F> ViaOpaque for &Probe<'_, F> {
    fn ready_at(&self) -> Option<Index> {
        None
    }
}

impl<F: Durable + Unpin + ?Sized> Durable for &mut F {
    fn ready_at(&self) -> Option<Index> {
        (**self).ready_at()
    }
}

impl<F: Durable + ?Sized> Durable for Pin<Box<F>> {
    fn ready_at(&self) -> Option<Index> {
        (**self).ready_at()
    }
}

/// The winning arm with its output.
pub enum Selected<A, B = (), C = (), D = (), E = (), F = (), G = (), H = ()> {
    A(A),
    B(B),
    C(C),
    D(D),
    E(E),
    F(F),
    G(G),
    H(H),
}

/// The arms of a `select!`.
pub trait SelectTuple {
    type Output;
    fn select(self) -> impl Future<Output = Self::Output>;
}

/// Polls the arms that are ready, in log order (rule 3), until one has won.
fn first<S>(
    scope: &mut Scope,
    cx: &Context<'_>,
    ready_at: &[Option<Index>],
    mut poll: impl FnMut(&Scope, u32, Option<&Limit>) -> Option<S>,
) -> Poll<S> {
    let answered_before = !scope.has_begun() && ready_at.iter().any(Option::is_some);
    let mut arms = scope.ready(ready_at.len(), cx);
    let mut selected = None;
    if answered_before {
        // An async block that was not polled yet has no answer: it is not polled if another arm wins at once.
        arms.sort_by_key(|arm| (ready_at[*arm as usize].is_none(), ready_at[*arm as usize], *arm));
        let around = ours(cx).limit;
        selected = arms.iter().find_map(|arm| poll(scope, *arm, around));
    } else {
        scope.in_log_order(&arms, cx, |arm, limit| {
            selected = poll(scope, arm, limit);
            selected.is_some()
        });
    }
    selected.map_or(Poll::Pending, Poll::Ready)
}

fn won<T>(polled: Poll<T>) -> Option<T> {
    match polled {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

macro_rules! tuples {
    ($([$($f:ident $position:tt),+] [$($rest:ty),*])+) => {$(
        impl<$($f: Future),+> SelectTuple for ($(Arm<$f>,)+) {
            type Output = Selected<$($f::Output,)+ $($rest),*>;

            fn select(self) -> impl Future<Output = Self::Output> {
                let mut arms = self;
                let mut scope = Scope::default();
                poll_fn(move |cx| {
                    let ready_at = [$(arms.$position.ready_at()),+];
                    first(&mut scope, cx, &ready_at, |scope, arm, limit| match arm {
                        $($position => {
                            won(scope.poll_within(arm, arms.$position.future.as_mut(), cx, limit)).map(Selected::$f)
                        })+
                        _ => unreachable!("an arm for each future"),
                    })
                })
            }
        }
    )+};
}

tuples! {
    [A 0] [(), (), (), (), (), (), ()]
    [A 0, B 1] [(), (), (), (), (), ()]
    [A 0, B 1, C 2] [(), (), (), (), ()]
    [A 0, B 1, C 2, D 3] [(), (), (), ()]
    [A 0, B 1, C 2, D 3, E 4] [(), (), ()]
    [A 0, B 1, C 2, D 3, E 4, F 5] [(), ()]
    [A 0, B 1, C 2, D 3, E 4, F 5, G 6] [()]
    [A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7] []
}

/// Waits for the first of several futures, in log order, and drops the others.
///
/// The winner is the same on every replay. To keep a loser, pass `&mut future`. Dropping a `sleep`, `recv`, `approval` or
/// `promise` withdraws the wait and returns a signal that was reserved for it. Tasks and children continue unless they are
/// canceled. A running step is dropped.
///
/// ```
/// # use onward::prelude::*;
/// # async fn flow(ctx: Ctx) -> Result<bool> {
/// let paid = onward::select! {
///     payment = ctx.signal("payment").recv::<u64>() => payment? > 0,
///     _ = ctx.sleep(days(3)) => false,
/// };
/// # Ok(paid) }
/// ```
#[macro_export]
macro_rules! select {
    ($($pattern:pat = $future:expr => $body:expr),+ $(,)?) => {{
        let selected = $crate::combine::SelectTuple::select(($($crate::combine::Arm::new($future, |future| {
            #[allow(unused_imports)]
            use $crate::combine::{ViaDurable as _, ViaOpaque as _};
            (&$crate::combine::Probe(future)).ready_at()
        }),)+)).await;
        $crate::__select_match!(selected; [A B C D E F G H] [] $($pattern => $body,)+)
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __select_match {
    ($selected:ident; [$next:ident $($rest:ident)*] [$($done:tt)*] $pattern:pat => $body:expr, $($more:tt)*) => {
        $crate::__select_match!($selected; [$($rest)*] [$($done)* [$next $pattern => $body]] $($more)*)
    };
    ($selected:ident; [$($rest:ident)*] [$([$variant:ident $pattern:pat => $body:expr])+]) => {
        match $selected {
            $($crate::combine::Selected::$variant($pattern) => $body,)+
            #[allow(unreachable_patterns)]
            _ => unreachable!("only the arms of this select can win"),
        }
    };
}
