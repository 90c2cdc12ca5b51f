//! A certificate for a server that is given none: it encrypts, but does not prove the server's identity.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

const NAMES: [&str; 2] = ["alicloud-ccm", "localhost"];

/// What TLS is served with where no certificate is configured. Each call makes another key, which stays in memory. The
/// certificate is valid whatever the clocks say, from 1975 to 4096.
///
/// # Errors
/// If the system has no random numbers, or the key cannot be used; in words.
pub fn self_signed() -> Result<Arc<ServerConfig>, String> {
    let (certificate, key) = make().map_err(|why| format!("a certificate for TLS cannot be made: {why}"))?;
    super::serve_with(vec![certificate], key.into())
        .map_err(|error| format!("the certificate that was made for TLS cannot be used: {error}"))
}

fn make() -> Result<(CertificateDer<'static>, PrivatePkcs8KeyDer<'static>), rcgen::Error> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(NAMES.map(str::to_owned))?;
    Ok((cert.into(), signing_key.serialize_der().into()))
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    fn the_certificate_is_whole_signed_and_of_both_names() {
        let (certificate, _) = make().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        for (name, right) in [("alicloud-ccm", true), ("localhost", true), ("example.com", false)] {
            let name = ServerName::try_from(name).unwrap();
            let verified = verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now());
            assert_eq!(verified.is_ok(), right, "{name:?}: {verified:?}");
        }
        assert!(self_signed().is_ok());
    }

    #[test]
    fn no_two_are_the_same() {
        let (one, other) = (make().unwrap(), make().unwrap());
        assert_ne!(one.0, other.0);
        assert_ne!(one.1, other.1);
    }
}
