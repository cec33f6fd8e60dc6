//! The way to the socket: what opens it, what keeps it shut, and everything before the log-in.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use egressctl::cancel::Cancel;
use egressctl::error::{Class, Reason};
use egressctl::ssh::{DialOptions, Link, dial, local};

use crate::require_sshd;
use crate::sshd::{Sshd, dial_as, free_port, here, keys, server_at, told, unverified};

fn ask(link: &Link) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(link.socket_path())?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"ping")?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn refusals_missing_and_silent_sockets_are_told_apart() {
    require_sshd!();
    let open = Sshd::start(&[]);
    let missing = "/nonexistent/libvirt-sock";
    let stale = open.dir.path().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    let stale = stale.to_str().unwrap();
    let table: [(&[&str], &str, Reason, Class); 6] = [
        (&[], missing, Reason::SocketNotFound, Class::Transient),
        (&[], stale, Reason::LibvirtUnavailable, Class::Transient),
        (
            &["AllowStreamLocalForwarding no"],
            "echo",
            Reason::ForwardingRefused,
            Class::Permanent,
        ),
        (
            &["AllowTcpForwarding no"],
            "echo",
            Reason::ForwardingRefused,
            Class::Permanent,
        ),
        (
            &["DisableForwarding yes"],
            "echo",
            Reason::ForwardingRefused,
            Class::Permanent,
        ),
        (
            &["AllowTcpForwarding no", "ForceCommand true"],
            "echo",
            Reason::ForwardingRefused,
            Class::Transient,
        ),
    ];
    for (config, socket, reason, class) in table {
        let sshd = Sshd::start(config);
        let echo = sshd.echo();
        let socket = if socket == "echo" {
            echo.to_str().unwrap()
        } else {
            socket
        };
        let link = sshd.dial().unwrap();
        let error = link.open_forward(socket).unwrap_err();
        let text = told(&error);
        assert_eq!(
            (error.reason(), error.class()),
            (reason, class),
            "{config:?}: {text}"
        );
        assert_eq!(error.host(), Some("nas1"));
        assert!(text.contains(socket), "{text}");
        let about_sshd = reason == Reason::ForwardingRefused;
        assert_eq!(
            text.contains("AllowStreamLocalForwarding"),
            about_sshd,
            "{text}"
        );
        assert!(!link.is_closed(), "{config:?}");
    }
}

#[test]
fn a_host_that_runs_no_commands_leaves_both_possibilities() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let echo = sshd.echo();
    std::fs::set_permissions(&echo, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::set_permissions(sshd.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    // Its shell is nologin.
    let mut target = sshd.target();
    target.user = "daemon".into();
    let link = dial_as(&target, &sshd.auth(&keys().join("id_ed25519"))).unwrap();
    let error = link.open_forward(echo.to_str().unwrap()).unwrap_err();
    let text = told(&error);
    assert_eq!(error.reason(), Reason::ForwardingRefused, "{text}");
    assert_eq!(error.class(), Class::Transient, "{text}");
    assert!(
        text.contains("ls -l") && text.contains("AllowTcpForwarding"),
        "{text}"
    );
}

#[test]
fn the_preflight_channel_serves_the_first_connection() {
    require_sshd!();
    let sshd = Sshd::start(&["LogLevel DEBUG1"]);
    let link = sshd.echo_link();
    let opened = || sshd.log().matches("direct-streamlocal@openssh.com").count();
    let before = opened();
    assert_eq!(ask(&link).unwrap(), "ping");
    assert_eq!(
        opened(),
        before,
        "the first connection opened another channel"
    );
    assert_eq!(ask(&link).unwrap(), "ping");
    assert!(opened() > before);
}

#[test]
fn a_later_channel_that_fails_ends_its_stream_and_is_remembered() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let echo = sshd.echo();
    let link = sshd.dial().unwrap();
    link.open_forward(echo.to_str().unwrap()).unwrap();
    assert_eq!(ask(&link).unwrap(), "ping");
    assert_eq!(link.last_error(), None);
    std::fs::remove_file(&echo).unwrap();
    assert!(ask(&link).is_err());
    let error = link.last_error().unwrap();
    assert_eq!(error.reason(), Reason::LibvirtUnavailable);
    assert!(
        told(&error).contains(echo.to_str().unwrap()),
        "{}",
        told(&error)
    );
    assert!(!link.is_closed());
}

#[test]
fn commands_run_beside_the_forward() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let link = sshd.echo_link();
    let limit = Duration::from_secs(10);
    let output = link.exec("echo out; echo err >&2; exit 3", limit).unwrap();
    assert_eq!(
        (output.stdout.as_slice(), output.exit_status),
        (&b"out\n"[..], Some(3))
    );
    let output = link.exec("head -c 3000000 /dev/zero", limit).unwrap();
    assert_eq!(
        (output.stdout.len(), output.exit_status),
        (1024 * 1024, Some(0))
    );
    assert_eq!(link.exec("kill -9 $$", limit).unwrap().exit_status, None);
    assert_eq!(link.exec("cat", limit).unwrap().stdout, b"");
    let started = Instant::now();
    let error = link
        .exec("sleep 30", Duration::from_millis(300))
        .unwrap_err();
    assert_eq!(error.reason(), Reason::TimedOut);
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(ask(&link).unwrap(), "ping");
}

#[test]
fn jump_hosts_are_gone_through_one_after_the_other() {
    require_sshd!();
    let (first, second, last) = (Sshd::start(&[]), Sshd::start(&[]), Sshd::start(&[]));
    let mut through = second.target();
    through.jump = Some(Box::new(first.target()));
    let mut target = last.target();
    target.jump = Some(Box::new(through));
    let known = [&first, &second, &last].map(Sshd::all_known).concat();
    last.write_known_hosts(&known);
    let auth = last.auth(&keys().join("id_ed25519"));
    let link = dial_as(&target, &auth).unwrap();
    link.open_forward(last.echo().to_str().unwrap()).unwrap();
    let mut stream = UnixStream::connect(link.socket_path()).unwrap();
    let sent: Vec<u8> = (0..16_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let bytes = sent.clone();
    let thread = std::thread::spawn(move || writer.write_all(&bytes));
    let mut seen = vec![0; sent.len()];
    stream.read_exact(&mut seen).unwrap();
    assert!(seen == sent);
    thread.join().unwrap().unwrap();
    let started = Instant::now();
    link.close();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    drop(link);
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn what_a_jump_host_cannot_reach_is_its_failure() {
    require_sshd!();
    let open = Sshd::start(&[]);
    let shut = Sshd::start(&["AllowTcpForwarding no"]);
    for (jump, reason) in [
        (&open, Reason::ConnectFailed),
        (&shut, Reason::ForwardingRefused),
    ] {
        let mut target = jump.target();
        target.address.port = free_port();
        target.jump = Some(Box::new(jump.target()));
        let auth = jump.auth(&keys().join("id_ed25519"));
        let error = dial_as(&target, &auth).unwrap_err();
        assert_eq!(error.reason(), reason, "{}", told(&error));
        assert!(told(&error).contains("jump host"), "{}", told(&error));
    }
}

#[test]
fn a_host_is_no_jump_host_to_its_instances() {
    require_sshd!();
    let open = Sshd::start(&[]);
    let shut = Sshd::start(&["AllowTcpForwarding no"]);
    for (sshd, reason) in [
        (&open, Reason::ConnectFailed),
        (&shut, Reason::ForwardingRefused),
    ] {
        let instance = here(free_port());
        let link = sshd.dial().unwrap();
        let error = link.open_tcp(&instance, Duration::from_secs(10));
        let error = error.unwrap_err();
        let text = told(&error);
        assert_eq!(error.reason(), reason, "{text}");
        let named = format!("host {} ", sshd.target().address);
        assert!(error.message().starts_with(&named), "{text}");
        assert!(text.contains(&instance.to_string()), "{text}");
        assert!(!text.contains("jump"), "{text}");
    }
}

#[test]
fn a_busy_server_is_tried_again_and_refused_keys_are_not() {
    require_sshd!();
    let sshd = Sshd::start(&["MaxStartups 2:100:2"]);
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| sshd.dial().map(drop)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for result in results {
        assert!(result.is_ok(), "{}", told(&result.unwrap_err()));
    }
    // It writes it either way: of a connection that it drops, and of how long it had to drop some.
    let is_busy = sshd.log().to_lowercase().contains("maxstartups");
    assert!(is_busy, "never busy: {}", sshd.log());
    let accepted = sshd
        .log()
        .matches("Connection closed by authenticating")
        .count();
    let auth = sshd.auth(&keys().join("other_ed25519"));
    dial_as(&sshd.target(), &auth).unwrap_err();
    std::thread::sleep(Duration::from_millis(300));
    let after = sshd.log().matches("by authenticating user").count();
    assert!(after <= accepted + 1, "{}", sshd.log());
}

#[test]
fn a_server_that_says_nothing_hits_the_limit_and_a_cancel_comes_sooner() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = server_at(listener.local_addr().unwrap().port());
    let auth = unverified();
    let options = DialOptions {
        dial_limit: Duration::from_secs(1),
        ..DialOptions::default()
    };
    let error = dial("nas1", &target, &auth, &options, &Cancel::new()).unwrap_err();
    assert_eq!(error.reason(), Reason::TimedOut, "{}", told(&error));
    assert!(told(&error).contains("shaking hands"), "{}", told(&error));
    let cancel = Cancel::new();
    let other = cancel.clone();
    let thread =
        std::thread::spawn(move || dial("nas1", &target, &auth, &DialOptions::default(), &other));
    std::thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    cancel.set(2);
    let error = thread.join().unwrap().unwrap_err();
    assert_eq!(error.class(), Class::Interrupted(2));
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn something_else_on_the_port_fails_the_handshake_when_the_time_is_over() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = server_at(listener.local_addr().unwrap().port());
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::Relaxed);
            // Closed at once.
            let _ = stream
                .unwrap()
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let options = DialOptions::default();
    let started = Instant::now();
    let error = dial("nas1", &target, &unverified(), &options, &Cancel::new()).unwrap_err();
    assert_eq!(
        (error.reason(), error.class()),
        (Reason::HandshakeFailed, Class::Transient)
    );
    // A busy sshd closes connections, too: each takes its chance as long as there is time, and no longer.
    assert!(tries.load(Ordering::Relaxed) > 5, "{tries:?}");
    assert!(started.elapsed() < options.dial_limit + Duration::from_secs(2));
}

#[test]
fn this_machine_has_the_same_interface() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libvirt-sock");
    let socket = path.to_str().unwrap();
    let link = local("here").unwrap();
    let error = link.open_forward(socket).unwrap_err();
    assert_eq!(
        (error.reason(), error.host()),
        (Reason::SocketNotFound, Some("here"))
    );
    let listener = UnixListener::bind(&path).unwrap();
    let served = std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        first.read_to_end(&mut asked).unwrap();
        first.write_all(&asked).unwrap();
        drop(first);
        // Silent from here on.
        let (second, _) = listener.accept().unwrap();
        (second, listener)
    });
    link.open_forward(socket).unwrap();
    let mut stream = UnixStream::connect(link.socket_path()).unwrap();
    let sent: Vec<u8> = (0..2_000_000_u32).map(|at| (at % 251) as u8).collect();
    stream.write_all(&sent).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen).unwrap();
    assert!(seen == sent);
    let mut blocked = UnixStream::connect(link.socket_path()).unwrap();
    let reader = std::thread::spawn(move || blocked.read(&mut [0]).unwrap_or(0));
    let _kept = served.join().unwrap();
    let started = Instant::now();
    link.close();
    assert_eq!(reader.join().unwrap(), 0);
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    assert!(link.open_forward(socket).is_err());
    let link = local("here").unwrap();
    let output = link.exec("echo hi", Duration::from_secs(5)).unwrap();
    assert_eq!(output.stdout, b"hi\n");
}
