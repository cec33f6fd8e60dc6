//! The SSH agent's list of keys (draft-ietf-sshm-ssh-agent), within a time limit.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::session::Deadline;
use super::wire::Reader;
use crate::apart::apart_within;
use crate::error::{Error, Reason, Result};

const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;

/// The longest message taken from an agent, in bytes (OpenSSH's own limit).
const MAX_MESSAGE: usize = 256 * 1024;

/// A key that the agent holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// The public key.
    pub(super) blob: Vec<u8>,
    /// What its owner calls it.
    pub(super) comment: String,
}

/// The keys that the agent holds, each once, in its own order.
pub(super) fn list(socket: &Path, deadline: &Deadline) -> Result<Vec<Identity>> {
    let unavailable = |cause: &dyn std::fmt::Display| {
        Error::transient(
            Reason::CredentialsUnavailable,
            format!("the SSH agent at {} doesn't answer", socket.display()),
        )
        .because(cause)
        .hint("what the agent says: ssh-add -l")
    };
    // Apart, as nothing limits how long connect(2) waits for an agent whose queue is full, nor an answer that trickles.
    let at = socket.to_owned();
    let work = move || exchange(&at, &[REQUEST_IDENTITIES]);
    let answer = apart_within(deadline.cancel(), "agent", deadline.left(), work)?
        .ok_or_else(|| unavailable(&deadline.nothing_within()))?
        .map_err(|cause| unavailable(&cause))?;
    identities(&answer).ok_or_else(|| unavailable(&"it sent no list of keys"))
}

fn identities(answer: &[u8]) -> Option<Vec<Identity>> {
    let mut reader = Reader::new(answer);
    if reader.bytes(1)? != [IDENTITIES_ANSWER] {
        return None;
    }
    let count = reader.u32()?;
    let mut found: Vec<Identity> = Vec::new();
    for _ in 0..count {
        let blob = reader.string()?.to_vec();
        let comment = String::from_utf8_lossy(reader.string()?).into_owned();
        if found.iter().all(|identity| identity.blob != blob) {
            found.push(Identity { blob, comment });
        }
    }
    reader.is_empty().then_some(found)
}

/// Sends the agent one request and reads the answer, however long that takes.
fn exchange(socket: &Path, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    write_message(&mut stream, request)?;
    read_message(&mut stream)
}

fn write_message(stream: &mut UnixStream, body: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(body.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), body].concat())
}

fn read_message(stream: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(std::io::Error::other)?;
    if length == 0 || length > MAX_MESSAGE {
        return Err(std::io::Error::other("message of impossible length"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, Instant};

    use socket2::{Domain, SockAddr, Socket, Type};

    use super::super::private_dir::PrivateDir;
    use super::*;
    use crate::cancel::Cancel;

    const FAILURE: u8 = 5;

    fn answer(keys: &[(&[u8], &str)]) -> Vec<u8> {
        let string = |bytes: &[u8]| {
            let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
            [&length[..], bytes].concat()
        };
        let mut answer = vec![IDENTITIES_ANSWER];
        answer.extend(u32::try_from(keys.len()).unwrap().to_be_bytes());
        for (blob, comment) in keys {
            answer.extend(string(blob));
            answer.extend(string(comment.as_bytes()));
        }
        answer
    }

    #[test]
    fn a_list_names_each_key_once() {
        let list = identities(&answer(&[(b"one", "a"), (b"two", "b"), (b"one", "again")])).unwrap();
        let comments: Vec<&str> = list.iter().map(|key| key.comment.as_str()).collect();
        assert_eq!(comments, ["a", "b"]);
    }

    #[test]
    fn a_damaged_list_is_refused() {
        let good = answer(&[(b"one", "a")]);
        assert_eq!(identities(&[FAILURE]), None);
        assert_eq!(identities(&[]), None);
        for length in 1..good.len() {
            assert_eq!(identities(&good[..length]), None, "{length}");
        }
        assert_eq!(identities(&[&good[..], &[0]].concat()), None);
    }

    #[test]
    fn a_silent_agent_costs_no_more_than_the_deadline() {
        let dir = PrivateDir::new().unwrap();
        let _silent = UnixListener::bind(dir.socket_path()).unwrap();
        let deadline = Deadline::new(Duration::from_millis(50), &Cancel::new());
        let error = list(dir.socket_path(), &deadline).unwrap_err();
        assert_eq!(error.reason(), Reason::CredentialsUnavailable);
        assert_eq!(error.causes(), ["nothing came from it within 50ms"]);
    }

    #[test]
    fn an_agent_that_takes_no_connection_costs_no_more_and_a_signal_less() {
        let dir = PrivateDir::new().unwrap();
        let address = SockAddr::unix(dir.socket_path()).unwrap();
        let agent = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        agent.bind(&address).unwrap();
        agent.listen(0).unwrap();
        // Its queue is full.
        let _waits = UnixStream::connect(dir.socket_path()).unwrap();
        let began = Instant::now();
        let deadline = Deadline::new(Duration::from_millis(200), &Cancel::new());
        let error = list(dir.socket_path(), &deadline).unwrap_err();
        assert_eq!(error.reason(), Reason::CredentialsUnavailable);
        let cancel = Cancel::new();
        let deadline = Deadline::new(Duration::from_secs(60), &cancel);
        let error = std::thread::scope(|scope| {
            let thread = scope.spawn(|| list(dir.socket_path(), &deadline).unwrap_err());
            std::thread::sleep(Duration::from_millis(200));
            cancel.set(2);
            thread.join().unwrap()
        });
        assert_eq!(error.reason(), Reason::Interrupted);
        assert!(began.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn an_answer_that_trickles_costs_no_more_than_the_deadline() {
        let dir = PrivateDir::new().unwrap();
        let agent = UnixListener::bind(dir.socket_path()).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = agent.accept().unwrap();
            // The beginning of a long message, and then a byte from time to time, until nobody reads.
            let mut next = stream.write_all(&[0, 0, 1, 0]);
            while next.is_ok() {
                std::thread::sleep(Duration::from_millis(50));
                next = stream.write_all(&[0]);
            }
        });
        let began = Instant::now();
        let deadline = Deadline::new(Duration::from_millis(300), &Cancel::new());
        let error = list(dir.socket_path(), &deadline).unwrap_err();
        assert_eq!(error.reason(), Reason::CredentialsUnavailable);
        assert!(began.elapsed() < Duration::from_secs(2));
    }
}
