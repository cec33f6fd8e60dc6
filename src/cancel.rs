//! Cancellation: one flag for Ctrl-C and the other signals, and what must be closed at once when it is set.
//!
//! Calls that block in libvirt or in the kernel can't be interrupted; closing the socket under them
//! can release them. So whoever is about to block registers a closer and drops its [`Guard`] after.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Class, Error, Reason, Result};
use crate::parallel::lock;

/// What runs when the run is cancelled: it must not block.
type Closer = Arc<dyn Fn() + Send + Sync>;

/// Whether this run was cancelled, shared by all its threads.
#[derive(Clone, Default)]
pub struct Cancel {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    signal: Option<i32>,
    closers: BTreeMap<u64, Closer>,
    next: u64,
}

impl Cancel {
    /// A flag that isn't set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the run was cancelled.
    pub fn is_set(&self) -> bool {
        self.signal().is_some()
    }

    /// The signal that cancelled the run.
    pub fn signal(&self) -> Option<i32> {
        self.lock().signal
    }

    /// Fails with [`Reason::Interrupted`] once the run was cancelled.
    pub fn check(&self) -> Result<()> {
        match self.signal() {
            None => Ok(()),
            Some(signal) => Err(Error::new(
                Class::Interrupted(signal),
                Reason::Interrupted,
                "interrupted",
            )),
        }
    }

    /// Cancels the run for that signal and runs every closer at once; later calls change nothing.
    ///
    /// Takes locks: call it from a thread, never from a signal handler.
    pub fn set(&self, signal: i32) {
        let closers: Vec<Closer> = {
            let mut state = self.lock();
            if state.signal.is_some() {
                return;
            }
            state.signal = Some(signal);
            state.closers.values().cloned().collect()
        };
        self.inner.changed.notify_all();
        for closer in closers {
            closer();
        }
    }

    /// Runs `closer` when the run is cancelled (at once if it was already), until the guard is dropped.
    #[must_use = "the closer is forgotten when the guard is dropped"]
    pub fn on_cancel(&self, closer: Box<dyn Fn() + Send + Sync>) -> Guard {
        let closer: Closer = Arc::from(closer);
        let (id, already) = {
            let mut state = self.lock();
            let id = state.next;
            state.next += 1;
            state.closers.insert(id, Arc::clone(&closer));
            (id, state.signal.is_some())
        };
        if already {
            closer();
        }
        Guard {
            cancel: self.clone(),
            id,
        }
    }

    /// Sleeps that long, or until the run is cancelled, and says whether it was.
    pub fn wait(&self, duration: Duration) -> bool {
        let end = Instant::now() + duration;
        let mut state = self.lock();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if state.signal.is_some() || left.is_zero() {
                return state.signal.is_some();
            }
            state = self
                .inner
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.inner.state)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel")
            .field("signal", &self.signal())
            .finish_non_exhaustive()
    }
}

/// Keeps a closer registered; dropping it forgets the closer.
#[derive(Debug)]
pub struct Guard {
    cancel: Cancel,
    id: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.cancel.lock().closers.remove(&self.id);
    }
}

/// Something for poll(2), beside what is read: readable once somebody has woken it.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// Errors: [`Reason::LocalIo`].
    pub fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map(Wake)
            .map_err(|error| {
                Error::transient(Reason::LocalIo, "can't make an event descriptor").because(error)
            })
    }

    /// Makes it readable, for good.
    pub fn wake(&self) {
        // The counter is full only when it was woken often enough.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn counter() -> (Arc<AtomicU32>, Box<dyn Fn() + Send + Sync>) {
        let count = Arc::new(AtomicU32::new(0));
        let inner = Arc::clone(&count);
        let closer = Box::new(move || {
            inner.fetch_add(1, Ordering::SeqCst);
        });
        (count, closer)
    }

    #[test]
    fn closers_run_once_and_only_while_guarded() {
        let cancel = Cancel::new();
        let (kept, closer) = counter();
        let _guard = cancel.on_cancel(closer);
        let (dropped, closer) = counter();
        drop(cancel.on_cancel(closer));
        cancel.set(2);
        cancel.set(15);
        assert_eq!(kept.load(Ordering::SeqCst), 1);
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        assert_eq!(cancel.signal(), Some(2));
        let error = cancel.check().unwrap_err();
        assert_eq!(error.class(), Class::Interrupted(2));
    }

    #[test]
    fn a_closer_registered_too_late_runs_at_once() {
        let cancel = Cancel::new();
        cancel.set(15);
        let (count, closer) = counter();
        let _guard = cancel.on_cancel(closer);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn waiting_ends_when_cancelled() {
        let cancel = Cancel::new();
        assert!(!cancel.wait(Duration::from_millis(1)));
        let other = cancel.clone();
        let thread = std::thread::spawn(move || other.wait(Duration::from_secs(60)));
        cancel.set(2);
        assert!(thread.join().unwrap());
    }
}
