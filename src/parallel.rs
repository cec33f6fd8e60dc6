//! Doing the same to many things at once, on a bounded number of threads, with results in order.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Reason};

/// How many threads are worth it for what only computes.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Applies `work` to every item, at most `threads` at a time; results are in the items' order.
///
/// The calling thread works, too: where the system gives no more threads (a limit on tasks, say), it goes on with fewer.
pub fn map<T: Send, R: Send>(
    items: Vec<T>,
    threads: usize,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let count = items.len();
    let threads = threads.min(count);
    if threads <= 1 {
        return items.into_iter().map(work).collect();
    }
    let items: Vec<Mutex<Option<T>>> = items.into_iter().map(|i| Mutex::new(Some(i))).collect();
    let results: Vec<Mutex<Option<R>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let take_turns = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = items.get(index) else { break };
            let item = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            let result = item.map(&work);
            *results[index]
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = result;
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let spawned = std::thread::Builder::new().spawn_scoped(scope, take_turns);
            if spawned.is_err() {
                break;
            }
        }
        take_turns();
    });
    results
        .into_iter()
        .filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

/// Does two things at the same time: two questions to a host cost one round trip then.
///
/// Where the system gives no more threads, one after the other.
///
/// # Panics
///
/// With the panic of either.
pub fn both<A: Send, B>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B) -> (A, B) {
    let slot = Mutex::new(Some(first));
    let run = || {
        let work = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.map(|work| work())
    };
    std::thread::scope(|scope| {
        let spawned = std::thread::Builder::new().spawn_scoped(scope, run);
        let second = second();
        let first = match spawned {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => run(),
        };
        (first.expect("it is run exactly once"), second)
    })
}

/// The error for a thread that panicked: its message was printed already.
pub fn panicked() -> Error {
    Error::transient(Reason::LocalIo, "a worker thread ended unexpectedly")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_under_way_together() {
        let (left, right) = std::sync::mpsc::sync_channel(0);
        // Neither could end alone.
        let (sent, received) = both(
            || left.send(1).is_ok(),
            || right.recv_timeout(std::time::Duration::from_secs(5)),
        );
        assert!(sent);
        assert_eq!(received, Ok(1));
    }

    #[test]
    fn results_keep_the_items_order() {
        let out = map((0..100).collect(), 8, |n: u32| n * 2);
        assert_eq!(out, (0..100).map(|n| n * 2).collect::<Vec<_>>());
        assert_eq!(map(Vec::<u32>::new(), 8, |n| n), Vec::<u32>::new());
    }
}
