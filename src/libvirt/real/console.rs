//! A guest's serial console, over a libvirt stream.

use std::sync::Mutex;

use virt::stream::Stream;
use virt::sys;

use super::super::closing::UnderWay;
use super::super::error::OPERATION_FAILED;
use super::super::{Console, DomainRef};
use super::{About, CLOSE_LIMIT, Connection, Failure, VirtResult, numbers};
use crate::error::{Error, Reason, Result};
use crate::parallel::lock;

/// An open console. Its stream must be aborted before the connection closes: libvirt/closing.rs says why.
pub(super) struct ConsoleStream<'a> {
    connection: &'a Connection,
    stream: Stream,
    about: String,
    under_way: Mutex<Option<UnderWay<'a>>>,
}

impl<'a> ConsoleStream<'a> {
    pub(super) fn open(
        connection: &'a Connection,
        domain: &DomainRef,
        force: bool,
    ) -> Result<Self> {
        let handle = connection.handle(domain)?;
        let about = About("domain", &domain.name).to_string();
        let flags = if force {
            sys::VIR_DOMAIN_CONSOLE_FORCE
        } else {
            // Refused where the driver couldn't keep two users apart.
            sys::VIR_DOMAIN_CONSOLE_SAFE
        };
        let under_way = connection.streams.begin();
        let limit = connection.limits.rpc;
        let opened = connection.attempt("virDomainOpenConsole", &about, limit, || {
            let stream = Stream::new(connection.connect(), 0)?;
            handle.open_console(None, &stream, flags)?;
            Ok(stream)
        });
        let stream = opened.map_err(|failure| {
            let error = connection.error(&failure);
            // What the QEMU driver says where its table of consoles has one.
            if !failure.is(OPERATION_FAILED) {
                return error;
            }
            Error::transient(
                Reason::ConsoleBusy,
                format!("somebody else has the console of {}", domain.name),
            )
            .on_host(&connection.host)
            .because(error.causes().first().map_or("", String::as_str))
            .hint("--force takes it from them")
        })?;
        Ok(ConsoleStream {
            connection,
            stream,
            about,
            under_way: Mutex::new(Some(under_way)),
        })
    }

    fn abort(&self) -> VirtResult<()> {
        // A clone is another reference to the same stream.
        self.stream.clone().abort()
    }
}

impl Console for ConsoleStream<'_> {
    fn receive(&self, buffer: &mut [u8]) -> Result<usize> {
        match self.stream.recv(buffer) {
            Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
            // "stream had I/O failure": what the daemon says when QEMU has ended, or the console was taken.
            Err(error) if self.connection.is_alive() => {
                log::info!(
                    "host={} rpc=virStreamRecv{} message={:?}",
                    self.connection.host,
                    self.about,
                    error.message()
                );
                Ok(0)
            }
            Err(error) => Err(self.connection.error(&Failure {
                rpc: "virStreamRecv",
                about: self.about.clone(),
                raw: numbers(&error),
                // It is waited for as long as the person likes.
                timed_out: None,
            })),
        }
    }

    fn send(&self, data: &[u8]) -> Result<()> {
        self.connection.send(&self.stream, &self.about, data)
    }

    fn close(&self) {
        let mut under_way = lock(&self.under_way);
        if under_way.is_none() {
            return;
        }
        let armed = self.connection.watchdog.arm(CLOSE_LIMIT);
        if let Err(error) = self.abort() {
            log::debug!(
                "host={} rpc=virStreamAbort{} message={:?}",
                self.connection.host,
                self.about,
                error.message()
            );
        }
        drop(armed);
        drop(under_way.take());
        // Whoever still waits for the guest is released.
        self.connection.link.close();
    }
}

impl Drop for ConsoleStream<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
