//! One HTTP request: what is asked for, which redirects and proxies are taken, and what a failure means.

use std::sync::Arc;
use std::time::Duration;

use reqwest::blocking::{Client, Response};
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use reqwest::{StatusCode, Url, redirect};

use super::proxy::Proxies;
use crate::error::{Class, Error, Reason, Result};
use crate::url::shown;

/// How many redirects are followed.
const REDIRECTS: usize = 10;

/// How long a download waits for what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For a connection, TLS included.
    pub(super) connect: Duration,
    /// For the headers, and then for each next byte. There is no limit on the whole.
    pub(super) stall: Duration,
    /// Before the second try; doubled each time.
    pub(super) back_off: Duration,
    /// The longest `Retry-After` that is waited for.
    pub(super) retry_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            back_off: Duration::from_secs(1),
            retry_after: Duration::from_secs(60),
        }
    }
}

/// What became of one try.
pub(super) type Tried<T> = std::result::Result<T, Failure>;

/// Why a request came to nothing.
pub(super) struct Failure {
    /// For the person at the terminal.
    pub(super) error: Error,
    /// Whether another try may go better.
    pub(super) again: bool,
    /// What the server asks to wait before (RFC 9110, section 10.2.3).
    pub(super) after: Option<Duration>,
}

impl Failure {
    /// One that another try may get over.
    pub(super) fn passing(error: Error) -> Self {
        Failure {
            error,
            again: true,
            after: None,
        }
    }

    /// One that would only repeat itself.
    pub(super) fn lasting(error: Error) -> Self {
        Failure {
            error,
            again: false,
            after: None,
        }
    }
}

/// A client for downloads.
pub(super) struct Http {
    client: Client,
    proxies: Arc<Proxies>,
    /// Its time limits.
    pub(super) limits: Limits,
}

impl Http {
    /// A client with the system's trusted CAs (and OpenSSL's `SSL_CERT_FILE` and `SSL_CERT_DIR`).
    pub(super) fn new(limits: Limits, proxies: Proxies) -> Result<Self> {
        let proxies = Arc::new(proxies);
        let chosen = Arc::clone(&proxies);
        let client = Client::builder()
            .user_agent(concat!("egressctl/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(limits.connect)
            // With a blocking client this is the time to the headers, and then of each read (measured).
            .timeout(limits.stall)
            .redirect(redirects(Arc::clone(&proxies)))
            .proxy(reqwest::Proxy::custom(move |url| {
                chosen.of(url).and_then(|proxy| proxy.url.clone())
            }))
            .build()
            .map_err(|error| {
                Error::transient(Reason::LocalIo, "no HTTP client could be made")
                    .because(chain(&error))
            })?;
        Ok(Http {
            client,
            proxies,
            limits,
        })
    }

    /// The client of downloads: with the usual limits, and the proxies that the environment names.
    pub(super) fn from_env() -> Result<Self> {
        let proxies = Proxies::from_env(&|name| std::env::var(name).ok());
        Http::new(Limits::default(), proxies)
    }

    /// One GET; whatever the status, the answer is given back unless it is compressed for transport.
    pub(super) fn get(&self, url: &Url, mut headers: HeaderMap) -> Tried<Response> {
        if let Some(proxy) = self.proxies.of(url).filter(|proxy| proxy.url.is_none()) {
            return Err(Failure::lasting(
                Error::permanent(
                    Reason::DownloadFailed,
                    format!("the proxy {} can't be used", proxy.shown()),
                )
                .because(format!("URL {}", shown(url)))
                .hint("only http and https proxies are supported; exempt the server with NO_PROXY"),
            ));
        }
        // Sizes and digests are of the file itself, not of a transport's compression of it.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let response = self
            .client
            .get(url.clone())
            .headers(headers)
            .send()
            .map_err(|error| self.no_answer(url, error))?;
        match response.headers().get(CONTENT_ENCODING) {
            Some(encoding) if encoding != "identity" && response.status().is_success() => {
                Err(Failure::lasting(
                    Error::permanent(
                        Reason::DownloadFailed,
                        format!("the image server insists on Content-Encoding {encoding:?}"),
                    )
                    .because(self.about(response.url()))
                    .hint("have the server send the file as it is: lengths, ranges and digests are of the file"),
                ))
            }
            _ => Ok(response),
        }
    }

    /// The URL, and the proxy on the way to it, for messages.
    pub(super) fn about(&self, url: &Url) -> String {
        match self.proxies.of(url) {
            Some(proxy) => format!("URL {}, by way of proxy {}", shown(url), proxy.shown()),
            None => format!("URL {}", shown(url)),
        }
    }

    /// No headers came.
    fn no_answer(&self, url: &Url, error: reqwest::Error) -> Failure {
        let at = self.about(error.url().unwrap_or(url));
        let (redirect, timed_out) = (error.is_redirect(), error.is_timeout());
        let unusable = error.is_builder();
        // The URL is told once, and without credentials.
        let cause = chain(&error.without_url());
        let certificate = !redirect && cause.contains("certificate");
        let refused_by_proxy = cause.contains("proxy authorization required");
        let limits = self.limits;
        let (message, hint) = if redirect {
            let message = "the image server's redirect was refused".to_owned();
            (
                message,
                "give the URL where the image is in the end, in https",
            )
        } else if timed_out {
            let message = format!(
                "the image server doesn't answer (limits: {} to connect, {} to answer)",
                humantime::format_duration(limits.connect),
                humantime::format_duration(limits.stall)
            );
            (message, CHECK_SERVER)
        } else if certificate {
            let message = "the image server's certificate is not trusted".to_owned();
            (
                message,
                "add its CA to the system's store (update-ca-certificates), or name it in SSL_CERT_FILE",
            )
        } else if refused_by_proxy {
            let message = "the proxy wants a user and password".to_owned();
            (
                message,
                "put them into its URL in https_proxy or http_proxy: http://USER:PASSWORD@PROXY:PORT",
            )
        } else {
            ("the image server can't be reached".to_owned(), CHECK_SERVER)
        };
        let again = !(redirect || unusable || certificate || refused_by_proxy);
        let class = if again {
            Class::Transient
        } else {
            Class::Permanent
        };
        let error = Error::new(class, Reason::DownloadFailed, message)
            .because(cause)
            .because(at);
        Failure {
            error: error.hint(hint),
            again,
            after: None,
        }
    }

    /// An answer with a status that isn't the one asked for.
    pub(super) fn refusal(&self, response: &Response) -> Failure {
        let status = response.status();
        let again = status.is_server_error()
            || status == StatusCode::REQUEST_TIMEOUT
            || status == StatusCode::TOO_MANY_REQUESTS;
        let class = if again {
            Class::Transient
        } else {
            Class::Permanent
        };
        let error = Error::new(
            class,
            Reason::HttpStatus,
            format!("the image server answered {status}"),
        )
        .because(self.about(response.url()));
        Failure {
            error: error.hint(after_status(status)),
            again,
            after: header(response, RETRY_AFTER).and_then(|text| wait_of(&text)),
        }
    }
}

/// What to do where no server answers.
const CHECK_SERVER: &str = "check the server's name and port in the URL, and whether this machine reaches it: a proxy on the way is named by https_proxy and http_proxy";

/// What to do after an answer that isn't the file.
fn after_status(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "the server doesn't let just anybody have it: a user and password, or a token, go into the URL"
        }
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            "a user and password for the proxy go into its URL in https_proxy or http_proxy"
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            "the server is busy: run the same command again later"
        }
        _ if status.is_server_error() => {
            "the fault is the server's: run the same command again later, or use a mirror's URL"
        }
        _ => {
            "check the URL: the file may have been moved or removed, as dated images are after a while"
        }
    }
}

/// Redirects are followed, but neither from https to http nor beyond http(s).
fn redirects(proxies: Arc<Proxies>) -> redirect::Policy {
    redirect::Policy::custom(move |attempt| {
        let target = attempt.url();
        let secured = attempt.previous().iter().any(|url| url.scheme() == "https");
        let refused = match target.scheme() {
            "http" if secured => Some(format!("from https to {}", shown(target))),
            "http" | "https" if attempt.previous().len() > REDIRECTS => {
                Some(format!("more than {REDIRECTS} redirects"))
            }
            "http" | "https" => proxies
                .of(target)
                .filter(|proxy| proxy.url.is_none())
                .map(|proxy| format!("the proxy {} can't be used", proxy.shown())),
            other => Some(format!("to a URL of scheme {other}")),
        };
        match refused {
            Some(why) => attempt.error(why),
            None => attempt.follow(),
        }
    })
}

/// `Retry-After`: seconds, or a date.
pub(super) fn wait_of(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text.trim()).ok()?;
    let left = date.timestamp().duration_since(jiff::Timestamp::now());
    Some(Duration::try_from(left).unwrap_or_default())
}

/// A header's text.
pub(super) fn header(response: &Response, name: HeaderName) -> Option<String> {
    let value = response.headers().get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

/// An error with all its sources, without repeating what a source already says.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        let more = next.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(wait_of("120"), Some(Duration::from_secs(120)));
        assert_eq!(
            wait_of("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Duration::ZERO)
        );
        let later = wait_of("Sun, 06 Nov 2095 08:49:37 GMT").unwrap();
        assert!(later > Duration::from_secs(86400));
        assert_eq!(wait_of("soon"), None);
        assert_eq!(wait_of("-1"), None);
    }
}
