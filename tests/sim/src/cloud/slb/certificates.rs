//! Server certificates and domain extensions.

use serde_json::{Value, json};

use super::super::account::{Account, DomainExtension, Listener, Protocol};
use super::super::actions::{Action, Context, Product};
use super::super::protocol::ApiError;
use super::super::sts::seconds;
use super::{claim, for_write, instance, not_found};

pub(super) fn actions() -> Vec<Action> {
    vec![
        Action::read(
            Product::Slb,
            "DescribeServerCertificates",
            "ServerCertificateId ResourceGroupId",
            describe_certificates,
        )
        .documented("parameters, answer, no pages")
        .assumed("one alternative name; an unknown id gives an empty list")
        .listing("/ServerCertificates/ServerCertificate"),
        Action::read(
            Product::Slb,
            "DescribeDomainExtensions",
            "LoadBalancerId! ListenerPort! DomainExtensionId",
            describe_extensions,
        )
        .documented("parameters, answer")
        .assumed("`ResourceNotFound.Listener` without an HTTPS listener on the port")
        .listing("/DomainExtensions/DomainExtension"),
        Action::write(
            Product::Slb,
            "CreateDomainExtension",
            "LoadBalancerId! ListenerPort! Domain! ServerCertificateId!",
            create_extension,
        )
        .documented(
            "parameters, answer, `InvalidParameter.Domain`, `CertificateNotExist`, \
             `DomainExtensionNumberOverLimit`",
        )
        .assumed("in force at once; never `DomainExtensionProcessing`"),
        Action::write(
            Product::Slb,
            "SetDomainExtensionAttribute",
            "DomainExtensionId! ServerCertificateId!",
            set_extension,
        )
        .documented("parameters, `InvalidParameter.DomainExtensionId`, `CertificateNotExist`")
        .assumed("in force at once"),
        Action::write(Product::Slb, "DeleteDomainExtension", "DomainExtensionId!", delete_extension)
            .documented("parameters, `InvalidParameter.DomainExtensionId`")
            .assumed("gone at once; no rule can use it"),
    ]
}

/// Whether a certificate can be used: it must exist.
pub(super) fn check(account: &Account, id: &str) -> Result<(), ApiError> {
    if account.certificates.contains_key(id) {
        return Ok(());
    }
    Err(ApiError::new(400, "CertificateNotExist", format!("The specified ServerCertificateId {id} does not exist.")))
}

fn describe_certificates(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let wanted = cx.params.get("ServerCertificateId");
    let found: Vec<Value> = cx
        .account
        .certificates
        .iter()
        .filter(|(id, _)| wanted.is_none_or(|it| it == *id))
        .map(|(id, it)| {
            json!({
                "ServerCertificateId": id,
                "ServerCertificateName": it.common_name,
                "CommonName": it.common_name,
                "ExpireTime": seconds(it.expires),
                "ExpireTimeStamp": it.expires.as_millisecond(),
                "CreateTimeStamp": 1_577_836_800_000_i64,
                "RegionId": cx.account.region,
                "SubjectAlternativeNames": {"SubjectAlternativeName": [it.common_name]},
            })
        })
        .collect();
    Ok(json!({"ServerCertificates": {"ServerCertificate": found}}))
}

/// The port of the HTTPS listener that a call names; it must exist.
fn https_port(cx: &Context<'_>) -> Result<(u16, Protocol), ApiError> {
    let port = cx.params.number_in("ListenerPort", 1, 65535)?.and_then(|it| u16::try_from(it).ok()).unwrap_or_default();
    let key = (port, Protocol::Https);
    if instance(cx.account, cx.params.need("LoadBalancerId")?)?.listeners.contains_key(&key) {
        return Ok(key);
    }
    Err(ApiError::new(404, "ResourceNotFound.Listener", "The specified listener does not exist."))
}

fn describe_extensions(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let key = https_port(cx)?;
    let listener =
        instance(cx.account, cx.params.need("LoadBalancerId")?)?.listeners.get(&key).ok_or_else(not_found)?;
    let wanted = cx.params.get("DomainExtensionId");
    let found: Vec<Value> = listener
        .domain_extensions
        .iter()
        .filter(|(id, _)| wanted.is_none_or(|it| it == *id))
        .map(|(id, it)| json!({"DomainExtensionId": id, "Domain": it.domain, "ServerCertificateId": it.certificate}))
        .collect();
    Ok(json!({"DomainExtensions": {"DomainExtension": found}}))
}

fn create_extension(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let key = https_port(cx)?;
    let domain = cx.params.need("Domain")?;
    let certificate = cx.params.need("ServerCertificateId")?;
    check(cx.account, certificate)?;
    let most = cx.account.limits.domain_extensions;
    let id = cx.account.fresh("de-bp1", 17);
    let listener = for_write(cx)?.listeners.get_mut(&key).ok_or_else(not_found)?;
    if listener.domain_extensions.values().any(|it| it.domain == domain) {
        let message = format!("The domain {domain} already exists on this listener.");
        return Err(ApiError::new(400, "InvalidParameter.Domain", message));
    }
    if listener.domain_extensions.len() >= most {
        let message = "The number of domain extensions exceeds the quota.";
        return Err(ApiError::new(400, "DomainExtensionNumberOverLimit", message));
    }
    let made = DomainExtension { domain: domain.into(), certificate: certificate.into() };
    listener.domain_extensions.insert(id.clone(), made);
    Ok(json!({"DomainExtensionId": id, "ListenerPort": key.0}))
}

/// The listener that carries a domain extension, its load balancer claimed for a write.
fn holder<'w>(cx: &'w mut Context<'_>) -> Result<(&'w mut Listener, String), ApiError> {
    let id = cx.params.need("DomainExtensionId")?;
    let has_it = |it: &&Listener| it.domain_extensions.contains_key(id);
    let unknown =
        || ApiError::new(400, "InvalidParameter.DomainExtensionId", "The specified DomainExtensionId does not exist.");
    let owner = cx
        .account
        .load_balancers
        .iter()
        .find(|(_, it)| it.listeners.values().any(|it| has_it(&it)))
        .map(|(id, _)| id.clone())
        .ok_or_else(unknown)?;
    let lb = claim(cx.account, &owner, cx.action)?;
    let listener = lb.listeners.values_mut().find(|it| it.domain_extensions.contains_key(id)).ok_or_else(unknown)?;
    Ok((listener, id.to_owned()))
}

fn set_extension(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let certificate = cx.params.need("ServerCertificateId")?;
    check(cx.account, certificate)?;
    let (listener, id) = holder(cx)?;
    if let Some(it) = listener.domain_extensions.get_mut(&id) {
        it.certificate = certificate.into();
    }
    Ok(json!({}))
}

fn delete_extension(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let (listener, id) = holder(cx)?;
    listener.domain_extensions.remove(&id);
    Ok(json!({}))
}
