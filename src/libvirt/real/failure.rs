//! A call that failed, as libvirt told it.

use std::time::Duration;

use super::super::error::LibvirtError;
use super::super::raw;

/// A failed call, before it is known whether the caller minds.
pub(super) struct Failure {
    pub(super) rpc: &'static str,
    pub(super) about: String,
    pub(super) raw: LibvirtError,
    /// The limit, where that has passed.
    pub(super) timed_out: Option<Duration>,
}

impl Failure {
    /// What libvirt itself answered; none where the time was over, as what it says then is only that we closed the link.
    pub(super) fn answer(&self) -> Option<&LibvirtError> {
        self.timed_out.is_none().then_some(&self.raw)
    }

    /// Whether libvirt itself answered with that code.
    pub(super) fn is(&self, code: u32) -> bool {
        self.answer().is_some_and(|answer| answer.code == code)
    }

    /// Whether the daemon met a file that isn't there.
    pub(super) fn is_missing_file(&self) -> bool {
        self.answer().is_some_and(LibvirtError::is_missing_file)
    }

    /// Whether a stream's refusal came before the answer to the call that opened it, and was lost: asked again, it may
    /// be told. The client library closes that connection when the answer comes.
    pub(super) fn was_overtaken(&self) -> bool {
        self.answer().is_some_and(LibvirtError::is_overtaken)
    }
}

/// The failure's numbers. The library's own record has the errno, unless another call (the freeing of a stream, say)
/// has cleared it since.
pub(super) fn numbers(error: &virt::error::Error) -> LibvirtError {
    let last = raw::last_error();
    let code = error.code().to_raw();
    if last.code == code && last.message == error.message() {
        return last;
    }
    LibvirtError {
        code,
        domain: error.domain().to_raw(),
        int1: 0,
        message: error.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::error::NO_DOMAIN;
    use super::*;

    #[test]
    fn what_is_said_of_a_link_that_we_closed_is_no_answer() {
        let failure = |timed_out| Failure {
            rpc: "virDomainGetXMLDesc",
            about: String::new(),
            raw: LibvirtError {
                code: NO_DOMAIN,
                domain: 10,
                int1: 0,
                message: String::new(),
            },
            timed_out,
        };
        assert!(failure(None).is(NO_DOMAIN));
        let released = failure(Some(Duration::from_secs(30)));
        assert!(released.answer().is_none() && !released.is(NO_DOMAIN));
    }
}
