//! Certificates, and the additional ones (domain extensions) of HTTPS listeners.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Clb;
use crate::alibaba::actions::{
    CREATE_DOMAIN_EXTENSION, DELETE_DOMAIN_EXTENSION, DESCRIBE_CERTIFICATES, DESCRIBE_DOMAIN_EXTENSIONS,
    SET_DOMAIN_EXTENSION,
};
use crate::alibaba::answer::{Fields, Mismatch};
use crate::alibaba::fault::{Fault, FaultKind};
use crate::fence::Permit;
use crate::plan::clb::observed::{CertificateState, ObservedDomainExtension};

impl Clb {
    /// Domain extensions of an HTTPS listener, by domain.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_domain_extensions(
        &self,
        id: &str,
        port: u16,
    ) -> Result<BTreeMap<String, ObservedDomainExtension>, Fault> {
        let request = self.0.read(DESCRIBE_DOMAIN_EXTENSIONS).with("LoadBalancerId", id).with("ListenerPort", port);
        Ok(request.all("DomainExtensions", domain_extension).await?.into_iter().collect())
    }

    /// Adds a certificate for a domain, such as `*.example.com`, to the HTTPS listener at a port of an instance; gives the id
    /// of the extension.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_domain_extension(
        &self,
        permit: &Permit,
        (id, port): (&str, u16),
        domain: &str,
        certificate_id: &str,
    ) -> Result<String, Fault> {
        self.0
            .write(permit, CREATE_DOMAIN_EXTENSION)
            .with("LoadBalancerId", id)
            .with("ListenerPort", port)
            .with("Domain", domain)
            .with("ServerCertificateId", certificate_id)
            .create("DomainExtensionId")
            .await
    }

    /// Changes the certificate of a domain.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_domain_extension(
        &self,
        permit: &Permit,
        extension_id: &str,
        certificate_id: &str,
    ) -> Result<(), Fault> {
        let request = self.0.write(permit, SET_DOMAIN_EXTENSION).with("DomainExtensionId", extension_id);
        request.with("ServerCertificateId", certificate_id).done().await
    }

    /// Removes the certificate of a domain.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_domain_extension(&self, permit: &Permit, extension_id: &str) -> Result<(), Fault> {
        self.0.write(permit, DELETE_DOMAIN_EXTENSION).with("DomainExtensionId", extension_id).done().await
    }

    /// Looks a certificate up.
    ///
    /// # Errors
    /// As any call.
    pub async fn certificate_state(&self, certificate_id: &str) -> Result<CertificateState, Fault> {
        if certificate_id.is_empty() {
            // Without an id the API lists all certificates.
            return Ok(CertificateState::Missing);
        }
        let request = self.0.read(DESCRIBE_CERTIFICATES).with("ServerCertificateId", certificate_id);
        let certificate = |body: Fields<'_>| Ok((body.text("ServerCertificateId")?, expiry(body)?));
        let certificates = match request.all("ServerCertificates", certificate).await {
            Ok(certificates) => certificates,
            Err(fault) if fault.kind == FaultKind::Gone => return Ok(CertificateState::Missing),
            Err(fault) => return Err(fault),
        };
        Ok(match certificates.into_iter().find(|(id, _)| id == certificate_id) {
            None => CertificateState::Missing,
            Some((_, Some(expiry))) if expiry <= crate::clock::now() => CertificateState::Expired,
            Some(_) => CertificateState::Valid,
        })
    }
}

fn domain_extension(body: Fields<'_>) -> Result<(String, ObservedDomainExtension), Mismatch> {
    let (id, certificate_id) = (body.text("DomainExtensionId")?, body.text("ServerCertificateId")?);
    Ok((body.text("Domain")?, ObservedDomainExtension { id, certificate_id }))
}

/// `None` if the answer does not say. Numbers are milliseconds since 1970.
fn expiry(body: Fields<'_>) -> Result<Option<Timestamp>, Mismatch> {
    Ok(match body.number("ExpireTimeStamp")? {
        0 => body.text("ExpireTime")?.parse().ok(),
        milliseconds => Timestamp::from_millisecond(milliseconds).ok(),
    })
}
