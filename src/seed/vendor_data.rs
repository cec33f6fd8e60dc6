//! vendor-data: the script that brings the guest agent, and what the configuration adds.
//!
//! A *script*, not cloud-config: cloud-init merges vendor-data under user-data and drops every list that
//! user-data also has, so `packages` and `runcmd` would vanish whenever the user has either. Scripts of vendor-data
//! run from a directory of their own, after the user's packages and before the user's `runcmd`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The script that installs (only if need be) and starts qemu-guest-agent; POSIX sh, ASCII.
const GUEST_AGENT: &str = include_str!("guest-agent.sh");

/// The vendor-data for an instance, or none if there is nothing to say.
///
/// The script alone; the configured part alone, byte for byte; or both in one MIME multipart, the script as
/// text/x-shellscript and the configured part as text/plain, whose kind cloud-init tells by its first line.
pub fn vendor_data(install_guest_agent: bool, configured: Option<&str>) -> Option<Vec<u8>> {
    match (install_guest_agent, configured) {
        (false, None) => None,
        (false, Some(text)) => Some(text.as_bytes().to_vec()),
        (true, None) => Some(GUEST_AGENT.as_bytes().to_vec()),
        (true, Some(text)) => Some(multipart(text).into_bytes()),
    }
}

fn multipart(configured: &str) -> String {
    let (encoding, body) = transfer(configured);
    let boundary = boundary(&[GUEST_AGENT, &body]);
    let part = |kind: &str, name: &str, encoding: &str, body: &str| {
        format!(
            "--{boundary}\n\
             Content-Type: {kind}; charset=\"utf-8\"\n\
             Content-Transfer-Encoding: {encoding}\n\
             Content-Disposition: attachment; filename=\"{name}\"\n\
             \n\
             {body}\n"
        )
    };
    // cloud-init takes for MIME what has this header in its first 4096 bytes.
    format!(
        "MIME-Version: 1.0\n\
         Content-Type: multipart/mixed; boundary=\"{boundary}\"\n\
         \n\
         {}{}--{boundary}--\n",
        part(
            "text/x-shellscript",
            "egressctl-guest-agent.sh",
            "7bit",
            GUEST_AGENT
        ),
        part("text/plain", "vendor-data", encoding, &body),
    )
}

/// A transfer encoding under which the text arrives as it is: none for plain ASCII lines, else base64.
fn transfer(text: &str) -> (&'static str, String) {
    let plain = text.is_ascii() && !text.contains(['\r', '\0']);
    if plain && text.lines().all(|line| line.len() <= 998) {
        return ("7bit", text.to_owned());
    }
    let encoded = BASE64.encode(text);
    let mut lines = String::with_capacity(encoded.len() + encoded.len() / 76 + 1);
    for (at, letter) in encoded.chars().enumerate() {
        if at > 0 && at % 76 == 0 {
            lines.push('\n');
        }
        lines.push(letter);
    }
    ("base64", lines)
}

/// A boundary that none of the parts contains (RFC 2046 section 5.1.1), the same for the same parts.
fn boundary(parts: &[&str]) -> String {
    let mut boundary = "==egressctl==".to_owned();
    while parts.iter().any(|part| part.contains(&boundary)) {
        boundary.push('=');
    }
    boundary
}
