//! One download for all hosts that have a claim: begun once, handed to each of them block by block, verified at the end.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use jiff::Timestamp;

use super::claim::Claim;
use super::head;
use super::identify::replaced;
use super::identity::{Identity, Validators, called};
use super::pull::{PullEvent, PullObserver, PullRequest, Pulled, ensure_disk_fits};
use super::source::Pending;
use super::store::{Block, Feed, Ground, Incoming, Published, store};
use super::stream::Stream;
use super::sums::Algorithm;
use super::verify::{Origin, verify};
use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::parallel::{self, no_thread, panicked};
use crate::units;

/// Blocks that may wait for one host: 8 MiB. A slower host holds the download back beyond that, as memory must not
/// grow with the image.
const HOST_AHEAD: usize = 32;

/// What one pull brings, and to whom it tells how it goes.
pub(super) struct FanOut<'a> {
    /// What was asked for.
    pub(super) request: &'a PullRequest<'a>,
    /// Which content that is.
    pub(super) identity: &'a Identity,
    /// Right before the server was asked for that.
    pub(super) asked: Timestamp,
    /// Who shows what happens.
    pub(super) observer: &'a dyn PullObserver,
    /// Ends the download.
    pub(super) cancel: &'a Cancel,
}

/// A host that is to be fed: its place among the hosts, its claim, and what the claim found.
pub(super) type Claimant<'a> = (usize, &'a HostSession, Claim, Ground);

impl FanOut<'_> {
    /// One download for all claimants.
    pub(super) fn feed(
        &self,
        claimants: Vec<Claimant<'_>>,
        pending: &Pending<'_>,
    ) -> Vec<(usize, Result<Pulled>)> {
        if claimants.is_empty() {
            return Vec::new();
        }
        match self.begin(pending) {
            Ok((incoming, stream, validators)) => {
                self.distribute(claimants, &incoming, stream, &validators)
            }
            // Nothing but the claims was made so far.
            Err(error) => {
                let threads = claimants.len();
                parallel::map(claimants, threads, |(index, host, claim, _)| {
                    (index, Err(claim.give_up(host, error.clone())))
                })
            }
        }
    }

    /// Opens the download and looks at its first bytes, before any volume is made.
    pub(super) fn begin(&self, pending: &Pending<'_>) -> Result<(Incoming, Stream, Validators)> {
        let image = self.request.image;
        let download = pending.take()?;
        let validators = download.validators.clone();
        // A takeover opens anew, and a moving image may have moved: its volume is named by what it was.
        if self.identity.pin.is_none()
            && Identity::moving(image, &validators).id != self.identity.id
        {
            return Err(replaced());
        }
        let url = download.final_url.clone();
        let about = |error: Error| about(&url, error);
        let stream = Stream::start(download, self.wants_sha512(), self.cancel).map_err(about)?;
        let sniffed = head::sniff(self.identity.format, stream.head()).map_err(about)?;
        if let (Some(limit), Some(size)) = (self.request.disk_limit, sniffed.virtual_size) {
            ensure_disk_fits(limit, size)?;
        }
        if self.identity.pin.is_none() && !stream.end_is_certain {
            self.observer.event(PullEvent::Warning(&format!(
                "the server of image {} doesn't tell its length, and no checksum is set: a connection that is cut can't be told from the image's end",
                called(image)
            )));
        }
        let incoming = Incoming {
            identity: self.identity.clone(),
            length: stream.volume_length(),
            at_least: stream.published_length.unwrap_or(0),
            virtual_size: sniffed.virtual_size,
            extra_room: self.request.extra_room,
        };
        Ok((incoming, stream, validators))
    }

    fn wants_sha512(&self) -> bool {
        let pin = self.identity.pin.as_ref();
        pin.is_some_and(|pin| pin.algorithm == Algorithm::Sha512)
    }

    fn distribute(
        &self,
        claimants: Vec<Claimant<'_>>,
        incoming: &Incoming,
        stream: Stream,
        validators: &Validators,
    ) -> Vec<(usize, Result<Pulled>)> {
        std::thread::scope(|scope| {
            let mut feeds = Vec::new();
            let mut stores = Vec::new();
            let mut results = Vec::new();
            for (index, host, claim, ground) in claimants {
                let (feed, fed) = sync_channel(HOST_AHEAD);
                let work = move |(claim, ground)| {
                    let name = host.name();
                    self.observer
                        .event(PullEvent::Started(name, incoming.length));
                    let sent = |bytes| self.observer.event(PullEvent::Sent(name, bytes));
                    let stored = store(host, claim, ground, incoming, &fed, &sent);
                    self.observer.event(PullEvent::Ended(name));
                    stored
                };
                match parallel::try_with(scope, (claim, ground), work) {
                    Ok(job) => {
                        feeds.push(Some(feed));
                        stores.push((index, host, job));
                    }
                    // Nothing but the claim was made for it so far.
                    Err(((claim, _), cause)) => {
                        let error = claim.give_up(host, no_thread(&cause));
                        results.push((index, Err(error.on_host(host.name()))));
                    }
                }
            }
            let downloaded = self.download(stream, validators, &mut feeds);
            drop(feeds);
            for (index, host, job) in stores {
                let stored = job.join().unwrap_or_else(|_| Err(panicked()));
                let result = match (stored, &downloaded) {
                    (Ok(Some(base)), _) => Ok(Pulled { base, fresh: true }),
                    (Ok(None), Err(error)) => Err(error.clone()),
                    (Ok(None), Ok(())) => Err(panicked()),
                    (Err(error), _) => Err(error.on_host(host.name())),
                };
                results.push((index, result));
            }
            results
        })
    }

    /// Reads to the end, hands every block to each host that still takes it, and verifies the digest.
    fn download(
        &self,
        stream: Stream,
        validators: &Validators,
        feeds: &mut [Option<SyncSender<Feed>>],
    ) -> Result<()> {
        let (url, end_is_certain) = (stream.url.clone(), stream.end_is_certain);
        let ended = stream.run(|data| {
            let data: Block = Arc::new(data);
            for feed in feeds.iter_mut() {
                let gone = feed
                    .as_ref()
                    .is_some_and(|f| f.send(Feed::Block(data.clone())).is_err());
                if gone {
                    *feed = None;
                }
            }
            if feeds.iter().all(Option::is_none) {
                return Err(Error::transient(
                    Reason::PartialFailure,
                    "every host failed",
                ));
            }
            Ok(())
        });
        let ended = ended.map_err(|error| about(&url, error))?;
        let origin = Origin {
            url: &url,
            last_modified: validators.last_modified.as_deref(),
            end_is_certain,
        };
        verify(self.identity, &ended, &origin)?;
        let published = Arc::new(Published {
            volume_sha256: ended.volume.sha256,
            volume_size: ended.volume.bytes,
            digests: ended.published,
            url,
            pulled_at: units::to_the_millisecond(self.asked),
        });
        for feed in feeds.iter().flatten() {
            // A host that is gone has its own error.
            let _ = feed.send(Feed::Verified(Arc::clone(&published)));
        }
        Ok(())
    }
}

/// Says where bytes came from that are no image; a download's own errors say it already.
fn about(url: &str, error: Error) -> Error {
    match error.reason() {
        Reason::NotAnImage | Reason::ImageNotSelfContained => error.because(format!("URL {url}")),
        _ => error,
    }
}
