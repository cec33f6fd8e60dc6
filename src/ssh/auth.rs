//! Authentication by public key: the one key of the config, or the agent's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use russh::client::AuthResult;
use russh::keys::agent::client::AgentClient;
use russh::keys::key::PublicKeyExt;
use russh::keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use russh::{AgentAuthError, MethodSet};
use tokio::net::UnixStream;

use super::agent::{self, Identity};
use super::by_hand;
use super::client::Ended;
use super::dial::DialOptions;
use super::key::KeyFile;
use super::session::{Deadline, Wire};
use super::wire;
use crate::cancel::Cancel;
use crate::config::{KeySource, SshTarget};
use crate::error::{Error, Reason, Result};

/// How long an agent may take to list its keys.
const AGENT_LIMIT: Duration = Duration::from_secs(5);

/// What to authenticate with. Has no `Debug` on purpose.
pub(super) enum Credential {
    /// A private key from a file.
    Key { path: PathBuf, key: Arc<PrivateKey> },
    /// Keys of the agent, to be tried in order.
    Agent {
        socket: PathBuf,
        keys: Vec<Identity>,
        /// The encrypted key file that it is the key of; none where all of the agent's keys are meant.
        file: Option<PathBuf>,
    },
}

impl Credential {
    /// Reads the key file, by that deadline, or asks the agent, before the network is used.
    pub(super) fn load(
        source: &KeySource,
        options: &DialOptions<'_>,
        deadline: &Deadline,
    ) -> Result<Self> {
        let (agent, cancel) = (options.agent.as_deref(), deadline.cancel());
        match source {
            KeySource::Agent => Self::all_of_agent(agent, cancel),
            KeySource::File(path) => {
                let file = KeyFile::load(path, deadline)?;
                if file.encrypted
                    && let Some(credential) = Self::held_by_agent(&file, agent, cancel)
                {
                    return Ok(credential);
                }
                let key = Arc::new(file.unlock(options.prompt, cancel)?);
                let path = path.clone();
                Ok(Credential::Key { path, key })
            }
        }
    }

    fn all_of_agent(socket: Option<&Path>, cancel: &Cancel) -> Result<Self> {
        let none = |message: &str| {
            Error::transient(Reason::CredentialsUnavailable, message)
                .hint("eval \"$(ssh-agent)\"; ssh-add FILE")
                .hint("or set sshKeyFile instead of sshAgent")
        };
        let socket =
            socket.ok_or_else(|| none("sshAgent is set, but SSH_AUTH_SOCK names no agent"))?;
        let keys = agent::list(socket, &Deadline::new(AGENT_LIMIT, cancel))?;
        if keys.is_empty() {
            return Err(none("the SSH agent holds no keys"));
        }
        Ok(Credential::Agent {
            socket: socket.to_owned(),
            keys,
            file: None,
        })
    }

    /// An encrypted key file needs no passphrase when the agent holds that very key.
    fn held_by_agent(file: &KeyFile, socket: Option<&Path>, cancel: &Cancel) -> Option<Self> {
        let (public, socket) = (file.public.as_ref()?, socket?.to_owned());
        match agent::list(&socket, &Deadline::new(AGENT_LIMIT, cancel)) {
            Ok(mut keys) => {
                keys.retain(|identity| &identity.blob == public);
                let file = Some(file.path.clone());
                (!keys.is_empty()).then_some(Credential::Agent { socket, keys, file })
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
        Credential::Agent { socket, keys, file } => {
            attempt.with_agent(wire, socket, keys, file.as_deref())
        }
    }
}

/// One log-in to one server.
struct Attempt<'a> {
    target: &'a SshTarget,
    deadline: &'a Deadline,
    stage: &'a str,
}

impl Attempt<'_> {
    fn with_key(&self, wire: &mut Wire, path: &Path, key: &Arc<PrivateKey>) -> Result<()> {
        let user = &self.target.user;
        let hash = self.rsa_hash(wire, key.public_key())?;
        let key = PrivateKeyWithHashAlg::new(Arc::clone(key), hash);
        let result = wire.call(self.deadline, self.stage, async |session| {
            session.authenticate_publickey(user, key).await
        })?;
        let methods = match result {
            Ok(AuthResult::Success) => return Ok(()),
            Ok(AuthResult::Failure {
                remaining_methods, ..
            }) => remaining_methods,
            Err(cause) => {
                log::debug!(target: super::LOG_TARGET, "not taken: {cause}");
                MethodSet::empty()
            }
        };
        let offered = format!("the key offered was {}", path.display());
        Err(self.refused(wire, &methods, 1, &offered, Some(path)))
    }

    fn with_agent(
        &self,
        wire: &mut Wire,
        socket: &Path,
        keys: &[Identity],
        file: Option<&Path>,
    ) -> Result<()> {
        let mut offered = 0;
        let mut methods = MethodSet::empty();
        for key in keys {
            // A certificate, or a kind of key that nobody knows.
            let Ok(public) = PublicKey::decode(&key.blob) else {
                continue;
            };
            log::debug!(
                target: super::LOG_TARGET,
                "offering {} ({})",
                wire::fingerprint(&key.blob),
                key.comment
            );
            offered += 1;
            match self.try_agent_key(wire, socket, public)? {
                AuthResult::Success => return Ok(()),
                AuthResult::Failure {
                    remaining_methods, ..
                } => methods = remaining_methods,
            }
            if wire.handle.is_closed() {
                break;
            }
        }
        let what = match offered {
            1 => "one key of the SSH agent was offered".to_owned(),
            count => format!(
                "{count} of the SSH agent's {} keys were offered",
                keys.len()
            ),
        };
        if offered == 0 {
            return Err(Error::transient(
                Reason::CredentialsUnavailable,
                "the SSH agent holds no key of a kind that can be used",
            )
            .hint("add an Ed25519, ECDSA or RSA key: ssh-add FILE")
            .hint("or set sshKeyFile instead of sshAgent"));
        }
        Err(self.refused(wire, &methods, offered, &what, file))
    }

    /// Offers one key of the agent; an agent that doesn't sign counts as a key that isn't taken.
    fn try_agent_key(
        &self,
        wire: &mut Wire,
        socket: &Path,
        public: PublicKey,
    ) -> Result<AuthResult> {
        let hash = self.rsa_hash(wire, &public)?;
        let user = &self.target.user;
        let result = wire.call(self.deadline, self.stage, async |session| {
            let stream = UnixStream::connect(socket).await;
            let stream = stream.map_err(|cause| AgentAuthError::Key(cause.into()))?;
            let mut agent = AgentClient::connect(stream);
            session
                .authenticate_publickey_with(user, public, hash, &mut agent)
                .await
        })?;
        Ok(result.unwrap_or_else(|cause| {
            log::debug!(target: super::LOG_TARGET, "not taken: {cause}");
            AuthResult::Failure {
                remaining_methods: MethodSet::empty(),
                partial_success: false,
            }
        }))
    }

    /// The hash to sign with: RSA's depends on the server (RFC 8308 section 3.1), never SHA-1.
    fn rsa_hash(&self, wire: &mut Wire, key: &PublicKey) -> Result<Option<HashAlg>> {
        if !key.algorithm().is_rsa() {
            return Ok(None);
        }
        let best = wire.call(self.deadline, self.stage, async |session| {
            session.best_supported_rsa_hash().await
        })?;
        // A server that doesn't say what it takes, and one that is gone: the next step shows.
        Ok(Some(
            best.ok().flatten().flatten().unwrap_or(HashAlg::Sha512),
        ))
    }

    /// The error for keys that weren't taken; `methods` are what the host would take instead, and `file` is the key's,
    /// unless all of the agent's were meant.
    fn refused(
        &self,
        wire: &mut Wire,
        methods: &MethodSet,
        offered: usize,
        what: &str,
        file: Option<&Path>,
    ) -> Error {
        let (user, address) = (&self.target.user, &self.target.address);
        // An agent that was cut off at the deadline looks like one that wouldn't sign.
        if let Err(stopped) = self.deadline.check(self.stage) {
            return stopped;
        }
        let ended = wire.ended();
        if let Some(Ended { cause, goodbye }) = &ended
            && !goodbye
            && offered < 2
        {
            return Error::transient(
                Reason::ConnectionLost,
                format!("{address} closed the connection during authentication"),
            )
            .because(cause);
        }
        let error = Error::permanent(
            Reason::AuthenticationFailed,
            format!("{address} refused to log in {user}"),
        )
        .because(what);
        if ended.is_some() {
            let error = error
                .because("then the host closed the connection: too many failures (MaxAuthTries)");
            return match file {
                Some(_) => error.hint(by_hand::copy_id(self.target, file)),
                None => error.hint(
                    "name the one right key by sshKeyFile in the config, instead of sshAgent",
                ),
            };
        }
        let copy = by_hand::copy_id(self.target, file);
        let error = error.hint(copy);
        let error = match file {
            Some(_) => error,
            None => error.hint("that lets every key of the agent in; to see them: ssh-add -l"),
        };
        let methods: Vec<&str> = methods.iter().map(Into::into).collect();
        if methods.is_empty() {
            return error;
        }
        error.because(format!(
            "the host would let {user} in by {}",
            methods.join(",")
        ))
    }
}
