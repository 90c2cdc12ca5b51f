//! Certificates, and the additional ones (domain extensions) of HTTPS listeners.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use super::Slb;
use crate::alibaba::actions::{
    CREATE_DOMAIN_EXTENSION, DELETE_DOMAIN_EXTENSION, DESCRIBE_CERTIFICATES, DESCRIBE_DOMAIN_EXTENSIONS,
    SET_DOMAIN_EXTENSION,
};
use crate::alibaba::decode::{Int, List, Text};
use crate::alibaba::signing::Params;
use crate::alibaba::{Fault, FaultKind};
use crate::fence::Permit;
use crate::plan::clb::observed::{CertificateState, ObservedDomainExtension};

impl Slb {
    /// Domain extensions of an HTTPS listener, by domain.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_domain_extensions(
        &self,
        id: &str,
        port: u16,
    ) -> Result<BTreeMap<String, ObservedDomainExtension>, Fault> {
        let params = Params::new().with("LoadBalancerId", id).with("ListenerPort", port);
        let body: ExtensionsBody = self.0.read(DESCRIBE_DOMAIN_EXTENSIONS, params).await?.decode()?;
        let extension = |body: ExtensionBody| {
            let observed = ObservedDomainExtension {
                id: body.domain_extension_id.0,
                certificate_id: body.server_certificate_id.0,
            };
            (body.domain.0, observed)
        };
        Ok(body.domain_extensions.0.into_iter().map(extension).collect())
    }

    /// Adds a certificate for a domain; returns the id of the extension.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_domain_extension(
        &self,
        permit: &Permit,
        id: &str,
        port: u16,
        domain: &str,
        certificate_id: &str,
    ) -> Result<String, Fault> {
        let params = Params::new()
            .with("LoadBalancerId", id)
            .with("ListenerPort", port)
            .with("Domain", domain)
            .with("ServerCertificateId", certificate_id);
        let answer = self.0.write(permit, CREATE_DOMAIN_EXTENSION, params).await?;
        let nameless = answer.bug("the answer does not say which domain extension was made");
        let body: ExtensionBody = answer.decode()?;
        if body.domain_extension_id.0.is_empty() { Err(nameless) } else { Ok(body.domain_extension_id.0) }
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
        let params = Params::new().with("DomainExtensionId", extension_id).with("ServerCertificateId", certificate_id);
        self.0.write(permit, SET_DOMAIN_EXTENSION, params).await.map(drop)
    }

    /// Removes the certificate of a domain.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_domain_extension(&self, permit: &Permit, extension_id: &str) -> Result<(), Fault> {
        let params = Params::new().with("DomainExtensionId", extension_id);
        self.0.write(permit, DELETE_DOMAIN_EXTENSION, params).await.map(drop)
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
        let params = Params::new().with("ServerCertificateId", certificate_id);
        let body: CertificatesBody = match self.0.read(DESCRIBE_CERTIFICATES, params).await {
            Ok(answer) => answer.decode()?,
            Err(fault) if fault.kind == FaultKind::Gone => return Ok(CertificateState::Missing),
            Err(fault) => return Err(fault),
        };
        let mut certificates = body.server_certificates.0.into_iter();
        let Some(certificate) = certificates.find(|certificate| certificate.server_certificate_id.0 == certificate_id)
        else {
            return Ok(CertificateState::Missing);
        };
        let expired = certificate.ends().is_some_and(|end| end <= crate::clock::now());
        Ok(if expired { CertificateState::Expired } else { CertificateState::Valid })
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ExtensionsBody {
    domain_extensions: List<ExtensionBody>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ExtensionBody {
    domain_extension_id: Text,
    domain: Text,
    server_certificate_id: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct CertificatesBody {
    server_certificates: List<CertificateBody>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct CertificateBody {
    server_certificate_id: Text,
    expire_time: Text,
    /// Milliseconds since 1970.
    expire_time_stamp: Int,
}

impl CertificateBody {
    /// `None` if the answer does not say.
    fn ends(&self) -> Option<Timestamp> {
        match self.expire_time_stamp.0 {
            0 => self.expire_time.0.parse().ok(),
            milliseconds => Timestamp::from_millisecond(milliseconds).ok(),
        }
    }
}
