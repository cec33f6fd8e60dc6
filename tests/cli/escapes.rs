//! What a server says that nobody has vouched for: it may say anything, and none of it moves a terminal.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use serde_json::Value;

use crate::sandbox;
use crate::support::{REMOTE, Sandbox};

/// A window's title, a bell, and an empty screen; SSH's client refuses all but ASCII by itself.
const NAME: &str = "\x1b]0;pwned\x07\x1b[2J";

/// A server whose offer of key exchanges is that name; the port it listens at.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // Who leaves early is none of this server's business.
            let _ = stream.write_all(&hello());
            std::thread::spawn(move || while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {});
        }
    });
    port
}

/// The version's line and the packet KEXINIT (RFC 4253, 4.2, 6 and 7.1).
fn hello() -> Vec<u8> {
    let mut payload = vec![20];
    payload.extend([7; 16]);
    let lists = [
        NAME,
        "ssh-ed25519",
        "aes128-ctr",
        "aes128-ctr",
        "hmac-sha2-256",
        "hmac-sha2-256",
        "none",
        "none",
        "",
        "",
    ];
    for list in lists {
        payload.extend(u32::try_from(list.len()).unwrap().to_be_bytes());
        payload.extend(list.as_bytes());
    }
    payload.extend([0; 5]);
    let padding = 4 + (8 - (5 + payload.len() + 4) % 8) % 8;
    let length = u32::try_from(1 + payload.len() + padding).unwrap();
    let mut hello = b"SSH-2.0-Fake\r\n".to_vec();
    hello.extend(length.to_be_bytes());
    hello.push(u8::try_from(padding).unwrap());
    hello.extend(payload);
    hello.extend(vec![0; padding]);
    hello
}

/// A configuration whose one host is that server, with a key that others may read.
fn home() -> Sandbox {
    let sandbox = sandbox("none");
    let address = format!("127.0.0.1:{}", server());
    let config = REMOTE.replace("address: 192.0.2.1", &format!("address: '{address}'"));
    sandbox.write("providers.yaml", &config);
    let key = sandbox.keygen("");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    sandbox
}

fn run(sandbox: &Sandbox, line: &str) -> Output {
    let words: Vec<&str> = line.split(' ').collect();
    let mut command = sandbox.egressctl(&words);
    command
        .env("EGRESSCTL_CONFIG", "providers.yaml")
        .output()
        .unwrap()
}

#[test]
fn a_servers_words_move_no_terminal() {
    let sandbox = home();
    for line in [
        "list",
        "check",
        "list -v",
        "list -o json",
        "check -o yaml",
        "list --progress json",
    ] {
        let output = run(&sandbox, line);
        assert!(!output.status.success(), "{output:?}");
        let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        for text in &told {
            let acted_on = |c: char| c.is_control() && c != '\n';
            assert!(!text.contains(acted_on), "{line}: {text:?}");
        }
        // The name is there all the same, for whoever wonders.
        assert!(told.concat().contains("pwned"), "{line}: {told:?}");
    }
}

#[test]
fn warnings_of_the_log_are_events_among_events() {
    let sandbox = home();
    let warned = |line: &str| {
        let output = run(&sandbox, line);
        String::from_utf8(output.stderr).unwrap()
    };
    for line in ["list --progress json", "list --progress json -o json -q"] {
        let said = warned(line);
        let events = said
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<Vec<Value>, _>>();
        let events = events.unwrap_or_else(|error| panic!("{line}: {error}: {said}"));
        let about_key = |event: &&Value| {
            let message = event["message"].as_str().unwrap_or_default();
            event["event"] == "warning" && message.contains("readable by others")
        };
        assert!(
            events.iter().any(|event| about_key(&event)),
            "{line}: {said}"
        );
    }
    assert!(warned("list").contains(" WARN "), "people get a line");
}
