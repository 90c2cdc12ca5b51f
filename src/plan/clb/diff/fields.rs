//! Attributes of listeners: which differ, and what is sent.

use crate::plan::clb::model::{ListenerField as Field, ListenerFields, Protocol, SWITCHES, field_counts};
use crate::plan::loadbalancer::api_fields::FieldValues as _;

/// Attributes for a request that makes a listener.
pub(super) fn for_creation(
    defaults: &ListenerFields,
    wanted: &ListenerFields,
    forward_to: Option<u16>,
) -> ListenerFields {
    let mut fields = defaults.clone();
    fields.extend(wanted.clone());
    if let Some(port) = forward_to {
        fields.insert(Field::ListenerForward, "on".to_owned());
        fields.insert(Field::ForwardPort, port.to_string());
    }
    fields.retain(|field, value| !is_backend_port(*field, value));
    switched(fields)
}

/// Attributes for a request that changes a listener: all that it has, with those that are wanted on top.
pub(in crate::plan::clb) fn for_change(
    protocol: Protocol,
    remote: &ListenerFields,
    wanted: &ListenerFields,
) -> ListenerFields {
    let mut fields: ListenerFields = remote
        .iter()
        .filter(|(field, value)| {
            let zero = value.as_str() == "0" && **field != Field::PersistenceTimeout;
            field.protocols().contains(&protocol)
                && !matches!(field, Field::ListenerForward | Field::ForwardPort)
                && !value.is_empty()
                && !zero
                && !is_backend_port(**field, value)
        })
        .map(|(field, value)| (*field, value.clone()))
        .collect();
    fields.extend(wanted.clone());
    switched(fields)
}

/// Without the attributes of features that are off.
fn switched(mut fields: ListenerFields) -> ListenerFields {
    for (field, switch, value, _) in SWITCHES {
        if !fields.is(switch, value) {
            fields.remove(&field);
        }
    }
    fields
}

/// The attributes that a request lacks, with the reasons.
pub(super) fn lacking(protocol: Protocol, fields: &ListenerFields) -> Vec<(Field, &'static str)> {
    let certificate = (Field::ServerCertificateId, "HTTPS listeners need a certificate");
    let needed = SWITCHES.into_iter().filter(|(_, switch, value, _)| fields.is(*switch, value));
    let needed = needed.map(|(field, _, _, why)| (field, why));
    let all = Some(certificate).filter(|_| protocol == Protocol::Https).into_iter().chain(needed);
    all.filter(|(field, _)| !fields.contains_key(field)).collect()
}

/// Wanted attributes that differ and count.
pub(super) fn differing(protocol: Protocol, remote: &ListenerFields, wanted: &ListenerFields) -> Vec<Field> {
    let effective = |field| wanted.get(&field).or_else(|| remote.get(&field));
    wanted
        .iter()
        .filter(|(field, value)| {
            field_counts(protocol, **field, wanted, effective)
                && !equal(**field, value, remote.get(*field).map_or("", String::as_str))
        })
        .map(|(field, _)| *field)
        .collect()
}

/// Whether two values mean the same; empty is what the API does not report.
fn equal(field: Field, one: &str, other: &str) -> bool {
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    let ids = |text: &str| text.split(',').map(str::trim).map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    match field {
        Field::AclId => ids(one) == ids(other),
        Field::HealthCheckConnectPort => {
            one == other || (is_backend_port(field, one) && (other.is_empty() || is_backend_port(field, other)))
        }
        Field::PersistenceTimeout => or(one, "0") == or(other, "0"),
        Field::ProxyProtocolV2Enabled => or(one, "false").eq_ignore_ascii_case(&or(other, "false")),
        Field::HealthCheckDomain => or(one, "$_ip") == or(other, "$_ip"),
        _ => one == other,
    }
}

fn is_backend_port(field: Field, value: &str) -> bool {
    field == Field::HealthCheckConnectPort && matches!(value, "-520" | "0")
}

/// Whether a scheduler spreads by a hash; a listener cannot be changed to one.
pub(super) fn is_hash(scheduler: &str) -> bool {
    matches!(scheduler, "sch" | "tch" | "qch")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(Field, &str)]) -> ListenerFields {
        list.iter().map(|(field, value)| (*field, (*value).to_owned())).collect()
    }

    #[test]
    fn access_lists_are_sets_and_count_only_while_the_status_is_on() {
        let wanted = fields(&[(Field::AclStatus, "on"), (Field::AclType, "white"), (Field::AclId, "a,b")]);
        let remote = |ids| fields(&[(Field::AclStatus, "on"), (Field::AclType, "white"), (Field::AclId, ids)]);
        assert_eq!(differing(Protocol::Tcp, &remote("b,a"), &wanted), []);
        assert_eq!(differing(Protocol::Tcp, &remote("a"), &wanted), [Field::AclId]);
        let silent = fields(&[(Field::AclId, "a,b")]);
        assert_eq!(differing(Protocol::Tcp, &remote("a"), &silent), []);
        assert_eq!(differing(Protocol::Tcp, &remote("a"), &ListenerFields::new()), []);
    }

    #[test]
    fn the_backends_port_has_three_spellings() {
        let wanted = fields(&[(Field::HealthCheckConnectPort, "-520")]);
        for remote in [fields(&[]), fields(&[(Field::HealthCheckConnectPort, "0")]), wanted.clone()] {
            assert_eq!(differing(Protocol::Tcp, &remote, &wanted), []);
        }
        let remote = fields(&[(Field::HealthCheckConnectPort, "8081")]);
        assert_eq!(differing(Protocol::Tcp, &remote, &wanted), [Field::HealthCheckConnectPort]);
        assert_eq!(for_change(Protocol::Tcp, &remote, &wanted)[&Field::HealthCheckConnectPort], "-520");
        assert_eq!(for_creation(&fields(&[]), &wanted, None), fields(&[]));
    }

    #[test]
    fn a_change_repeats_what_is_there_as_far_as_the_protocol_has_it() {
        let remote = fields(&[
            (Field::Scheduler, "rr"),
            (Field::HealthCheck, "on"),
            (Field::ConnectionDrainTimeout, "0"),
            (Field::PersistenceTimeout, "0"),
            (Field::EstablishedTimeout, "900"),
            (Field::AclStatus, "off"),
            (Field::AclType, "white"),
        ]);
        let sent = for_change(Protocol::Tcp, &remote, &fields(&[(Field::Scheduler, "wrr")]));
        let expected = fields(&[
            (Field::Scheduler, "wrr"),
            (Field::PersistenceTimeout, "0"),
            (Field::EstablishedTimeout, "900"),
            (Field::AclStatus, "off"),
        ]);
        assert_eq!(sent, expected);
    }

    #[test]
    fn features_that_are_off_do_not_differ() {
        let wanted = fields(&[
            (Field::StickySessionType, "insert"),
            (Field::CookieTimeout, "10"),
            (Field::HealthyThreshold, "4"),
        ]);
        let remote = fields(&[(Field::StickySession, "off"), (Field::HealthCheck, "off")]);
        assert_eq!(differing(Protocol::Http, &remote, &wanted), []);
        let on = fields(&[(Field::StickySession, "on"), (Field::HealthCheck, "on")]);
        let all = [Field::StickySessionType, Field::CookieTimeout, Field::HealthyThreshold];
        assert_eq!(differing(Protocol::Http, &on, &wanted), all);
    }

    #[test]
    fn incomplete_combinations_are_found() {
        let all = |protocol, list: &[(Field, &str)]| lacking(protocol, &fields(list)).into_iter().map(|it| it.0);
        let lacks = |protocol, list: &[(Field, &str)]| all(protocol, list).next();
        assert_eq!(lacks(Protocol::Https, &[]), Some(Field::ServerCertificateId));
        assert_eq!(lacks(Protocol::Tcp, &[(Field::AclStatus, "on"), (Field::AclId, "a")]), Some(Field::AclType));
        assert_eq!(lacks(Protocol::Http, &[(Field::StickySession, "on")]), Some(Field::StickySessionType));
        assert_eq!(
            lacks(Protocol::Http, &[(Field::StickySession, "on"), (Field::StickySessionType, "server")]),
            Some(Field::Cookie)
        );
        assert_eq!(lacks(Protocol::Tcp, &[(Field::AclStatus, "off")]), None);
        assert_eq!(lacks(Protocol::Tcp, &[(Field::AclStatus, "on"), (Field::AclType, "white")]), Some(Field::AclId));
        assert_eq!(lacks(Protocol::Tcp, &[(Field::ConnectionDrain, "on")]), Some(Field::ConnectionDrainTimeout));
        assert_eq!(lacks(Protocol::Tcp, &[(Field::ConnectionDrain, "off")]), None);
    }

    #[test]
    fn what_belongs_to_a_feature_that_is_off_is_not_sent() {
        let sent = |list: &[(Field, &str)]| switched(fields(list)).into_keys().collect::<Vec<_>>();
        let drain = |on| sent(&[(Field::ConnectionDrain, on), (Field::ConnectionDrainTimeout, "10")]);
        assert_eq!((drain("on").len(), drain("off").len()), (2, 1));
        let acl = |on| sent(&[(Field::AclStatus, on), (Field::AclId, "a"), (Field::AclType, "white")]);
        assert_eq!((acl("on").len(), acl("off").len()), (3, 1));
        let sticky = |on, kind| {
            let list = [
                (Field::StickySession, on),
                (Field::StickySessionType, kind),
                (Field::CookieTimeout, "10"),
                (Field::Cookie, "c"),
            ];
            sent(&list)
        };
        assert_eq!(sticky("off", "insert"), [Field::StickySession]);
        assert_eq!(sticky("on", "insert"), [Field::StickySession, Field::StickySessionType, Field::CookieTimeout]);
        assert_eq!(sticky("on", "server"), [Field::StickySession, Field::StickySessionType, Field::Cookie]);
    }

    #[test]
    fn what_the_api_reports_of_its_own_is_not_sent_back() {
        let remote = fields(&[
            (Field::HealthCheckDomain, ""),
            (Field::IdleTimeout, "0"),
            (Field::ListenerForward, "off"),
            (Field::ForwardPort, "0"),
            (Field::RequestTimeout, "60"),
        ]);
        let wanted = fields(&[(Field::Scheduler, "wlc")]);
        let sent = for_change(Protocol::Http, &remote, &wanted).into_keys().collect::<Vec<_>>();
        assert_eq!(sent, [Field::Scheduler, Field::RequestTimeout]);
        // Listeners that redirect carry their port.
        let remote = fields(&[(Field::ListenerForward, "on"), (Field::ForwardPort, "443")]);
        assert_eq!(for_change(Protocol::Http, &remote, &wanted), wanted);
    }

    #[test]
    fn what_the_api_does_not_report_is_its_default() {
        for (field, value) in [
            (Field::PersistenceTimeout, "0"),
            (Field::ProxyProtocolV2Enabled, "false"),
            (Field::HealthCheckDomain, "$_ip"),
        ] {
            let on = [(Field::HealthCheckType, "http")];
            let wanted = fields(&[on.as_slice(), &[(field, value)]].concat());
            assert_eq!(differing(Protocol::Tcp, &fields(&on), &wanted), [], "{field}");
            let other = fields(&[on.as_slice(), &[(field, "7")]].concat());
            assert_eq!(differing(Protocol::Tcp, &other, &wanted), [field]);
        }
        let spelled = |value| fields(&[(Field::ProxyProtocolV2Enabled, value)]);
        assert_eq!(differing(Protocol::Tcp, &spelled("True"), &spelled("true")), []);
    }
}
