//! `egressctl image …`.

use super::Context;
use crate::cli::{ImageCommand, PullArgs};
use crate::error::{Error, Result};
use crate::image::pull::{PullRequest, pull};
use crate::output::{Document, PullBars, PulledRecord};
use crate::placement;

pub(super) fn run(command: &ImageCommand, context: &Context<'_>) -> Result<Vec<Error>> {
    match command {
        ImageCommand::Pull(args) => run_pull(args, context),
    }
}

fn run_pull(args: &PullArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    let hosts = context.sessions(&placement::zones(&context.provider, &args.zone)?);
    let image = placement::image(&context.provider, Some(&args.image))?;
    let bars = PullBars::new(context.ui, &image.key);
    let request = PullRequest {
        image: &image,
        disk_limit: None,
        extra_room: 0,
        policy: args.pull.into(),
    };
    let results = pull(&request, &hosts, &bars, &context.cancels.work);
    let mut document = Document {
        items: Vec::new(),
        errors: Vec::new(),
    };
    for (host, result) in hosts.iter().zip(results) {
        match result {
            Ok(pulled) => document
                .items
                .push(PulledRecord::new(host.name(), &image.key, &pulled)),
            Err(error) => document.errors.push(error),
        }
    }
    // One cause for all hosts (a wrong checksum, a server that is down) is told once.
    document.errors.dedup();
    context.ui.document(&document)?;
    Ok(document.errors)
}
