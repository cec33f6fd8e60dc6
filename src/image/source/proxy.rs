//! Which proxy a URL is fetched by way of, from the usual environment variables.
//!
//! Decided here and not by the HTTP client, so that an error can name the proxy that was used.

use std::net::IpAddr;

use reqwest::Url;

/// The proxies of the environment.
#[derive(Debug, Clone, Default)]
pub(super) struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    exempt: Vec<String>,
}

/// One proxy and the variable that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    /// The variable.
    pub(super) variable: &'static str,
    /// Its value.
    value: String,
    /// The proxy's URL; none where it can't be used: SOCKS, or no URL at all.
    pub(super) url: Option<Url>,
}

impl Proxies {
    /// From the environment. As with curl, lower case wins, and `HTTP_PROXY` doesn't count where a web server could
    /// have set it from a request's header (`REQUEST_METHOD` is there).
    pub(super) fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let first = |variables: &[&'static str]| {
            variables.iter().find_map(|variable| {
                let value = env(variable).filter(|value| !value.trim().is_empty())?;
                Some(Proxy::new(variable, value.trim()))
            })
        };
        let by_request = env("REQUEST_METHOD").is_some();
        let http: &[&str] = if by_request {
            &["http_proxy"]
        } else {
            &["http_proxy", "HTTP_PROXY"]
        };
        let all = first(&["all_proxy", "ALL_PROXY"]);
        let set = |name| env(name).filter(|value| !value.trim().is_empty());
        let exempt = set("no_proxy").or_else(|| set("NO_PROXY"));
        Proxies {
            http: first(http).or_else(|| all.clone()),
            https: first(&["https_proxy", "HTTPS_PROXY"]).or(all),
            exempt: exempt
                .unwrap_or_default()
                .split([',', ' '])
                .filter(|entry| !entry.is_empty())
                .map(str::to_ascii_lowercase)
                .collect(),
        }
    }

    /// The proxy for this URL, if any.
    pub(super) fn of(&self, url: &Url) -> Option<&Proxy> {
        let proxy = match url.scheme() {
            "http" => self.http.as_ref(),
            "https" => self.https.as_ref(),
            _ => None,
        }?;
        let host = url.host_str()?.trim_matches(['[', ']']);
        let port = url.port_or_known_default();
        let exempt = self.exempt.iter().any(|entry| exempts(entry, host, port));
        (!exempt).then_some(proxy)
    }
}

impl Proxy {
    fn new(variable: &'static str, value: &str) -> Self {
        let text = if value.contains("://") {
            value.to_owned()
        } else {
            format!("http://{value}")
        };
        let url = Url::parse(&text)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        Proxy {
            variable,
            value: value.to_owned(),
            url,
        }
    }

    /// For messages, without credentials.
    pub(super) fn shown(&self) -> String {
        if let Some(url) = &self.url {
            return format!("{} (from {})", crate::url::shown(url), self.variable);
        }
        // What can't be parsed may hold a password anywhere.
        let (scheme, _) = self.value.split_once("://").unwrap_or(("?", ""));
        format!("of {} ({scheme}://…)", self.variable)
    }
}

/// Whether an entry of `NO_PROXY` covers the host: `*`, a domain and all below it (with or without a leading dot),
/// an address, a network in CIDR form; a domain or IPv4 address may have a port.
fn exempts(entry: &str, host: &str, port: Option<u16>) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>()
        && let Some(inside) = in_network(entry, address)
    {
        return inside;
    }
    let (name, wanted) = match entry.split_once(':') {
        Some((name, digits)) => (name, digits.parse::<u16>().ok()),
        None => (entry, None),
    };
    if wanted.is_some() && wanted != port {
        return false;
    }
    let name = name.strip_prefix('*').unwrap_or(name);
    let name = name.strip_prefix('.').unwrap_or(name);
    let below = |host: &str| {
        host.strip_suffix(name)
            .is_some_and(|rest| rest.ends_with('.'))
    };
    !name.is_empty() && (host == name || below(host))
}

/// Whether the address is in the network that the entry names; none where it names no network or address.
fn in_network(entry: &str, address: IpAddr) -> Option<bool> {
    let (network, bits) = match entry.split_once('/') {
        Some((network, bits)) => (network, Some(bits.parse::<u32>().ok()?)),
        None => (entry, None),
    };
    let network: IpAddr = network.trim_matches(['[', ']']).parse().ok()?;
    let (network, address, width) = match (network, address) {
        (IpAddr::V4(n), IpAddr::V4(a)) => (u128::from(n.to_bits()), u128::from(a.to_bits()), 32),
        (IpAddr::V6(n), IpAddr::V6(a)) => (n.to_bits(), a.to_bits(), 128),
        _ => return Some(false),
    };
    let ignored = width - bits.unwrap_or(width).min(width);
    let shifted = |bits: u128| bits.checked_shr(ignored).unwrap_or(0);
    Some(shifted(network) == shifted(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        Proxies::from_env(&|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    type Variables = &'static [(&'static str, &'static str)];

    #[test]
    fn the_usual_variables_choose_the_proxy() {
        let table: [(Variables, &str, Option<&str>); 10] = [
            (&[], "http://a/", None),
            (
                &[("http_proxy", "http://p:1")],
                "http://a/",
                Some("http_proxy"),
            ),
            (&[("HTTP_PROXY", "p:1")], "http://a/", Some("HTTP_PROXY")),
            (
                &[("HTTP_PROXY", "p:1"), ("REQUEST_METHOD", "GET")],
                "http://a/",
                None,
            ),
            (&[("http_proxy", "p:1")], "https://a/", None),
            (
                &[("https_proxy", "p:1"), ("HTTPS_PROXY", "q:1")],
                "https://a/",
                Some("https_proxy"),
            ),
            (&[("HTTPS_PROXY", "q:1")], "https://a/", Some("HTTPS_PROXY")),
            (
                &[("ALL_PROXY", "q:1"), ("http_proxy", "")],
                "http://a/",
                Some("ALL_PROXY"),
            ),
            (
                &[("http_proxy", "p:1"), ("NO_PROXY", "a")],
                "http://a/",
                None,
            ),
            (
                &[("http_proxy", "p:1"), ("no_proxy", "b"), ("NO_PROXY", "a")],
                "http://a/",
                Some("http_proxy"),
            ),
        ];
        for (variables, url, wanted) in table {
            let proxies = proxies(variables);
            let found = proxies.of(&Url::parse(url).unwrap());
            assert_eq!(
                found.map(|proxy| proxy.variable),
                wanted,
                "{variables:?} {url}"
            );
        }
    }

    #[test]
    fn no_proxy_exempts_domains_addresses_and_networks() {
        let table = [
            ("*", "example.net", true),
            ("example.net", "example.net", true),
            ("example.net", "www.example.net", true),
            (".example.net", "www.example.net", true),
            ("*.example.net", "www.example.net", true),
            ("example.net", "notexample.net", false),
            ("example.net:80", "example.net", true),
            ("example.net:8080", "example.net", false),
            ("192.168.1.7", "192.168.1.7", true),
            ("192.168.1.0/24", "192.168.1.42", true),
            ("192.168.1.0/24", "192.168.2.42", false),
            ("0.0.0.0/0", "192.168.2.42", true),
            ("fd00::/8", "fd12::1", true),
            ("::1", "::1", true),
            ("192.168.1.0/24", "::1", false),
            ("", "example.net", false),
            (".", "example.net", false),
        ];
        for (entry, host, wanted) in table {
            assert_eq!(exempts(entry, host, Some(80)), wanted, "{entry} {host}");
        }
    }

    #[test]
    fn messages_never_show_a_proxys_password() {
        let proxies = proxies(&[
            ("http_proxy", "http://me:secret@p:3128"),
            ("https_proxy", "socks5h://me:secret@p:1080"),
        ]);
        let http = proxies.of(&Url::parse("http://a/").unwrap()).unwrap();
        assert_eq!(http.shown(), "http://p:3128/ (from http_proxy)");
        let socks = proxies.of(&Url::parse("https://a/").unwrap()).unwrap();
        assert_eq!(socks.url, None);
        assert_eq!(socks.shown(), "of https_proxy (socks5h://…)");
    }
}
