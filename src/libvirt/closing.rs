//! Closing the connection under blocked calls, without cutting off a download: that can hang the daemon for good.
//!
//! libvirtd 11.3 sends a download from its main loop, holding the client's lock. Where the client is gone by then, it
//! closes the client right there, which takes the same lock again: the main loop, and with it the whole daemon, stands
//! still until it is restarted (seen on the lab: `virNetServerClientClose` under `daemonStreamEvent`). Our downloads are
//! small and over in milliseconds, so whoever closes the link lets one that is under way end first.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::ssh::Closer;

/// How long a download may delay the close; one that takes longer is stuck with the daemon itself.
const GRACE: Duration = Duration::from_secs(2);

/// The downloads under way on one connection.
#[derive(Clone, Default)]
pub(super) struct Downloads {
    shared: Arc<(Mutex<u32>, Condvar)>,
}

/// One download under way.
pub(super) struct Download<'a>(&'a Downloads);

impl Downloads {
    /// Notes a download until the result is dropped.
    pub(super) fn begin(&self) -> Download<'_> {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Download(self)
    }

    /// Waits until none is under way, or the grace is over.
    pub(super) fn wait(&self) {
        let (count, changed) = &*self.shared;
        let count = count.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = changed.wait_timeout_while(count, GRACE, |count| *count > 0);
    }

    /// A closer for the watchdog and for cancels: returns at once, closes as soon as it may.
    pub(super) fn closer(&self, link: Closer) -> impl Fn() + Send + Sync + 'static {
        let downloads = self.clone();
        move || {
            let (link, downloads) = (link.clone(), downloads.clone());
            let close = move || {
                downloads.wait();
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

impl Drop for Download<'_> {
    fn drop(&mut self) {
        let (count, changed) = &*self.0.shared;
        *count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_close_waits_for_downloads_and_for_nothing_else() {
        let downloads = Downloads::default();
        let began = Instant::now();
        downloads.wait();
        assert!(began.elapsed() < Duration::from_millis(500));
        let other = downloads.clone();
        let download = std::thread::spawn(move || {
            let _under_way = other.begin();
            std::thread::sleep(Duration::from_millis(300));
        });
        while *downloads.shared.0.lock().unwrap() == 0 {
            std::thread::yield_now();
        }
        downloads.wait();
        assert!(download.is_finished() || *downloads.shared.0.lock().unwrap() == 0);
        let began = Instant::now();
        let _stuck = downloads.begin();
        downloads.wait();
        assert!(began.elapsed() >= GRACE);
    }
}
