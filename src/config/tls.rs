//! The certificate of the health server.

mod self_signed;
mod validity;

pub use self_signed::self_signed;
pub use validity::ends_at;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::checker::Checker;
use super::file::ServerSection;
use super::secret::Secret;
use super::source::ConfigPurpose;

const CERTIFICATE: &str = "server.tls_cert_file";
const KEY: &str = "server.tls_key_file";

/// The files that are named.
pub(super) fn key_files(section: &ServerSection) -> [&Option<PathBuf>; 2] {
    [&section.tls_cert_file, &section.tls_key_file]
}

/// What both files hold, if both are named and fit together.
pub(super) fn files(c: &mut Checker<'_>, section: &ServerSection, allow_readable: bool) -> Option<(String, Secret)> {
    let (certificate, key) = match key_files(section) {
        [None, None] => return None,
        [Some(_), None] => {
            c.bad_with(KEY, "is missing", Some("tls_cert_file needs the private key of its certificate"));
            return None;
        }
        [None, Some(_)] => {
            c.bad_with(CERTIFICATE, "is missing", Some("tls_key_file needs the certificate of its key"));
            return None;
        }
        // Only a server needs them.
        [Some(_), Some(_)] if c.source.purpose != ConfigPurpose::Here => return None,
        [Some(certificate), Some(key)] => (certificate, key),
    };
    let certificate = c.key_file(CERTIFICATE, certificate, true)?;
    let key = c.key_file(KEY, key, allow_readable)?;
    match server_config(certificate.expose(), &key) {
        Ok(_) => Some((certificate.expose().to_owned(), key)),
        Err(why) => {
            c.bad(CERTIFICATE, why);
            None
        }
    }
}

/// What TLS is served with.
///
/// # Errors
/// What is wrong with the certificate or the key, without their content; goes on after the name of the key.
pub fn server_config(certificate: &str, key: &Secret) -> Result<Arc<ServerConfig>, String> {
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let chain = chain.map_err(|_| "names a file with a damaged certificate".to_owned())?;
    if chain.is_empty() {
        return Err("names a file without a certificate in PEM form".to_owned());
    }
    // The error could hold a part of the key.
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
        .map_err(|_| "comes with a tls_key_file without a private key in PEM form".to_owned())?;
    serve_with(chain, key).map_err(|error| format!("does not fit tls_key_file: {error}"))
}

fn serve_with(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    #[test]
    fn certificate_and_key_belong_together() {
        let make = || generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let CertifiedKey { cert, signing_key } = make();
        let (certificate, key) = (cert.pem(), Secret::new(signing_key.serialize_pem()));
        assert!(server_config(&certificate, &key).is_ok());
        let other = Secret::new(make().signing_key.serialize_pem());
        for (certificate, key, wrong) in [
            (certificate.as_str(), &other, "does not fit tls_key_file"),
            ("", &key, "without a certificate"),
            ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", &key, "damaged"),
            (certificate.as_str(), &Secret::new("nothing".into()), "without a private key"),
        ] {
            let found = server_config(certificate, key).unwrap_err();
            assert!(found.contains(wrong), "{found}");
        }
    }
}
