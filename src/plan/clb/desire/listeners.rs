//! Ports of a Service: a listener, its server group, and the group's backends for each.

use super::source_ranges;
use crate::plan::clb::annotations::{self, Name};
use crate::plan::clb::desired::{ClbModel, Desired, DesiredListener};
use crate::plan::clb::model::{ListenerField, ListenerFields, ListenerKey, Protocol};
use crate::plan::inputs::{DEFAULT_AFFINITY, ServicePort};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::backends::BackendMode;
use crate::plan::loadbalancer::backends::Inputs;
use crate::plan::loadbalancer::desired::Sources;
use crate::plan::loadbalancer::listener_pass::ListenerModel;
use crate::plan::loadbalancer::model::GroupRef;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::settings::ServiceSettings;

/// Longest persistence of a TCP listener, in seconds.
const MOST_PERSISTENCE: u32 = 3600;

impl Sources<'_, Name> {
    /// What all ports ask for together, and what stands against it.
    pub(super) fn check_ports(&self, desired: &mut Desired) {
        self.remember(desired);
        self.check_scheduler(desired);
        let service = self.inputs.service;
        if service.client_ip_affinity.is_some() && self.annotations.get(Name::PersistenceTimeout).is_none() {
            self.check_affinity(desired);
        }
    }

    /// Adds a port.
    pub(super) fn add_port(
        &self,
        desired: &mut Desired,
        source: String,
        port: &ServicePort,
    ) -> Result<(), ServiceProblem> {
        let key = key(self, &source, port)?;
        let mark = self.mark(desired, port);
        let named = desired.named_group(self, &source, port)?;
        let group = named.unwrap_or_else(|| GroupRef::Named(mark.clone()));
        if desired.add_backends(self, (&source, port), (&group, mark), |port| port) {
            desired.empty_ports.push(key);
        }
        if let Some((other, listener)) = desired.listeners.iter().find(|(other, _)| ClbModel::collide(**other, key)) {
            let rule = format!(
                "must have another port number: {} has {other} already, and TCP, HTTP and HTTPS cannot share a port",
                listener.source
            );
            return Err(ServiceProblem::invalid(source, key.to_string(), rule));
        }
        let listener = self.listener(desired, source, key, group);
        desired.listeners.insert(key, listener);
        Ok(())
    }

    /// The mark of a port's backends, and the name of its group if it is ours.
    fn mark(&self, desired: &Desired, port: &ServicePort) -> String {
        let part = match self.rules.mode {
            BackendMode::Eni => port.target_port.to_string(),
            BackendMode::Local | BackendMode::Cluster => port.node_port.to_string(),
        };
        desired.owner.group_key(&part)
    }

    fn listener(&self, desired: &Desired, source: String, key: ListenerKey, group: GroupRef) -> DesiredListener {
        let Inputs { service, settings, .. } = *self.inputs;
        let forward = || annotations::stated_forward(self.annotations, key.port);
        let forward_to = (key.protocol == Protocol::Http).then(forward).flatten();
        let domains = || self.annotations.pairs(Name::DomainExtensions).cloned();
        let mut defaults = defaults(key.protocol, settings);
        let mut fields = annotations::listener_fields(self.annotations, key.protocol);
        if let Some(access) = desired.access.as_ref().filter(|_| forward_to.is_none()) {
            fields.extend(source_ranges::fields(access));
        }
        let local = self.rules.mode == BackendMode::Local && service.health_check_node_port != 0;
        if settings.service.local_health_check && local {
            node_health_check(service.health_check_node_port, key.protocol, &mut fields);
        }
        if let Some(seconds) = service.client_ip_affinity.filter(|_| key.protocol == Protocol::Tcp) {
            let seconds = seconds.min(MOST_PERSISTENCE).to_string();
            // Listeners that are made from now on have it in any case.
            let place = if desired.extra.inherited { &mut defaults } else { &mut fields };
            place.entry(ListenerField::PersistenceTimeout).or_insert(seconds);
        }
        DesiredListener {
            port: key.port,
            description: desired.owner.listener_key(key.port),
            source,
            group,
            fields,
            defaults,
            resets: ListenerFields::new(),
            forward_to,
            certificates: (key.protocol == Protocol::Https).then(domains).flatten(),
        }
    }

    /// Takes back from listeners what the spec had set and asks for no longer.
    fn remember(&self, desired: &mut Desired) {
        let counts = !desired.extra.inherited || desired.applied.contains(applied::SESSION_AFFINITY);
        let affinity = self.inputs.service.client_ip_affinity.is_some() && counts;
        let managed = desired.changes_listeners();
        let no_affinity = desired.remember(applied::SESSION_AFFINITY, affinity, managed);
        let port = self.inputs.service.health_check_node_port.to_string();
        let checks = |fields: &ListenerFields| {
            fields.is(ListenerField::HealthCheckUri, NODE_CHECK)
                && fields.is(ListenerField::HealthCheckConnectPort, &port)
        };
        let node_check = desired.listeners.values().any(|listener| checks(&listener.fields));
        let no_node_check = desired.remember(applied::NODE_HEALTH_CHECK, node_check, managed);
        for (key, listener) in &mut desired.listeners {
            let mut reset = |field: ListenerField, value: &str| {
                if field.protocols().contains(&key.protocol) {
                    listener.resets.insert(field, value.to_owned());
                }
            };
            if no_affinity {
                reset(ListenerField::PersistenceTimeout, "0");
            }
            if no_node_check {
                reset(ListenerField::HealthCheckType, "tcp");
                reset(ListenerField::HealthCheckConnectPort, "-520");
                // The API takes no empty path, and no `/` alone; this one leads to the same page.
                reset(ListenerField::HealthCheckUri, "/?");
            }
        }
    }

    /// What stands against the scheduler that the annotation asks for.
    fn check_scheduler(&self, desired: &mut Desired) {
        let Some(scheduler) = self.annotations.get(Name::Scheduler) else { return };
        let wrong: Vec<ListenerKey> =
            desired.listeners.keys().filter(|key| !schedules(scheduler, key.protocol)).copied().collect();
        if wrong.is_empty() {
            return;
        }
        let list: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        let rule = format!(
            "must be `rr`, `wrr` or `wlc` on {}; `sch` and `tch` need TCP or UDP, `qch` needs UDP",
            list.join(", ")
        );
        let problem = self.annotations.invalid(Name::Scheduler, rule);
        for (_, listener) in desired.listeners.iter_mut().filter(|(key, _)| wrong.contains(key)) {
            listener.fields.remove(&ListenerField::Scheduler);
        }
        desired.problems.settings(wrong.into_iter().map(ListenerKey::place), problem);
    }

    /// `spec.sessionAffinity`, where it cannot be kept as it stands.
    fn check_affinity(&self, desired: &mut Desired) {
        const FIELD: &str = "spec.sessionAffinity";
        let mut warn = |problem| desired.warnings.push(problem);
        let service = self.inputs.service;
        let protocols = || service.ports.iter().filter_map(|port| Some(key(self, "", port).ok()?.protocol));
        if protocols().any(|protocol| protocol != Protocol::Tcp) {
            let key = self.annotations.key(Name::StickySession);
            warn(ServiceProblem::ignored(FIELD, "ClientIP", format!("listeners other than TCP have none; see {key}")));
        }
        let tcp = protocols().any(|protocol| protocol == Protocol::Tcp);
        let is_stated = |seconds: &u32| *seconds > MOST_PERSISTENCE && *seconds != DEFAULT_AFFINITY;
        if let Some(seconds) = service.client_ip_affinity.filter(|seconds| tcp && is_stated(seconds)) {
            let key = self.annotations.key(Name::PersistenceTimeout);
            let rule =
                format!("must be at most {MOST_PERSISTENCE} s on a load balancer, which is used; {key} sets less");
            warn(ServiceProblem::invalid(FIELD, format!("ClientIP for {seconds} s"), rule));
        }
    }
}

/// Where a port's listener is. An entry of `protocol-port` speaks of a number only; where a Service has both a TCP and a UDP
/// port of that number, it counts for the one that it fits.
pub(super) fn key(
    sources: &Sources<'_, Name>,
    source: &str,
    port: &ServicePort,
) -> Result<ListenerKey, ServiceProblem> {
    let own = match port.protocol.as_str() {
        "TCP" | "" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        other => {
            return Err(ServiceProblem::unsupported_protocol(source, other));
        }
    };
    let shared = sources.inputs.service.ports.iter().filter(|other| other.port == port.port).count() > 1;
    let stated = annotations::stated_protocol(sources.annotations, port.port);
    let stated = stated.filter(|stated| !shared || (*stated == Protocol::Udp) == (own == Protocol::Udp));
    Ok(ListenerKey { port: port.port, protocol: stated.unwrap_or(own) })
}

/// What a new listener has where no annotation speaks.
fn defaults(protocol: Protocol, settings: &ServiceSettings) -> ListenerFields {
    let scheduler = settings.service.defaults.scheduler.as_str();
    let scheduler = if schedules(scheduler, protocol) { scheduler } else { "rr" };
    let mut fields = ListenerFields::from([(ListenerField::Scheduler, scheduler.to_owned())]);
    if protocol != Protocol::Http {
        fields.insert(ListenerField::Bandwidth, "-1".to_owned());
    }
    if matches!(protocol, Protocol::Http | Protocol::Https) {
        fields.insert(ListenerField::HealthCheck, "off".to_owned());
        fields.insert(ListenerField::StickySession, "off".to_owned());
    }
    fields
}

/// Whether listeners of a protocol know a scheduler: those by hash are for some only.
fn schedules(scheduler: &str, protocol: Protocol) -> bool {
    match protocol {
        Protocol::Udp => true,
        Protocol::Tcp => scheduler != "qch",
        Protocol::Http | Protocol::Https => !["sch", "tch", "qch"].contains(&scheduler),
    }
}

/// The path at which kube-proxy answers whether a node has ready pods of a Service.
const NODE_CHECK: &str = "/healthz";

/// Checks by HTTP whether a node has ready pods of the Service, where no annotation says what to check.
fn node_health_check(port: u16, protocol: Protocol, fields: &mut ListenerFields) {
    use ListenerField::{HealthCheck, HealthCheckConnectPort, HealthCheckSwitch, HealthCheckType, HealthCheckUri};
    let checks = match protocol {
        Protocol::Tcp => !fields.is(HealthCheckSwitch, "off") && !fields.is(HealthCheckType, "tcp"),
        Protocol::Udp => false,
        Protocol::Http | Protocol::Https => fields.is(HealthCheck, "on"),
    };
    if !checks || fields.contains_key(&HealthCheckConnectPort) || fields.contains_key(&HealthCheckUri) {
        return;
    }
    if protocol == Protocol::Tcp {
        fields.insert(HealthCheckType, "http".to_owned());
    }
    fields.insert(HealthCheckConnectPort, port.to_string());
    fields.insert(HealthCheckUri, NODE_CHECK.to_owned());
    fields.entry(ListenerField::HealthCheckHttpCode).or_insert_with(|| "http_2xx".to_owned());
}
