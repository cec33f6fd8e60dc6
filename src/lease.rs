//! How long a name that was taken on a host surely stays ours, whatever became of this process meanwhile.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::awake::boot_time;
use crate::parallel::lock;

/// Whoever takes over from the dead needs this long to do so.
const TAKING_OVER: Duration = Duration::from_secs(5);

/// Several may find the same one dead and remove what it left, each after a look of its own; the last of these removals may
/// reach the host when another has made its own of that name. So much later none is on its way any more: a process may have
/// slept for 4 s unnoticed ([`crate::awake`]), and then there is the way to the host.
pub(crate) const SETTLING: Duration = Duration::from_secs(5);

/// How long to wait for a sign of life that counts as dead after `stale`. Tests that have killed the other themselves, at every
/// call in turn, needn't wait for so long each time.
pub(crate) fn patience(stale: Duration) -> Duration {
    if cfg!(feature = "fault-injection") && std::env::var_os("EGRESSCTL_IMPATIENT").is_some() {
        return stale / 10;
    }
    stale
}

/// The time in which a claim, or a seed, can't be another's.
///
/// Nobody takes it over sooner than `stale` after its last change. A call that is made within two thirds of that has the
/// rest to reach the host; after all but [`TAKING_OVER`] of it whoever waits may have taken over, or be about to.
pub(crate) struct Lease {
    stale: Duration,
    state: Mutex<State>,
}

struct State {
    from: Duration,
    lost: bool,
    lapsed: bool,
}

impl Lease {
    /// One from now on, of what counts as dead when it hasn't changed for `stale`.
    pub(crate) fn begin(stale: Duration) -> Self {
        Self::begun_at(stale, boot_time())
    }

    /// The same from that [`boot_time`] on.
    pub(crate) fn begun_at(stale: Duration, from: Duration) -> Self {
        Lease {
            stale,
            state: Mutex::new(State {
                from,
                lost: false,
                lapsed: false,
            }),
        }
    }

    /// The claim was changed by a call made at that time and answered now.
    pub(crate) fn renew(&self, sent: Duration) {
        let doubt = self.stale.saturating_sub(TAKING_OVER);
        let mut state = self.state();
        state.lapsed |= boot_time().saturating_sub(state.from) >= doubt;
        state.from = state.from.max(sent);
    }

    /// Whether there ever was so long between two changes that another may have held the claim in between.
    pub(crate) fn has_lapsed(&self) -> bool {
        self.state().lapsed
    }

    /// The claim was found to be another's.
    pub(crate) fn lose(&self) {
        self.state().lost = true;
    }

    /// Whether [`Self::lose`] was called.
    pub(crate) fn is_lost(&self) -> bool {
        self.state().lost
    }

    /// Whether the claim is surely ours.
    pub(crate) fn is_sure(&self) -> bool {
        let state = self.state();
        !state.lost && boot_time().saturating_sub(state.from) < self.stale * 2 / 3
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE: Duration = Duration::from_secs(30);
    const LEASE: Duration = Duration::from_secs(20);
    const DOUBT: Duration = Duration::from_secs(25);

    fn ago(time: Duration) -> Duration {
        boot_time().saturating_sub(time)
    }

    #[test]
    fn a_lease_ends_by_itself_and_is_renewed_from_when_the_call_was_made() {
        let lease = Lease::begin(STALE);
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
        let lease = Lease::begin(STALE);
        lease.state().from = ago(DOUBT);
        lease.renew(boot_time());
        lease.renew(boot_time());
        assert!(lease.is_sure() && lease.has_lapsed());
    }

    #[test]
    fn what_is_lost_stays_lost() {
        let lease = Lease::begin(STALE);
        lease.lose();
        lease.renew(boot_time());
        assert!(lease.is_lost() && !lease.is_sure());
    }
}
