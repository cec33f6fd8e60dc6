//! Closing the connection under blocked calls, without cutting off a stream: that can hang the daemon for good.
//!
//! libvirtd 11.3 serves streams from its main loop, holding the client's lock. Where the client is gone by then, it
//! closes the client right there, which takes the same lock again: the main loop, and with it the whole daemon, stands
//! still until it is restarted (seen on the lab: `virNetServerClientClose` under `daemonStreamEvent`; of 140 uploads cut off,
//! six times). Our downloads are small and over in milliseconds, and an upload that is cancelled is aborted as soon as its
//! call returns: so whoever closes the link lets them end first.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::parallel::lock;
use crate::ssh::Closer;

/// How long a stream may delay the close; one that takes longer is stuck with the daemon, or with the link.
const GRACE: Duration = Duration::from_secs(2);

/// The streams under way over one link.
#[derive(Clone, Default)]
pub(super) struct Streams {
    shared: Arc<(Mutex<u32>, Condvar)>,
}

/// One stream under way.
pub(super) struct UnderWay<'a>(&'a Streams);

impl Streams {
    /// Notes a stream until the result is dropped.
    pub(super) fn begin(&self) -> UnderWay<'_> {
        *lock(&self.shared.0) += 1;
        UnderWay(self)
    }

    /// Waits until none is under way, or the grace is over.
    pub(super) fn wait(&self) {
        let (count, changed) = &*self.shared;
        let count = lock(count);
        let _ = changed.wait_timeout_while(count, GRACE, |count| *count > 0);
    }

    /// A closer for the watchdog and for cancels: returns at once, closes as soon as it may.
    pub(super) fn closer(&self, link: Closer) -> impl Fn() + Send + Sync + 'static {
        let streams = self.clone();
        move || {
            let (link, streams) = (link.clone(), streams.clone());
            let close = move || {
                streams.wait();
                link.close();
            };
            let spawned = std::thread::Builder::new()
                .name("close".to_owned())
                .spawn(close.clone());
            if spawned.is_err() {
                close();
            }
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let (count, changed) = &*self.0.shared;
        *lock(count) -= 1;
        changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_close_waits_for_streams_and_for_nothing_else() {
        let streams = Streams::default();
        let began = Instant::now();
        streams.wait();
        assert!(began.elapsed() < Duration::from_millis(500));
        let other = streams.clone();
        let download = std::thread::spawn(move || {
            let _under_way = other.begin();
            std::thread::sleep(Duration::from_millis(300));
        });
        while *streams.shared.0.lock().unwrap() == 0 {
            std::thread::yield_now();
        }
        streams.wait();
        assert!(download.is_finished() || *streams.shared.0.lock().unwrap() == 0);
        let began = Instant::now();
        let _stuck = streams.begin();
        streams.wait();
        assert!(began.elapsed() >= GRACE);
    }
}
