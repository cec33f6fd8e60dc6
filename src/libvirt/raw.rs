//! libvirt's client library: loaded when it is needed, and the few calls that the `virt` crate doesn't cover. The only file
//! with `unsafe`.
#![allow(unsafe_code)]
// libvirt's own names.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_ulonglong, c_void};
use std::mem::ManuallyDrop;
use std::sync::{Once, OnceLock};

use libloading::Library;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::stream::Stream;
use virt::sys;

use super::error::LibvirtError;

/// Completes I/O on a stream. [`Stream::finish`] would free it, which clears the library's record of the error
/// (`virStreamFree`), and with it the errno.
pub(super) fn finish(stream: &Stream) -> Result<(), virt::error::Error> {
    // SAFETY: the pointer is the stream's own, and valid as long as that lives.
    let done = unsafe { sys::virStreamFinish(stream.as_ptr()) };
    if done < 0 {
        return Err(virt::error::Error::last_error());
    }
    Ok(())
}

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

/// What a domain's saved memory will go on as (`virDomainManagedSaveGetXMLDesc`); `None` when it failed, see [`last_error`].
pub(super) fn saved_xml(domain: &Domain) -> Option<String> {
    // The C library's: what libvirt gives away is to be freed by the caller.
    unsafe extern "C" {
        fn free(memory: *mut c_void);
    }
    // SAFETY: the domain's handle is valid for as long as it is borrowed. On success libvirt gives a NUL-terminated
    // string away, which is copied, freed once, and not used after that.
    unsafe {
        let text = sys::virDomainManagedSaveGetXMLDesc(domain.as_ptr(), 0);
        if text.is_null() {
            return None;
        }
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        free(text.cast());
        Some(copy)
    }
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

/// The calls of libvirt's client library that this program makes, each a function that the `virt` crate links to in
/// place of the library's own. The library is loaded when it is first needed: it brings 60 others with it, 15 ms of
/// processor time, which `--help` and a shell's completion don't need, and a connection spends while it waits for the host.
///
/// That each has the signature of libvirt's header (as bindgen read it) is checked when it is compiled.
macro_rules! calls {
    ($($library:literal { $(fn $name:ident($($arg:ident: $kind:ty),*) $(-> $result:ty)?;)* })*) => {
        /// Where the library's functions are.
        struct Calls {
            $($($name: unsafe extern "C" fn($($kind),*) $(-> $result)?,)*)*
        }

        impl Calls {
            fn load() -> std::result::Result<Calls, libloading::Error> {
                // SAFETY: libvirt's libraries run no code of their own when they are loaded that could disturb others, and
                // stay loaded until the process ends. The signatures are those of its headers, which never change.
                unsafe {
                    $($(let $name;)*)*
                    $({
                        let library = ManuallyDrop::new(Library::new($library)?);
                        $($name = *library.get(stringify!($name))?;)*
                    })*
                    Ok(Calls { $($($name,)*)* })
                }
            }
        }

        $($(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $kind),*) $(-> $result)? {
                let calls = CALLS.get().and_then(|calls| calls.as_ref().ok());
                // Whoever has a handle, or wants one, has loaded the library.
                let calls = calls.expect("libvirt's client library is loaded");
                // SAFETY: passed on as they are: the caller vouches for the arguments.
                unsafe { (calls.$name)($($arg),*) }
            }
            const _: unsafe extern "C" fn($($kind),*) $(-> $result)? = sys::$name;
        )*)*
    };
}

/// Filled before anything in the library is called: its own calls of these names may come through the functions here, too,
/// as a program's symbols go before a library's.
static CALLS: OnceLock<std::result::Result<Calls, String>> = OnceLock::new();
static QUIET: Once = Once::new();

/// An error with what is behind it: libloading's own words leave out which file it was.
fn in_full(error: &dyn std::error::Error) -> String {
    let behind = std::iter::successors(error.source(), |error| error.source());
    behind.fold(error.to_string(), |text, error| format!("{text}: {error}"))
}

/// Loads libvirt's client library, if that wasn't done yet, and makes it silent: it prints every error on stderr unless its
/// handler is replaced (`virSetErrorFunc`), for the whole process.
///
/// Errors: the dynamic linker's words, where the library isn't installed or lacks a call.
pub(super) fn load() -> std::result::Result<(), &'static str> {
    unsafe extern "C" fn quiet(_: *mut c_void, _: sys::virErrorPtr) {}
    let calls = CALLS.get_or_init(|| Calls::load().map_err(|error| in_full(&error)));
    let calls = calls.as_ref().map_err(String::as_str)?;
    // SAFETY: the handler takes what virErrorFunc says, and does nothing.
    QUIET.call_once(|| unsafe { (calls.virSetErrorFunc)(std::ptr::null_mut(), Some(quiet)) });
    Ok(())
}

calls! {
    "libvirt.so.0" {
        fn virConnectClose(conn: sys::virConnectPtr) -> c_int;
        fn virConnectGetAllDomainStats(
            conn: sys::virConnectPtr, stats: c_uint, ret_stats: *mut *mut sys::virDomainStatsRecordPtr,
            flags: c_uint
        ) -> c_int;
        fn virConnectGetCapabilities(conn: sys::virConnectPtr) -> *mut c_char;
        fn virConnectGetDomainCapabilities(
            conn: sys::virConnectPtr, emulatorbin: *const c_char, arch: *const c_char, machine: *const c_char,
            virttype: *const c_char, flags: c_uint
        ) -> *mut c_char;
        fn virConnectGetHostname(conn: sys::virConnectPtr) -> *mut c_char;
        fn virConnectGetLibVersion(conn: sys::virConnectPtr, lib_ver: *mut c_ulong) -> c_int;
        fn virConnectGetVersion(conn: sys::virConnectPtr, hv_ver: *mut c_ulong) -> c_int;
        fn virConnectIsAlive(conn: sys::virConnectPtr) -> c_int;
        fn virConnectListAllDomains(
            conn: sys::virConnectPtr, domains: *mut *mut sys::virDomainPtr, flags: c_uint
        ) -> c_int;
        fn virConnectListAllStoragePools(
            conn: sys::virConnectPtr, pools: *mut *mut sys::virStoragePoolPtr, flags: c_uint
        ) -> c_int;
        fn virConnectOpen(name: *const c_char) -> sys::virConnectPtr;
        fn virDomainCreate(domain: sys::virDomainPtr) -> c_int;
        fn virDomainDefineXMLFlags(conn: sys::virConnectPtr, xml: *const c_char, flags: c_uint) -> sys::virDomainPtr;
        fn virDomainDestroy(domain: sys::virDomainPtr) -> c_int;
        fn virDomainFree(domain: sys::virDomainPtr) -> c_int;
        fn virDomainGetName(domain: sys::virDomainPtr) -> *const c_char;
        fn virDomainGetState(
            domain: sys::virDomainPtr, state: *mut c_int, reason: *mut c_int, flags: c_uint
        ) -> c_int;
        fn virDomainGetUUIDString(domain: sys::virDomainPtr, buf: *mut c_char) -> c_int;
        fn virDomainGetXMLDesc(domain: sys::virDomainPtr, flags: c_uint) -> *mut c_char;
        fn virDomainInterfaceAddresses(
            dom: sys::virDomainPtr, ifaces: *mut *mut sys::virDomainInterfacePtr, source: c_uint, flags: c_uint
        ) -> c_int;
        fn virDomainLookupByName(conn: sys::virConnectPtr, name: *const c_char) -> sys::virDomainPtr;
        fn virDomainLookupByUUIDString(conn: sys::virConnectPtr, uuid: *const c_char) -> sys::virDomainPtr;
        fn virDomainOpenConsole(
            dom: sys::virDomainPtr, dev_name: *const c_char, st: sys::virStreamPtr, flags: c_uint
        ) -> c_int;
        fn virDomainManagedSaveGetXMLDesc(domain: sys::virDomainPtr, flags: c_uint) -> *mut c_char;
        fn virDomainPMWakeup(dom: sys::virDomainPtr, flags: c_uint) -> c_int;
        fn virDomainRef(domain: sys::virDomainPtr) -> c_int;
        fn virDomainResume(domain: sys::virDomainPtr) -> c_int;
        fn virDomainSetMetadata(
            domain: sys::virDomainPtr, kind: c_int, metadata: *const c_char, key: *const c_char, uri: *const c_char,
            flags: c_uint
        ) -> c_int;
        fn virDomainStatsRecordListFree(stats: *mut sys::virDomainStatsRecordPtr);
        fn virDomainUndefineFlags(domain: sys::virDomainPtr, flags: c_uint) -> c_int;
        fn virGetLastError() -> sys::virErrorPtr;
        fn virInterfaceFree(iface: sys::virInterfacePtr) -> c_int;
        fn virInterfaceLookupByName(conn: sys::virConnectPtr, name: *const c_char) -> sys::virInterfacePtr;
        fn virNetworkFree(network: sys::virNetworkPtr) -> c_int;
        fn virNetworkIsActive(net: sys::virNetworkPtr) -> c_int;
        fn virNetworkLookupByName(conn: sys::virConnectPtr, name: *const c_char) -> sys::virNetworkPtr;
        fn virSetErrorFunc(user_data: *mut c_void, handler: sys::virErrorFunc);
        fn virStoragePoolFree(pool: sys::virStoragePoolPtr) -> c_int;
        fn virStoragePoolGetInfo(vol: sys::virStoragePoolPtr, info: sys::virStoragePoolInfoPtr) -> c_int;
        fn virStoragePoolGetName(pool: sys::virStoragePoolPtr) -> *const c_char;
        fn virStoragePoolGetXMLDesc(pool: sys::virStoragePoolPtr, flags: c_uint) -> *mut c_char;
        fn virStoragePoolListAllVolumes(
            pool: sys::virStoragePoolPtr, vols: *mut *mut sys::virStorageVolPtr, flags: c_uint
        ) -> c_int;
        fn virStoragePoolLookupByName(conn: sys::virConnectPtr, name: *const c_char) -> sys::virStoragePoolPtr;
        fn virStoragePoolNumOfVolumes(pool: sys::virStoragePoolPtr) -> c_int;
        fn virStoragePoolRef(pool: sys::virStoragePoolPtr) -> c_int;
        fn virStoragePoolRefresh(pool: sys::virStoragePoolPtr, flags: c_uint) -> c_int;
        fn virStorageVolCreateXML(
            pool: sys::virStoragePoolPtr, xmldesc: *const c_char, flags: c_uint
        ) -> sys::virStorageVolPtr;
        fn virStorageVolDelete(vol: sys::virStorageVolPtr, flags: c_uint) -> c_int;
        fn virStorageVolDownload(
            vol: sys::virStorageVolPtr, stream: sys::virStreamPtr, offset: c_ulonglong, length: c_ulonglong,
            flags: c_uint
        ) -> c_int;
        fn virStorageVolFree(vol: sys::virStorageVolPtr) -> c_int;
        fn virStorageVolGetKey(vol: sys::virStorageVolPtr) -> *const c_char;
        fn virStorageVolGetName(vol: sys::virStorageVolPtr) -> *const c_char;
        fn virStorageVolGetPath(vol: sys::virStorageVolPtr) -> *mut c_char;
        fn virStorageVolGetXMLDesc(pool: sys::virStorageVolPtr, flags: c_uint) -> *mut c_char;
        fn virStorageVolLookupByKey(conn: sys::virConnectPtr, key: *const c_char) -> sys::virStorageVolPtr;
        fn virStorageVolLookupByName(pool: sys::virStoragePoolPtr, name: *const c_char) -> sys::virStorageVolPtr;
        fn virStorageVolRef(vol: sys::virStorageVolPtr) -> c_int;
        fn virStorageVolUpload(
            vol: sys::virStorageVolPtr, stream: sys::virStreamPtr, offset: c_ulonglong, length: c_ulonglong,
            flags: c_uint
        ) -> c_int;
        fn virStreamAbort(st: sys::virStreamPtr) -> c_int;
        fn virStreamEventRemoveCallback(stream: sys::virStreamPtr) -> c_int;
        fn virStreamFinish(st: sys::virStreamPtr) -> c_int;
        fn virStreamFree(st: sys::virStreamPtr) -> c_int;
        fn virStreamNew(conn: sys::virConnectPtr, flags: c_uint) -> sys::virStreamPtr;
        fn virStreamRecv(st: sys::virStreamPtr, data: *mut c_char, nbytes: usize) -> c_int;
        fn virStreamRef(st: sys::virStreamPtr) -> c_int;
        fn virStreamSend(st: sys::virStreamPtr, data: *const c_char, nbytes: usize) -> c_int;
    }
    "libvirt-qemu.so.0" {
        fn virDomainQemuAgentCommand(
            domain: sys::virDomainPtr, cmd: *const c_char, timeout: c_int, flags: c_uint
        ) -> *mut c_char;
    }
}
