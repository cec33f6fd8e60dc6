//! Pure: which class and reason an error of libvirt has, by its numbers; by its text only where libvirt has no number for it.

use super::error_names::NAMES;
use crate::error::{Class, Reason};

/// What libvirt says of a failed call (`virError`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LibvirtError {
    /// `virErrorNumber`.
    pub(super) code: u32,
    /// `virErrorDomain`: which part of libvirt said it.
    pub(super) domain: u32,
    /// For a system error, its errno.
    pub(super) int1: i32,
    /// libvirt's text.
    pub(super) message: String,
}

// virErrorNumber, of libvirt's virterror.h.
const INTERNAL_ERROR: u32 = 1;
const NO_SUPPORT: u32 = 3;
const INVALID_ARG: u32 = 8;
pub(super) const OPERATION_FAILED: u32 = 9;
const XML_ERROR: u32 = 27;
const OPERATION_DENIED: u32 = 29;
const SYSTEM_ERROR: u32 = 38;
const RPC: u32 = 39;
pub(super) const NO_DOMAIN: u32 = 42;
pub(super) const NO_NETWORK: u32 = 43;
const AUTH_FAILED: u32 = 45;
pub(super) const NO_STORAGE_POOL: u32 = 49;
pub(super) const NO_STORAGE_VOL: u32 = 50;
pub(super) const OPERATION_INVALID: u32 = 55;
pub(super) const NO_INTERFACE: u32 = 57;
const CONFIG_UNSUPPORTED: u32 = 67;
const RESOURCE_BUSY: u32 = 87;
const ACCESS_DENIED: u32 = 88;
pub(super) const STORAGE_VOL_EXIST: u32 = 90;
const XML_INVALID_SCHEMA: u32 = 92;
const AUTH_CANCELLED: u32 = 79;
const AUTH_UNAVAILABLE: u32 = 94;
pub(super) const ARGUMENT_UNSUPPORTED: u32 = 74;
const AGENT_UNRESPONSIVE: u32 = 86;
const AGENT_UNSYNCED: u32 = 97;
const AGENT_COMMAND_TIMEOUT: u32 = 112;
const AGENT_COMMAND_FAILED: u32 = 113;

/// `VIR_FROM_RPC`: the client side of the connection itself.
const FROM_RPC: u32 = 7;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EISDIR: i32 = 21;
const ENOSPC: i32 = 28;
const ECONNREFUSED: i32 = 111;
const EDQUOT: i32 = 122;

impl LibvirtError {
    /// The class and reason of the failure.
    pub(super) fn classify(&self) -> (Class, Reason) {
        match self.code {
            NO_DOMAIN => (Class::NotFound, Reason::InstanceNotFound),
            NO_STORAGE_VOL => (Class::NotFound, Reason::LibvirtError),
            NO_STORAGE_POOL => (Class::Permanent, Reason::PoolNotFound),
            NO_NETWORK => (Class::Permanent, Reason::NetworkNotFound),
            AUTH_FAILED | AUTH_CANCELLED | AUTH_UNAVAILABLE | ACCESS_DENIED | OPERATION_DENIED => {
                (Class::Permanent, Reason::PermissionDenied)
            }
            XML_ERROR | CONFIG_UNSUPPORTED | NO_SUPPORT | INVALID_ARG | XML_INVALID_SCHEMA => {
                (Class::Permanent, Reason::LibvirtError)
            }
            SYSTEM_ERROR => self.classify_errno(),
            RESOURCE_BUSY => (Class::Transient, Reason::PoolBusy),
            AGENT_UNRESPONSIVE | AGENT_UNSYNCED | AGENT_COMMAND_TIMEOUT => {
                (Class::Transient, Reason::AgentUnavailable)
            }
            AGENT_COMMAND_FAILED => (Class::Permanent, Reason::AgentRefused),
            _ => (Class::Transient, Reason::LibvirtError),
        }
    }

    fn classify_errno(&self) -> (Class, Reason) {
        match self.int1 {
            ENOSPC | EDQUOT => (Class::QuotaExceeded, Reason::PoolFull),
            EPERM | EACCES => (Class::Permanent, Reason::PermissionDenied),
            // What is there won't be a file, either, when it is run again.
            ENOENT | EISDIR if self.domain != FROM_RPC => (Class::Permanent, Reason::LibvirtError),
            _ => (Class::Transient, Reason::LibvirtError),
        }
    }

    /// Whether the client library itself failed to talk to the daemon. Code and text vary for one cause, so a
    /// lost connection is told by this together with `virConnectIsAlive`.
    pub(super) fn is_of_rpc(&self) -> bool {
        self.domain == FROM_RPC || self.code == RPC
    }

    /// Whether the daemon's socket is one for reading only, or its policy says so.
    pub(super) fn is_denied(&self) -> bool {
        self.code == OPERATION_DENIED
    }

    /// Whether the daemon met a file that isn't there (errno `ENOENT`).
    pub(super) fn is_missing_file(&self) -> bool {
        self.code == SYSTEM_ERROR && self.int1 == ENOENT && self.domain != FROM_RPC
    }

    /// Whether the client library met a stream's error where it waited for the answer to the call that opened the stream.
    /// The daemon sends the two from different threads, in either order (`virNetClientProgramCall` with libvirt 11.3, for
    /// a volume that is a directory).
    pub(super) fn is_overtaken(&self) -> bool {
        self.code == INTERNAL_ERROR
            && self.domain == FROM_RPC
            && self.message.contains("Unexpected message type")
    }

    /// Whether the pool refuses for now because another job runs in it.
    pub(super) fn is_pool_busy(&self) -> bool {
        self.code == RESOURCE_BUSY
            || (matches!(
                self.code,
                INTERNAL_ERROR | OPERATION_INVALID | OPERATION_FAILED
            ) && self.message.contains("asynchronous jobs running"))
    }

    /// Whether a volume refuses for now: it is still being made, or another stream on it is just being finished.
    pub(super) fn is_volume_busy(&self) -> bool {
        let words = ["is still being allocated", "is still in use"];
        self.code == OPERATION_INVALID && words.iter().any(|words| self.message.contains(words))
    }

    /// The code's name in libvirt's header, for the log; of a later libvirt's, the number.
    pub(super) fn name(&self) -> String {
        let known = usize::try_from(self.code)
            .ok()
            .and_then(|code| NAMES.get(code));
        known.map_or_else(
            || format!("libvirt error {}", self.code),
            |name| (*name).to_owned(),
        )
    }

    /// Whether nobody on the host answers such calls: no driver offers them, or its daemon doesn't run.
    pub(super) fn cant_be_asked(&self) -> bool {
        self.code == NO_SUPPORT || self.is_daemon_missing()
    }

    /// Whether the guest's agent itself said no to this command (as JSON). Before 11.2, libvirt had no number for that
    /// (measured with 9.0): such an error is told from others by the command's name, which no translation changes.
    pub(super) fn is_agents_own(&self, command: &str) -> bool {
        let name = || {
            let command: serde_json::Value = serde_json::from_str(command).ok()?;
            Some(command["execute"].as_str()?.to_owned())
        };
        self.code == INTERNAL_ERROR && name().is_some_and(|name| self.message.contains(&name))
    }

    /// Whether one of the host's modular daemons asked another, which doesn't run: it passes on what its own client
    /// said, hence the domain.
    pub(super) fn is_daemon_missing(&self) -> bool {
        self.code == SYSTEM_ERROR
            && self.domain == FROM_RPC
            && matches!(self.int1, ENOENT | ECONNREFUSED)
    }

    /// The name of that daemon, for a hint: libvirt tells it only by its socket's path, `…/NAME-sock`.
    pub(super) fn missing_daemon(&self) -> Option<&str> {
        let (before, _) = self.message.split_once("-sock")?;
        let name = before.rsplit('/').next()?;
        let is_name = name.starts_with("virt") && name.bytes().all(|b| b.is_ascii_lowercase());
        is_name.then_some(name)
    }

    /// Whether an old daemon refuses a flag it doesn't know.
    pub(super) fn is_flag_refused(&self) -> bool {
        matches!(self.code, INVALID_ARG | NO_SUPPORT | CONFIG_UNSUPPORTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u32, domain: u32, int1: i32) -> LibvirtError {
        LibvirtError {
            code,
            domain,
            int1,
            message: String::new(),
        }
    }

    #[test]
    fn what_is_busy_is_told_from_what_is_wrong() {
        let volume_busy = |code, message: &str| {
            let message = format!("Requested operation is not valid: {message}");
            let raw = LibvirtError {
                message,
                ..error(code, 18, 0)
            };
            (raw.is_volume_busy(), raw.is_pool_busy())
        };
        let allocated = "volume 'x' is still being allocated.";
        assert_eq!(volume_busy(OPERATION_INVALID, allocated), (true, false));
        assert_eq!(volume_busy(INTERNAL_ERROR, allocated), (false, false));
        let used = "volume 'x' is still in use.";
        assert_eq!(volume_busy(OPERATION_INVALID, used), (true, false));
        let stopped = "storage pool 'default' is not active";
        assert_eq!(volume_busy(OPERATION_INVALID, stopped), (false, false));
        let pool = "pool 'default' has asynchronous jobs running.";
        assert_eq!(volume_busy(OPERATION_INVALID, pool), (false, true));
    }

    #[test]
    fn an_old_libvirts_refusals_of_the_agent_are_known() {
        let said = |code, message: &str| LibvirtError {
            message: message.to_owned(),
            ..error(code, 10, 0)
        };
        let command = r#"{"execute":"guest-file-open","arguments":{"path":"/x"}}"#;
        // libvirt 9.0's own words.
        let refused = "internal error: unable to execute QEMU agent command 'guest-file-open': failed to open file \
            '/x' (mode: 'r'): No such file or directory";
        assert!(said(INTERNAL_ERROR, refused).is_agents_own(command));
        let broken = "internal error: Missing monitor reply object";
        assert!(!said(INTERNAL_ERROR, broken).is_agents_own(command));
        assert!(!said(RPC, refused).is_agents_own(command));
        assert!(!said(INTERNAL_ERROR, refused).is_agents_own("no JSON"));
    }

    #[test]
    fn a_missing_daemon_is_told_from_a_lost_connection() {
        let passed_on = |int1, message: &str| LibvirtError {
            message: message.to_owned(),
            ..error(SYSTEM_ERROR, FROM_RPC, int1)
        };
        // As libvirt 9.0 and 11.3 say it.
        let message = "Failed to connect socket to '/var/run/libvirt/virtstoraged-sock': No such file or directory";
        let missing = passed_on(ENOENT, message);
        assert!(missing.is_daemon_missing());
        assert_eq!(missing.missing_daemon(), Some("virtstoraged"));
        assert!(passed_on(ECONNREFUSED, message).is_daemon_missing());
        let lost = passed_on(104, "Cannot recv data: Connection reset by peer");
        assert!(!lost.is_daemon_missing());
        assert!(!error(SYSTEM_ERROR, 18, ENOENT).is_daemon_missing());
        for odd in [
            "no socket",
            "'/tmp/a b-sock'",
            "-sock",
            "/x/virt;reboot-sock",
        ] {
            assert_eq!(passed_on(ENOENT, odd).missing_daemon(), None, "{odd}");
        }
    }

    #[test]
    fn a_refusal_that_overtook_an_answer_is_told_from_other_internal_errors() {
        let said = |domain, message: &str| LibvirtError {
            message: message.to_owned(),
            ..error(INTERNAL_ERROR, domain, 0)
        };
        // As libvirt 11.3 says it.
        let overtaken = "internal error: Unexpected message type 0";
        assert!(said(FROM_RPC, overtaken).is_overtaken());
        assert!(!said(18, overtaken).is_overtaken());
        assert!(!said(FROM_RPC, "internal error: Unexpected message proc 1 != 2").is_overtaken());
    }

    #[test]
    fn every_code_has_its_name_or_its_number() {
        let name = |code| error(code, 0, 0).name();
        assert_eq!(name(INTERNAL_ERROR), "VIR_ERR_INTERNAL_ERROR");
        assert_eq!(name(ARGUMENT_UNSUPPORTED), "VIR_ERR_ARGUMENT_UNSUPPORTED");
        assert_eq!(name(AGENT_COMMAND_FAILED), "VIR_ERR_AGENT_COMMAND_FAILED");
        assert_eq!(name(36), "VIR_ERR_INVALID_NETWORK");
        assert_eq!(name(4711), "libvirt error 4711");
    }

    #[test]
    fn classes_follow_the_numbers() {
        let table = [
            (error(NO_DOMAIN, 10, 0), Class::NotFound),
            (error(NO_STORAGE_VOL, 18, 0), Class::NotFound),
            (error(NO_STORAGE_POOL, 18, 0), Class::Permanent),
            (error(XML_ERROR, 20, 0), Class::Permanent),
            (error(CONFIG_UNSUPPORTED, 10, 0), Class::Permanent),
            (error(NO_SUPPORT, 10, 0), Class::Permanent),
            (error(INVALID_ARG, 10, 0), Class::Permanent),
            (error(AUTH_FAILED, 7, 0), Class::Permanent),
            (error(ACCESS_DENIED, 10, 0), Class::Permanent),
            (error(SYSTEM_ERROR, 18, ENOSPC), Class::QuotaExceeded),
            (error(SYSTEM_ERROR, 18, EDQUOT), Class::QuotaExceeded),
            (error(SYSTEM_ERROR, 7, 104), Class::Transient),
            (error(SYSTEM_ERROR, 18, EACCES), Class::Permanent),
            (error(SYSTEM_ERROR, 18, ENOENT), Class::Permanent),
            (error(SYSTEM_ERROR, FROM_RPC, ENOENT), Class::Transient),
            // A stream's; libvirt 11.3.
            (error(SYSTEM_ERROR, 38, EISDIR), Class::Permanent),
            (error(RESOURCE_BUSY, 18, 0), Class::Transient),
            (error(AGENT_UNRESPONSIVE, 10, 0), Class::Transient),
            (error(AGENT_COMMAND_FAILED, 10, 0), Class::Permanent),
            (error(9999, 0, 0), Class::Transient),
        ];
        for (error, class) in table {
            assert_eq!(error.classify().0, class, "{error:?}");
        }
    }
}
