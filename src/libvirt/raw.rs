//! The few libvirt calls that the `virt` crate doesn't cover. The only file with `unsafe`.
#![allow(unsafe_code)]

use std::ffi::CStr;

use virt::connect::Connect;
use virt::domain::Domain;
use virt::sys;

use super::error::LibvirtError;

/// The thread's last libvirt error with its `int1`, which `virt::error::Error` drops (`virGetLastError`).
pub(super) fn last_error() -> LibvirtError {
    // SAFETY: virGetLastError gives NULL or a pointer to this thread's own error, valid until the thread's next
    // libvirt call; everything is copied out before this function returns.
    unsafe {
        let error = sys::virGetLastError();
        if error.is_null() {
            return LibvirtError {
                code: 1,
                domain: 0,
                int1: 0,
                message: "libvirt gave no reason".to_owned(),
            };
        }
        let message = if (*error).message.is_null() {
            String::new()
        } else {
            CStr::from_ptr((*error).message)
                .to_string_lossy()
                .into_owned()
        };
        LibvirtError {
            code: u32::try_from((*error).code).unwrap_or(1),
            domain: u32::try_from((*error).domain).unwrap_or(0),
            int1: (*error).int1,
            message,
        }
    }
}

/// A domain's state and the reason for it (`virDomainGetState`); `None` when the call failed, see [`last_error`].
///
/// virt 0.5.0's `Domain::state` drops the call's result and gives state -1 for a domain that is gone.
pub(super) fn domain_state(domain: &Domain) -> Option<(u32, u32)> {
    let (mut state, mut reason) = (0, 0);
    // SAFETY: the domain's handle is valid for as long as it is borrowed, and both numbers outlive the call.
    let result =
        unsafe { sys::virDomainGetState(domain.as_ptr(), &raw mut state, &raw mut reason, 0) };
    let number = |raw| u32::try_from(raw).unwrap_or(u32::MAX);
    (result == 0).then(|| (number(state), number(reason)))
}

/// One domain's state as `virConnectGetAllDomainStats` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateRecord {
    /// The domain's UUID.
    pub(super) uuid: String,
    /// `virDomainState`.
    pub(super) state: u32,
    /// The reason that goes with it.
    pub(super) reason: u32,
}

/// Every domain's state in one call (`virConnectGetAllDomainStats`); `None` when it failed, see [`last_error`].
pub(super) fn all_domain_states(connect: &Connect) -> Option<Vec<StateRecord>> {
    let mut records: *mut sys::virDomainStatsRecordPtr = std::ptr::null_mut();
    // SAFETY: the connection is open for as long as it is borrowed; on success libvirt stores an array of `count`
    // records, which stay valid until virDomainStatsRecordListFree below.
    unsafe {
        let count = sys::virConnectGetAllDomainStats(
            connect.as_ptr(),
            sys::VIR_DOMAIN_STATS_STATE,
            &raw mut records,
            0,
        );
        let count = usize::try_from(count).ok()?;
        let states = (0..count)
            .filter_map(|i| state_record(*records.add(i)))
            .collect();
        sys::virDomainStatsRecordListFree(records);
        Some(states)
    }
}

/// # Safety
/// `record` must be a record of a list that virConnectGetAllDomainStats gave and that isn't freed yet.
unsafe fn state_record(record: sys::virDomainStatsRecordPtr) -> Option<StateRecord> {
    let mut uuid = [0; sys::VIR_UUID_STRING_BUFLEN as usize];
    // SAFETY: the caller vouches for the record; its `dom` and `params[..nparams]` are valid as long as it is.
    // Names are NUL-terminated within their 80 bytes, and `state.*` parameters are of type int (libvirt-domain.h).
    unsafe {
        if sys::virDomainGetUUIDString((*record).dom, uuid.as_mut_ptr()) != 0 {
            return None;
        }
        let mut state = StateRecord {
            uuid: CStr::from_ptr(uuid.as_ptr()).to_string_lossy().into_owned(),
            state: 0,
            reason: 0,
        };
        for i in 0..usize::try_from((*record).nparams).ok()? {
            let param = (*record).params.add(i);
            let number = u32::try_from((*param).value.i).unwrap_or(0);
            match CStr::from_ptr((*param).field.as_ptr()).to_bytes() {
                b"state.state" => state.state = number,
                b"state.reason" => state.reason = number,
                _ => {}
            }
        }
        Some(state)
    }
}
