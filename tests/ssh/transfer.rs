//! Bytes through the pump: whole, both ways, several at once, half-closed, and cut off.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use egressctl::cancel::Cancel;
use egressctl::ssh::{DialOptions, Link, dial};
use socket2::SockRef;

use crate::require_sshd;
use crate::sshd::{Sshd, dial_as, keys, unverified};

const MIB: usize = 1024 * 1024;

/// Bytes that repeat only after a long time, from where in the stream they stand.
fn pattern(offset: usize, length: usize) -> Vec<u8> {
    (offset..offset + length)
        .map(|at| {
            u8::try_from((at ^ (at >> 8).wrapping_mul(31) ^ (at >> 16).wrapping_mul(7)) & 0xff)
                .unwrap()
        })
        .collect()
}

/// Writes and reads that many bytes at once through an echo, and compares every one.
fn echo(stream: UnixStream, total: usize) {
    let mut writer = stream.try_clone().unwrap();
    let thread = std::thread::spawn(move || {
        for offset in (0..total).step_by(MIB) {
            writer.write_all(&pattern(offset, MIB)).unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut reader = stream;
    let mut buffer = vec![0; MIB];
    for offset in (0..total).step_by(MIB) {
        reader.read_exact(&mut buffer).unwrap();
        assert!(
            buffer == pattern(offset, MIB),
            "bytes differ after {offset}"
        );
    }
    assert_eq!(reader.read(&mut buffer).unwrap(), 0, "no end of file");
    thread.join().unwrap();
}

fn connect(link: &Link) -> UnixStream {
    let stream = UnixStream::connect(link.socket_path()).unwrap();
    let limit = Some(Duration::from_secs(60));
    stream.set_read_timeout(limit).unwrap();
    stream.set_write_timeout(limit).unwrap();
    stream
}

#[test]
fn both_directions_at_once_are_byte_identical() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let link = sshd.echo_link();
    echo(connect(&link), 64 * MIB);
}

#[test]
fn key_re_exchanges_in_between_lose_nothing() {
    require_sshd!();
    let sshd = Sshd::start(&["RekeyLimit 256K"]);
    let link = sshd.echo_link();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| echo(connect(&link), 8 * MIB));
        }
    });
}

#[test]
fn a_server_that_stutters_between_key_re_exchanges_loses_nothing() {
    require_sshd!();
    let sshd = Sshd::start(&["RekeyLimit 256K"]);
    let link = sshd.echo_link();
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| echo(connect(&link), 4 * MIB)))
            .collect();
        // Stopped, it leaves packets half sent, its own and ours.
        while !lanes.iter().all(ScopedJoinHandle::is_finished) {
            sshd.signal_sessions("-STOP");
            std::thread::sleep(Duration::from_millis(30));
            sshd.signal_sessions("-CONT");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

/// Passes connections on in small pieces from small buffers, so that packets are often sent in part.
fn narrow_link(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).set_recv_buffer_size(4096).unwrap();
    let narrow = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (from_server, to_client) =
                (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || squeeze(client, server));
            std::thread::spawn(move || squeeze(from_server, to_client));
        }
    });
    narrow
}

fn squeeze(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 1500];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        std::thread::sleep(Duration::from_micros(100));
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Both).unwrap_or_default();
}

#[test]
fn a_narrow_link_with_key_re_exchanges_loses_nothing() {
    require_sshd!();
    let sshd = Sshd::start(&["RekeyLimit 256K"]);
    let echo_path = sshd.echo();
    let mut jump = sshd.target();
    jump.address.port = narrow_link(sshd.port);
    // The way to a jump host's pump is a socket pair, whose buffer is small and soon full.
    let mut target = sshd.target();
    target.jump = Some(Box::new(jump));
    let link = dial_as(&target, &unverified()).unwrap();
    link.open_forward(echo_path.to_str().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let bulk: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| echo(connect(&link), 2 * MIB)))
            .collect();
        // Opening and closing beside that, with all the small packets it takes.
        while !bulk.iter().all(ScopedJoinHandle::is_finished) {
            let mut short = connect(&link);
            short.write_all(b"short").unwrap();
            short.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            short.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "short");
            let output = link.exec("echo hi", Duration::from_secs(60)).unwrap();
            assert_eq!(output.stdout, b"hi\n");
        }
    });
}

#[test]
fn several_channels_at_once_are_fair() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let link = sshd.echo_link();
    std::thread::scope(|scope| {
        let bulk: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| echo(connect(&link), 16 * MIB)))
            .collect();
        let mut small = connect(&link);
        let mut answers = 0;
        while !bulk.iter().all(ScopedJoinHandle::is_finished) {
            small.write_all(b"ping").unwrap();
            small.read_exact(&mut [0; 4]).unwrap();
            answers += 1;
        }
        assert!(
            answers > 20,
            "a small query got only {answers} answers beside three transfers"
        );
    });
}

#[test]
fn each_end_can_close_its_half_first() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let path = sshd.serve("late", |mut stream| {
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut asked = String::new();
        stream.read_to_string(&mut asked).unwrap();
        assert_eq!(asked, "late words");
    });
    let link = sshd.dial().unwrap();
    link.open_forward(path.to_str().unwrap()).unwrap();
    let mut stream = connect(&link);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello");
    stream.write_all(b"late words").unwrap();
    drop(stream);
    let path = sshd.serve("count", |mut stream| {
        let mut asked = Vec::new();
        stream.read_to_end(&mut asked).unwrap();
        stream
            .write_all(asked.len().to_string().as_bytes())
            .unwrap();
    });
    link.open_forward(path.to_str().unwrap()).unwrap();
    let mut stream = connect(&link);
    stream.write_all(&vec![7; 3 * MIB]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, (3 * MIB).to_string());
}

#[test]
fn closing_releases_a_blocked_read_at_once() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let link = sshd.echo_link();
    let mut stream = connect(&link);
    // Fill every buffer on the way to a server that has stopped, and then wait for an answer.
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    sshd.signal_sessions("-STOP");
    let mut writer = stream.try_clone().unwrap();
    let filler = std::thread::spawn(move || while writer.write_all(&vec![0; MIB]).is_ok() {});
    let reader = std::thread::spawn(move || stream.read(&mut [0; 1]).unwrap_or(0));
    std::thread::sleep(Duration::from_millis(500));
    assert!(!filler.is_finished() && !reader.is_finished());
    let started = Instant::now();
    link.close();
    assert_eq!(reader.join().unwrap(), 0);
    filler.join().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    drop(link);
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    sshd.signal_sessions("-CONT");
}

#[test]
fn a_killed_server_ends_the_streams_and_is_remembered() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let link = sshd.echo_link();
    let mut stream = connect(&link);
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    sshd.signal_sessions("-KILL");
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    let end = Instant::now() + Duration::from_secs(5);
    while !link.is_closed() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = link.last_error().unwrap();
    assert_eq!(error.reason(), egressctl::error::Reason::ConnectionLost);
    assert_eq!(error.host(), Some("nas1"));
}

/// A link named apart from the other tests' links, as its thread is watched.
fn named_link(sshd: &Sshd, name: &str, socket: &Path) -> Link {
    let auth = sshd.auth(&keys().join("id_ed25519"));
    let options = DialOptions::default();
    let link = dial(name, &sshd.target(), &auth, &options, &Cancel::new()).unwrap();
    link.open_forward(socket.to_str().unwrap()).unwrap();
    link
}

#[test]
fn an_idle_link_uses_no_cpu() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let link = named_link(&sshd, "idle", &sshd.echo());
    let mut streams: Vec<UnixStream> = (0..5).map(|_| connect(&link)).collect();
    for stream in &mut streams {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    streams[0].shutdown(Shutdown::Write).unwrap();
    assert_idle("idle");
}

#[test]
fn channels_that_the_server_has_ended_cost_nothing_and_keepalives_are_answered() {
    require_sshd!();
    let sshd = Sshd::start(&["ClientAliveInterval 1", "ClientAliveCountMax 2"]);
    // The preflight's channel and the next two end at once.
    let ended = sshd.serve("ended", drop);
    let link = named_link(&sshd, "ended", &ended);
    std::thread::sleep(Duration::from_millis(300));
    let mut kept = [connect(&link), connect(&link)];
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(50));
        for stream in &mut kept {
            // sshd notices by this that nobody takes it, and closes the channel.
            stream.write_all(b"x").unwrap_or_default();
        }
    }
    assert_idle("ended");
    // Idle with nothing but a channel that is ready.
    let echo_link = named_link(&sshd, "alive", &sshd.echo());
    assert_idle("alive");
    assert_idle("alive");
    echo(connect(&echo_link), MIB);
}

/// The thread of the link of that name does next to nothing for two seconds.
fn assert_idle(name: &str) {
    std::thread::sleep(Duration::from_millis(200));
    let before = cpu_time(name);
    std::thread::sleep(Duration::from_secs(2));
    let used = cpu_time(name)
        .unwrap()
        .checked_sub(before.unwrap())
        .unwrap();
    assert!(used < Duration::from_millis(30), "{used:?} of CPU in 2 s");
}

/// The time that the thread of the link of that name has spent on a CPU (proc(5), schedstat).
fn cpu_time(name: &str) -> Option<Duration> {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let place = task.unwrap().path();
        let comm = std::fs::read_to_string(place.join("comm")).unwrap_or_default();
        if comm.trim() == format!("link {name}") {
            let stat = std::fs::read_to_string(place.join("schedstat")).unwrap();
            let nanos = stat.split_whitespace().next().unwrap().parse().unwrap();
            return Some(Duration::from_nanos(nanos));
        }
    }
    None
}
