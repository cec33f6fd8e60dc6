//! Time limits for blocking calls: when one passes, the connection under the call is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::parallel::{lock, no_thread};

/// One thread that watches the calls under way on a connection.
pub(super) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    armed: Vec<(Instant, Arc<AtomicBool>)>,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A call under way; its limit is lifted when this is dropped.
pub(super) struct Armed<'a> {
    shared: &'a Shared,
    expired: Arc<AtomicBool>,
}

impl Watchdog {
    /// Starts watching; `on_expire` is run, once per passed limit, to release the blocked call.
    ///
    /// Errors: [`Reason::LocalIo`](crate::error::Reason::LocalIo), as without its thread nothing would be limited.
    pub(super) fn start(on_expire: impl Fn() + Send + 'static) -> Result<Self> {
        Self::start_on(Builder::new(), on_expire)
    }

    fn start_on(thread: Builder, on_expire: impl Fn() + Send + 'static) -> Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        });
        let watched = Arc::clone(&shared);
        let thread = thread
            .name("watchdog".to_owned())
            .spawn(move || watch(&watched, &on_expire))
            .map_err(|cause| no_thread(&cause))?;
        Ok(Watchdog {
            shared,
            thread: Some(thread),
        })
    }

    /// Limits what is done until the result is dropped.
    pub(super) fn arm(&self, limit: Duration) -> Armed<'_> {
        let expired = Arc::new(AtomicBool::new(false));
        let deadline = Instant::now() + limit;
        let mut state = self.shared.lock();
        let earlier = state.armed.iter().map(|(at, _)| *at).min();
        state.armed.push((deadline, Arc::clone(&expired)));
        drop(state);
        // The thread sleeps until the earliest deadline it knows; a later one needs no waking.
        if earlier.is_none_or(|at| deadline < at) {
            self.shared.changed.notify_one();
        }
        Armed {
            shared: &self.shared,
            expired,
        }
    }

    /// Makes a call that may take so long; with its result comes the limit, where that has passed.
    pub(super) fn limited<T>(
        &self,
        limit: Duration,
        call: impl FnOnce() -> T,
    ) -> (T, Option<Duration>) {
        let armed = self.arm(limit);
        let result = call();
        (result, armed.expired().then_some(limit))
    }
}

impl Armed<'_> {
    /// Whether the limit has passed.
    fn expired(&self) -> bool {
        self.expired.load(Ordering::Acquire)
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        self.shared
            .lock()
            .armed
            .retain(|(_, flag)| !Arc::ptr_eq(flag, &self.expired));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(shared: &Shared, on_expire: &dyn Fn()) {
    let mut state = shared.lock();
    while !state.stop {
        let now = Instant::now();
        let due: Vec<_> = state
            .armed
            .iter()
            .filter(|(at, _)| *at <= now)
            .cloned()
            .collect();
        if due.is_empty() {
            let next = state.armed.iter().map(|(at, _)| *at).min();
            let wait = next.map_or(Duration::from_secs(3600), |at| {
                at.saturating_duration_since(now)
            });
            state = shared
                .changed
                .wait_timeout(state, wait)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            continue;
        }
        state.armed.retain(|(at, _)| *at > now);
        for (_, flag) in due {
            flag.store(true, Ordering::Release);
        }
        drop(state);
        on_expire();
        state = shared.lock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_passed_limit_releases_and_marks_only_its_own_call() {
        let (sender, released) = mpsc::channel();
        let watchdog = Watchdog::start(move || sender.send(()).unwrap()).unwrap();
        let long = watchdog.arm(Duration::from_secs(60));
        let short = watchdog.arm(Duration::from_millis(10));
        released.recv_timeout(Duration::from_secs(5)).unwrap();
        assert!(short.expired());
        assert!(!long.expired());
    }

    #[test]
    fn a_call_that_was_released_is_told_its_limit() {
        let (sender, released) = mpsc::channel();
        let watchdog = Watchdog::start(move || sender.send(()).unwrap()).unwrap();
        let limit = Duration::from_millis(10);
        let call = || released.recv_timeout(Duration::from_secs(5));
        assert_eq!(watchdog.limited(limit, call), (Ok(()), Some(limit)));
        let (result, timed_out) = watchdog.limited(Duration::from_secs(60), || 1);
        assert_eq!((result, timed_out), (1, None));
    }

    #[test]
    fn nothing_is_watched_without_a_thread() {
        // No machine has room for such a stack.
        let refused = Builder::new().stack_size(1 << 60);
        let error = Watchdog::start_on(refused, || ()).err().unwrap();
        assert_eq!(error.reason(), crate::error::Reason::LocalIo);
    }

    #[test]
    fn a_call_that_ends_in_time_releases_nothing() {
        let (sender, released) = mpsc::channel();
        let watchdog = Watchdog::start(move || sender.send(()).unwrap()).unwrap();
        drop(watchdog.arm(Duration::from_millis(500)));
        assert!(released.recv_timeout(Duration::from_millis(800)).is_err());
    }
}
