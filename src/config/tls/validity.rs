//! When a certificate ends. Only that field is read; whether it is trusted is for TLS itself to say.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When the first certificate of a PEM text ends; `None` if there is none that can be read.
pub fn ends_at(pem: &[u8]) -> Option<Timestamp> {
    let certificate = CertificateDer::pem_slice_iter(pem).next()?.ok()?;
    let (body, _) = expect(SEQUENCE, &certificate)?;
    let (signed, _) = expect(SEQUENCE, body)?;
    let after_version = expect(VERSION, signed).map_or(signed, |(_, rest)| rest);
    // Serial number, algorithm, issuer.
    let validity = (0..3).try_fold(after_version, |rest, _| element(rest).map(|(.., rest)| rest))?;
    let (validity, _) = expect(SEQUENCE, validity)?;
    let (.., not_after) = element(validity)?;
    let (tag, text, _) = element(not_after)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// The first element of DER: its tag, its content, and what follows (X.690, 8.1).
fn element(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = input.split_first_chunk()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) =
            rest.split_at_checked(usize::from(first & 0x7f)).filter(|(digits, _)| digits.len() <= 4)?;
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn expect(expected: u8, input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(input)?;
    (tag == expected).then_some((content, rest))
}

/// Two digits of a year are those of 1950 to 2049 (RFC 5280, 4.1.2.5.1).
fn time(tag: u8, text: &str) -> Option<Timestamp> {
    let full = match (tag, text.get(..2)?) {
        (UTC_TIME, year) => format!("{}{text}", if year < "50" { "20" } else { "19" }),
        (GENERALIZED_TIME, _) => text.to_owned(),
        _ => return None,
    };
    let civil = DateTime::strptime("%Y%m%d%H%M%SZ", &full).ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued(year: i32) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 2, 3);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        assert_eq!(ends_at(issued(2031).as_bytes()).unwrap().to_string(), "2031-02-03T00:00:00Z");
        assert_eq!(ends_at(issued(2099).as_bytes()).unwrap().to_string(), "2099-02-03T00:00:00Z");
        let chain = issued(2031) + &issued(2040);
        assert!(ends_at(chain.as_bytes()).unwrap().to_string().starts_with("2031"), "the first is the server's own");
    }

    #[test]
    fn damaged_certificates_have_no_end() {
        assert_eq!(ends_at(b""), None);
        let der = CertificateDer::from_pem_slice(issued(2031).as_bytes()).unwrap().to_vec();
        use base64::Engine as _;
        for length in 0..der.len() {
            let text = base64::engine::general_purpose::STANDARD.encode(&der[..length]);
            let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
            let _ = ends_at(pem.as_bytes());
        }
    }
}
