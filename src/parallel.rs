//! Doing the same to many things at once, on a bounded number of threads, with results in order.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

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
            let index = next.fetch_add(1, Relaxed);
            let Some(slot) = items.get(index) else { break };
            let item = lock(slot).take();
            let result = item.map(&work);
            *lock(&results[index]) = result;
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

/// Asks one host about many things, up to `at_once` at a time; answers are in the things' order.
///
/// As [`map`], but all hosts together have at most 1,024 threads for it: where those are taken, the calling thread goes on alone.
pub fn ask<T: Send, R: Send>(
    things: Vec<T>,
    at_once: usize,
    ask: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let helpers = HELPERS.take(at_once.min(things.len()).saturating_sub(1));
    map(things, helpers.count + 1, ask)
}

static HELPERS: Budget = Budget(AtomicUsize::new(1024));

/// What there is of something for the whole process.
struct Budget(AtomicUsize);

/// A part of a budget; given back when it is dropped.
struct Share<'a> {
    budget: &'a Budget,
    count: usize,
}

impl Budget {
    /// So many, or as many as there are.
    fn take(&self, wanted: usize) -> Share<'_> {
        let take = |left: usize| Some(left.saturating_sub(wanted));
        let left = self.0.fetch_update(Relaxed, Relaxed, take);
        let left = left.unwrap_or_else(|unchanged| unchanged);
        Share {
            budget: self,
            count: wanted.min(left),
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.count, Relaxed);
    }
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
        let work = lock(&slot).take();
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

/// Work that [`begin`] began.
#[derive(Debug)]
pub enum Job<'scope, T> {
    /// On a thread of its own.
    Thread(ScopedJoinHandle<'scope, T>),
    /// Done already.
    Done(T),
}

impl<T> Job<'_, T> {
    /// Waits for its result; with an error where it panicked.
    pub fn join(self) -> std::thread::Result<T> {
        match self {
            Job::Thread(thread) => thread.join(),
            Job::Done(result) => Ok(result),
        }
    }
}

/// Begins `work` on a thread of its own; where the system gives no more threads, it is done at once on this one.
///
/// So it may wait for nothing that this thread does later.
pub fn begin<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Job<'scope, T> {
    begin_on(Builder::new(), scope, work)
}

fn begin_on<'scope, T: Send + 'scope>(
    thread: Builder,
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Job<'scope, T> {
    match try_on(thread, scope, work, |work| work()) {
        Ok(thread) => Job::Thread(thread),
        Err((work, _)) => Job::Done(work()),
    }
}

/// Does `work` with `input` on a thread of its own; where the system gives no more threads, the input is given back,
/// with the cause.
pub fn try_with<'scope, I: Send + 'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    input: I,
    work: impl FnOnce(I) -> T + Send + 'scope,
) -> std::result::Result<ScopedJoinHandle<'scope, T>, (I, std::io::Error)> {
    try_on(Builder::new(), scope, input, work)
}

fn try_on<'scope, I: Send + 'scope, T: Send + 'scope>(
    thread: Builder,
    scope: &'scope Scope<'scope, '_>,
    input: I,
    work: impl FnOnce(I) -> T + Send + 'scope,
) -> std::result::Result<ScopedJoinHandle<'scope, T>, (I, std::io::Error)> {
    // Kept here, too, as a closure for a thread that wasn't started is lost.
    let slot = Arc::new(Mutex::new(Some(input)));
    let kept = Arc::clone(&slot);
    let take = |slot: &Mutex<Option<I>>| lock(slot).take();
    let run = move || work(take(&slot).expect("nobody else takes it once the thread runs"));
    thread
        .spawn_scoped(scope, run)
        .map_err(|cause| (take(&kept).expect("no thread took it"), cause))
}

/// Locks what a panic elsewhere doesn't spoil.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error for a thread that the system doesn't give.
pub fn no_thread(cause: &std::io::Error) -> Error {
    Error::transient(Reason::LocalIo, "can't start a thread")
        .because(cause)
        .hint("ulimit -u, a container's pids.max, and systemd's TasksMax= limit them")
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
    fn without_a_thread_work_is_done_all_the_same_and_its_input_given_back() {
        // No machine has room for such a stack.
        let refused = || Builder::new().stack_size(1 << 60);
        std::thread::scope(|scope| {
            let job = begin_on(refused(), scope, || 1);
            assert!(matches!(job, Job::Done(1)));
            let back = try_on(refused(), scope, "input", |_| ());
            assert!(back.is_err_and(|(input, _)| input == "input"));
            assert_eq!(begin(scope, || 2).join().unwrap(), 2);
            let thread = try_with(scope, 3, |input| input).unwrap();
            assert_eq!(thread.join().unwrap(), 3);
        });
    }

    #[test]
    fn a_budget_gives_what_is_left_and_gets_it_back() {
        let budget = Budget(AtomicUsize::new(5));
        let first = budget.take(3);
        let second = budget.take(3);
        assert_eq!((first.count, second.count, budget.take(1).count), (3, 2, 0));
        drop(first);
        assert_eq!(budget.take(9).count, 3);
        drop(second);
        assert_eq!(budget.take(9).count, 5);
    }

    #[test]
    fn all_are_asked_and_answers_keep_their_order() {
        let out = ask((0..100).collect(), 8, |n: u32| n * 2);
        assert_eq!(out, (0..100).map(|n| n * 2).collect::<Vec<_>>());
        assert_eq!(ask(Vec::<u32>::new(), 8, |n| n), Vec::<u32>::new());
    }

    #[test]
    fn results_keep_the_items_order() {
        let out = map((0..100).collect(), 8, |n: u32| n * 2);
        assert_eq!(out, (0..100).map(|n| n * 2).collect::<Vec<_>>());
        assert_eq!(map(Vec::<u32>::new(), 8, |n| n), Vec::<u32>::new());
    }
}
