//! The files that a create reads: user-data and network-config, checked before any host is asked.

use std::path::Path;

use crate::cancel::Cancel;
use crate::cli::CreateArgs;
use crate::commands::Context;
use crate::create::CloudInit;
use crate::error::{Error, Reason, Result};
use crate::input;
use crate::seed;

/// The most that cloud-init's parts may take, in bytes; far beyond what makes sense.
const PART_LIMIT: u64 = 16 << 20;

/// cloud-init's parts from the options and the configuration.
pub(super) fn cloud_init(args: &CreateArgs, context: &Context<'_>) -> Result<CloudInit> {
    ensure_one_reads_stdin(args)?;
    let provider = &context.provider;
    provider.ensure_met()?;
    let cancel = &context.cancels.work;
    let user_data = match &args.user_data {
        Some(path) => {
            let data = read_part(path, "user-data", cancel)?;
            for warning in seed::check_user_data(&input::name(path), &data)?.warnings {
                context.ui.warn(&warning.told(&input::name(path)));
            }
            data
        }
        None => seed::DEFAULT_USER_DATA.to_vec(),
    };
    let network_config = match &args.network_config {
        Some(path) => {
            let data = read_part(path, "network-config", cancel)?;
            seed::check_network_config(&input::name(path), &data)?;
            Some(data)
        }
        None => None,
    };
    for warning in &provider.warnings {
        context.ui.warn(warning);
    }
    let vendor_data = seed::vendor_data(
        provider.install_guest_agent,
        provider.vendor_data.as_deref(),
    );
    Ok(CloudInit {
        user_data,
        vendor_data,
        network_config,
    })
}

/// The first would read all of it, and leave an empty file to the other.
fn ensure_one_reads_stdin(args: &CreateArgs) -> Result<()> {
    let both = [&args.user_data, &args.network_config];
    if both
        .into_iter()
        .all(|path| path.as_deref().is_some_and(input::is_stdin))
    {
        return Err(Error::usage(
            Reason::BadArgument,
            "--user-data and --network-config can't both be read from stdin",
        )
        .hint("put one of them into a file"));
    }
    Ok(())
}

/// Reads a file, or stdin for `-`.
fn read_part(path: &Path, what: &str, cancel: &Cancel) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| {
        Error::usage(
            Reason::InvalidUserData,
            format!("can't read {what} from {}", input::name(path)),
        )
        .because(error)
    };
    input::read(path, PART_LIMIT, cancel, failed)
}
