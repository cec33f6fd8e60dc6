//! Hosts that hang after the first log-in: what a signal ends, and what the limit.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use egressctl::cancel::Cancel;
use egressctl::config::{Host, Nic, Reach, VirtType};
use egressctl::error::{Class, Error, Reason, Result};
use egressctl::host::{Cancels, HostSession};
use egressctl::limits::TimeLimits;
use egressctl::ssh::{DialOptions, dial};
use socket2::{Domain, Socket, Type};

use crate::require_sshd;
use crate::sshd::{Sshd, keys, told};

/// A port whose connections are never taken: its queue is full as long as what comes with it is kept.
fn silent_port() -> (u16, Vec<Socket>) {
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let listener = socket();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let first = socket();
    first.connect(&address).unwrap();
    let port = address.as_socket().unwrap().port();
    (port, vec![listener, first])
}

/// Runs `work`, and gives its error and how long after a signal it came.
fn interrupted<T: Send>(work: impl FnOnce(&Cancel) -> Result<T> + Send) -> (Error, Duration) {
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let other = cancel.clone();
        let thread = scope.spawn(move || work(&other));
        std::thread::sleep(Duration::from_millis(700));
        assert!(!thread.is_finished(), "it never waited");
        let began = Instant::now();
        cancel.set(2);
        let error = thread.join().unwrap().err().expect("nothing was there");
        (error, began.elapsed())
    })
}

#[test]
fn a_jump_to_a_silent_host_ends_by_a_signal_or_the_limit() {
    require_sshd!();
    let jump = Sshd::start(&[]);
    let (port, _queue) = silent_port();
    let mut target = jump.target();
    target.address.port = port;
    target.jump = Some(Box::new(jump.target()));
    let auth = jump.auth(&keys().join("id_ed25519"));
    let with_limit = |dial_limit, cancel: &Cancel| {
        let options = DialOptions {
            dial_limit,
            ..DialOptions::default()
        };
        dial("nas1", &target, &auth, &options, cancel)
    };
    let (error, took) = interrupted(|cancel| with_limit(Duration::from_secs(10), cancel));
    assert_eq!(error.class(), Class::Interrupted(2), "{}", told(&error));
    assert!(took < Duration::from_secs(3), "{took:?}");
    let error = with_limit(Duration::from_secs(2), &Cancel::new()).unwrap_err();
    let text = told(&error);
    assert_eq!(error.reason(), Reason::ConnectFailed, "{text}");
    assert_eq!(error.stage(), Some("jump"));
    let named = format!("jump host 127.0.0.1:{}: no answer", jump.port);
    assert!(error.message().starts_with(&named), "{text}");
    assert!(error.hints()[0].contains("firewall"), "{text}");
}

#[test]
fn a_host_that_hangs_at_the_socket_ends_by_a_signal_or_the_limit() {
    require_sshd!();
    // What is asked about the socket then has no answer.
    let sshd = Sshd::start(&["ForceCommand sleep 30"]);
    let key = keys().join("id_ed25519");
    let host = Host {
        name: "nas1".into(),
        reach: Reach::Ssh(sshd.target()),
        socket: "/nonexistent/libvirt-sock".into(),
        pool: "default".into(),
        nic: Nic::Network("default".into()),
        virt_type: VirtType::Auto,
    };
    let (error, took) = interrupted(|cancel| {
        let cancels = Cancels {
            work: cancel.clone(),
            cleanup: Cancel::new(),
        };
        let limits = TimeLimits::default();
        let session = HostSession::new(host, sshd.auth(&key), cancels, None, limits);
        session.connect().map(drop)
    });
    assert_eq!(error.class(), Class::Interrupted(2), "{}", told(&error));
    assert!(took < Duration::from_secs(3), "{took:?}");
    let options = DialOptions {
        dial_limit: Duration::from_secs(2),
        ..DialOptions::default()
    };
    let (target, auth) = (sshd.target(), sshd.auth(&key));
    let link = dial("nas1", &target, &auth, &options, &Cancel::new()).unwrap();
    let began = Instant::now();
    let error = link.open_forward("/nonexistent/libvirt-sock").unwrap_err();
    assert_eq!(error.reason(), Reason::ForwardingRefused);
    assert!(began.elapsed() < Duration::from_secs(5), "{began:?}");
}
