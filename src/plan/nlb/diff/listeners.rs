//! Listeners: their attributes, and their certificates.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::plan::loadbalancer::annotations::AnnotationName;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::CloudModel as _;
use crate::plan::loadbalancer::listener_pass::{Lacking, ListenerModel};
use crate::plan::loadbalancer::model::{GroupRef, ObservedGroup};
use crate::plan::loadbalancer::steps::Target;
use crate::plan::nlb::annotations::{Field, Name};
use crate::plan::nlb::desired::{Desired, DesiredListener, NlbModel};
use crate::plan::nlb::model::{ListenerField, ListenerFields, ListenerKey, Protocol};
use crate::plan::nlb::observed::Observed;
use crate::plan::nlb::operation::{Own, Plan, Step};

/// Certificates in one call.
const CERTIFICATES: usize = 15;

impl ListenerModel for NlbModel {
    const CHANGES_WITHOUT_GROUP: bool = true;

    fn ports(key: ListenerKey) -> RangeInclusive<u16> {
        key.first..=key.last
    }

    fn is_udp(key: ListenerKey) -> bool {
        key.protocol == Protocol::Udp
    }

    fn made_with(wanted: &DesiredListener) -> ListenerFields {
        wanted.fields.clone()
    }

    fn differing(key: ListenerKey, found: &ListenerFields, wanted: &ListenerFields) -> Vec<ListenerField> {
        let sent = Self::sent(key, found, wanted);
        let differs = |(field, value): &(&ListenerField, &String)| {
            let found = found.get(field).map_or_else(|| default_of(**field), String::as_str);
            sent.contains_key(field) && !value.eq_ignore_ascii_case(found)
        };
        wanted.iter().filter(differs).map(|(field, _)| *field).collect()
    }

    fn lacking(key: ListenerKey, sent: &ListenerFields) -> Vec<Lacking<Self>> {
        let table = [
            (key.protocol == Protocol::TcpSsl, ListenerField::Certificate, "TCPSSL listeners need a certificate"),
            (
                sent.is(ListenerField::CaEnabled, "true"),
                ListenerField::CaCertificate,
                "certificates of clients need that of an authority",
            ),
            (sent.is(ListenerField::Alpn, "true"), ListenerField::AlpnPolicy, "ALPN needs a policy"),
        ];
        let lacks = table.into_iter().filter(|(needed, field, _)| *needed && sent.is(*field, ""));
        lacks.map(|(_, field, why)| (Field::Listener(field), why)).collect()
    }

    /// Adds certificates, then removes others.
    fn certificates(
        listener: ListenerKey,
        wanted: &DesiredListener,
        fields: &ListenerFields,
        found: &BTreeSet<String>,
    ) -> Vec<(Own, String)> {
        let Some(ids) = &wanted.certificates else { return Vec::new() };
        // The default certificate is in no list. The cloud does not add the former one before another has taken its place.
        let defaults = [&wanted.fields, fields].map(|fields| fields.get(&ListenerField::Certificate));
        let add: Vec<&String> = ids.difference(found).filter(|id| !defaults.contains(&Some(*id))).collect();
        let remove: Vec<&String> = found.difference(ids).collect();
        let set = |batch: &[&String]| batch.iter().map(|id| (*id).clone()).collect();
        let adds = add.chunks(CERTIFICATES).map(|ids| Own::AddCertificates { listener, ids: set(ids) });
        let removes = remove.chunks(CERTIFICATES).map(|ids| Own::RemoveCertificates { listener, ids: set(ids) });
        let now = format!("{}: others", Name::AdditionalCertIds.key());
        adds.chain(removes).map(|operation| (operation, now.clone())).collect()
    }
}

/// Puts a new listener before changes of its server group, if the group holds a wanted backend already and serves no listener.
/// Each change is a job for which the listener waits, so that endpoints that keep coming would leave the Service unserved.
pub(super) fn before_changes(desired: &Desired, observed: &Observed, plan: &mut Plan) {
    let of_listener = |step: &Step| matches!(step.target, Target::Listener(_));
    let Some(last) = plan.steps.iter().rposition(of_listener) else { return };
    let is_new =
        |step: &Step| step.operation.creates() && !step.needs.iter().any(|need| matches!(need, Target::Listener(_)));
    let holds_wanted = |group: &GroupRef| {
        let id = observed.group_id(group);
        let held = || id.and_then(|id| observed.groups.get(id)).into_iter().flat_map(ObservedGroup::members);
        let mut wanted = desired.groups.values().filter(|wanted| observed.group_id(&wanted.group) == id);
        wanted.any(|wanted| held().any(|backend| wanted.backends.contains(&backend.key)))
    };
    let can_follow = |group: &GroupRef| {
        let target = Target::Group(group.clone());
        let mut users = plan.steps.iter().filter(|step| of_listener(step) && step.needs.contains(&target)).peekable();
        users.peek().is_some() && users.all(is_new) && !observed.serves(group) && holds_wanted(group)
    };
    let changed: BTreeSet<&GroupRef> = plan.steps.iter().filter_map(|step| step.operation.backends_of()).collect();
    let following: BTreeSet<GroupRef> = changed.into_iter().filter(|group| can_follow(group)).cloned().collect();
    plan.steps[..=last].sort_by_key(|step| step.operation.backends_of().is_some_and(|group| following.contains(group)));
}

/// What holds where the cloud does not say it.
const fn default_of(field: ListenerField) -> &'static str {
    match field {
        ListenerField::Cps => "0",
        ListenerField::ProxyProtocol
        | ListenerField::Ppv2EndpointId
        | ListenerField::Ppv2EndpointServiceId
        | ListenerField::Ppv2VpcId
        | ListenerField::CaEnabled
        | ListenerField::Alpn => "false",
        _ => "",
    }
}
