//! Turns one operation into one call; a removal of servers that the cloud refuses takes up to two more.
//!
//! Only the creation of a load balancer has a client token. Under the same token the cloud gives back what was made, even
//! what was deleted since, and server groups and listeners of one name come and go: what a lost answer may have made of
//! those is looked for instead, see [`creations`](crate::controllers::loadbalancer::creations).

use crate::alibaba::ecs::Ecs;
use crate::alibaba::nlb::{ListenerChange, NewListener, Nlb};
use crate::alibaba::{Fault, FaultKind};
use crate::controllers::loadbalancer::product::Write;
use crate::controllers::loadbalancer::writes::{gone_is_done, group_id, load_balancer_id, missing};
use crate::fence::Permit;
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::loadbalancer::model::{BackendKey, GroupRef};
use crate::plan::nlb::model::ListenerKey;
use crate::plan::nlb::observed::Observed;
use crate::plan::nlb::operation::{Operation, Own};

/// Makes the one write that the operation is.
pub(super) async fn perform(
    (nlb, ecs): (&Nlb, &Ecs),
    write: &Write<'_>,
    operation: &Operation,
    observed: &Observed,
) -> Result<Answer, Fault> {
    let (permit, lb) = (write.permit, || load_balancer_id(observed));
    let vpc = || observed.instance.as_ref().map(|it| it.vpc_id.as_str()).ok_or_else(|| missing("the load balancer"));
    let (group, listener_id) = (|group| group_id(observed, group), |listener: &_| listener_id(observed, *listener));
    let security_group = || {
        let first = observed.parts.security_groups.iter().flatten().next();
        first.map(|group| group.id.as_str()).ok_or_else(|| missing("the security group"))
    };
    match operation {
        Operation::Create(wanted) => nlb.create_instance(permit, wanted, &write.token.text()).await,
        Operation::Delete { id } => nlb.delete_instance(permit, id).await.or_else(gone_is_done),
        Operation::Own(Own::SetInstance(fields)) => nlb.set_instance(permit, lb()?, fields).await,
        Operation::Own(Own::SetAddressType { address_type, zones }) => {
            nlb.set_address_type(permit, lb()?, address_type, zones).await
        }
        Operation::Own(Own::SetZones { zones }) => nlb.set_zones(permit, lb()?, zones).await,
        Operation::Own(Own::JoinSecurityGroups { groups }) => {
            let ids = groups.iter().map(|id| observed.security_group_id(id).to_owned()).collect();
            nlb.join_security_groups(permit, lb()?, &ids).await
        }
        Operation::Own(Own::LeaveSecurityGroups { groups }) => nlb.leave_security_groups(permit, lb()?, groups).await,
        Operation::Own(Own::AttachBandwidthPackage { id }) => nlb.attach_bandwidth_package(permit, lb()?, id).await,
        Operation::Own(Own::DetachBandwidthPackage { id }) => nlb.detach_bandwidth_package(permit, lb()?, id).await,
        Operation::Tag { tags } => nlb.tag(permit, lb()?, tags).await,
        Operation::Untag { keys } => nlb.untag(permit, lb()?, keys).await,
        Operation::Own(Own::CreateGroup(wanted)) => nlb.create_group(permit, vpc()?, wanted).await,
        Operation::Own(Own::SetGroup { group: it, fields }) => nlb.set_group(permit, group(it)?, fields).await,
        Operation::Own(Own::UntagGroup { id, keys }) => nlb.untag(permit, id, keys).await.or_else(gone_is_done),
        Operation::AddBackends { group: it, backends } => nlb.add_servers(permit, group(it)?, backends).await,
        Operation::RemoveBackends { group: it, backends } => remove_servers(nlb, permit, group(it)?, backends).await,
        Operation::SetBackends { group: it, backends } => nlb.set_servers(permit, group(it)?, backends).await,
        Operation::DeleteGroup { id, .. } => nlb.delete_group(permit, id).await.or_else(gone_is_done),
        Operation::CreateListener { listener, description, group: it, fields } => {
            let (load_balancer_id, group_id, listener) = (lb()?, listener_group(observed, it.as_ref())?, *listener);
            nlb.create_listener(permit, &NewListener { load_balancer_id, listener, description, group_id, fields })
                .await
        }
        Operation::SetListener { listener, description, group: it, fields } => {
            let (group_id, fields) = (listener_group(observed, it.as_ref())?, &observed.sent(*listener, fields));
            let listener_id = listener_id(listener)?;
            nlb.set_listener(permit, &ListenerChange { listener_id, description, group_id, fields }).await
        }
        Operation::StartListener { listener } => nlb.start_listener(permit, listener_id(listener)?).await,
        Operation::DeleteListener { listener } => {
            nlb.delete_listener(permit, listener_id(listener)?).await.or_else(gone_is_done)
        }
        Operation::Own(Own::DeleteFormerListener { id, .. }) => {
            nlb.delete_listener(permit, id).await.or_else(gone_is_done)
        }
        Operation::Own(Own::AddCertificates { listener, ids }) => {
            nlb.add_certificates(permit, listener_id(listener)?, ids).await
        }
        Operation::Own(Own::RemoveCertificates { listener, ids }) => {
            nlb.remove_certificates(permit, listener_id(listener)?, ids).await
        }
        Operation::Own(Own::CreateSecurityGroup(wanted)) => {
            let id = ecs.create_security_group(permit, vpc()?, wanted).await?;
            Ok(Answer { id: Some(id), ..Answer::default() })
        }
        Operation::Own(Own::AddRules { rules, description }) => {
            ecs.add_security_rules(permit, security_group()?, rules, description).await.map(|()| Answer::default())
        }
        Operation::Own(Own::RemoveRules { ids }) => {
            ecs.remove_security_rules(permit, security_group()?, ids).await.map(|()| Answer::default())
        }
        Operation::Own(Own::DeleteSecurityGroup { id, .. }) => {
            ecs.delete_security_group(permit, id).await.map(|()| Answer::default()).or_else(gone_is_done)
        }
    }
}

/// The cloud takes the servers of released instances out by itself, and refuses a removal that names one of them. Then the
/// others are removed alone.
async fn remove_servers(nlb: &Nlb, permit: &Permit, group: &str, servers: &[BackendKey]) -> Result<Answer, Fault> {
    match nlb.remove_servers(permit, group, servers).await {
        Err(fault) if fault.kind == FaultKind::Gone => match &nlb.servers_among(group, servers).await?[..] {
            [] => Ok(Answer::default()),
            left => nlb.remove_servers(permit, group, left).await,
        },
        removed => removed,
    }
}

/// The id of the server group of a listener: every listener of this product has one.
fn listener_group<'a>(observed: &'a Observed, group: Option<&'a GroupRef>) -> Result<&'a str, Fault> {
    group_id(observed, group.ok_or_else(|| missing("the server group"))?)
}

fn listener_id(observed: &Observed, listener: ListenerKey) -> Result<&str, Fault> {
    let found = observed.listener(&listener);
    found.map(|found| found.id.as_str()).ok_or_else(|| missing(format!("listener {listener}")))
}
