//! Deleting or only finding out, and the look that a deletion rests on.

use crate::awake::Awake;
use crate::error::Result;

/// Whether things are deleted, or only found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// They are deleted.
    Delete,
    /// Nothing is touched: [`Deleted::gone`](super::Deleted::gone) is what would go.
    DryRun,
}

/// An act that follows a look, and is right as long as this process was awake since.
#[derive(Clone, Copy)]
pub(super) struct Action {
    pub(super) act: Act,
    /// Begun before the look.
    pub(super) awake: Awake,
}

impl Action {
    pub(super) fn from_now(act: Act) -> Self {
        Action {
            act,
            awake: Awake::from_now(),
        }
    }

    /// Whether something is really to be deleted.
    ///
    /// Errors: [`Reason::Suspended`](crate::error::Reason::Suspended).
    pub(super) fn is_due(self) -> Result<bool> {
        match self.act {
            Act::DryRun => Ok(false),
            Act::Delete => self.awake.ensure().map(|()| true),
        }
    }
}
