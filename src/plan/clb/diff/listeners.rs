//! Listeners: how they redirect, what of them is fixed, and their certificates.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::fields;
use crate::plan::clb::annotations::Name;
use crate::plan::clb::desired::{ClbModel, DesiredListener};
use crate::plan::clb::model::{ListenerField as Field, ListenerFields, ListenerKey, Protocol};
use crate::plan::clb::observed::{CertificateState, Observed, ObservedDomainExtension, ObservedListener};
use crate::plan::clb::operation::Own;
use crate::plan::loadbalancer::annotations::AnnotationName;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::listener_diff::is_ours;
use crate::plan::loadbalancer::listener_pass::{ListenerAction, ListenerModel, Pass};
use crate::plan::loadbalancer::management::DOMAIN_EXTENSIONS;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::steps::Target;

impl ListenerModel for ClbModel {
    const CHANGES_WITHOUT_GROUP: bool = false;

    /// TCP, HTTP and HTTPS cannot share a port, UDP can with them.
    fn ports(key: ListenerKey) -> RangeInclusive<u16> {
        key.port..=key.port
    }

    fn is_udp(key: ListenerKey) -> bool {
        key.protocol == Protocol::Udp
    }

    fn made_with(wanted: &DesiredListener) -> ListenerFields {
        fields::for_creation(&wanted.defaults, &wanted.fields, wanted.forward_to)
    }

    fn differing(key: ListenerKey, found: &ListenerFields, wanted: &ListenerFields) -> Vec<Field> {
        fields::differing(key.protocol, found, wanted)
    }

    fn lacking(key: ListenerKey, sent: &ListenerFields) -> Vec<(Field, &'static str)> {
        fields::lacking(key.protocol, sent)
    }

    /// Changes, then adds, then removes.
    fn certificates(
        listener: ListenerKey,
        wanted: &DesiredListener,
        _: &ListenerFields,
        found: &BTreeMap<String, ObservedDomainExtension>,
    ) -> Vec<(Own, String)> {
        let Some(wanted) = &wanted.certificates else { return Vec::new() };
        let (mut set, mut add) = (Vec::new(), Vec::new());
        for (domain, certificate_id) in wanted {
            let (domain, certificate_id) = (domain.clone(), certificate_id.clone());
            match found.get(&domain) {
                Some(found) if found.certificate_id == certificate_id => {}
                Some(ObservedDomainExtension { id, certificate_id: was }) => {
                    let id = id.clone();
                    set.push((Own::SetDomainExtension { listener, id, domain, certificate_id }, was.as_str()));
                }
                None => add.push((Own::CreateDomainExtension { listener, domain, certificate_id }, "none")),
            }
        }
        let gone = found.iter().filter(|(domain, _)| !wanted.contains_key(*domain)).map(|(domain, found)| {
            let (id, domain) = (found.id.clone(), domain.clone());
            (Own::DeleteDomainExtension { listener, id, domain }, found.certificate_id.as_str())
        });
        let key = Name::DomainExtensions.key();
        set.into_iter().chain(add).chain(gone).map(|(own, now)| (own, format!("{key}: {now}"))).collect()
    }

    fn certificates_target(_: ListenerKey) -> Target {
        Target::Attribute(DOMAIN_EXTENSIONS)
    }

    fn leads_to(wanted: &DesiredListener) -> Option<ListenerKey> {
        wanted.forward_to.map(|port| ListenerKey { port, protocol: Protocol::Https })
    }

    fn redirects_to(key: ListenerKey, found: &ObservedListener) -> Option<ListenerKey> {
        let is_on = found.fields.is(Field::ListenerForward, "on");
        let port = found.fields.get(&Field::ForwardPort).filter(|_| is_on && key.protocol == Protocol::Http)?;
        Some(ListenerKey { port: port.parse().ok()?, protocol: Protocol::Https })
    }

    fn is_fixed_otherwise(wanted: &DesiredListener, found: &ObservedListener) -> bool {
        let scheduler = wanted.fields.get(&Field::Scheduler).filter(|wanted| fields::is_hash(wanted));
        scheduler.is_some_and(|wanted| found.fields.get(&Field::Scheduler).is_some_and(|found| found != wanted))
    }

    /// A listener must lead to one that is there, and replaces another only with a certificate that can be used.
    fn review(pass: &mut Pass<'_, Self>) {
        for (key, wanted) in &pass.desired.listeners {
            if let Some(problem) = replaced_in_vain(pass, *key, wanted) {
                pass.plan.problem(problem);
                pass.verdicts.insert(*key, ListenerAction::Blocked);
            }
        }
        for (key, wanted) in &pass.desired.listeners {
            let Some(to) = Self::leads_to(wanted).filter(|to| !target_exists(pass, *to)) else { continue };
            let rule = format!("must lead to a port with an HTTPS listener; listener {key} stays as it is");
            let given = format!("{}:{}", key.port, to.port);
            pass.plan.problem(ServiceProblem::invalid(Name::ForwardPort.key(), given, rule));
            pass.verdicts.insert(*key, ListenerAction::Blocked);
        }
    }

    /// A new certificate must exist and be valid, unless the old one is gone.
    fn withdraw(pass: &mut Pass<'_, Self>, key: ListenerKey, wanted: &mut ListenerFields, found: &ObservedListener) {
        let field = Field::ServerCertificateId;
        let (Some(new), Some(old)) = (wanted.get(&field), found.fields.get(&field)) else { return };
        if new == old || pass.observed.parts.certificates.get(old) == Some(&CertificateState::Missing) {
            return;
        }
        let Some(fault) = certificate_fault(pass.observed, new) else { return };
        let rule = format!("must be a valid certificate: this one {fault}, so listener {key} keeps {old}");
        pass.plan.problem(ServiceProblem::invalid(Name::CertId.key(), new, rule));
        wanted.remove(&field);
    }
}

/// Why a certificate cannot be used, as far as it was looked up.
fn certificate_fault(observed: &Observed, id: &str) -> Option<&'static str> {
    match observed.parts.certificates.get(id)? {
        CertificateState::Missing => Some("does not exist"),
        CertificateState::Expired => Some("has expired"),
        CertificateState::Unknown => Some("could not be looked up"),
        CertificateState::Valid => None,
    }
}

/// The cloud would refuse the certificate of a new listener only after what serves on its port has been deleted.
fn replaced_in_vain(pass: &Pass<'_, ClbModel>, key: ListenerKey, wanted: &DesiredListener) -> Option<ServiceProblem> {
    let is_new = matches!(pass.verdicts.get(&key)?, ListenerAction::Create | ListenerAction::Replace);
    let serving = pass.remote.keys().find(|other| is_new && ClbModel::collide(**other, key))?;
    let id = wanted.fields.get(&Field::ServerCertificateId)?;
    let fault = certificate_fault(pass.observed, id)?;
    let rule = format!("must be a valid certificate: this one {fault}, so listener {serving} keeps serving");
    Some(ServiceProblem::invalid(Name::CertId.key(), id, rule))
}

fn target_exists(pass: &Pass<'_, ClbModel>, target: ListenerKey) -> bool {
    match pass.verdicts.get(&target) {
        Some(ListenerAction::Blocked) => pass.remote.contains_key(&target),
        Some(_) => true,
        // One of a user will do; one of ours is stale.
        None => pass.remote.get(&target).is_some_and(|listener| !is_ours(pass.desired, pass.observed, listener)),
    }
}
