//! Addresses of hosts, chains of jump hosts, and the `--host` argument of `config init`.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::model::{Address, SshTarget};
use super::rules::{self, quoted};
use crate::error::{Error, Reason, Result};

/// SSH's port (RFC 4253, section 4.1).
const SSH_PORT: u16 = 22;

/// One `--host NAME=USER@ADDRESS` of `config init`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSpec {
    /// The host's name in the file, what `--zone` will name.
    pub name: String,
    /// The user to log in as.
    pub user: String,
    /// Where its sshd listens.
    pub address: Address,
}

impl std::str::FromStr for HostSpec {
    type Err = Error;

    /// Reads `nas1=virt@nas1.home.lan:22`.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |what: String| {
            Error::usage(
                Reason::BadArgument,
                format!("host {}: {what}", quoted(text)),
            )
            .hint("write it as NAME=USER@ADDRESS[:PORT], such as nas1=virt@nas1.home.lan:22")
        };
        let (name, rest) = text
            .split_once('=')
            .ok_or_else(|| bad("there is no `=` in it".to_string()))?;
        let (user, address) = rest
            .rsplit_once('@')
            .ok_or_else(|| bad("there is no `@` in it".to_string()))?;
        Ok(HostSpec {
            name: rules::host(name).map_err(|what| bad(format!("the name {what}")))?,
            user: rules::user(user).map_err(|what| bad(format!("the user {what}")))?,
            address: parse_address(address).map_err(|what| bad(format!("the address {what}")))?,
        })
    }
}

/// Reads `host`, `host:port`, an IPv4 or IPv6 address (bare, in brackets, with a scope), each with a port or
/// without; IPv6 with a port needs brackets, as the port couldn't be told from the address.
pub(crate) fn parse_address(text: &str) -> std::result::Result<Address, String> {
    if text.is_empty() {
        return Err("is empty".to_string());
    }
    if text.contains("://") {
        return Err(format!(
            "{}: give the host alone, without a scheme",
            quoted(text)
        ));
    }
    if text.contains('@') {
        return Err(format!("{}: the user goes into `user`", quoted(text)));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest
            .split_once(']')
            .ok_or_else(|| format!("{}: there is no `]`", quoted(text)))?;
        let port = match after.strip_prefix(':') {
            Some(port) => parse_port(port)?,
            None if after.is_empty() => SSH_PORT,
            None => {
                return Err(format!(
                    "{}: after `]` comes `:port` or nothing",
                    quoted(text)
                ));
            }
        };
        return Ok(Address {
            host: parse_v6(inside)?,
            port,
        });
    }
    match text.split_once(':') {
        None => Ok(Address {
            host: parse_name(text)?,
            port: SSH_PORT,
        }),
        Some((host, port)) if !port.contains(':') => Ok(Address {
            host: parse_name(host)?,
            port: parse_port(port)?,
        }),
        Some(_) => Ok(Address {
            host: parse_v6(text)?,
            port: SSH_PORT,
        }),
    }
}

/// Reads `[user@]host[:port]`, several separated by commas, the first of them dialled first, into the nested form
/// that leads to the last; `user` is who to be where none is named.
pub(crate) fn parse_jumps(text: &str, user: &str) -> std::result::Result<SshTarget, String> {
    if text.eq_ignore_ascii_case("none") {
        return Err("leave the key out to go without a jump host".to_string());
    }
    let mut chain: Option<SshTarget> = None;
    for hop in text.split(',') {
        let hop = hop.trim();
        let (user, address) = match hop.rsplit_once('@') {
            Some((user, address)) => (
                rules::user(user).map_err(|what| format!("the user {what}"))?,
                address,
            ),
            None => (user.to_string(), hop),
        };
        let address = parse_address(address)?;
        chain = Some(SshTarget {
            address,
            user,
            jump: chain.map(Box::new),
        });
    }
    chain.ok_or_else(|| "is empty".to_string())
}

fn parse_port(text: &str) -> std::result::Result<u16, String> {
    match text.parse::<u16>() {
        Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
        _ => Err(format!("{} is no port; ports are 1 to 65535", quoted(text))),
    }
}

/// An IPv6 address in its canonical spelling (RFC 5952), as `ssh-keyscan` and `known_hosts` files have it.
fn parse_v6(text: &str) -> std::result::Result<String, String> {
    let (address, scope) = match text.split_once('%') {
        Some((address, scope)) => (address, Some(scope)),
        None => (text, None),
    };
    let parsed: Ipv6Addr = address
        .parse()
        .map_err(|_| format!("{} is no IPv6 address, nor host:port", quoted(text)))?;
    let Some(scope) = scope else {
        return Ok(parsed.to_string());
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    if scope.is_empty() || scope.len() > 15 || !scope.chars().all(fits) {
        return Err(format!(
            "{}: after `%` comes an interface's name",
            quoted(text)
        ));
    }
    Ok(format!("{parsed}%{scope}"))
}

/// A host name (RFC 1123, and `_`, which is met in private zones) or an IPv4 address.
fn parse_name(text: &str) -> std::result::Result<String, String> {
    let bad = || {
        format!(
            "{} is no host name: labels of letters, digits, `-` and `_`, separated by dots",
            quoted(text)
        )
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        return Err(bad());
    }
    // Resolvers read `10` and `10.1` as addresses too, and rarely as the ones meant.
    let numeric = name
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    if numeric && text.parse::<Ipv4Addr>().is_err() {
        return Err(format!("{} is no IPv4 address", quoted(text)));
    }
    Ok(text.to_string())
}
