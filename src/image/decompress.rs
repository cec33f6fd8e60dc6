//! Decompressing a download in the stream: gz, xz, zst and bz2, with bounded memory.
//!
//! Files may be of several members or frames in a row; each format's own checksums are verified, and what is cut off
//! or followed by anything else is an error.

use std::io::{self, BufRead, Read};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use super::head::Compression;
use crate::error::{Class, Error, Reason, Result};

#[cfg(test)]
pub(super) mod tests;

/// The largest window taken, as a power of two in bytes: 128 MiB, what zstd itself takes without being asked. `xz -9`
/// needs half of it.
const WINDOW_LOG: u32 = 27;
/// What xz may use: the window, and its tables and buffers.
const XZ_MEMORY: u64 = (1 << WINDOW_LOG) + (8 << 20);

/// Decompresses what `R` gives.
pub(super) struct Decoder<R: BufRead> {
    kind: Compression,
    inner: Inner<R>,
}

enum Inner<R: BufRead> {
    Gz(Box<MultiGzDecoder<R>>),
    Xz(XzDecoder<R>),
    Zst(zstd::Decoder<'static, R>),
    Bz2(Box<MultiBzDecoder<R>>),
}

impl<R: BufRead> Decoder<R> {
    /// Starts; nothing is read yet.
    pub(super) fn new(kind: Compression, input: R) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(
                Class::Transient,
                Reason::LocalIo,
                format!("{} data can't be decompressed here", kind.as_str()),
            )
            .because(error)
        };
        let inner = match kind {
            Compression::Gz => Inner::Gz(Box::new(MultiGzDecoder::new(input))),
            Compression::Bz2 => Inner::Bz2(Box::new(MultiBzDecoder::new(input))),
            Compression::Xz => {
                let stream =
                    Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED).map_err(|e| failed(&e))?;
                Inner::Xz(XzDecoder::new_stream(input, stream))
            }
            Compression::Zst => {
                let mut decoder = zstd::Decoder::with_buffer(input).map_err(|e| failed(&e))?;
                decoder.window_log_max(WINDOW_LOG).map_err(|e| failed(&e))?;
                Inner::Zst(decoder)
            }
        };
        Ok(Decoder { kind, inner })
    }

    /// Fills `buffer` as far as the content goes; less than its length only at the end.
    ///
    /// An error of the input comes back as it is given by [`Decoder::into_input`]; this one says what is wrong with
    /// the compressed data.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_some(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.damaged(&error)),
            }
        }
        Ok(filled)
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.inner {
            Inner::Gz(decoder) => decoder.read(buffer),
            Inner::Xz(decoder) => decoder.read(buffer),
            Inner::Zst(decoder) => decoder.read(buffer),
            Inner::Bz2(decoder) => decoder.read(buffer),
        }
    }

    /// The input, with what wasn't read of it.
    pub(super) fn into_input(self) -> R {
        match self.inner {
            Inner::Gz(decoder) => decoder.into_inner(),
            Inner::Xz(decoder) => decoder.into_inner(),
            Inner::Zst(decoder) => decoder.finish(),
            Inner::Bz2(decoder) => decoder.into_inner(),
        }
    }

    fn damaged(&self, error: &io::Error) -> Error {
        let name = self.kind.as_str();
        let text = error.to_string();
        let lzma = error.get_ref().and_then(|inner| inner.downcast_ref());
        if matches!(lzma, Some(liblzma::stream::Error::MemLimit))
            || text.contains("requires too much memory")
        {
            return Error::permanent(
                Reason::NotAnImage,
                format!(
                    "the image's {name} data needs a window of more than 128 MiB to decompress"
                ),
            )
            .hint("compress it with less, such as xz -9 or zstd -19");
        }
        let message = if error.kind() == io::ErrorKind::UnexpectedEof {
            format!("the image's {name} data ends too early")
        } else {
            format!("the image's {name} data is damaged, or followed by something else")
        };
        Error::permanent(Reason::NotAnImage, message).because(text)
    }
}
