//! `egressctl probe`.

use std::net::SocketAddr;
use std::time::Instant;

use super::{Asked, Context, Stopped};
use crate::cli::ProbeArgs;
use crate::error::{Class, Error, Reason, Result};
use crate::output::{Document, ProbeRecord};
use crate::probe::{Fetched, fetch, through};
use crate::reach::{self, Way};
use crate::url::{self, SecretUrl};

pub(super) fn run(args: &ProbeArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<ProbeRecord>()?;
    url::check(args.url.expose())
        .map_err(|why| Error::usage(Reason::BadArgument, format!("--url: {why}")))?;
    let target = &args.target;
    context.meant(&target.name, target.zone.as_deref())?;
    let (record, errors) = match probe(args, context) {
        Ok((record, failure)) => (record, Vec::from_iter(failure)),
        Err(Stopped(errors)) => return Ok(context.ui.failures::<ProbeRecord>(errors)),
    };
    let items = vec![record];
    Ok(context.ui.show(Document { items, errors }))
}

/// What came through the proxy, and why that is a failure, if it is one.
fn probe(args: &ProbeArgs, context: &Context<'_>) -> Asked<(ProbeRecord, Option<Error>)> {
    let (host, instance) = context.answering(&args.target)?;
    let (instance, ip) = context.with_address(host, instance)?;
    // An agent that hung has cost the first connection.
    let hypervisor = host.connect()?;
    let proxy = SocketAddr::new(ip, args.port);
    let id = instance.id();
    let unhealthy = |error: Error| {
        error
            .on_host(host.name())
            .hint(format!("egressctl exec {id} -- ss -ltn"))
            .hint(format!("egressctl logs {id}"))
    };
    let way =
        reach::find(host, &*hypervisor, ip, args.port, args.via.into()).map_err(
            |error| match error.reason() {
                Reason::ConnectFailed => unhealthy(
                    error
                        .with_class(Class::Unhealthy)
                        .with_reason(Reason::ProbeFailed),
                ),
                _ => error,
            },
        )?;
    let fetch = |proxy| fetch(proxy, &args.url, args.timeout, &host.cancels().work);
    let fetched = match way {
        Way::Direct => fetch(proxy),
        Way::Host => {
            let began = Instant::now();
            let left = || args.timeout.saturating_sub(began.elapsed());
            let connect = || hypervisor.connect_tcp(ip, args.port, left());
            through(&connect, fetch)
        }
    }
    .map_err(|error| match error.class() {
        Class::Unhealthy => unhealthy(error),
        _ => error,
    })?;
    let failure = failure(&fetched, &args.url).map(unhealthy);
    let record = ProbeRecord::new(&instance, proxy, &args.url, way, &fetched);
    Ok((record, failure))
}

/// An answer that says that it didn't work: the proxy's own, or the page's.
fn failure(fetched: &Fetched, url: &SecretUrl) -> Option<Error> {
    (fetched.status >= 400).then(|| {
        Error::new(
            Class::Unhealthy,
            Reason::ProbeFailed,
            format!("the answer for {url} has status {}", fetched.status),
        )
    })
}
