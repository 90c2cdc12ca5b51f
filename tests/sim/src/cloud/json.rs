//! Worlds from JSON, and what they hold as JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::account::{
    Account, Acl, Backend, Disk, Eip, Group, Instance, Interface, InvalidAccount, Listener, LoadBalancer, Protocol,
    RouteEntry, RouteTable, SecurityGroup, VSwitch, Vpc,
};
use super::{nlb, slb};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    region: String,
    zones: Vec<String>,
    #[serde(default)]
    account: Option<String>,
    #[serde(default)]
    vpcs: Vec<VpcInput>,
    #[serde(default)]
    route_tables: Vec<TableInput>,
    #[serde(default)]
    vswitches: Vec<VSwitchInput>,
    #[serde(default)]
    instances: Vec<InstanceInput>,
    #[serde(default)]
    certificates: Vec<CertificateInput>,
    #[serde(default)]
    acls: Vec<AclInput>,
    #[serde(default)]
    load_balancers: Vec<LoadBalancerInput>,
    #[serde(default)]
    disks: Vec<DiskInput>,
    #[serde(default)]
    eips: Vec<EipInput>,
    #[serde(default)]
    bandwidth_packages: Vec<String>,
    #[serde(default)]
    ca_certificates: Vec<CertificateInput>,
    #[serde(default)]
    security_groups: Vec<SecurityGroupInput>,
    #[serde(default)]
    nlb_server_groups: Vec<nlb::GroupInput>,
    #[serde(default)]
    nlbs: Vec<nlb::BalancerInput>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskInput {
    id: String,
    #[serde(default)]
    zone: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EipInput {
    id: String,
    ip: String,
    #[serde(default, rename = "name")]
    _name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecurityGroupInput {
    id: String,
    name: String,
    kind: String,
    vpc: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VpcInput {
    id: String,
    #[serde(default)]
    name: String,
    cidr: String,
    #[serde(default)]
    secondary_cidrs: Vec<String>,
    #[serde(default)]
    ipv6_cidr: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableInput {
    id: String,
    vpc: String,
    kind: String,
    #[serde(default)]
    entries: Vec<EntryInput>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryInput {
    cidr: String,
    next_hop: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VSwitchInput {
    id: String,
    vpc: String,
    zone: String,
    cidr: String,
    #[serde(default)]
    ipv6_cidr: String,
    #[serde(default)]
    available_ips: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InstanceInput {
    id: String,
    name: String,
    hostname: String,
    vswitch: String,
    private_ip: String,
    eni: String,
    #[serde(default)]
    pod_ips: Vec<String>,
    #[serde(default)]
    ipv6: Vec<String>,
    #[serde(default)]
    public_ip: String,
    #[serde(default)]
    eip: String,
    #[serde(default)]
    instance_type: Option<String>,
    #[serde(default)]
    charge_type: Option<String>,
    #[serde(default)]
    spot_strategy: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateInput {
    id: String,
    common_name: String,
    #[serde(default)]
    expires: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AclInput {
    id: String,
    name: String,
    #[serde(default)]
    entries: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadBalancerInput {
    id: String,
    name: String,
    address: String,
    #[serde(default)]
    vswitch: String,
    #[serde(default)]
    instance_charge_type: Option<String>,
    #[serde(default)]
    spec: Option<String>,
    #[serde(default)]
    delete_protection: bool,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    vgroups: Vec<GroupInput>,
    #[serde(default)]
    listeners: Vec<ListenerInput>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupInput {
    id: String,
    name: String,
    #[serde(default)]
    backends: Vec<BackendInput>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackendInput {
    server_id: String,
    #[serde(default)]
    server_ip: String,
    port: u16,
    #[serde(default)]
    weight: Option<u8>,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListenerInput {
    port: u16,
    protocol: String,
    #[serde(default)]
    vgroup: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    status: Option<String>,
}

impl Account {
    /// An account as JSON describes it: region, zones and lists of objects with ids.
    ///
    /// # Errors
    /// A field is missing, unknown, or of the wrong type.
    pub fn from_json(value: &Value) -> Result<Self, InvalidAccount> {
        let input = Input::deserialize(value).map_err(|error| InvalidAccount(error.to_string()))?;
        let mut account = Self { zones: input.zones, ..Self::new(&input.region) };
        if let Some(id) = input.account {
            account.id = id;
        }
        for it in input.vpcs {
            let vpc = Vpc {
                name: it.name,
                secondary_cidrs: it.secondary_cidrs,
                ipv6_cidr: it.ipv6_cidr,
                ..Vpc::new(&it.cidr)
            };
            account.vpcs.insert(it.id, vpc);
        }
        for it in input.vswitches {
            let vswitch = VSwitch::new(&it.vpc, &it.zone, &it.cidr);
            let available_ips = it.available_ips.unwrap_or(vswitch.available_ips);
            account.vswitches.insert(it.id, VSwitch { available_ips, ipv6_cidr: it.ipv6_cidr, ..vswitch });
        }
        for it in input.instances {
            add_instance(&mut account, it);
        }
        for it in input.route_tables {
            add_table(&mut account, it);
        }
        for it in input.certificates {
            let expires = it.expires.unwrap_or_else(|| super::now() + jiff::SignedDuration::from_hours(365 * 24));
            account = account.with_certificate(&it.id, &it.common_name, expires);
        }
        for it in input.acls {
            let acl = Acl { name: it.name, entries: it.entries, ip_version: "ipv4".into(), ..Acl::default() };
            account.acls.insert(it.id, acl);
        }
        for it in input.load_balancers {
            add_load_balancer(&mut account, it)?;
        }
        for it in input.disks {
            let disk = Disk::new(&account.region, &it.zone);
            account.disks.insert(it.id, disk);
        }
        for it in input.eips {
            let eip = Eip { address: it.ip, instance_type: String::new(), instance: String::new() };
            account.eips.insert(it.id, eip);
        }
        for it in input.security_groups {
            let group = SecurityGroup { name: it.name, kind: it.kind, vpc: it.vpc, ..SecurityGroup::default() };
            account.security_groups.insert(it.id, group);
        }
        account.nlb.bandwidth_packages.extend(input.bandwidth_packages);
        account.nlb.ca_certificates.extend(input.ca_certificates.into_iter().map(|it| it.id));
        input.nlb_server_groups.into_iter().for_each(|it| nlb::add_group(&mut account, it));
        input.nlbs.into_iter().for_each(|it| nlb::add_balancer(&mut account, it));
        Ok(account)
    }
}

fn add_instance(account: &mut Account, input: InstanceInput) {
    let zone = account.vswitches.get(&input.vswitch).map(|it| it.zone.clone()).unwrap_or_default();
    let instance = Instance::new(&input.name, &zone, &input.vswitch, &input.private_ip, &input.eni);
    let interface = Interface::primary(&input.id, &input.vswitch, &input.private_ip);
    let ipv4 = interface.ipv4.iter().chain(&input.pod_ips).cloned().collect();
    account.interfaces.insert(input.eni, Interface { ipv4, ipv6: input.ipv6, ..interface });
    let instance = Instance {
        host_name: input.hostname,
        instance_type: input.instance_type.unwrap_or(instance.instance_type),
        charge_type: input.charge_type.unwrap_or(instance.charge_type),
        spot_strategy: input.spot_strategy.unwrap_or(instance.spot_strategy),
        status: input.status.unwrap_or(instance.status),
        public_ip: input.public_ip,
        eip: input.eip,
        tags: input.tags,
        ..instance
    };
    account.instances.insert(input.id, instance);
}

fn add_table(account: &mut Account, input: TableInput) {
    let mut table = RouteTable { kind: input.kind, ..RouteTable::system(&input.vpc) };
    for it in input.entries {
        let id = account.fresh("rte-bp1", 17);
        let entry =
            RouteEntry { name: it.name, description: it.description, ..RouteEntry::to_instance(&id, &it.next_hop) };
        table.entries.insert(it.cidr, entry);
    }
    account.route_tables.insert(input.id, table);
}

fn add_load_balancer(account: &mut Account, input: LoadBalancerInput) -> Result<(), InvalidAccount> {
    let mut made = LoadBalancer::internet(&input.name, &input.address);
    made.master_zone = account.zones.first().cloned().unwrap_or_default();
    made.slave_zone = account.zones.get(1).or_else(|| account.zones.first()).cloned().unwrap_or_default();
    if !input.vswitch.is_empty() {
        made.vpc = account.vpc_of(&input.vswitch).into();
        made.vswitch = input.vswitch;
        made.address_type = "intranet".into();
    }
    if let Some(charge_type) = input.instance_charge_type {
        made.instance_charge_type = charge_type;
    }
    if let Some(spec) = input.spec {
        made.spec = spec;
    }
    made.delete_protection = input.delete_protection;
    made.tags = input.tags;
    for it in input.vgroups {
        let backends = it.backends.into_iter().map(|it| Backend {
            kind: if it.server_id.starts_with("eni-") { "eni".into() } else { "ecs".into() },
            server_id: it.server_id,
            server_ip: it.server_ip,
            port: it.port,
            weight: it.weight.unwrap_or(100),
            description: it.description,
        });
        made.groups.insert(it.id, Group { backends: backends.collect(), ..Group::new(&it.name) });
    }
    for it in input.listeners {
        let protocol =
            Protocol::parse(&it.protocol).ok_or_else(|| InvalidAccount(format!("protocol {}", it.protocol)))?;
        let listener = Listener {
            description: it.description,
            status: it.status.unwrap_or_else(|| "running".into()),
            group: it.vgroup,
            ..slb::plain_listener(protocol)
        };
        made.listeners.insert((it.port, protocol), listener);
    }
    account.load_balancers.insert(input.id, made.into());
    Ok(())
}

/// Everything that tests usually compare.
pub(crate) fn snapshot(account: &Account) -> Value {
    let load_balancers: Vec<Value> = account.load_balancers.iter().map(|(id, it)| load_balancer(id, it)).collect();
    let routes: Map<String, Value> = account.route_tables.iter().map(|(id, it)| (id.clone(), routes(it))).collect();
    let instances: Map<String, Value> =
        account.instances.iter().map(|(id, it)| (id.clone(), instance(account, it))).collect();
    let extensions: Map<String, Value> =
        account.load_balancers.iter().flat_map(|(id, it)| domain_extensions(id, it)).collect();
    let network = account.nlb.balancers.iter().map(|(id, it)| nlb::shown_balancer(account, id, it));
    let server_groups = account.nlb.groups.iter().map(|(id, it)| nlb::shown_group(account, id, it));
    let security_groups = account.security_groups.iter().map(|(id, it)| nlb::shown_security_group(id, it));
    json!({
        "load_balancers": load_balancers,
        "domain_extensions": extensions,
        "network_load_balancers": network.collect::<Vec<_>>(),
        "server_groups": server_groups.collect::<Vec<_>>(),
        "security_groups": security_groups.collect::<Vec<_>>(),
        "routes": routes,
        "instances": instances,
    })
}

/// `<load balancer>/<port>` to domains and their certificates.
fn domain_extensions(id: &str, lb: &LoadBalancer) -> Vec<(String, Value)> {
    let has_some = lb.listeners.iter().filter(|(_, it)| !it.domain_extensions.is_empty());
    has_some
        .map(|((port, _), it)| {
            let pairs = it.domain_extensions.values().map(|it| (it.domain.clone(), json!(it.certificate)));
            (format!("{id}/{port}"), Value::Object(pairs.collect()))
        })
        .collect()
}

fn routes(table: &RouteTable) -> Value {
    let entry = |(cidr, it): (&String, &RouteEntry)| {
        json!({"cidr": cidr, "next_hop": it.next_hops.join(","), "name": it.name, "description": it.description,
            "status": it.status()})
    };
    table.entries.iter().map(entry).collect()
}

fn instance(account: &Account, it: &Instance) -> Value {
    let check = account.interfaces.get(&it.primary_eni).and_then(|it| it.source_dest_check);
    json!({"name": it.name, "status": it.status, "zone": it.zone, "vswitch": it.vswitch, "private_ips": it.private_ips,
        "eni": it.primary_eni, "source_dest_check": check, "tags": it.tags})
}

/// Names of groups; one that occurs more than once gets its id behind it.
fn group_name(it: &LoadBalancer, id: &str) -> String {
    let name = it.groups.get(id).map_or("", |it| it.name.as_str());
    let is_shared = it.groups.values().filter(|it| it.name == name).count() > 1;
    if is_shared { format!("{name}#{id}") } else { name.to_owned() }
}

pub(crate) fn load_balancer(id: &str, it: &LoadBalancer) -> Value {
    let groups: Map<String, Value> =
        it.groups.iter().map(|(id, group)| (group_name(it, id), backends(group))).collect();
    let listeners: Map<String, Value> = it
        .listeners
        .iter()
        .map(|((port, protocol), listener)| {
            let key = format!("{port}/{}", protocol.as_str());
            (key, listener_json(it, *port, *protocol, listener))
        })
        .collect();
    json!({
        "id": id,
        "name": it.name,
        "address": it.address,
        "address_type": it.address_type,
        "ip_version": it.ip_version,
        "network_type": it.network_type(),
        "vpc": it.vpc,
        "vswitch": it.vswitch,
        "master_zone": it.master_zone,
        "slave_zone": it.slave_zone,
        "spec": it.spec,
        "instance_charge_type": it.instance_charge_type,
        "internet_charge_type": it.internet_charge_type,
        "bandwidth": it.bandwidth,
        "delete_protection": it.delete_protection,
        "modification_protection": it.modification_protection,
        "modification_reason": it.modification_reason,
        "resource_group": it.resource_group,
        "status": it.status,
        "tags": it.tags,
        "vgroups": groups,
        "listeners": listeners,
    })
}

fn backends(group: &Group) -> Value {
    let mut backends: Vec<&Backend> = group.backends.iter().collect();
    backends.sort_by(|a, b| (&a.server_id, &a.server_ip, a.port).cmp(&(&b.server_id, &b.server_ip, b.port)));
    let one = |it: &Backend| {
        json!({"server_id": it.server_id, "server_ip": it.server_ip, "port": it.port, "weight": it.weight,
            "type": it.kind, "description": it.description})
    };
    backends.into_iter().map(one).collect()
}

fn listener_json(lb: &LoadBalancer, port: u16, protocol: Protocol, it: &Listener) -> Value {
    json!({
        "port": port,
        "protocol": protocol.as_str(),
        "status": it.shown_status(),
        "description": it.description,
        "vgroup": group_name(lb, &it.group),
        "backend_port": it.backend_port,
        "bandwidth": it.bandwidth,
        "scheduler": it.scheduler,
        "acl_status": it.acl_status,
        "acl_type": it.acl_type,
        "acl_ids": it.acl_ids,
        "tags": it.tags,
        "config": it.config,
    })
}
