//! Virtqueues whose layout is known only after negotiation.

/// A queue of either layout.
#[derive(Debug)]
pub(crate) enum EitherLayout<S, P> {
    Split(S),
    Packed(P),
}

/// Runs the same code for either layout, compiled for each.
macro_rules! with_layout {
    ($queue:expr, $name:ident => $work:expr) => {
        match $queue {
            $crate::ends::layout::EitherLayout::Split($name) => $work,
            $crate::ends::layout::EitherLayout::Packed($name) => $work,
        }
    };
}

pub(crate) use with_layout;
