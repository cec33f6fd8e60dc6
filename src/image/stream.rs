//! From the server to blocks of the volume: download and decompression on threads of their own, bounded channels
//! between them, so that memory doesn't grow with the image.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use super::decompress::Decoder;
use super::digest::{Digests, Hasher};
use super::head::Compression;
use super::source::Download;
use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};
use crate::parallel::{no_thread, panicked};

#[cfg(test)]
mod tests;

/// What libvirt sends in one stream packet (`VIR_NET_MESSAGE_LEGACY_PAYLOAD_MAX`): the best block size, measured.
pub(super) const BLOCK: usize = 262_120;
/// Blocks that may wait between two stages.
const READ_AHEAD: usize = 8;
/// How often one who waits for a block looks whether the run was cancelled.
const POLL: Duration = Duration::from_millis(100);

/// An image on its way in: the volume's bytes, block by block.
pub(super) struct Stream {
    first: Piece,
    rest: Receiver<Result<Piece>>,
    cancel: Cancel,
    hasher: Hasher,
    /// How it is compressed on the server.
    pub(super) compression: Option<Compression>,
    /// The published file's bytes, where the server says.
    pub(super) published_length: Option<u64>,
    /// The URL after redirects, as it may be shown.
    pub(super) url: String,
    /// Whether a connection that was cut would be noticed.
    pub(super) end_is_certain: bool,
}

/// The digests of a stream that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    /// Of the published bytes.
    pub(super) published: Digests,
    /// Of the volume's bytes.
    pub(super) volume: Digests,
}

/// What comes from the stage before.
enum Piece {
    /// Bytes; [`BLOCK`] of them but for the last.
    Block(Vec<u8>),
    /// That was all. Where it was decompressed: the digests of what was published.
    End(Option<Digests>),
}

impl Stream {
    /// Starts the stages; returns when the first block is there.
    pub(super) fn start(download: Download, with_sha512: bool, cancel: &Cancel) -> Result<Self> {
        let published_length = download.length();
        let url = download.final_url.clone();
        let certain = download.end_is_certain;
        let (sender, rest) = sync_channel(READ_AHEAD);
        spawn("download", move || run_download(download, &sender))?;
        let (mut first, mut rest) = (next_piece(&rest, cancel)?, rest);
        let compression = Compression::detect(first.bytes());
        if let Some(kind) = compression {
            let (sender, blocks) = sync_channel(READ_AHEAD);
            let input = Published::new(first, rest, with_sha512);
            let decoder = Decoder::new(kind, input)?;
            spawn("decompress", move || run_decoder(decoder, &sender))?;
            first = next_piece(&blocks, cancel)?;
            rest = blocks;
        }
        Ok(Stream {
            first,
            rest,
            cancel: cancel.clone(),
            // Decompressed, SHA-512 is only wanted of what was published.
            hasher: Hasher::new(with_sha512 && compression.is_none()),
            // A cut is noticed by the end mark that each of the formats has.
            end_is_certain: certain || compression.is_some(),
            compression,
            published_length,
            url,
        })
    }

    /// The volume's first bytes, before they are taken.
    pub(super) fn head(&self) -> &[u8] {
        self.first.bytes()
    }

    /// The volume's bytes, where they are known beforehand.
    pub(super) fn volume_length(&self) -> Option<u64> {
        match self.compression {
            None => self.published_length,
            Some(_) => None,
        }
    }

    /// Hands every block to `take` in turn; gives the digests of it all.
    pub(super) fn run(mut self, mut take: impl FnMut(Vec<u8>) -> Result<()>) -> Result<Ended> {
        let mut piece = self.first;
        loop {
            match piece {
                Piece::Block(block) => {
                    self.hasher.update(&block);
                    take(block)?;
                }
                Piece::End(published) => {
                    let volume = self.hasher.finish();
                    return Ok(Ended {
                        published: published.unwrap_or_else(|| volume.clone()),
                        volume,
                    });
                }
            }
            piece = next_piece(&self.rest, &self.cancel)?;
        }
    }
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Block(block) => block,
            Piece::End(_) => &[],
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
        .map_err(|cause| no_thread(&cause))
}

fn run_download(mut download: Download, blocks: &SyncSender<Result<Piece>>) {
    let last = match produce(blocks, |block| download.read(block)) {
        Ok(true) => Ok(Piece::End(None)),
        Ok(false) => return,
        Err(error) => Err(error),
    };
    // Whoever has gone needs no end.
    drop(blocks.send(last));
}

fn run_decoder(mut decoder: Decoder<Published>, blocks: &SyncSender<Result<Piece>>) {
    let outcome = produce(blocks, |block| decoder.read(block));
    let input = decoder.into_input();
    let last = match outcome {
        Ok(true) => input.finish().map(|digests| Piece::End(Some(digests))),
        Ok(false) => return,
        // What made the decoder stumble may be the download's failure.
        Err(error) => Err(input.failure.unwrap_or(error)),
    };
    drop(blocks.send(last));
}

/// Sends full blocks until the content ends (`true`), or nobody takes them any more (`false`).
fn produce(
    blocks: &SyncSender<Result<Piece>>,
    mut fill: impl FnMut(&mut [u8]) -> Result<usize>,
) -> Result<bool> {
    loop {
        let mut block = vec![0; BLOCK];
        let count = fill(&mut block)?;
        block.truncate(count);
        if count > 0 && blocks.send(Ok(Piece::Block(block))).is_err() {
            return Ok(false);
        }
        if count < BLOCK {
            return Ok(true);
        }
    }
}

/// The next piece, as long as the run isn't cancelled.
fn next_piece(pieces: &Receiver<Result<Piece>>, cancel: &Cancel) -> Result<Piece> {
    loop {
        cancel.check()?;
        match pieces.recv_timeout(POLL) {
            Ok(piece) => return piece,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(panicked()),
        }
    }
}

/// The published bytes as the decompressor reads them; digested on the way.
struct Published {
    block: Vec<u8>,
    taken: usize,
    pieces: Receiver<Result<Piece>>,
    ended: bool,
    failure: Option<Error>,
    hasher: Hasher,
}

impl Published {
    fn new(first: Piece, pieces: Receiver<Result<Piece>>, with_sha512: bool) -> Self {
        let mut published = Published {
            block: Vec::new(),
            taken: 0,
            pieces,
            ended: false,
            failure: None,
            hasher: Hasher::new(with_sha512),
        };
        published.put(first);
        published
    }

    fn put(&mut self, piece: Piece) {
        match piece {
            Piece::Block(block) => {
                self.hasher.update(&block);
                self.block = block;
                self.taken = 0;
            }
            Piece::End(_) => self.ended = true,
        }
    }

    /// The digests, once everything was read.
    fn finish(mut self) -> Result<Digests> {
        match self.fill_buf() {
            Ok([]) => Ok(self.hasher.finish()),
            Ok(_) => Err(Error::permanent(
                Reason::NotAnImage,
                "the image's compressed data is followed by something else",
            )),
            Err(_) => Err(self.failure.unwrap_or_else(panicked)),
        }
    }
}

impl BufRead for Published {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.taken >= self.block.len() && !self.ended {
            if self.failure.is_some() {
                return Err(io::Error::other("the download failed"));
            }
            match self.pieces.recv() {
                Ok(Ok(piece)) => self.put(piece),
                Ok(Err(error)) => self.failure = Some(error),
                Err(_) => self.failure = Some(panicked()),
            }
        }
        Ok(&self.block[self.taken.min(self.block.len())..])
    }

    fn consume(&mut self, count: usize) {
        self.taken += count;
    }
}

impl Read for Published {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}
