//! The one error type: what happened, on which host, why, and what to do next.
//!
//! Every failure that reaches the terminal is an [`Error`]. Its [`Class`] answers "could the same
//! command succeed later?" and gives the exit code; its [`Reason`] is the stable word for scripts.

use std::fmt;

use serde::{Serialize, Serializer};

/// How a hint ends that sends to `egressctl check`, so that check itself can leave it out.
pub const ASK_CHECK: &str = ": egressctl check";

/// Result of everything that can fail in egressctl.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure this is; each has one exit code (docs/exit-codes.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The same command will fail again until somebody changes something.
    Permanent,
    /// The command line or the configuration file is wrong.
    Usage,
    /// The named instance doesn't exist.
    NotFound,
    /// The same command may succeed later: network, time limits, busy pools, anything unknown.
    Transient,
    /// The host has too little room: pool space or memory.
    QuotaExceeded,
    /// `check` ran and found something wrong.
    Unhealthy,
    /// A signal that is watched for, whose number this is.
    Interrupted(i32),
}

impl Class {
    /// The process's exit code for this class.
    pub fn exit_code(self) -> u8 {
        match self {
            Class::Permanent => 1,
            Class::Usage => 2,
            Class::NotFound => 3,
            Class::Transient => 4,
            Class::QuotaExceeded => 5,
            Class::Unhealthy => 6,
            Class::Interrupted(signal) => 128_u8.wrapping_add(u8::try_from(signal).unwrap_or(2)),
        }
    }

    /// The class's name, as printed in JSON errors.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Permanent => "Permanent",
            Class::Usage => "Usage",
            Class::NotFound => "NotFound",
            Class::Transient => "Transient",
            Class::QuotaExceeded => "QuotaExceeded",
            Class::Unhealthy => "Unhealthy",
            Class::Interrupted(_) => "Interrupted",
        }
    }
}

impl Serialize for Class {
    /// As in JSON errors: of an interruption without its signal.
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The stable word for one cause of failure, for scripts, `check` and the documentation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// The word itself, such as `PoolNotFound`.
            pub fn as_str(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name),)* }
            }

            /// Every reason there is, for the documentation's test.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];
        }
    };
}

reasons! {
    // Command line, configuration, placement.
    /// The command line is wrong in a way clap can't see.
    BadArgument,
    /// No configuration file was found in any of the places.
    ConfigNotFound,
    /// The configuration file has errors.
    ConfigInvalid,
    /// The provider entry named doesn't exist, or none was named and there are several.
    UnknownProvider,
    /// The zone named isn't a host of the provider, or none was named and there are several.
    UnknownZone,
    /// The image named is neither a key of `images` nor an http(s) URL.
    UnknownImage,
    /// The machine type named isn't a key of `machineTypes`.
    UnknownMachineType,
    /// The instance's name can't be a host name.
    InvalidName,
    /// A user-data, vendor-data or network-config file can't be used as it is.
    InvalidUserData,
    // Connection, in the order of its stages.
    /// The host's name has no address.
    ResolveFailed,
    /// No TCP connection.
    ConnectFailed,
    /// The SSH handshake failed.
    HandshakeFailed,
    /// The host's key isn't in the `known_hosts` file.
    HostKeyUnknown,
    /// The host's key is another than the `known_hosts` file's.
    HostKeyMismatch,
    /// The host's key is marked `@revoked`.
    HostKeyRevoked,
    /// The key or `known_hosts` file can't be read (it may still arrive), or the agent doesn't answer.
    CredentialsUnavailable,
    /// The private key file can't be used: a public key, an unknown format, or encrypted with nobody to ask.
    KeyUnusable,
    /// The host refused every key offered.
    AuthenticationFailed,
    /// sshd refuses to forward to a unix socket.
    ForwardingRefused,
    /// There is no libvirt socket at that path.
    SocketNotFound,
    /// libvirt doesn't answer on its socket.
    LibvirtUnavailable,
    /// The user may not use libvirt's socket.
    PermissionDenied,
    /// A call hit its time limit.
    TimedOut,
    /// The connection was lost during a call.
    ConnectionLost,
    // Hypervisor.
    /// The host's libvirt lacks what every instance needs.
    LibvirtTooOld,
    /// The host can't run KVM guests.
    NoKvm,
    /// The host has no UEFI firmware for q35.
    NoFirmware,
    /// The host has no such bridge.
    BridgeNotFound,
    /// The host has no such libvirt network, or it isn't active.
    NetworkNotFound,
    /// The host has no such storage pool.
    PoolNotFound,
    /// The storage pool isn't active.
    PoolNotActive,
    /// The storage pool can't hold qcow2 overlays.
    PoolTypeUnsupported,
    /// The pool is busy with another job.
    PoolBusy,
    /// The pool has too little room.
    PoolFull,
    /// The host has less memory than asked for.
    NotEnoughMemory,
    /// The host can't resolve its own name, which costs 10 s at every start.
    HostnameUnresolvable,
    /// The host's clock is off.
    ClockSkew,
    /// Two hosts of the configuration are one machine.
    SameMachine,
    /// Any other error that libvirt reported.
    LibvirtError,
    // Images.
    /// The image's server couldn't be reached, or the download broke off.
    DownloadFailed,
    /// The image's server answered with an HTTP error.
    HttpStatus,
    /// The bytes aren't what the checksum says.
    ChecksumMismatch,
    /// The bytes aren't an image of the declared format.
    NotAnImage,
    /// The image refers to other files (a backing or external data file).
    ImageNotSelfContained,
    /// The disk asked for is smaller than the image's virtual size.
    DiskTooSmall,
    /// The base image isn't on the host and may not be pulled.
    ImageNotReady,
    // Instances.
    /// No such instance.
    InstanceNotFound,
    /// The name stands on several hosts.
    AmbiguousName,
    /// A domain of that name exists that isn't ours, or is another manager's.
    ForeignDomain,
    /// A domain of that name exists that is ours, but another one.
    InstanceDiffers,
    /// The instance that was asked for exists, but its time is over.
    InstanceExpired,
    /// Something about the instance is in doubt, so nothing was touched.
    InDoubt,
    /// The instance didn't become ready in time.
    NotReady,
    /// The domain doesn't run.
    NotRunning,
    /// No page came through the instance's proxy.
    ProbeFailed,
    /// Somebody else has the instance's console.
    ConsoleBusy,
    /// No guest agent answers: there is none (yet), or it hangs.
    AgentUnavailable,
    /// The guest agent answered that it can't or won't.
    AgentRefused,
    // The process itself.
    /// SIGHUP, SIGINT, SIGQUIT or SIGTERM.
    Interrupted,
    /// The process was suspended in the midst of a deletion.
    Suspended,
    /// `check` found something wrong.
    Unhealthy,
    /// stdout can't be written.
    OutputFailed,
    /// A local file or resource can't be used.
    LocalIo,
    /// Some hosts failed, others didn't.
    PartialFailure,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure, told for the person at the terminal.
///
/// Never holds cloud-init content or key material: what goes in here is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    class: Class,
    reason: Reason,
    host: Option<String>,
    stage: Option<&'static str>,
    message: String,
    causes: Vec<String>,
    hints: Vec<String>,
}

impl Error {
    /// An error of that class and reason; `message` says what happened, without a full stop.
    pub fn new(class: Class, reason: Reason, message: impl Into<String>) -> Self {
        Error {
            inner: Box::new(Inner {
                class,
                reason,
                host: None,
                stage: None,
                message: message.into(),
                causes: Vec::new(),
                hints: Vec::new(),
            }),
        }
    }

    /// An error of class [`Class::Permanent`].
    pub fn permanent(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(Class::Permanent, reason, message)
    }

    /// An error of class [`Class::Transient`].
    pub fn transient(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(Class::Transient, reason, message)
    }

    /// An error of class [`Class::Usage`].
    pub fn usage(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(Class::Usage, reason, message)
    }

    /// Names the host it happened on, unless one is named already.
    #[must_use]
    pub fn on_host(mut self, host: impl Into<String>) -> Self {
        self.inner.host.get_or_insert_with(|| host.into());
        self
    }

    /// Names the stage of a connection it happened at, unless one is named already.
    #[must_use]
    pub fn at_stage(mut self, stage: &'static str) -> Self {
        self.inner.stage.get_or_insert(stage);
        self
    }

    /// Adds an underlying cause; the first added is the nearest.
    #[must_use]
    pub fn because(mut self, cause: impl fmt::Display) -> Self {
        self.inner.causes.push(cause.to_string());
        self
    }

    /// Adds what to do next, as a sentence or a command line.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.inner.hints.push(hint.into());
        self
    }

    /// The same error with each hint as `rewrite` has it.
    #[must_use]
    pub fn map_hints(mut self, rewrite: impl Fn(&str) -> String) -> Self {
        for hint in &mut self.inner.hints {
            *hint = rewrite(hint);
        }
        self
    }

    /// Puts what was being done in front: the old message becomes the nearest cause.
    #[must_use]
    pub fn while_doing(mut self, message: impl Into<String>) -> Self {
        let old = std::mem::replace(&mut self.inner.message, message.into());
        self.inner.causes.insert(0, old);
        self
    }

    /// The same error in another class, where the caller knows better (`NO_DOMAIN` inside create, say).
    #[must_use]
    pub fn with_class(mut self, class: Class) -> Self {
        self.inner.class = class;
        self
    }

    /// The same error for another reason, where the caller knows better.
    #[must_use]
    pub fn with_reason(mut self, reason: Reason) -> Self {
        self.inner.reason = reason;
        self
    }

    /// Its class, which decides the exit code.
    pub fn class(&self) -> Class {
        self.inner.class
    }

    /// Its stable word.
    pub fn reason(&self) -> Reason {
        self.inner.reason
    }

    /// The host it happened on, if any.
    pub fn host(&self) -> Option<&str> {
        self.inner.host.as_deref()
    }

    /// The stage of a connection it happened at, if that is known: what a time limit or a lost connection cut off.
    pub fn stage(&self) -> Option<&'static str> {
        self.inner.stage
    }

    /// What happened, without host, causes and hints.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// The words nearest to what happened: the first cause, or the message where there is none.
    pub fn nearest(&self) -> &str {
        self.causes().first().map_or(self.message(), String::as_str)
    }

    /// The underlying causes, nearest first.
    pub fn causes(&self) -> &[String] {
        &self.inner.causes
    }

    /// What to do next.
    pub fn hints(&self) -> &[String] {
        &self.inner.hints
    }
}

impl fmt::Display for Error {
    /// One line: host, message, causes; for logs. The terminal's form is `output`'s.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = self.host() {
            write!(f, "{host}: ")?;
        }
        f.write_str(self.message())?;
        for cause in self.causes() {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_the_documented_exit_code() {
        let table = [
            (Class::Permanent, 1),
            (Class::Usage, 2),
            (Class::NotFound, 3),
            (Class::Transient, 4),
            (Class::QuotaExceeded, 5),
            (Class::Unhealthy, 6),
            (Class::Interrupted(1), 129),
            (Class::Interrupted(2), 130),
            (Class::Interrupted(3), 131),
            (Class::Interrupted(15), 143),
        ];
        for (class, code) in table {
            assert_eq!(class.exit_code(), code, "{class:?}");
        }
    }

    #[test]
    fn context_moves_the_old_message_to_the_causes() {
        let error = Error::transient(Reason::PoolBusy, "pool is busy")
            .because("another job")
            .on_host("nas1")
            .on_host("nas2")
            .while_doing("creating volume a.qcow2");
        assert_eq!(
            error.to_string(),
            "nas1: creating volume a.qcow2: pool is busy: another job"
        );
    }
}
