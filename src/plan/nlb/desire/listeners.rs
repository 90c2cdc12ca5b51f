//! Ports of a Service: a listener, its server group, and the group's backends for each.

use super::instance::id_set;
use crate::plan::inputs::{ServicePort, TargetPort};
use crate::plan::loadbalancer::annotations::values::port_range;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::backends::{AddressFamily, BackendMode};
use crate::plan::loadbalancer::desired::Sources;
use crate::plan::loadbalancer::listener_pass::ListenerModel;
use crate::plan::loadbalancer::management::ManagementLevel;
use crate::plan::loadbalancer::model::GroupRef;
use crate::plan::loadbalancer::problem::{ProblemKind, ServiceProblem};
use crate::plan::nlb::annotations::{self, Name};
use crate::plan::nlb::desired::{Desired, DesiredListener, GroupSpec, NlbModel};
use crate::plan::nlb::model::{
    CreateGroup, GroupField, GroupFields, InstanceField, ListenerField, ListenerFields, ListenerKey, Protocol,
};

/// Longest idle timeout of a UDP listener, in seconds.
const MOST_UDP_IDLE: i64 = 20;
/// Longest interval of health checks other than by UDP, in seconds.
const MOST_INTERVAL: i64 = 50;

impl Sources<'_, Name> {
    /// Adds a port.
    pub(super) fn add_port(
        &self,
        desired: &mut Desired,
        source: String,
        port: &ServicePort,
    ) -> Result<(), ServiceProblem> {
        let protocol = self.protocol(&source, port)?;
        let key = self.key(port, protocol)?;
        let mark = self.mark(desired, port, key);
        let group = match desired.named_group(self, &source, port)? {
            Some(named) => {
                desired.remember(&named.to_string(), true, desired.manage.keeps(ManagementLevel::Backends));
                named
            }
            None => {
                if !desired.extra.group_specs.contains_key(&mark) {
                    let spec = self.spec(desired, &mark, port, key);
                    desired.extra.group_specs.insert(mark.clone(), spec);
                }
                GroupRef::Named(mark.clone())
            }
        };
        // On a range of ports, backends get the port that the client asked for.
        let at = |port| if key.is_range() { 0 } else { port };
        if desired.add_backends(self, (&source, port), (&group, mark), at) {
            desired.empty_ports.push(key);
        }
        if let Some((other, listener)) = desired.listeners.iter().find(|(other, _)| NlbModel::collide(**other, key)) {
            let rule = format!(
                "must have other ports: {} has {other} already, and only UDP shares a port with another protocol",
                listener.source
            );
            return Err(ServiceProblem::invalid(source, key.to_string(), rule));
        }
        let fields = self.listener_fields(desired, key);
        let additional = || self.annotations.get(Name::AdditionalCertIds).map(id_set);
        let listener = DesiredListener {
            port: port.port,
            description: desired.owner.listener_key(format!("{}.{}", key.ports(), key.protocol)),
            source,
            group,
            fields,
            defaults: ListenerFields::new(),
            resets: ListenerFields::new(),
            forward_to: None,
            certificates: (protocol == Protocol::TcpSsl).then(additional).flatten(),
        };
        desired.listeners.insert(key, listener);
        Ok(())
    }

    /// The protocol of a port's listener. Of two ports with one number, the annotation is about the one that is UDP or not,
    /// as it says.
    pub(super) fn protocol(&self, source: &str, port: &ServicePort) -> Result<Protocol, ServiceProblem> {
        let own = Protocol::parse(&port.protocol);
        let own = own.ok_or_else(|| ServiceProblem::unsupported_protocol(source, &port.protocol))?;
        let is_shared = self.inputs.service.ports.iter().filter(|other| other.port == port.port).count() > 1;
        let stated = self.annotations.at_port(Name::ProtocolPort, port.port).and_then(Protocol::parse);
        let is_udp = |protocol: Protocol| protocol == Protocol::Udp;
        Ok(stated.filter(|stated| !is_shared || is_udp(*stated) == is_udp(own)).unwrap_or(own))
    }

    /// The ports that the listener takes.
    fn key(&self, port: &ServicePort, protocol: Protocol) -> Result<ListenerKey, ServiceProblem> {
        let Some(range) = self.annotations.at_port(Name::ListenerPortRange, port.port) else {
            return Ok(ListenerKey::port(port.port, protocol));
        };
        let problem = |why: String| {
            let field = self.annotations.key(Name::ListenerPortRange);
            ServiceProblem::forbidden(field, format!("{range}:{} needs {why}", port.port))
        };
        if self.rules.mode != BackendMode::Eni {
            let key = self.annotations.key(Name::BackendType);
            return Err(problem(format!("{key}: eni, as nodes have no range of ports")));
        }
        match (port_range(range), &port.target_port) {
            (Some(_), TargetPort::Name(_)) => {
                Err(problem("a number as targetPort, which health checks of the range use".to_owned()))
            }
            (Some((first, last)), TargetPort::Number(_)) => Ok(ListenerKey { first, last, protocol }),
            (None, _) => Ok(ListenerKey::port(port.port, protocol)),
        }
    }

    /// The mark of a port's backends, and the name of its group if it is ours.
    fn mark(&self, desired: &Desired, port: &ServicePort, key: ListenerKey) -> String {
        let part = match self.rules.mode {
            _ if key.is_range() => key.ports(),
            BackendMode::Eni => port.target_port.to_string(),
            BackendMode::Local | BackendMode::Cluster => port.node_port.to_string(),
        };
        desired.owner.group_key(&format!("{part}.{}", key.protocol))
    }

    /// Attributes of a group of ours.
    fn spec(&self, desired: &mut Desired, name: &str, port: &ServicePort, key: ListenerKey) -> GroupSpec {
        let mut kept = annotations::group_fields(self.annotations);
        self.check_group_fields(desired, port, key, &mut kept);
        let set = |fields: &mut GroupFields, field, value: &str| drop(fields.insert(field, value.to_owned()));
        let dual_stack = self.rules.family != AddressFamily::V4;
        set(&mut kept, GroupField::Type, if self.rules.nodes.by_address { "Ip" } else { "Instance" });
        set(&mut kept, GroupField::Protocol, key.protocol.of_group());
        set(&mut kept, GroupField::IpVersion, if dual_stack { "DualStack" } else { "ipv4" });
        set(&mut kept, GroupField::AnyPort, if key.is_range() { "true" } else { "false" });
        match self.rules.family {
            AddressFamily::V4 => {}
            AddressFamily::V6 => set(&mut kept, GroupField::IpAffinity, "NonAffinity"),
            AddressFamily::Both => set(&mut kept, GroupField::IpAffinity, "Affinity"),
        }
        if let (true, TargetPort::Number(number)) = (key.is_range(), &port.target_port) {
            // Backends have no port of their own there, which 0 stands for, and it follows the pods.
            let is_stated = kept.get(&GroupField::HealthCheckPort).is_some_and(|port| port != "0");
            if !is_stated {
                set(&mut kept, GroupField::HealthCheckPort, &number.to_string());
            }
        }
        let mut fields = kept.clone();
        if key.is_range() {
            fields.entry(GroupField::HealthCheck).or_insert_with(|| "true".to_owned());
        }
        if fields.is(GroupField::Drain, "true") {
            fields.entry(GroupField::DrainTimeout).or_insert_with(|| "10".to_owned());
        }
        let create = CreateGroup {
            name: name.to_owned(),
            fields,
            resource_group_id: desired.instance.create.fields.get(&InstanceField::ResourceGroup).cloned(),
            tags: desired.owner.tags(),
        };
        GroupSpec { create, kept }
    }

    /// What this protocol does not allow: it is left out, with a problem.
    fn check_group_fields(
        &self,
        desired: &mut Desired,
        port: &ServicePort,
        key: ListenerKey,
        fields: &mut GroupFields,
    ) {
        let is = |field, value| fields.is(field, value);
        let udp = key.protocol == Protocol::Udp;
        let mut wrong = Vec::new();
        if key.protocol == Protocol::TcpSsl && is(GroupField::HealthCheckType, "UDP") {
            let kind =
                ProblemKind::Unverified("UDP".to_owned(), format!("UDP checks of UDP ports, not of listener {key}"));
            let field = self.annotations.key(Name::HealthCheckType);
            desired.warnings.push(ServiceProblem { field, kind });
        } else if !udp && is(GroupField::HealthCheckType, "UDP") {
            wrong.push((Name::HealthCheckType, GroupField::HealthCheckType, "must be `TCP` or `HTTP`"));
        }
        if !udp && is(GroupField::Scheduler, "qch") {
            wrong.push((Name::Scheduler, GroupField::Scheduler, "must be another scheduler, as `qch` needs UDP,"));
        }
        let interval = fields.get(&GroupField::HealthCheckInterval).and_then(|text| text.parse::<i64>().ok());
        if !is(GroupField::HealthCheckType, "UDP") && interval.is_some_and(|seconds| seconds > MOST_INTERVAL) {
            wrong.push((
                Name::HealthCheckInterval,
                GroupField::HealthCheckInterval,
                "must be at most 50 without UDP checks",
            ));
        }
        for (name, field, rule) in wrong {
            fields.remove(&field);
            let problem = self.annotations.invalid(name, format!("{rule} on listener {key}"));
            desired.problems.settings([key.place(port.port)], problem);
        }
        if key.protocol == Protocol::TcpSsl {
            fields.insert(GroupField::PreserveClientIp, "false".to_owned());
        }
    }

    /// Attributes of a listener; what is missing is a problem.
    fn listener_fields(&self, desired: &mut Desired, key: ListenerKey) -> ListenerFields {
        let mut fields = annotations::listener_fields(self.annotations, key.protocol);
        let idle = self.annotations.integer(Name::IdleTimeout);
        if key.protocol == Protocol::Udp && idle.is_some_and(|seconds| seconds > MOST_UDP_IDLE) {
            fields.insert(ListenerField::IdleTimeout, MOST_UDP_IDLE.to_string());
            let rule = format!("must be at most {MOST_UDP_IDLE} with UDP, which is used for listener {key}");
            desired.warnings.push(self.annotations.invalid(Name::IdleTimeout, rule));
        }
        fields
    }
}
