//! The far side of a link: what can be opened on the host, or on this very machine.

use std::io;

use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg, ChannelOpenFailure};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use super::client::Client;
use super::shared::{ExecOutput, OpenError};

/// How much of a command's output is kept, in bytes.
const MAX_OUTPUT: usize = 1024 * 1024;

/// Where a link leads.
pub(super) enum Far {
    /// To a host, over SSH.
    Host(Handle<Client>),
    /// To this machine.
    Here,
}

/// Bytes both ways.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Far {
    /// Connects to a unix socket there (`direct-streamlocal@openssh.com`, OpenSSH's PROTOCOL section 2.4).
    pub(super) async fn open_unix(&self, path: &str) -> Result<Box<dyn Stream>, OpenError> {
        match self {
            Far::Host(session) => {
                let opened = session.channel_open_direct_streamlocal(path).await;
                Ok(Box::new(opened.map_err(refused)?.into_stream()))
            }
            Far::Here => {
                let connected = UnixStream::connect(path).await;
                Ok(Box::new(connected.map_err(OpenError::Local)?))
            }
        }
    }

    /// Opens a TCP connection from there (RFC 4254 section 7.2).
    pub(super) async fn open_tcp(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Box<dyn Stream>, OpenError> {
        let Far::Host(session) = self else {
            return Err(unsupported());
        };
        let opened = session.channel_open_direct_tcpip(host, port.into(), "127.0.0.1", 0);
        Ok(Box::new(opened.await.map_err(refused)?.into_stream()))
    }

    /// Runs a command there with the login shell (RFC 4254 section 6.5); what it says on stderr is lost.
    pub(super) async fn exec(&self, command: &str) -> Result<ExecOutput, OpenError> {
        let Far::Host(session) = self else {
            return Err(unsupported());
        };
        let mut channel = session.channel_open_session().await.map_err(refused)?;
        channel.exec(true, command).await.map_err(refused)?;
        channel.eof().await.map_err(refused)?;
        let output = collect(&mut channel).await;
        // It fails only where the host closed it first.
        let _ = channel.close().await;
        output
    }
}

/// Reads a command's output until its channel is closed.
async fn collect(channel: &mut Channel<Msg>) -> Result<ExecOutput, OpenError> {
    let mut output = ExecOutput {
        stdout: Vec::new(),
        exit_status: None,
    };
    while let Some(message) = channel.wait().await {
        match message {
            ChannelMsg::Data { data } => {
                let room = MAX_OUTPUT - output.stdout.len();
                output
                    .stdout
                    .extend_from_slice(&data[..data.len().min(room)]);
            }
            ChannelMsg::ExitStatus { exit_status } => {
                output.exit_status = i32::try_from(exit_status).ok();
            }
            ChannelMsg::Failure => {
                return Err(OpenError::Refused("it refuses to run the command".into()));
            }
            ChannelMsg::Close => return Ok(output),
            _ => {}
        }
    }
    // The channel's end without its close: the connection is gone.
    Err(OpenError::Lost)
}

/// The host's refusal, in OpenSSH's words.
fn refused(error: russh::Error) -> OpenError {
    let words = match error {
        russh::Error::ChannelOpenFailure(failure) => match failure {
            ChannelOpenFailure::AdministrativelyProhibited => {
                "administratively prohibited".to_owned()
            }
            ChannelOpenFailure::ConnectFailed => "connect failed".to_owned(),
            ChannelOpenFailure::UnknownChannelType => "unknown channel type".to_owned(),
            ChannelOpenFailure::ResourceShortage => "resource shortage".to_owned(),
            ChannelOpenFailure::Other { reason, .. } => reason,
        },
        russh::Error::SendError | russh::Error::Disconnect | russh::Error::HUP => {
            return OpenError::Lost;
        }
        other => other.to_string(),
    };
    OpenError::Refused(words)
}

fn unsupported() -> OpenError {
    OpenError::Local(io::Error::from(io::ErrorKind::Unsupported))
}
