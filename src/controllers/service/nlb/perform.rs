//! Turns one operation into one call.
//!
//! Only the creation of a load balancer has a client token. Under the same token the cloud gives back what was made, even
//! what was deleted since, and server groups and listeners of one name come and go: what a lost answer may have made of
//! those is looked for instead, see [`creations`](crate::controllers::service::creations).

use crate::alibaba::Fault;
use crate::alibaba::ecs::Ecs;
use crate::alibaba::nlb::{ListenerChange, NewListener, Nlb};
use crate::controllers::service::product::Write;
use crate::controllers::service::writes::{gone_is_done, group_id, load_balancer_id, misplaced, missing};
use crate::plan::nlb::model::ListenerKey;
use crate::plan::nlb::observed::{Answer, Observed};
use crate::plan::nlb::operation::{Operation, ResourceKind};
use crate::plan::service::desire::PROTECTION_REASON;
use crate::plan::service::groups::GroupOperation;

/// What is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Apis<'a> {
    pub(super) nlb: &'a Nlb,
    pub(super) ecs: &'a Ecs,
}

/// Makes the one write that the operation is.
pub(super) async fn perform(
    apis: &Apis<'_>,
    write: &Write<'_>,
    operation: &Operation,
    observed: &Observed,
) -> Result<Answer, Fault> {
    if let Operation::CreateLoadBalancer(wanted) = operation {
        return apis.nlb.create_instance(write.permit, wanted, &write.token.text()).await;
    }
    match operation.part() {
        ResourceKind::Instance => change_instance(apis.nlb, write, operation, observed).await,
        ResourceKind::Groups | ResourceKind::Backends => change_group(apis.nlb, write, operation, observed).await,
        ResourceKind::Listeners => change_listener(apis.nlb, write, operation, observed).await,
        ResourceKind::SecurityGroup => change_security_group(apis.ecs, write, operation, observed).await,
    }
}

async fn change_instance(
    nlb: &Nlb,
    write: &Write<'_>,
    operation: &Operation,
    observed: &Observed,
) -> Result<Answer, Fault> {
    let (permit, lb) = (write.permit, load_balancer_id(observed)?);
    match operation {
        Operation::DeleteLoadBalancer { id } => nlb.delete_instance(permit, id).await.or_else(gone_is_done),
        Operation::SetAttributes { name, cross_zone } => {
            nlb.set_attributes(permit, lb, name.as_deref(), *cross_zone).await
        }
        Operation::SetAddressType { address_type, zones } => {
            nlb.set_address_type(permit, lb, address_type, zones).await
        }
        Operation::SetIpv6AddressType { internet } => nlb.set_ipv6_internet(permit, lb, *internet).await,
        Operation::SetZones { zones } => nlb.set_zones(permit, lb, zones).await,
        Operation::SetProtection { delete, modification } => {
            let reason = |status: &String| (status == "ConsoleProtection").then_some(PROTECTION_REASON);
            let modification = modification.as_ref().map(|status| (status.as_str(), reason(status)));
            nlb.set_protection(permit, lb, *delete, modification).await
        }
        Operation::JoinSecurityGroups { groups } => {
            let ids = groups.iter().map(|id| observed.security_group_id(id).to_owned()).collect();
            nlb.join_security_groups(permit, lb, &ids).await
        }
        Operation::LeaveSecurityGroups { groups } => nlb.leave_security_groups(permit, lb, groups).await,
        Operation::AttachBandwidthPackage { id } => nlb.attach_bandwidth_package(permit, lb, id).await,
        Operation::DetachBandwidthPackage { id } => nlb.detach_bandwidth_package(permit, lb, id).await,
        Operation::Tag { tags } => nlb.tag(permit, lb, tags).await,
        Operation::Untag { keys } => nlb.untag(permit, lb, keys).await,
        other => Err(misplaced(other)),
    }
}

async fn change_group(
    nlb: &Nlb,
    write: &Write<'_>,
    operation: &Operation,
    observed: &Observed,
) -> Result<Answer, Fault> {
    let permit = write.permit;
    match operation {
        Operation::CreateGroup(wanted) => {
            let vpc = observed.instance.as_ref().ok_or_else(|| missing("the load balancer"))?;
            nlb.create_group(permit, &vpc.vpc_id, wanted).await
        }
        Operation::SetGroup { group, fields } => nlb.set_group(permit, group_id(observed, group)?, fields).await,
        Operation::UntagGroup { id, keys } => nlb.untag(permit, id, keys).await.or_else(gone_is_done),
        Operation::Group(GroupOperation::AddBackends { group, backends }) => {
            nlb.add_servers(permit, group_id(observed, group)?, backends).await
        }
        Operation::Group(GroupOperation::RemoveBackends { group, backends }) => {
            nlb.remove_servers(permit, group_id(observed, group)?, backends).await
        }
        Operation::Group(GroupOperation::SetBackends { group, backends }) => {
            nlb.set_servers(permit, group_id(observed, group)?, backends).await
        }
        Operation::Group(GroupOperation::DeleteGroup { id, .. }) => {
            nlb.delete_group(permit, id).await.or_else(gone_is_done)
        }
        other => Err(misplaced(other)),
    }
}

async fn change_listener(
    nlb: &Nlb,
    write: &Write<'_>,
    operation: &Operation,
    observed: &Observed,
) -> Result<Answer, Fault> {
    let permit = write.permit;
    match operation {
        Operation::CreateListener { listener, description, group, fields } => {
            let wanted = NewListener {
                load_balancer_id: load_balancer_id(observed)?,
                listener: *listener,
                description,
                group_id: group_id(observed, group)?,
                fields,
            };
            nlb.create_listener(permit, &wanted).await
        }
        Operation::SetListener { listener, description, group, fields } => {
            let (group_id, fields) = (group_id(observed, group)?, &observed.sent(*listener, fields));
            let listener_id = listener_id(observed, *listener)?;
            nlb.set_listener(permit, &ListenerChange { listener_id, description, group_id, fields }).await
        }
        Operation::StartListener { listener } => nlb.start_listener(permit, listener_id(observed, *listener)?).await,
        Operation::DeleteListener { listener } => {
            nlb.delete_listener(permit, listener_id(observed, *listener)?).await.or_else(gone_is_done)
        }
        Operation::DeleteFormerListener { id, .. } => nlb.delete_listener(permit, id).await.or_else(gone_is_done),
        Operation::AddCertificates { listener, ids } => {
            nlb.add_certificates(permit, listener_id(observed, *listener)?, ids).await
        }
        Operation::RemoveCertificates { listener, ids } => {
            nlb.remove_certificates(permit, listener_id(observed, *listener)?, ids).await
        }
        other => Err(misplaced(other)),
    }
}

/// The security group is no part of the load balancer.
async fn change_security_group(
    ecs: &Ecs,
    write: &Write<'_>,
    operation: &Operation,
    observed: &Observed,
) -> Result<Answer, Fault> {
    let permit = write.permit;
    let ours = || {
        let first = observed.security_groups.iter().flatten().next();
        first.map(|group| group.id.as_str()).ok_or_else(|| missing("the security group"))
    };
    match operation {
        Operation::CreateSecurityGroup(wanted) => {
            let vpc = observed.instance.as_ref().ok_or_else(|| missing("the load balancer"))?;
            let id = ecs.create_security_group(permit, &vpc.vpc_id, wanted).await?;
            return Ok(Answer { id: Some(id), ..Answer::default() });
        }
        Operation::AddRules { rules, description } => ecs.add_security_rules(permit, ours()?, rules, description).await,
        Operation::RemoveRules { ids } => ecs.remove_security_rules(permit, ours()?, ids).await,
        Operation::DeleteSecurityGroup { id, .. } => ecs.delete_security_group(permit, id).await.or_else(gone_is_done),
        other => Err(misplaced(other)),
    }
    .map(|()| Answer::default())
}

fn listener_id(observed: &Observed, listener: ListenerKey) -> Result<&str, Fault> {
    let found = observed.listeners.as_ref().and_then(|all| all.get(&listener));
    found.map(|found| found.id.as_str()).ok_or_else(|| missing(format!("listener {listener}")))
}
