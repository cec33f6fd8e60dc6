//! What the SSH packets travel over: a handle that any thread can shut down, and the socket as russh uses it.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connected socket; a clone is another handle to the same one.
#[derive(Debug, Clone)]
pub(super) enum Transport {
    /// Straight to the host.
    Tcp(Arc<TcpStream>),
    /// Through a jump host: the other end is a lane of its pump.
    Jump(Arc<UnixStream>),
}

impl Transport {
    /// Ends the connection at once; whoever waits on it is released.
    pub(super) fn shutdown(&self) {
        // It fails only where the peer was faster.
        let _ = match self {
            Transport::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Transport::Jump(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// A transport in a runtime.
pub(super) enum Socket {
    Tcp(tokio::net::TcpStream),
    Jump(tokio::net::UnixStream),
}

impl Socket {
    /// Needs a runtime around it.
    pub(super) fn new(transport: &Transport) -> io::Result<Self> {
        Ok(match transport {
            Transport::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                Socket::Tcp(tokio::net::TcpStream::from_std(stream.try_clone()?)?)
            }
            Transport::Jump(stream) => {
                stream.set_nonblocking(true)?;
                Socket::Jump(tokio::net::UnixStream::from_std(stream.try_clone()?)?)
            }
        })
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => {
                // Delayed acknowledgements cost 40 ms per round trip of small packets, and Linux forgets the
                // option: so before every wait. It is only a matter of speed.
                let _ = rustix::net::sockopt::set_tcp_quickack(&*stream, true);
                Pin::new(stream).poll_read(cx, buffer)
            }
            Socket::Jump(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Jump(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Jump(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Jump(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
