//! Every action once against the simulated cloud, which verifies signatures and parameter names on its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use litemap::LiteMap;
use sim::cloud::{Account, Disk, Eip, Fault, KEY_ID, KEY_SECRET};

use super::script::{config, permit};
use crate::alibaba::clb::ListenerRequest;
use crate::alibaba::ecs::InstanceFilter;
use crate::alibaba::endpoints::CloudProduct;
use crate::alibaba::metadata::Metadata;
use crate::alibaba::nlb::{GroupFilter, JobState, ListenerChange, NewListener};
use crate::alibaba::probe::Permission;
use crate::alibaba::transport::{Transport, TransportError};
use crate::alibaba::{CloudClient, FaultKind, actions, location};
use crate::config::checked::{AccessKey, Credentials};
use crate::config::secret::Secret;
use crate::plan::clb::model::{CreateAccessList, CreateInstance, InstanceField, InstanceFields};
use crate::plan::clb::model::{ListenerField, ListenerFields, ListenerKey, Protocol};
use crate::plan::clb::observed::CertificateState;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::model::{Backend, BackendKey, BackendKind};
use crate::plan::loadbalancer::settings::VSwitchChoice;
use crate::plan::nlb::model::{
    CreateGroup, CreateInstance as CreateNlbInstance, CreateSecurityGroup, GroupField, GroupFields,
    InstanceField as NlbInstanceField, InstanceFields as NlbInstanceFields, ListenerField as NlbListenerField,
    ListenerFields as NlbListenerFields, ListenerKey as NlbKey, Protocol as NlbProtocol, SecurityRule, SecurityRules,
    ZoneMapping,
};
use crate::plan::pvtz::diff::RecordRules;
use crate::plan::pvtz::{RecordContent, RecordType};
use crate::plan::route::entry::RouteItem;

pub(crate) const REGION: &str = "cn-hangzhou";

#[derive(Debug)]
struct InProcess(sim::cloud::Cloud);

impl Transport for InProcess {
    fn send(&self, request: Request<Bytes>, _: Duration) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        Box::pin(async { self.0.handle(request).await.map_err(|error| TransportError::Lost(error.to_string())) })
    }
}

fn account() -> Account {
    let later = crate::clock::now() + jiff::SignedDuration::from_hours(1000);
    let mut account = Account::new(REGION)
        .with_vpc("vpc-1", "192.168.0.0/16")
        .with_vswitch("vsw-i", "vpc-1", "cn-hangzhou-i", "192.168.0.0/24")
        .with_vswitch("vsw-j", "vpc-1", "cn-hangzhou-j", "192.168.1.0/24")
        .with_vswitch("vsw-k", "vpc-1", "cn-hangzhou-k", "192.168.2.0/24")
        .with_instance("i-1", "node-1", "vsw-i", "192.168.0.11")
        .with_instance("i-2", "node-2", "vsw-i", "192.168.0.12")
        .with_certificate("cert-1", "one.example.com", later)
        .with_certificate("cert-2", "two.example.com", later)
        .with_role("ccm");
    account.vswitches.values_mut().for_each(|it| it.ipv6_cidr = "2408:4005::/64".into());
    let eip = Eip { address: "47.99.1.1".into(), instance_type: String::new(), instance: String::new() };
    account.eips.insert("eip-1".into(), eip);
    for number in 0..150 {
        let region = if number == 7 { "cn-beijing" } else { REGION };
        account.disks.insert(format!("d-{number}"), Disk::new(region, "cn-hangzhou-i"));
    }
    account.nlb.bandwidth_packages.insert("cbwp-1".into());
    account.nlb.ca_certificates.insert("ca-1".into());
    account
}

fn key() -> AccessKey {
    AccessKey { id: KEY_ID.into(), secret: Secret::new(KEY_SECRET.into()), token: None }
}

/// A client of a simulated cloud, by whatever way.
pub(crate) fn client_by(transport: Arc<dyn Transport>) -> CloudClient {
    let config = crate::config::checked::Cloud { credentials: Credentials::AccessKey(key()), ..config() };
    CloudClient::new(transport, &config, REGION)
}

/// A client of this cloud with the access key that it knows.
pub(crate) fn client_of(simulated: &sim::cloud::Cloud) -> CloudClient {
    client_by(Arc::new(InProcess(simulated.clone())))
}

fn client(simulated: &sim::cloud::Cloud, credentials: Credentials) -> CloudClient {
    let config = crate::config::checked::Cloud { credentials, ..config() };
    CloudClient::new(Arc::new(InProcess(simulated.clone())), &config, REGION)
}

fn backend(instance: &str, port: u16) -> Backend {
    let key = BackendKey { kind: BackendKind::Ecs, server_id: instance.into(), server_ip: Box::default(), port };
    Backend { key, weight: 100, description: "k8s/80/a/b/c".into() }
}

fn fields(pairs: &[(ListenerField, &str)]) -> ListenerFields {
    pairs.iter().map(|(field, value)| (*field, (*value).to_owned())).collect()
}

async fn instances_and_interfaces(cloud: &CloudClient) {
    cloud.ecs.may_describe_instances(REGION).await.unwrap();
    let ids = InstanceFilter::Ids(vec!["i-1".into(), "i-missing".into()]);
    let found = cloud.ecs.describe_instances(REGION, &ids).await.unwrap();
    assert_eq!((found.len(), found[0].private_ips[0].as_str()), (1, "192.168.0.11"));
    let eni = found[0].primary_eni.clone();
    let by_ip = ["192.168.0.11".parse().unwrap()];
    assert_eq!(cloud.ecs.find_network_interfaces(REGION, "vpc-1", &by_ip).await.unwrap()[0].id, eni);
    cloud.ecs.disable_source_dest_check(&permit(), REGION, &eni).await.unwrap();
    let interfaces = cloud.ecs.describe_network_interfaces(REGION, &[eni]).await.unwrap();
    assert_eq!(interfaces[0].source_dest_check, Some(false));
    let ids: Vec<String> = (0..150).map(|number| format!("d-{number}")).collect();
    let disks = cloud.ecs.describe_disks(REGION, &ids).await.unwrap();
    assert_eq!(disks.len(), 149, "two calls, and one disk of another region");
    assert_eq!((disks[0].region.as_str(), disks[0].zone.as_str()), (REGION, "cn-hangzhou-i"));
}

async fn routes(cloud: &CloudClient) {
    let vpc = cloud.vpc.describe_vpc("vpc-1").await.unwrap().unwrap();
    assert_eq!(vpc.cidrs, ["192.168.0.0/16".parse().unwrap()]);
    assert_eq!(cloud.vpc.describe_vpc("vpc-missing").await.unwrap(), None);
    assert_eq!(cloud.vpc.describe_vswitches("vpc-1").await.unwrap()[0].id, "vsw-i");
    let table = cloud.vpc.describe_route_tables("vpc-1").await.unwrap().remove(0).id;
    let item = |instance: &str, cidr: &str| RouteItem {
        table_id: table.clone(),
        destination: cidr.parse().unwrap(),
        instance_id: instance.into(),
        name: "route".into(),
        description: "mark".into(),
    };
    let items = [item("i-1", "10.0.1.0/24"), item("i-2", "10.0.2.0/24")];
    assert!(cloud.vpc.create_route_entries(&permit(), &items).await.unwrap().is_empty());
    let again = cloud.vpc.create_route_entries(&permit(), &items[1..]).await.unwrap();
    assert_eq!((again.len(), again[0].kind), (1, FaultKind::Exists));
    let entries = cloud.vpc.describe_route_entries(&table).await.unwrap();
    assert_eq!((entries.len(), entries[0].description.as_str()), (2, "mark"));
    assert!(cloud.vpc.delete_route_entries(&permit(), &items).await.unwrap().is_empty());
    assert!(cloud.vpc.delete_route_entries(&permit(), &items).await.unwrap().is_empty(), "gone is gone");
    assert!(cloud.vpc.describe_route_entries(&table).await.unwrap().is_empty());
}

async fn load_balancer(cloud: &CloudClient) -> String {
    let (clb, permit) = (&cloud.clb, permit());
    let wanted = CreateInstance {
        fields: InstanceFields::from_iter([
            (InstanceField::Name, "first".into()),
            (InstanceField::AddressType, "internet".into()),
            (InstanceField::ChargeType, "PayBySpec".into()),
            (InstanceField::Spec, "slb.s1.small".into()),
            (InstanceField::ModificationProtection, "NonProtection".into()),
        ]),
        tags: BTreeMap::from([("owner".into(), "me".into())]),
        ..CreateInstance::default()
    };
    let made = clb.create_instance(&permit, &wanted, None, "token-1").await.unwrap();
    let again = clb.create_instance(&permit, &wanted, None, "token-1").await.unwrap();
    assert_eq!(made.id, again.id, "the same token makes the same instance");
    let id = made.id.unwrap();
    assert_eq!(clb.find_by_tag("owner", "me").await.unwrap()[0].id, id);
    let set = async |fields: Vec<(InstanceField, String)>| {
        clb.set_instance(&permit, &id, &InstanceFields::from_iter(fields)).await.unwrap();
    };
    set([(InstanceField::Name, "second".into())].into()).await;
    assert_eq!(clb.find_by_name("second").await.unwrap()[0].id, id);
    assert!(clb.find_by_name("first").await.unwrap().is_empty());
    set([(InstanceField::DeleteProtection, "on".into())].into()).await;
    set([(InstanceField::ModificationProtection, "ConsoleProtection".into())].into()).await;
    set([(InstanceField::Spec, "slb.s2.small".into())].into()).await;
    let bought = [(InstanceField::InternetChargeType, "paybybandwidth".into()), (InstanceField::Bandwidth, "7".into())];
    set(bought.into()).await;
    set([(InstanceField::ChargeType, "PayByCLCU".into())].into()).await;
    clb.tag(&permit, &id, &BTreeMap::from([("extra".into(), "1".into())])).await.unwrap();
    clb.untag(&permit, &id, &["owner".into()]).await.unwrap();
    let found = clb.describe_instance(&id).await.unwrap();
    assert_eq!(found.tags, LiteMap::from_iter([("extra".into(), "1".into())]));
    assert_eq!(found.fields.text(InstanceField::DeleteProtection), "on");
    assert!(cloud.vpc.describe_load_balancer_eips(&id).await.unwrap().is_empty());
    id
}

async fn groups(cloud: &CloudClient, id: &str) -> String {
    let (clb, permit) = (&cloud.clb, permit());
    let group = clb.create_group(&permit, id, "k8s/80/a/b/c", &[backend("i-1", 80)]).await.unwrap();
    clb.add_backends(&permit, &group, &[backend("i-2", 80)]).await.unwrap();
    clb.set_backends(&permit, &group, &[Backend { weight: 5, ..backend("i-2", 80) }]).await.unwrap();
    clb.remove_backends(&permit, &group, &[backend("i-1", 80).key]).await.unwrap();
    let backends = clb.describe_backends(&group).await.unwrap();
    assert_eq!(backends, [Backend { weight: 5, ..backend("i-2", 80) }]);
    assert_eq!(clb.describe_groups(id).await.unwrap()[0].1, "k8s/80/a/b/c");
    group
}

async fn listeners(cloud: &CloudClient, id: &str, group: &str) {
    let (clb, permit) = (&cloud.clb, permit());
    let common = [(ListenerField::Bandwidth, "-1"), (ListenerField::HealthCheckInterval, "7")];
    let layer7 = [(ListenerField::HealthCheck, "on"), (ListenerField::StickySession, "off")];
    let mut wanted = Vec::new();
    for (protocol, port) in [(Protocol::Tcp, 80), (Protocol::Udp, 80), (Protocol::Http, 81), (Protocol::Https, 443)] {
        let mut sent = fields(&common);
        if matches!(protocol, Protocol::Http | Protocol::Https) {
            sent.extend(fields(&layer7));
        }
        if protocol == Protocol::Https {
            sent.extend(fields(&[(ListenerField::ServerCertificateId, "cert-1")]));
        }
        wanted.push((ListenerKey { port, protocol }, sent));
    }
    for (listener, sent) in &mut wanted {
        let request = |fields| ListenerRequest {
            load_balancer_id: id,
            listener: *listener,
            description: "mark",
            group_id: Some(group),
            fields,
        };
        clb.create_listener(&permit, &request(&*sent)).await.unwrap();
        clb.start_listener(&permit, id, *listener).await.unwrap();
        let mut changed = sent.clone();
        changed.insert(ListenerField::HealthCheckInterval, "9".into());
        clb.set_listener(&permit, &request(&changed)).await.unwrap();
        *sent = changed;
    }
    let found = clb.describe_listeners(id).await.unwrap();
    assert_eq!(found.len(), wanted.len());
    for (listener, sent) in &wanted {
        let is = &found[listener];
        assert_eq!((is.description.as_str(), is.group_id.as_str()), ("mark", group), "{listener}");
        for (field, value) in sent {
            assert_eq!(is.fields.get(field), Some(value), "{listener} {field}");
        }
    }
    let extension = clb.create_domain_extension(&permit, (id, 443), "*.example.com", "cert-1").await.unwrap();
    clb.set_domain_extension(&permit, &extension, "cert-2").await.unwrap();
    let extensions = clb.describe_domain_extensions(id, 443).await.unwrap();
    assert_eq!(extensions["*.example.com"].certificate_id, "cert-2");
    clb.delete_domain_extension(&permit, &extension).await.unwrap();
    assert_eq!(clb.certificate_state("cert-1").await.unwrap(), CertificateState::Valid);
    assert_eq!(clb.certificate_state("cert-missing").await.unwrap(), CertificateState::Missing);
    for (listener, _) in &wanted {
        clb.delete_listener(&permit, id, *listener).await.unwrap();
    }
}

async fn access_lists(cloud: &CloudClient) {
    let (clb, permit) = (&cloud.clb, permit());
    let wanted = |name: &str| CreateAccessList {
        name: name.into(),
        ip_version: "ipv4".into(),
        tags: BTreeMap::from([("k".into(), "v".into())]),
    };
    let id = clb.create_access_list(&permit, &wanted("k8s/acl/a/b/c")).await.unwrap();
    clb.create_access_list(&permit, &wanted("k8s/acl/a/b/c2")).await.unwrap();
    let blocks = ["10.0.0.0/8", "192.168.1.1/32"].map(|block| block.parse().unwrap());
    clb.add_access_entries(&permit, &id, &blocks).await.unwrap();
    clb.remove_access_entries(&permit, &id, &blocks[..1]).await.unwrap();
    let found = clb.find_access_list("k8s/acl/a/b/c").await.unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.tags.get("k").unwrap().as_str()), (id.as_str(), "v"));
    assert_eq!(found.entries.into_iter().collect::<Vec<_>>(), blocks[1..]);
    assert_eq!(clb.list_access_lists().await.unwrap().len(), 2);
    clb.delete_access_list(&permit, &id).await.unwrap();
    assert_eq!(clb.delete_access_list(&permit, &id).await.unwrap_err().kind, FaultKind::Gone);
    assert_eq!(clb.find_access_list("k8s/acl/a/b/c").await.unwrap(), None, "not the one whose name only starts so");
}

async fn network_load_balancer(cloud: &CloudClient) -> String {
    let (nlb, permit) = (&cloud.nlb, permit());
    let zone = |zone: &str, vswitch: &str| ZoneMapping {
        zone: format!("{REGION}-{zone}"),
        vswitch: vswitch.into(),
        ..ZoneMapping::default()
    };
    let wanted = CreateNlbInstance {
        fields: NlbInstanceFields::from_iter([
            (NlbInstanceField::Name, "network".into()),
            (NlbInstanceField::AddressType, "Internet".into()),
            (NlbInstanceField::IpVersion, "DualStack".into()),
            (NlbInstanceField::DeleteProtection, "true".into()),
            (NlbInstanceField::ModificationProtection, "ConsoleProtection".into()),
        ]),
        vpc_id: "vpc-1".into(),
        zones: vec![ZoneMapping { allocation_id: "eip-1".into(), ..zone("i", "vsw-i") }, zone("j", "vsw-j")],
        modification_protection_reason: Some("managed".into()),
        tags: BTreeMap::from([("owner".into(), "me".into())]),
        ..CreateNlbInstance::default()
    };
    let made = nlb.create_instance(&permit, &wanted, "token-1").await.unwrap();
    let again = nlb.create_instance(&permit, &wanted, "token-1").await.unwrap();
    assert_eq!(made.id, again.id, "the same token makes the same load balancer");
    let id = made.id.unwrap();
    let found = nlb.find_by_tag("owner", "me").await.unwrap().remove(0);
    assert_eq!(found, nlb.describe_instance(&id).await.unwrap(), "the list and the single answer say the same");
    assert_eq!((found.id.as_str(), found.zones[0].allocation_id.as_str()), (id.as_str(), "eip-1"));
    assert_eq!(found.fields.text(NlbInstanceField::DeleteProtection), "true");
    assert_eq!(found.fields.text(NlbInstanceField::ModificationProtection), "ConsoleProtection");
    let set = async |field, value: &str| {
        nlb.set_instance(&permit, &id, &LiteMap::from_iter([(field, value.to_owned())])).await
    };
    let both = [(NlbInstanceField::Name, "renamed".into()), (NlbInstanceField::CrossZone, "false".into())];
    nlb.set_instance(&permit, &id, &LiteMap::from_iter(both)).await.unwrap();
    assert_eq!(nlb.find_by_name("renamed").await.unwrap()[0].id, id);
    set(NlbInstanceField::Ipv6AddressType, "Internet").await.unwrap();
    set(NlbInstanceField::Ipv6AddressType, "Intranet").await.unwrap();
    assert_eq!(set(NlbInstanceField::Ipv6AddressType, "Intranet").await.unwrap_err().kind, FaultKind::Exists);
    nlb.attach_bandwidth_package(&permit, &id, "cbwp-1").await.unwrap();
    assert_eq!(nlb.describe_instance(&id).await.unwrap().fields.text(NlbInstanceField::BandwidthPackage), "cbwp-1");
    nlb.detach_bandwidth_package(&permit, &id, "cbwp-1").await.unwrap();
    nlb.set_address_type(&permit, &id, "Intranet", &[]).await.unwrap();
    let named = [ZoneMapping { allocation_id: "eip-1".into(), ..zone("j", "vsw-j") }];
    nlb.set_address_type(&permit, &id, "Internet", &named).await.unwrap();
    nlb.set_zones(&permit, &id, &[zone("j", "vsw-j"), zone("k", "vsw-k")]).await.unwrap();
    let zones = nlb.describe_instance(&id).await.unwrap().zones;
    assert_eq!(zones.iter().map(|zone| zone.vswitch.as_str()).collect::<Vec<_>>(), ["vsw-j", "vsw-k"]);
    nlb.tag(&permit, &id, &BTreeMap::from([("extra".into(), "1".into())])).await.unwrap();
    nlb.untag(&permit, &id, &["owner".into()]).await.unwrap();
    let tags = nlb.describe_instance(&id).await.unwrap().tags;
    assert_eq!(tags, LiteMap::from_iter([("extra".into(), "1".into())]));
    id
}

async fn security_groups(cloud: &CloudClient, id: &str) {
    let (ecs, nlb, permit) = (&cloud.ecs, &cloud.nlb, permit());
    let wanted = CreateSecurityGroup {
        name: "k8s-nlb-a".into(),
        description: "k8s.a.b.c".into(),
        tags: BTreeMap::from([("owner".into(), "me".into())]),
        ..CreateSecurityGroup::default()
    };
    let group = ecs.create_security_group(&permit, "vpc-1", &wanted).await.unwrap();
    assert_eq!(ecs.find_security_groups("owner", "me").await.unwrap()[0].id, group);
    let rule = |drops, source: &str| SecurityRule { drops, source: source.parse().unwrap() };
    let rules = SecurityRules::from([rule(false, "10.0.0.0/8"), rule(false, "2408::/32"), rule(true, "0.0.0.0/0")]);
    ecs.add_security_rules(&permit, &group, &rules, "k8s.a.b.c").await.unwrap();
    let found = ecs.describe_security_rules(&group).await.unwrap();
    assert!(found.values().all(|rule| rule.is_plain && rule.description == "k8s.a.b.c"), "{found:?}");
    assert_eq!(found.values().map(|it| it.rule.clone()).collect::<BTreeSet<_>>(), rules);
    let first = BTreeSet::from([found.keys().next().unwrap().clone()]);
    ecs.remove_security_rules(&permit, &group, &first).await.unwrap();
    let again = ecs.remove_security_rules(&permit, &group, &first).await.unwrap_err();
    assert_eq!(again.kind, FaultKind::Gone);
    assert_eq!(ecs.describe_security_rules(&group).await.unwrap().len(), 2);

    let groups = BTreeSet::from([group.clone()]);
    nlb.join_security_groups(&permit, id, &groups).await.unwrap();
    let twice = nlb.join_security_groups(&permit, id, &groups).await.unwrap_err();
    assert_eq!(twice.kind, FaultKind::Exists);
    assert!(nlb.describe_instance(id).await.unwrap().security_group_ids.contains(&group));
    assert_eq!(ecs.delete_security_group(&permit, &group).await.unwrap_err().kind, FaultKind::InUse);
    nlb.leave_security_groups(&permit, id, &groups).await.unwrap();
    ecs.delete_security_group(&permit, &group).await.unwrap();
    assert_eq!(ecs.delete_security_group(&permit, &group).await.unwrap_err().kind, FaultKind::Gone);
}

async fn server_group(cloud: &CloudClient, tls: bool) -> String {
    let (nlb, permit) = (&cloud.nlb, permit());
    let mut fields = GroupFields::from([
        (GroupField::Protocol, "TCP".into()),
        (GroupField::Scheduler, "Wlc".into()),
        (GroupField::HealthCheckType, "HTTP".into()),
        (GroupField::HealthCheckCodes, "http_2xx,http_3xx".into()),
    ]);
    if tls {
        fields.insert(GroupField::PreserveClientIp, "false".into());
    }
    let name = format!("k8s.{}.TCP.a.b.c", if tls { 443 } else { 80 });
    let tags = BTreeMap::from([("owner".into(), "me".into())]);
    let wanted = CreateGroup { name: name.clone(), fields: fields.clone(), resource_group_id: None, tags };
    let made = nlb.create_group(&permit, "vpc-1", &wanted).await.unwrap();
    assert_eq!(nlb.jobs(std::slice::from_ref(&made.job)).await.unwrap()[&made.job], JobState::Done);
    let id = made.id.unwrap();
    let listed = nlb.list_groups(GroupFilter::Tag("owner", "me")).await.unwrap();
    let found = listed.into_iter().find(|group| group.name == name).unwrap();
    assert_eq!((found.id.as_str(), found.details.status.as_str()), (id.as_str(), "Available"));
    for (field, value) in &fields {
        assert_eq!(found.details.fields.get(field), Some(value), "{field}");
    }
    nlb.set_group(&permit, &id, &GroupFields::from([(GroupField::HealthyThreshold, "7".into())])).await.unwrap();
    let found = nlb.list_groups(GroupFilter::Ids(&[id.clone()].into())).await.unwrap().remove(0);
    assert_eq!(found.details.fields[&GroupField::HealthyThreshold], "7");
    id
}

async fn servers(cloud: &CloudClient, id: &str) {
    let (nlb, permit) = (&cloud.nlb, permit());
    nlb.add_servers(&permit, id, &[backend("i-1", 80), backend("i-2", 80)]).await.unwrap();
    nlb.set_servers(&permit, id, &[Backend { weight: 5, ..backend("i-2", 80) }]).await.unwrap();
    nlb.remove_servers(&permit, id, &[backend("i-1", 80).key]).await.unwrap();
    let found = nlb.describe_servers(id).await.unwrap();
    assert_eq!((found.backends, found.changing), (vec![Backend { weight: 5, ..backend("i-2", 80) }], false));
    let listed = nlb.list_groups(GroupFilter::Tag("owner", "me")).await.unwrap();
    assert_eq!(listed.iter().find(|group| group.id == id).unwrap().details.server_count, 1);
}

async fn network_listeners(cloud: &CloudClient, id: &str, (plain, tls): (&str, &str)) {
    let (nlb, permit) = (&cloud.nlb, permit());
    let tcp = NlbListenerFields::from([
        (NlbListenerField::IdleTimeout, "60".into()),
        (NlbListenerField::Cps, "100".into()),
        (NlbListenerField::ProxyProtocol, "true".into()),
        (NlbListenerField::Ppv2VpcId, "true".into()),
    ]);
    let ssl = NlbListenerFields::from([
        (NlbListenerField::Certificate, "cert-1".into()),
        (NlbListenerField::CaEnabled, "true".into()),
        (NlbListenerField::CaCertificate, "ca-1".into()),
        (NlbListenerField::SecurityPolicy, "tls_cipher_policy_1_2".into()),
        (NlbListenerField::Alpn, "true".into()),
        (NlbListenerField::AlpnPolicy, "HTTP2Preferred".into()),
    ]);
    let keys = [NlbKey::port(80, NlbProtocol::Tcp), NlbKey::port(443, NlbProtocol::TcpSsl)];
    for (listener, group_id, fields) in [(keys[0], plain, &tcp), (keys[1], tls, &ssl)] {
        let description = format!("k8s.{}.{}.a.b.c", listener.ports(), listener.protocol);
        let wanted = NewListener { load_balancer_id: id, listener, description: &description, group_id, fields };
        let made = nlb.create_listener(&permit, &wanted).await.unwrap();
        let again = nlb.create_listener(&permit, &wanted).await.unwrap_err();
        assert_eq!(again.kind, FaultKind::Exists, "a port has one listener: {again}");
        let found = nlb.describe_listeners(&[id]).await.unwrap().remove(id).unwrap().remove(&listener).unwrap();
        assert_eq!(Some(found.id), made.id);
        assert_eq!((found.description, found.group_id), (description, group_id.to_owned()));
        for (field, value) in fields {
            assert_eq!(found.fields.get(field), Some(value), "{field}");
        }
    }
    let found = nlb.describe_listeners(&[id]).await.unwrap().remove(id).unwrap();
    let ssl = found[&keys[1]].id.as_str();
    let change = NlbListenerFields::from([(NlbListenerField::IdleTimeout, "90".into())]);
    let change = ListenerChange { listener_id: ssl, description: "mark", group_id: tls, fields: &change };
    nlb.set_listener(&permit, &change).await.unwrap();
    nlb.start_listener(&permit, ssl).await.unwrap();
    let second = BTreeSet::from(["cert-2".to_owned()]);
    nlb.add_certificates(&permit, ssl, &second).await.unwrap();
    let more = nlb.describe_additional_certificates(ssl).await.unwrap();
    assert_eq!(more, second, "neither the default one nor the CA");
    nlb.remove_certificates(&permit, ssl, &second).await.unwrap();
    assert_eq!(nlb.delete_group(&permit, plain).await.unwrap_err().kind, FaultKind::InUse);
    for listener in found.values() {
        nlb.delete_listener(&permit, &listener.id).await.unwrap();
    }
    assert!(nlb.describe_listeners(&[id]).await.unwrap().is_empty());
    assert_eq!(nlb.delete_listener(&permit, ssl).await.unwrap_err().kind, FaultKind::Gone);
}

async fn network(cloud: &CloudClient) {
    let (nlb, permit) = (&cloud.nlb, permit());
    let id = network_load_balancer(cloud).await;
    security_groups(cloud, &id).await;
    let groups = (server_group(cloud, false).await, server_group(cloud, true).await);
    servers(cloud, &groups.0).await;
    network_listeners(cloud, &id, (&groups.0, &groups.1)).await;
    for group in [&groups.0, &groups.1] {
        nlb.delete_group(&permit, group).await.unwrap();
        assert_eq!(nlb.delete_group(&permit, group).await.unwrap_err().kind, FaultKind::Gone);
    }
    assert_eq!(nlb.delete_instance(&permit, &id).await.unwrap_err().kind, FaultKind::Rejected, "protected");
    let set = async |fields: Vec<(NlbInstanceField, String)>| {
        nlb.set_instance(&permit, &id, &NlbInstanceFields::from_iter(fields)).await.unwrap()
    };
    let (deletion, modification) = (NlbInstanceField::DeleteProtection, NlbInstanceField::ModificationProtection);
    set([(deletion, "false".into()), (modification, "NonProtection".into())].into()).await;
    let fields = nlb.describe_instance(&id).await.unwrap().fields;
    assert_eq!((fields.text(deletion), fields.text(modification)), ("false", "NonProtection"));
    set([(modification, "ConsoleProtection".into())].into()).await;
    set([(deletion, "true".into())].into()).await;
    set([(deletion, "false".into())].into()).await;
    let deleted = nlb.delete_instance(&permit, &id).await.unwrap();
    assert_eq!(nlb.jobs(&[deleted.job.clone(), "job-unknown".into()]).await.unwrap().len(), 1);
    assert_eq!(nlb.describe_instance(&id).await.unwrap_err().kind, FaultKind::Gone);
}

async fn records(cloud: &CloudClient) {
    let (pvtz, permit) = (&cloud.pvtz, permit());
    let zones = pvtz.zones_of("vpc-1").await.unwrap();
    let id = zones[0].id.as_str();
    assert_eq!((zones.len(), id, zones[0].name.as_str()), (1, "zone-1", "cluster.example"));
    assert!(pvtz.zones_of("vpc-2").await.unwrap().is_empty());
    let found = pvtz.describe_zone(id).await.unwrap().unwrap();
    assert_eq!(found, (zones[0].clone(), vec!["vpc-1".to_owned()]));
    assert_eq!(pvtz.describe_zone("zone-2").await.unwrap(), None);
    assert_eq!(pvtz.list_records("zone-2").await.unwrap_err().kind, FaultKind::Gone);
    let rules = RecordRules { remark: "alicloud-ccm,c1,0123".into(), ttl: 60, zone: "cluster.example".into() };
    let content = |number: usize| RecordContent {
        name: format!("web-{number}.shop.svc"),
        kind: RecordType::A,
        value: format!("10.0.{}.{}", number / 200, number % 200),
    };
    for number in 0..101 {
        pvtz.add_record(&permit, id, &content(number), &rules).await.unwrap();
    }
    let doubled = pvtz.add_record(&permit, id, &content(7), &rules).await.unwrap_err();
    assert_eq!(doubled.kind, FaultKind::Exists);
    let all = pvtz.list_records(id).await.unwrap().0;
    assert_eq!(all.len(), 101, "two pages");
    let named = pvtz.records_of(id, "WEB-1.shop.svc").await.unwrap();
    let record = &named[0];
    assert_eq!(
        (named.len(), record.content("cluster.example"), record.remark.as_str()),
        (1, Some(content(1)), "alicloud-ccm,c1,0123")
    );
    let slower = RecordRules { ttl: 30, ..rules.clone() };
    pvtz.update_record(&permit, &record.id, &content(200), &slower).await.unwrap();
    let named = pvtz.records_of(id, "web-200.shop.svc").await.unwrap();
    assert_eq!((named[0].ttl, named[0].remark.as_str()), (30, "alicloud-ccm,c1,0123"), "the remark stays");
    pvtz.delete_record(&permit, &record.id).await.unwrap();
    pvtz.delete_record(&permit, &record.id).await.unwrap();
    assert_eq!(pvtz.update_record(&permit, &record.id, &content(1), &rules).await.unwrap_err().kind, FaultKind::Gone);
    assert_eq!(pvtz.list_records(id).await.unwrap().0.len(), 100);
}

/// Of what nothing is made, without a grant and with all.
async fn every_permission_for_classic_load_balancers_is_missed(simulated: &sim::cloud::Cloud, cloud: &CloudClient) {
    let makes_from_nothing = [actions::CREATE_LOAD_BALANCER.0, actions::CREATE_ACCESS_LIST.0];
    // The simulator looks at the certificate before it looks for the domain extension.
    let names_two = actions::SET_DOMAIN_EXTENSION.0;
    let classic = || actions::ALL.iter().copied().filter(|action| action.product == CloudProduct::Slb);
    for action in classic().filter(|action| !makes_from_nothing.contains(action)) {
        let may = cloud.probe(&permit(), action).await;
        assert!(action == names_two || matches!(may, Permission::Granted), "{}: {may:?}", action.name);
    }
    simulated.edit(|account| account.permit_only(KEY_ID, &BTreeSet::new()));
    for action in classic().filter(|action| !makes_from_nothing.contains(action)) {
        let may = cloud.probe(&permit(), action).await;
        assert!(matches!(may, Permission::Missing(_)), "{}: {may:?}", action.name);
    }
}

#[tokio::test]
async fn every_action_works_and_the_cloud_has_no_complaint() {
    let simulated = sim::cloud::Cloud::new(account());
    let cloud = client(&simulated, Credentials::AccessKey(key()));
    instances_and_interfaces(&cloud).await;
    routes(&cloud).await;
    let id = load_balancer(&cloud).await;
    let group = groups(&cloud, &id).await;
    listeners(&cloud, &id, &group).await;
    access_lists(&cloud).await;
    network(&cloud).await;
    simulated.edit(|account| {
        let zone = sim::cloud::PrivateZone::new("cluster.example", "vpc-1");
        account.private_zones.insert("zone-1".into(), zone);
    });
    records(&cloud).await;
    let (clb, permit) = (&cloud.clb, permit());
    clb.delete_group(&permit, &group).await.unwrap();
    assert_eq!(clb.delete_instance(&permit, &id).await.unwrap_err().kind, FaultKind::Rejected, "protected");
    let unprotected = LiteMap::from_iter([(InstanceField::DeleteProtection, "off".into())]);
    clb.set_instance(&permit, &id, &unprotected).await.unwrap();
    clb.delete_instance(&permit, &id).await.unwrap();
    assert_eq!(clb.describe_instance(&id).await.unwrap_err().kind, FaultKind::Gone);
    let by_role = Credentials::AssumeRole {
        source: key(),
        role_arn: "acs:ram::1234567890123456:role/ccm".into(),
        session_name: "ccm".into(),
        duration: Duration::from_secs(900),
        external_id: None,
    };
    let by_role = client(&simulated, by_role);
    by_role.ecs.may_describe_instances(REGION).await.unwrap();
    let caller = by_role.caller().await.unwrap();
    assert_eq!((caller.account.as_str(), caller.kind.as_str()), ("1234567890123456", "AssumedRoleUser"));
    assert!(by_role.keys_last().is_some_and(|left| left <= Duration::from_secs(900)));
    assert_eq!((cloud.clb.count_instances().await.unwrap(), cloud.nlb.count_instances().await.unwrap()), (0, 0));
    assert_eq!(cloud.nlb.count_groups().await.unwrap(), 0);
    let before = simulated.calls().len();
    for action in actions::ALL {
        let may = cloud.probe(&permit, action).await;
        assert!(matches!(may, Permission::Granted | Permission::NotProbed), "{}: {may:?}", action.name);
    }
    let changes: Vec<_> = simulated.calls().into_iter().skip(before).filter(|call| call.effective).collect();
    assert!(changes.is_empty(), "{changes:?}");
    every_permission_for_classic_load_balancers_is_missed(&simulated, &cloud).await;
    assert_eq!(simulated.complaints(), Vec::<String>::new());
    let calls = simulated.calls().into_iter().take(before);
    let called: BTreeSet<_> = calls.map(|call| format!("{}:{}", call.product, call.action)).collect();
    let listed = actions::ALL.iter().map(|action| action.permission());
    let missing: Vec<_> = listed.filter(|name| !called.contains(name)).collect();
    assert_eq!(missing, ["sts:AssumeRoleWithOIDC"], "tested with its token file");
}

#[tokio::test]
async fn an_instance_finds_its_location_and_its_role() {
    let mut world = account();
    world.metadata.instance = Some("i-1".into());
    world.metadata.role = Some("ccm".into());
    world.metadata.token_required = true;
    let simulated = sim::cloud::Cloud::new(world);
    let mut config = config();
    config.region = None;
    // Stated ones say nothing about where this instance is.
    config.vswitches = vec![VSwitchChoice { zone: None, id: "vsw-j".into() }];
    let metadata = Metadata::new(Arc::new(InProcess(simulated.clone())), &config.endpoints);
    let location = location::resolve(&config, &metadata).await.unwrap();
    assert_eq!(
        (location.region.as_str(), location.vpc_id.as_str(), location.vswitch_id.as_str()),
        (REGION, "vpc-1", "vsw-i")
    );
    assert_eq!(location.instance_id.as_deref(), Some("i-1"));
    let cloud = client(&simulated, Credentials::InstanceRole { role: None });
    cloud.ecs.may_describe_instances(REGION).await.unwrap();
}

#[tokio::test]
async fn a_clock_that_is_hours_off_is_corrected() {
    let simulated = sim::cloud::Cloud::new(account());
    simulated.advance(jiff::SignedDuration::from_hours(3));
    client(&simulated, Credentials::AccessKey(key())).ecs.may_describe_instances(REGION).await.unwrap();
}

#[tokio::test]
async fn whatever_eats_the_answer_of_a_write_leaves_its_fate_open() {
    let simulated = sim::cloud::Cloud::new(account());
    let cloud = client(&simulated, Credentials::AccessKey(key()));
    let wanted = CreateInstance {
        fields: InstanceFields::from_iter([
            (InstanceField::Name, "one".into()),
            (InstanceField::AddressType, "internet".into()),
            (InstanceField::ChargeType, "PayByCLCU".into()),
            (InstanceField::ModificationProtection, "NonProtection".into()),
        ]),
        ..CreateInstance::default()
    };
    for fault in [Fault::AnswerLost, Fault::ErrorAfterEffect, Fault::GatewayPage, Fault::Garbled] {
        simulated.faults().script("CreateLoadBalancer", fault.clone());
        let lost = cloud.clb.create_instance(&permit(), &wanted, None, "token").await.unwrap_err();
        assert_eq!(lost.kind, FaultKind::Ambiguous, "{fault:?}: {lost}");
    }
    let made = cloud.clb.create_instance(&permit(), &wanted, None, "token").await.unwrap();
    let found = cloud.clb.find_by_name("one").await.unwrap();
    assert_eq!(
        found.iter().map(|instance| &instance.id).collect::<Vec<_>>(),
        [&made.id.unwrap()],
        "one, whatever happened"
    );
}
