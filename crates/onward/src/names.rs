//! Names with types, so that workers and callers agree at compile time.

use std::fmt;
use std::marker::PhantomData;

macro_rules! typed_name {
    ($(#[$meta:meta])* $name:ident<$($t:ident),*>) => {
        $(#[$meta])*
        pub struct $name<$($t),*> {
            name: &'static str,
            types: PhantomData<fn($($t),*)>,
        }

        impl<$($t),*> $name<$($t),*> {
            pub const fn new(name: &'static str) -> Self {
                Self { name, types: PhantomData }
            }

            pub const fn name(&self) -> &'static str {
                self.name
            }
        }

        impl<$($t),*> Clone for $name<$($t),*> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($t),*> Copy for $name<$($t),*> {}

        impl<$($t),*> fmt::Debug for $name<$($t),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.name)
            }
        }
    };
}

typed_name!(
    /// The name of a workflow that takes an `I` and returns an `O`.
    ///
    /// ```
    /// # use onward::prelude::*;
    /// const GREET: Workflow<String, String> = Workflow::new("greet");
    /// ```
    Workflow<I, O>
);
typed_name!(
    /// The name of a task that takes an `I` and returns an `O`.
    Task<I, O>
);
typed_name!(
    /// The name of a signal that carries a `T`.
    Signal<T>
);

/// The name under which code of the type `K` is registered: text, or a typed [`Workflow`] or [`Task`].
pub trait NameOf<K> {
    fn text(&self) -> &str;
}

impl<I, O> NameOf<Workflow<I, O>> for &Workflow<I, O> {
    fn text(&self) -> &str {
        self.name
    }
}

impl<I, O> NameOf<Task<I, O>> for &Task<I, O> {
    fn text(&self) -> &str {
        self.name
    }
}

/// The name of a workflow whose result is read as `T`: text, or a typed [`Workflow`].
pub trait WorkflowName<T> {
    fn workflow_name(&self) -> &str;
}

impl<I, O> From<&Workflow<I, O>> for String {
    fn from(workflow: &Workflow<I, O>) -> String {
        workflow.name.to_owned()
    }
}

/// The name of a task whose result is read as `T`: text, or a typed [`Task`].
pub trait TaskName<T> {
    fn task_name(&self) -> &str;
}

macro_rules! text_names {
    ($($text:ty),*) => {$(
        impl<K> NameOf<K> for $text {
            fn text(&self) -> &str {
                self
            }
        }
        impl<T> WorkflowName<T> for $text {
            fn workflow_name(&self) -> &str {
                self
            }
        }
        impl<T> TaskName<T> for $text {
            fn task_name(&self) -> &str {
                self
            }
        }
        impl SignalName for $text {
            type Carries = AnyType;
            fn signal_name(&self) -> &str {
                self
            }
        }
    )*};
}
text_names!(&str, String, &String);

impl<I, O> WorkflowName<O> for &Workflow<I, O> {
    fn workflow_name(&self) -> &str {
        self.name
    }
}

impl<I, O> TaskName<O> for &Task<I, O> {
    fn task_name(&self) -> &str {
        self.name
    }
}

/// The name of a signal: text, which has no payload type, or a typed [`Signal`].
pub trait SignalName {
    type Carries;
    fn signal_name(&self) -> &str;
}

/// The marker of a signal whose payload type is chosen by the receiving call.
pub enum AnyType {}

/// The marker of a signal that carries a `T`.
pub struct Typed<T>(PhantomData<fn() -> T>);

/// A marker of signals whose payload is read as `T`.
pub trait Carries<T> {}

impl<T> Carries<T> for AnyType {}

impl<T> Carries<T> for Typed<T> {}

impl<T> SignalName for &Signal<T> {
    type Carries = Typed<T>;
    fn signal_name(&self) -> &str {
        self.name
    }
}
