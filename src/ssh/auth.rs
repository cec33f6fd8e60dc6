//! Authentication by public key: the one key of the config, or the agent's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ssh2::ErrorCode;

use super::agent::{self, AgentGuard, Identity};
use super::dial::DialOptions;
use super::key::{KeyFile, PrivateKey};
use super::session::{CallError, Deadline, Wire};
use super::wire;
use crate::cancel::Cancel;
use crate::config::{KeySource, SshTarget};
use crate::error::{Error, Reason, Result};

/// How long an agent may take to list its keys.
const AGENT_LIMIT: Duration = Duration::from_secs(5);

/// libssh2's errors that say that the connection is gone: socket send, disconnect, socket receive.
const GONE: [i32; 3] = [-7, -13, -43];

/// libssh2's `LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED`: among others, the answer couldn't be waited for.
const UNVERIFIED: i32 = -19;

/// libssh2's `LIBSSH2_ERROR_SOCKET_DISCONNECT`: the server said goodbye.
const DISCONNECTED: i32 = -13;

/// What to authenticate with. Has no `Debug` on purpose.
pub(super) enum Credential {
    /// A private key from a file.
    Key { path: PathBuf, key: PrivateKey },
    /// Keys of the agent, to be tried in order.
    Agent {
        socket: PathBuf,
        keys: Vec<Identity>,
    },
}

impl Credential {
    /// Reads the key file or asks the agent, before the network is used.
    pub(super) fn load(
        source: &KeySource,
        options: &DialOptions<'_>,
        cancel: &Cancel,
    ) -> Result<Self> {
        let agent = options.agent.as_deref();
        match source {
            KeySource::Agent => Self::all_of_agent(agent, cancel),
            KeySource::File(path) => {
                let file = KeyFile::load(path)?;
                if file.encrypted
                    && let Some(credential) = Self::held_by_agent(&file, agent, cancel)
                {
                    return Ok(credential);
                }
                let key = file.unlock(options.prompt)?;
                let path = path.clone();
                Ok(Credential::Key { path, key })
            }
        }
    }

    fn all_of_agent(socket: Option<&Path>, cancel: &Cancel) -> Result<Self> {
        let none = |message: &str| {
            Error::transient(Reason::CredentialsUnavailable, message)
                .hint("eval \"$(ssh-agent)\"; ssh-add FILE; or set sshKeyFile instead of sshAgent")
        };
        let socket =
            socket.ok_or_else(|| none("sshAgent is set, but SSH_AUTH_SOCK names no agent"))?;
        let keys = agent::list(socket, &Deadline::new(AGENT_LIMIT, cancel))?;
        if keys.is_empty() {
            return Err(none("the SSH agent holds no keys"));
        }
        let socket = socket.to_owned();
        Ok(Credential::Agent { socket, keys })
    }

    /// An encrypted key file needs no passphrase when the agent holds that very key.
    fn held_by_agent(file: &KeyFile, socket: Option<&Path>, cancel: &Cancel) -> Option<Self> {
        let (public, socket) = (file.public.as_ref()?, socket?.to_owned());
        match agent::list(&socket, &Deadline::new(AGENT_LIMIT, cancel)) {
            Ok(mut keys) => {
                keys.retain(|identity| &identity.blob == public);
                (!keys.is_empty()).then_some(Credential::Agent { socket, keys })
            }
            Err(cause) => {
                log::debug!(target: super::LOG_TARGET, "{cause}");
                None
            }
        }
    }
}

/// Logs in, or says what the host thought of the keys.
pub(super) fn authenticate(
    wire: &mut Wire,
    target: &SshTarget,
    credential: &Credential,
    deadline: &Deadline,
) -> Result<()> {
    let stage = format!("authenticating to {}", target.address);
    let attempt = Attempt {
        target,
        deadline,
        stage: &stage,
    };
    match credential {
        Credential::Key { path, key } => attempt.with_key(wire, path, key),
        Credential::Agent { socket, keys } => attempt.with_agent(wire, socket, keys),
    }
}

/// One log-in to one server.
struct Attempt<'a> {
    target: &'a SshTarget,
    deadline: &'a Deadline,
    stage: &'a str,
}

impl Attempt<'_> {
    fn with_key(&self, wire: &mut Wire, path: &Path, key: &PrivateKey) -> Result<()> {
        let user = &self.target.user;
        let result = wire.call(self.deadline, self.stage, |session| {
            session.userauth_pubkey_memory(user, None, &key.text, key.passphrase.as_deref())
        });
        let refusal = match result {
            Ok(()) => return Ok(()),
            Err(CallError::Stopped(error)) => return Err(error),
            Err(CallError::Ssh(cause)) => cause,
        };
        let offered = format!("the key offered was {}", path.display());
        let public = format!("{}.pub", path.display());
        Err(self.refused(wire, &refusal, 1, &offered).hint(format!(
            "ssh-copy-id -i {} -p {} {}@{}",
            wire::shell_quote(&public),
            self.target.address.port,
            user,
            wire::shell_quote(&self.target.address.host),
        )))
    }

    fn with_agent(&self, wire: &mut Wire, socket: &Path, keys: &[Identity]) -> Result<()> {
        let broken = |cause: ssh2::Error| {
            Error::transient(
                Reason::CredentialsUnavailable,
                format!("the SSH agent at {} doesn't answer", socket.display()),
            )
            .because(cause.message())
        };
        let guard = AgentGuard::start(socket, self.deadline)?;
        let mut agent = wire.session.agent().map_err(broken)?;
        agent
            .set_identity_path(guard.socket_path())
            .map_err(broken)?;
        agent.connect().map_err(broken)?;
        agent.list_identities().map_err(broken)?;
        let held = agent.identities().map_err(broken)?;
        let mut offered = 0;
        let mut refusal = None;
        for key in keys {
            let Some(identity) = held.iter().find(|held| held.blob() == key.blob) else {
                continue;
            };
            log::debug!(
                target: super::LOG_TARGET,
                "offering {} ({})",
                wire::fingerprint(&key.blob),
                key.comment
            );
            offered += 1;
            let result = wire.call(self.deadline, self.stage, |_| {
                agent.userauth(&self.target.user, identity)
            });
            match result {
                Ok(()) => return Ok(()),
                Err(CallError::Stopped(error)) => return Err(error),
                Err(CallError::Ssh(cause)) => {
                    log::debug!(target: super::LOG_TARGET, "not taken: {cause}");
                    let gone = is_gone(&cause);
                    refusal = Some(cause);
                    if gone {
                        break;
                    }
                }
            }
        }
        let what = match offered {
            1 => "one key of the SSH agent was offered".to_owned(),
            count => format!(
                "{count} of the SSH agent's {} keys were offered",
                keys.len()
            ),
        };
        let Some(refusal) = refusal else {
            return Err(Error::transient(
                Reason::CredentialsUnavailable,
                "the SSH agent no longer holds the key",
            ));
        };
        Err(self.refused(wire, &refusal, offered, &what))
    }

    /// The error for keys that weren't taken; `refusal` is what libssh2 said of the last one.
    fn refused(&self, wire: &mut Wire, refusal: &ssh2::Error, offered: usize, what: &str) -> Error {
        let (user, address) = (&self.target.user, &self.target.address);
        // An agent that was cut off at the deadline looks like one that wouldn't sign.
        if let Err(stopped) = self.deadline.check(self.stage) {
            return stopped;
        }
        let methods = wire.call(self.deadline, self.stage, |session| {
            session.auth_methods(user).map(str::to_owned)
        });
        let goodbye = match &methods {
            Err(CallError::Ssh(cause)) => cause.code() == ErrorCode::Session(DISCONNECTED),
            _ => false,
        };
        if is_gone(refusal) && !goodbye && offered < 2 {
            return Error::transient(
                Reason::ConnectionLost,
                format!("{address} closed the connection during authentication"),
            )
            .because(refusal.message());
        }
        let error = Error::permanent(
            Reason::AuthenticationFailed,
            format!("{address} refused to log in {user}"),
        )
        .because(what);
        if is_gone(refusal) {
            return error
                .because("then the host closed the connection: too many failures (MaxAuthTries)")
                .hint("name the one right key by sshKeyFile in the config, instead of sshAgent");
        }
        match methods {
            Ok(methods) if !methods.is_empty() => {
                error.because(format!("the host would let {user} in by {methods}"))
            }
            _ => error,
        }
    }
}

/// Whether the connection has ended.
fn is_gone(error: &ssh2::Error) -> bool {
    let is = |code: &i32| error.code() == ErrorCode::Session(*code);
    GONE.iter().any(is) || (is(&UNVERIFIED) && error.message().starts_with("Waiting for"))
}
