//! The calls about storage pools and volumes.

use std::time::Duration;

use virt::storage_pool::StoragePool;
use virt::storage_vol::StorageVol;
use virt::stream::Stream;
use virt::sys;

use super::super::closing::UnderWay;
use super::super::error::{NO_STORAGE_POOL, NO_STORAGE_VOL, OPERATION_INVALID, STORAGE_VOL_EXIST};
use super::super::{ListedPool, StorageCalls, VolumeUpload, raw};
use super::{About, AboutVolume, CLOSE_LIMIT, Connection, Failure};
use crate::error::{Error, Reason, Result};
use crate::parallel::{self, lock};

/// How often a pool that is busy with another job is asked again, and how long to wait before; longer each time, up to
/// the longest: 25 s in all, as for any call that gets no answer.
const POOL_RETRIES: u32 = 16;
const POOL_WAIT: Duration = Duration::from_millis(250);
const POOL_LONGEST: Duration = Duration::from_secs(2);

/// The same for a volume, whose other user is done sooner: 4 s in all.
const VOLUME_RETRIES: u32 = 20;
const VOLUME_WAIT: Duration = Duration::from_millis(20);

/// How often a download is asked for on another connection after its refusal was lost with the one before: that happens
/// to 3 to 16 of 100 (measured with a directory and libvirt 11.3).
const OVERTAKEN_RETRIES: u32 = 8;

impl Connection {
    fn pool(&self, name: &str) -> Result<Option<StoragePool>> {
        let known = || lock(&self.pools).get(name).cloned();
        if let Some(pool) = known() {
            return Ok(Some(pool));
        }
        let _asking = lock(&self.lookup);
        if let Some(pool) = known() {
            return Ok(Some(pool));
        }
        let about = About("pool", &name);
        let found = self.find(
            "virStoragePoolLookupByName",
            &about,
            NO_STORAGE_POOL,
            || self.connect().lookup_storage_pool_by_name(name),
        )?;
        if let Some(pool) = &found {
            lock(&self.pools).insert(name.to_owned(), pool.clone());
        }
        Ok(found)
    }

    fn existing_pool(&self, name: &str) -> Result<StoragePool> {
        self.pool(name)?.ok_or_else(|| {
            Error::permanent(
                Reason::PoolNotFound,
                format!("there is no storage pool {name}"),
            )
            .on_host(&self.host)
        })
    }

    fn volume(&self, pool: &str, name: &str) -> Result<Option<StorageVol>> {
        let key = (pool.to_owned(), name.to_owned());
        if let Some(volume) = lock(&self.volumes).get(&key) {
            return Ok(Some(volume.clone()));
        }
        let handle = self.existing_pool(pool)?;
        let about = AboutVolume(pool, name);
        let found = self.find("virStorageVolLookupByName", &about, NO_STORAGE_VOL, || {
            handle.lookup_storage_vol_by_name(name)
        })?;
        if let Some(volume) = &found {
            lock(&self.volumes).insert(key, volume.clone());
        }
        Ok(found)
    }

    fn existing_volume(&self, pool: &str, name: &str) -> Result<StorageVol> {
        self.volume(pool, name)?.ok_or_else(|| {
            Error::transient(
                Reason::LibvirtError,
                format!("volume {name} vanished from pool {pool}"),
            )
            .on_host(&self.host)
        })
    }

    /// Whether a volume that libvirt didn't know of shows once it has looked into the pool's directory: the file was made
    /// beside it, by another host that shares the storage, say. libvirt then refuses to make it as an invalid operation.
    fn appears(&self, pool: &str, name: &str) -> bool {
        self.refresh_pool(pool).is_ok() && matches!(self.volume(pool, name), Ok(Some(_)))
    }

    fn forget_volume(&self, pool: &str, name: &str) {
        lock(&self.volumes).remove(&(pool.to_owned(), name.to_owned()));
    }

    /// Reads up to `limit` bytes of a volume from `offset` (`virStorageVolDownload`).
    fn download(
        &self,
        volume: &StorageVol,
        about: &AboutVolume<'_>,
        offset: u64,
        limit: usize,
    ) -> std::result::Result<Vec<u8>, Failure> {
        let _under_way = self.streams.begin();
        // Freeing the stream would clear the library's record of the error, and with it the errno.
        let mut kept = None;
        let mut download = || {
            let stream = Stream::new(self.connect(), 0)?;
            let read = volume
                .download(&stream, offset, limit as u64, 0)
                .and_then(|()| receive(&stream, limit));
            kept = read.is_err().then_some(stream);
            read
        };
        self.retry_busy(|| {
            let rpc = "virStorageVolDownload";
            self.attempt(rpc, about, self.limits.rpc, &mut download)
        })
    }

    /// Repeats a call that the pool or the volume refuses only for now.
    fn retry_busy<T>(
        &self,
        mut call: impl FnMut() -> std::result::Result<T, Failure>,
    ) -> std::result::Result<T, Failure> {
        let (mut pool, mut volume) = (0, 0);
        loop {
            let failure = match call() {
                Err(failure) if !self.cancel.is_set() => failure,
                done => return done,
            };
            let Some(answer) = failure.answer() else {
                return Err(failure);
            };
            if answer.is_pool_busy() && pool < POOL_RETRIES {
                pool += 1;
                self.cancel.wait(POOL_LONGEST.min(POOL_WAIT * pool));
            } else if answer.is_volume_busy() && volume < VOLUME_RETRIES {
                volume += 1;
                self.cancel.wait(VOLUME_WAIT * volume);
            } else {
                return Err(failure);
            }
        }
    }
}

impl StorageCalls for Connection {
    fn list_pools(&self) -> Result<Vec<String>> {
        let pools = self.rpc("virConnectListAllStoragePools", &"", || {
            self.connect().list_all_storage_pools(0)
        })?;
        let mut names = pools
            .iter()
            .map(|pool| self.local(pool.name()))
            .collect::<Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn find_pool(&self, name: &str) -> Result<Option<ListedPool>> {
        let Some(pool) = self.pool(name)? else {
            return Ok(None);
        };
        let about = About("pool", &name);
        let (info, xml) = parallel::both(
            || self.rpc("virStoragePoolGetInfo", &about, || pool.info()),
            || self.rpc("virStoragePoolGetXMLDesc", &about, || pool.xml_desc(0)),
        );
        let (info, xml) = (info?, xml?);
        Ok(Some(ListedPool {
            name: name.to_owned(),
            active: info.state == sys::VIR_STORAGE_POOL_RUNNING,
            xml,
        }))
    }

    fn refresh_pool(&self, name: &str) -> Result<()> {
        let pool = self.existing_pool(name)?;
        self.retry_busy(|| {
            self.attempt(
                "virStoragePoolRefresh",
                &About("pool", &name),
                self.limits.rpc,
                || pool.refresh(0),
            )
        })
        .map_err(|failure| self.error(&failure))
    }

    fn list_volumes(&self, name: &str) -> Result<Vec<String>> {
        let pool = self.existing_pool(name)?;
        let about = About("pool", &name);
        let volumes = self.rpc("virStoragePoolListAllVolumes", &about, || {
            pool.list_all_volumes(0)
        })?;
        let mut names = Vec::with_capacity(volumes.len());
        for volume in volumes {
            // The name is part of the handle: no call to the daemon. The handle saves the look-up by name later.
            let volume_name = self.local(volume.name())?;
            lock(&self.volumes).insert((name.to_owned(), volume_name.clone()), volume);
            names.push(volume_name);
        }
        names.sort();
        Ok(names)
    }

    fn find_volume_xml(&self, pool: &str, name: &str) -> Result<Option<String>> {
        let Some(volume) = self.volume(pool, name)? else {
            return Ok(None);
        };
        let about = AboutVolume(pool, name);
        let xml = self.find("virStorageVolGetXMLDesc", &about, NO_STORAGE_VOL, || {
            volume.xml_desc(0)
        })?;
        if xml.is_none() {
            self.forget_volume(pool, name);
        }
        Ok(xml)
    }

    fn create_volume(&self, pool: &str, name: &str, xml: &str) -> Result<bool> {
        log::debug!("host={} pool={pool} create volume xml={xml}", self.host);
        let handle = self.existing_pool(pool)?;
        let about = AboutVolume(pool, name);
        let created = self.retry_busy(|| {
            self.attempt("virStorageVolCreateXML", &about, self.limits.rpc, || {
                StorageVol::create_xml(&handle, xml, 0)
            })
        });
        match created {
            Ok(volume) => {
                lock(&self.volumes).insert((pool.to_owned(), name.to_owned()), volume);
                Ok(true)
            }
            Err(failure) if failure.is(STORAGE_VOL_EXIST) => Ok(false),
            Err(failure) if failure.is(OPERATION_INVALID) && self.appears(pool, name) => Ok(false),
            Err(failure) => Err(self.error(&failure)),
        }
    }

    fn count_volumes(&self, name: &str) -> Result<u32> {
        let pool = self.existing_pool(name)?;
        self.rpc("virStoragePoolNumOfVolumes", &About("pool", &name), || {
            pool.num_of_volumes()
        })
    }

    fn volume_key(&self, pool: &str, name: &str) -> Result<String> {
        let volume = self.existing_volume(pool, name)?;
        self.local(volume.key())
    }

    fn know_volume(&self, pool: &str, name: &str, key: &str) -> Result<()> {
        let of = (pool.to_owned(), name.to_owned());
        let _asking = lock(&self.lookup);
        if lock(&self.volumes).contains_key(&of) {
            return Ok(());
        }
        let volume = self.rpc("virStorageVolLookupByKey", &AboutVolume(pool, name), || {
            self.connect().lookup_storage_vol_by_key(key)
        })?;
        lock(&self.volumes).insert(of, volume);
        Ok(())
    }

    fn volume_path(&self, pool: &str, name: &str) -> Result<String> {
        let volume = self.existing_volume(pool, name)?;
        self.rpc("virStorageVolGetPath", &AboutVolume(pool, name), || {
            volume.path()
        })
    }

    fn upload_volume(
        &self,
        pool: &str,
        name: &str,
        offset: u64,
        length: u64,
    ) -> Result<Box<dyn VolumeUpload + '_>> {
        let volume = self.existing_volume(pool, name)?;
        let about = AboutVolume(pool, name);
        let under_way = self.streams.begin();
        let open = || {
            let stream = Stream::new(self.connect(), 0)?;
            volume.upload(&stream, offset, length, 0)?;
            Ok(stream)
        };
        let stream = self
            .retry_busy(|| self.attempt("virStorageVolUpload", &about, self.limits.rpc, open))
            .map_err(|failure| self.error(&failure))?;
        Ok(Box::new(Upload {
            connection: self,
            stream: Some(stream),
            about: about.to_string(),
            _under_way: under_way,
        }))
    }

    fn read_volume(
        &self,
        pool: &str,
        name: &str,
        offset: u64,
        limit: usize,
    ) -> Result<Option<Vec<u8>>> {
        let Some(volume) = self.volume(pool, name)? else {
            return Ok(None);
        };
        let mut read = self.download(&volume, &AboutVolume(pool, name), offset, limit);
        for _ in 0..OVERTAKEN_RETRIES {
            if self.cancel.is_set() || !read.as_ref().is_err_and(Failure::was_overtaken) {
                break;
            }
            let beside = self.open_beside()?;
            let Some(volume) = beside.volume(pool, name)? else {
                return Ok(None);
            };
            read = beside.download(&volume, &AboutVolume(pool, name), offset, limit);
        }
        match read {
            Ok(read) => Ok(Some(read)),
            Err(failure) if failure.is(NO_STORAGE_VOL) || failure.is_missing_file() => {
                self.forget_volume(pool, name);
                if failure.is_missing_file() {
                    // Somebody deleted the file behind libvirt's back: it goes on showing the volume until it looks.
                    self.refresh_pool(pool)?;
                }
                Ok(None)
            }
            Err(failure) => Err(self.error(&failure)),
        }
    }

    fn delete_volume(&self, pool: &str, name: &str) -> Result<bool> {
        let Some(volume) = self.volume(pool, name)? else {
            return Ok(false);
        };
        let about = AboutVolume(pool, name);
        self.forget_volume(pool, name);
        let deleted = self.retry_busy(|| {
            self.attempt("virStorageVolDelete", &about, self.limits.rpc, || {
                volume.delete(0)
            })
        });
        match deleted {
            Ok(()) => Ok(true),
            Err(failure) if failure.is(NO_STORAGE_VOL) => Ok(false),
            Err(failure) => Err(self.error(&failure)),
        }
    }
}

fn receive(stream: &Stream, limit: usize) -> super::VirtResult<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = usize::try_from(stream.recv(&mut buffer)?).unwrap_or(0);
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..count]);
    }
    raw::finish(stream)?;
    bytes.truncate(limit);
    Ok(bytes)
}

/// A volume being written over one stream.
struct Upload<'a> {
    connection: &'a Connection,
    stream: Option<Stream>,
    about: String,
    /// Until it is finished or aborted: the field goes after the struct's own drop.
    _under_way: UnderWay<'a>,
}

impl VolumeUpload for Upload<'_> {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        match &self.stream {
            Some(stream) => self.connection.send(stream, &self.about, data),
            None => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        match self.stream.take() {
            Some(stream) => {
                let connection = self.connection;
                let limit = connection.limits.stream;
                connection
                    .attempt("virStreamFinish", &self.about, limit, || {
                        raw::finish(&stream)
                    })
                    .map_err(|failure| connection.error(&failure))
            }
            None => Ok(()),
        }
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            let _armed = self.connection.watchdog.arm(CLOSE_LIMIT);
            let _ = stream.abort();
        }
    }
}
