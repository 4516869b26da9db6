//! Virtqueues whose layout is known only after negotiation.

/// A queue of either layout.
#[derive(Debug)]
pub(crate) enum Either<S, P> {
    Split(S),
    Packed(P),
}

/// Runs the same code for either layout, compiled for each.
macro_rules! either {
    ($queue:expr, $name:ident => $work:expr) => {
        match $queue {
            $crate::either::Either::Split($name) => $work,
            $crate::either::Either::Packed($name) => $work,
        }
    };
}

pub(crate) use either;
