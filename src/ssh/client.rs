//! Our side of an SSH session: which algorithms it takes, whether it trusts the host's key, how it ended.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use russh::cipher;
use russh::client::{self, DisconnectReason};
use russh::keys::{Algorithm, PublicKeyOrCertificate};
use russh::{Preferred, SshId, compression};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::host_key::Verifier;
use crate::config::SshTarget;
use crate::error::Error;

/// An idle connection is asked for a sign of life this often, so that a dead peer is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// So many keepalives without an answer are a dead peer.
const KEEPALIVES: usize = 3;

/// Bytes that the host may send ahead on a channel: what OpenSSH grants us, too.
const WINDOW: u32 = 2 * 1024 * 1024;

/// Packets that wait for the session at once, from all channels together: a window's worth, 2 MiB. A question behind
/// an upload waits for these.
const PACKETS: usize = 64;

/// The same where what goes through the session is the session with the next host. russh answers a packet before it takes in the
/// next one: the inner session takes nothing in while it waits to write, and where so many packets for it wait, the outer one
/// nothing either, nor the host's word that there is room again for what is to be written. That would be for ever. Up to
/// 32 MiB, of which a few are used where much goes both ways at once.
const PACKETS_OF_A_HOP: usize = 1024;

/// With AES in hardware AES-GCM is the fastest (measured); without, `ChaCha20`. Never CBC.
const WITH_AES: &[cipher::Name] = &[
    cipher::AES_256_GCM,
    cipher::AES_128_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];
const WITHOUT_AES: &[cipher::Name] = &[
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_GCM,
    cipher::AES_128_GCM,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];

/// What russh asks while a session lasts.
pub(super) struct Client {
    verifier: Arc<Verifier>,
    target: SshTarget,
    ended: UnboundedSender<Ended>,
}

/// How a session ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    /// In the host's words, or the system's.
    pub(super) cause: String,
    /// Whether the host said goodbye (RFC 4253 section 11.1), instead of just going away.
    pub(super) goodbye: bool,
}

impl Ended {
    /// It is over, and nobody said why.
    pub(super) fn unknown() -> Self {
        Ended {
            cause: "the connection was closed".into(),
            goodbye: false,
        }
    }
}

/// What a handshake fails with.
#[derive(Debug)]
pub(super) enum HandshakeError {
    /// The host's key isn't to be trusted.
    Untrusted(Box<Error>),
    /// The protocol or the network.
    Ssh(russh::Error),
}

impl From<russh::Error> for HandshakeError {
    fn from(error: russh::Error) -> Self {
        HandshakeError::Ssh(error)
    }
}

impl Client {
    /// A client for one session with that host, and where it tells how the session ended.
    pub(super) fn new(
        verifier: &Arc<Verifier>,
        target: &SshTarget,
    ) -> (Self, UnboundedReceiver<Ended>) {
        let (ended, how) = unbounded_channel();
        let client = Client {
            verifier: Arc::clone(verifier),
            target: target.clone(),
            ended,
        };
        (client, how)
    }
}

impl client::Handler for Client {
    type Error = HandshakeError;

    async fn check_server_key(
        &mut self,
        key: &PublicKeyOrCertificate,
    ) -> Result<bool, HandshakeError> {
        let blob = key.public_key().to_bytes();
        let blob = blob.map_err(|cause| HandshakeError::Ssh(cause.into()))?;
        match self.verifier.verify(&blob, &self.target) {
            Ok(()) => Ok(true),
            Err(error) => Err(HandshakeError::Untrusted(Box::new(error))),
        }
    }

    async fn disconnected(
        &mut self,
        reason: DisconnectReason<HandshakeError>,
    ) -> Result<(), HandshakeError> {
        let ended = match reason {
            DisconnectReason::ReceivedDisconnect(info) => Ended {
                cause: format!("the host said: {}", info.message),
                goodbye: true,
            },
            DisconnectReason::Error(HandshakeError::Ssh(cause)) => Ended {
                cause: cause.to_string(),
                goodbye: false,
            },
            DisconnectReason::Error(HandshakeError::Untrusted(cause)) => Ended {
                cause: cause.to_string(),
                goodbye: false,
            },
        };
        // Nobody listens any more once the link was dropped.
        let _ = self.ended.send(ended);
        Ok(())
    }
}

/// What we ask for: host keys of these algorithms, the fastest safe cipher, no compression. `is_hop`: of a jump host.
pub(super) fn config(host_keys: Vec<Algorithm>, is_hop: bool) -> client::Config {
    client::Config {
        client_id: SshId::Standard(Cow::Borrowed(concat!(
            "SSH-2.0-egressctl_",
            env!("CARGO_PKG_VERSION")
        ))),
        window_size: WINDOW,
        channel_buffer_size: if is_hop { PACKETS_OF_A_HOP } else { PACKETS },
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVES,
        preferred: Preferred {
            key: Cow::Owned(host_keys),
            cipher: Cow::Borrowed(if has_aes() { WITH_AES } else { WITHOUT_AES }),
            compression: Cow::Borrowed(&[compression::NONE]),
            ..Preferred::DEFAULT
        },
        ..client::Config::default()
    }
}

/// Whether this processor has instructions for AES.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let has = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has = false;
    has
}
