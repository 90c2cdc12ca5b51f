//! Certificates of listeners beyond the first.

use std::convert::identity;

use serde_json::{Value, json};

use super::super::actions::{Action, Context};
use super::super::protocol::ApiError;
use super::listeners::{begin, listener};
use super::{denied, listed, over_quota, read, with_token, word, write};

/// Additional certificates of a listener.
const MOST: usize = 25;

pub(super) fn actions() -> Vec<Action> {
    let some = "ListenerId! AdditionalCertificateIds.N!";
    vec![
        read("ListListenerCertificates", "ListenerId! CertType CertificateIds.N MaxResults NextToken", list)
            .documented("parameters, answer, 50 on a page")
            .assumed("`CertificateIds.N` does not filter; always `Associated`; 20 on a page by default")
            .listing("/Certificates"),
        write("AssociateAdditionalCertificatesWithListener", some, |cx| with_token(cx, associate))
            .documented(
                "parameters, `ResourceAlreadyAssociated.Certificate`, `OperationDenied.Protocol`, 25 at \
                 most",
            )
            .assumed(
                "all certificates or none; always a job, though its id may be empty; name of the \
                 quota",
            ),
        write("DisassociateAdditionalCertificatesWithListener", some, |cx| with_token(cx, disassociate))
            .documented("parameters, `ResourceNotAssociated.Certificate`, `DefaultCertificateUsed`")
            .assumed("all certificates or none; always a job, though its id may be empty"),
    ]
}

pub(super) fn no_certificate(id: &str) -> ApiError {
    ApiError::new(400, "ResourceNotFound.Certificate", format!("The specified resource {id} is not found."))
}

fn list(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let kind = word(cx.params, "CertType", &["Server", "Ca"])?;
    let it = listener(cx.account, cx.params.need("ListenerId")?)?;
    let one = |id: &String, kind: &str, is_default: bool| json!({"CertificateId": id, "CertificateType": kind, "IsDefault": is_default, "Status": "Associated"});
    let mut found = Vec::new();
    if kind != Some("Ca") {
        found.extend(it.certificates.iter().map(|id| one(id, "Server", true)));
        found.extend(it.additional_certificates.iter().map(|id| one(id, "Server", false)));
    }
    if kind != Some("Server") {
        found.extend(it.ca_certificates.iter().map(|id| one(id, "Ca", true)));
    }
    listed(cx, "Certificates", found, (50, 20), identity)
}

fn given(cx: &Context<'_>) -> Vec<String> {
    cx.params.list("AdditionalCertificateIds").into_iter().map(str::to_owned).collect()
}

fn associate(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let (id, wanted) = (cx.params.need("ListenerId")?, given(cx));
    if let Some(unknown) = wanted.iter().find(|it| !cx.account.certificates.contains_key(*it)) {
        return Err(no_certificate(unknown));
    }
    let held = listener(cx.account, id)?;
    if held.protocol != "TCPSSL" {
        return Err(denied("Protocol"));
    }
    if wanted.iter().any(|it| held.additional_certificates.contains(it) || held.certificates.contains(it)) {
        let message = "The specified resource of Certificate is already associated.";
        return Err(ApiError::new(400, "ResourceAlreadyAssociated.Certificate", message));
    }
    if held.additional_certificates.len() + wanted.len() > MOST {
        return Err(over_quota("nlb_quota_listener_additional_certificates_num"));
    }
    let job = begin(cx, id)?;
    let it = listener(cx.account, id)?;
    it.pending = job.pending("Configuring");
    if !job.fails {
        it.additional_certificates.extend(wanted);
    }
    Ok(job.answer())
}

fn disassociate(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let (id, gone) = (cx.params.need("ListenerId")?, given(cx));
    let held = listener(cx.account, id)?;
    if gone.iter().any(|it| held.certificates.contains(it)) {
        return Err(denied("DefaultCertificateUsed"));
    }
    if gone.iter().any(|it| !held.additional_certificates.contains(it)) {
        let message = "The specified resource of Certificate is not associated.";
        return Err(ApiError::new(400, "ResourceNotAssociated.Certificate", message));
    }
    let job = begin(cx, id)?;
    let it = listener(cx.account, id)?;
    it.pending = job.pending("Configuring");
    if !job.fails {
        it.additional_certificates.retain(|it| !gone.contains(it));
    }
    Ok(job.answer())
}
