//! Pure: the URI of a libvirt connection over a unix socket of ours.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// What stands for itself in a query's value (RFC 3986, unreserved), and the slash, which may (section 3.4).
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte)
}

/// The system's QEMU, asked over that socket. libvirt decodes `%XX` in the query's values and nothing else
/// (`virURIParseParams`).
pub(super) fn over(socket: &Path) -> String {
    let mut uri = "qemu+unix:///system?socket=".to_owned();
    for &byte in socket.as_os_str().as_bytes() {
        if is_plain(byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a string can't fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn any_path_is_one_value_of_the_query() {
        let table: [(&[u8], &str); 9] = [
            (b"/tmp/egressctl-aZ09._~/s", "/tmp/egressctl-aZ09._~/s"),
            (b"/my tmp/s", "/my%20tmp/s"),
            (b"/a&b=c;d/s", "/a%26b%3Dc%3Bd/s"),
            (b"/%20/s", "/%2520/s"),
            (b"/a#b?c/s", "/a%23b%3Fc/s"),
            (b"/a+b/s", "/a%2Bb/s"),
            ("/ä€/s".as_bytes(), "/%C3%A4%E2%82%AC/s"),
            (b"/not utf-8: \xff\x01/s", "/not%20utf-8%3A%20%FF%01/s"),
            (b"/'\"/s", "/%27%22/s"),
        ];
        for (path, value) in table {
            let uri = over(Path::new(OsStr::from_bytes(path)));
            assert_eq!(uri, format!("qemu+unix:///system?socket={value}"));
        }
    }
}
