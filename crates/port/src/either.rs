//! Virtqueues whose layout is known once it was negotiated.

/// A queue of either layout.
#[derive(Debug)]
pub(crate) enum Either<S, P> {
    Split(S),
    Packed(P),
}

/// Does the same with either layout, compiled for each.
macro_rules! either {
    ($queue:expr, $name:ident => $work:expr) => {
        match $queue {
            $crate::either::Either::Split($name) => $work,
            $crate::either::Either::Packed($name) => $work,
        }
    };
}

pub(crate) use either;
