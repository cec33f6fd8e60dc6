//! A download that is likely to be asked for: begun beside what is asked of the hosts, not after it.

use std::mem;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};

use super::{Download, Http};
use crate::apart::apart;
use crate::cancel::Cancel;
use crate::error::Result;
use crate::parallel::{lock, panicked};

/// A download, in whatever state it is.
pub(in super::super) struct Pending<'a> {
    url: &'a str,
    cancel: &'a Cancel,
    state: Mutex<State>,
}

enum State {
    /// Nothing was done yet.
    Idle,
    /// Its client is being made, or is made.
    Prepared(Prepared),
    /// Its request is under way, or answered.
    Asked(Receiver<Result<Download>>),
    /// Its headers were there from the beginning.
    Opened(Box<Download>),
}

/// A client without a request.
struct Prepared {
    /// Has the request sent; dropped, there is none.
    ask: Sender<()>,
    answer: Receiver<Result<Download>>,
    thread: JoinHandle<()>,
}

impl<'a> Pending<'a> {
    /// A download of which nothing is done yet.
    pub(in super::super) fn new(url: &'a str, cancel: &'a Cancel) -> Self {
        Pending {
            url,
            cancel,
            state: Mutex::new(State::Idle),
        }
    }

    /// One whose headers are here already.
    pub(in super::super) fn opened(download: Download, url: &'a str, cancel: &'a Cancel) -> Self {
        let state = Mutex::new(State::Opened(Box::new(download)));
        Pending { url, cancel, state }
    }

    /// Begins to make the HTTP client: OpenSSL 3.0 takes 0.1 s to read the system's CAs (measured).
    pub(in super::super) fn prepare(&self) {
        let mut state = self.state();
        if matches!(*state, State::Idle)
            && let Some(prepared) = prepare(self.url, self.cancel)
        {
            *state = State::Prepared(prepared);
        }
    }

    /// Begins to ask the server for it, if nobody did; waits for nothing.
    pub(in super::super) fn ask(&self) {
        self.prepare();
        let mut state = self.state();
        *state = match mem::replace(&mut *state, State::Idle) {
            State::Prepared(Prepared { ask, answer, .. }) => {
                // A thread that panicked shows in its answer.
                let _ = ask.send(());
                State::Asked(answer)
            }
            other => other,
        };
    }

    /// The download, when its headers are there; another one each time.
    ///
    /// Errors: those of [`Download::open`].
    pub(in super::super) fn take(&self) -> Result<Download> {
        self.ask();
        let state = mem::replace(&mut *self.state(), State::Idle);
        match state {
            State::Opened(download) => Ok(*download),
            State::Asked(answer) => {
                let answered = apart(self.cancel, "HTTP", move || answer.recv())?;
                answered.unwrap_or_else(|_| Err(panicked()))
            }
            // The system gave no thread.
            State::Idle | State::Prepared(_) => Download::open(self.url, self.cancel),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Pending<'_> {
    /// Waits for a client that nobody needed: no process ends while OpenSSL reads CAs in it.
    fn drop(&mut self) {
        let state = mem::replace(&mut *self.state(), State::Idle);
        if let State::Prepared(Prepared { ask, thread, .. }) = state {
            drop(ask);
            // A panic there means nothing any more.
            let _ = thread.join();
        }
    }
}

fn prepare(url: &str, cancel: &Cancel) -> Option<Prepared> {
    let (url, cancel) = (url.to_owned(), cancel.clone());
    let (ask, asked) = channel();
    let (sender, answer) = channel();
    let work = move || {
        let http = Http::from_env();
        if asked.recv().is_ok() {
            let opened = http.and_then(|http| Download::open_with(&url, &cancel, http));
            // Nobody listens any more when the run was cancelled.
            let _ = sender.send(opened);
        }
    };
    let thread = Builder::new().name("HTTP".to_owned()).spawn(work).ok()?;
    Some(Prepared {
        ask,
        answer,
        thread,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: &str = "http://127.0.0.1:9/image";

    #[test]
    fn what_is_prepared_and_not_asked_for_makes_no_request() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        server.set_nonblocking(true).unwrap();
        let url = format!("http://{}/image", server.local_addr().unwrap());
        let cancel = Cancel::new();
        let pending = Pending::new(&url, &cancel);
        pending.prepare();
        drop(pending);
        let nobody = server.accept().unwrap_err();
        assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_cancelled_run_waits_for_no_answer() {
        // It takes the connection, and says nothing.
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/image", server.local_addr().unwrap());
        let cancel = Cancel::new();
        let pending = Pending::new(&url, &cancel);
        pending.ask();
        let _connection = server.accept().unwrap();
        cancel.set(130);
        let error = pending.take().err().unwrap();
        assert_eq!(error.reason(), crate::error::Reason::Interrupted);
    }

    #[test]
    fn an_answer_that_failed_is_told_and_the_next_is_asked_anew() {
        let cancel = Cancel::new();
        let pending = Pending::new(NOWHERE, &cancel);
        cancel.set(130);
        assert!(pending.take().is_err());
        assert!(matches!(*pending.state(), State::Idle));
    }
}
