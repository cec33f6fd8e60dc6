//! How long a claim surely stays ours, whatever became of this process meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::claim::STALE;

/// Nobody takes a claim over sooner than [`STALE`] after its last change. A call that is made within the lease has the rest of
/// that time to reach the host.
const LEASE: Duration = Duration::from_secs(STALE.as_secs() * 2 / 3);

/// After so long without a change whoever waits may have taken the claim over, or be about to.
const DOUBT: Duration = Duration::from_secs(STALE.as_secs() - 5);

/// The time since the machine was started, with the time it slept: what a host saw go by.
pub(super) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// The time in which a claim can't be another's.
pub(super) struct Lease {
    state: Mutex<State>,
}

struct State {
    from: Duration,
    lost: bool,
    lapsed: bool,
}

impl Lease {
    /// One from now on.
    pub(super) fn begin() -> Self {
        Lease {
            state: Mutex::new(State {
                from: now(),
                lost: false,
                lapsed: false,
            }),
        }
    }

    /// The claim was changed by a call made at that time and answered now.
    pub(super) fn renew(&self, sent: Duration) {
        let mut state = self.state();
        state.lapsed |= now().saturating_sub(state.from) >= DOUBT;
        state.from = state.from.max(sent);
    }

    /// Whether there ever was so long between two changes that another may have held the claim in between.
    pub(super) fn has_lapsed(&self) -> bool {
        self.state().lapsed
    }

    /// The claim was found to be another's.
    pub(super) fn lose(&self) {
        self.state().lost = true;
    }

    /// Whether [`Self::lose`] was called.
    pub(super) fn is_lost(&self) -> bool {
        self.state().lost
    }

    /// Whether the claim is surely ours.
    pub(super) fn is_sure(&self) -> bool {
        let state = self.state();
        !state.lost && now().saturating_sub(state.from) < LEASE
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ago(time: Duration) -> Duration {
        now().saturating_sub(time)
    }

    #[test]
    fn a_lease_ends_by_itself_and_is_renewed_from_when_the_call_was_made() {
        let lease = Lease::begin();
        assert!(lease.is_sure());
        lease.state().from = ago(LEASE);
        assert!(!lease.is_sure());
        lease.renew(ago(LEASE) + Duration::from_secs(5));
        assert!(lease.is_sure());
        lease.renew(ago(LEASE));
        assert!(lease.is_sure(), "an older call takes nothing away");
        assert!(!lease.has_lapsed());
    }

    #[test]
    fn a_change_that_took_too_long_leaves_a_doubt_for_good() {
        let lease = Lease::begin();
        lease.state().from = ago(DOUBT);
        lease.renew(now());
        lease.renew(now());
        assert!(lease.is_sure() && lease.has_lapsed());
    }

    #[test]
    fn what_is_lost_stays_lost() {
        let lease = Lease::begin();
        lease.lose();
        lease.renew(now());
        assert!(lease.is_lost() && !lease.is_sure());
    }
}
