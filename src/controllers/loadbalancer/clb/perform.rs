//! Turns one operation into one call.

use crate::alibaba::Fault;
use crate::alibaba::clb::{Clb, ListenerRequest};
use crate::controllers::loadbalancer::product::Write;
use crate::controllers::loadbalancer::writes::{gone_is_done, group_id, load_balancer_id, missing};
use crate::plan::clb::desired::ClbModel;
use crate::plan::clb::model::CreateInstance;
use crate::plan::clb::observed::{AccessList, Observed};
use crate::plan::clb::operation::{Operation, Own};
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::loadbalancer::cloud::CloudModel as _;
use crate::plan::loadbalancer::model::GroupRef;

/// Makes the one write that the operation is.
pub(super) async fn perform(
    clb: &Clb,
    write: &Write<'_>,
    operation: &Operation,
    observed: &Observed,
) -> Result<Answer, Fault> {
    let (permit, lb) = (write.permit, || load_balancer_id(observed));
    let group = |group| group_id(observed, group);
    let list = || match &observed.parts.access_list {
        AccessList::Found(list) => Ok(list.id.as_str()),
        _ => Err(missing("the access control list")),
    };
    match operation {
        Operation::Create(wanted) => return create_instance(clb, write, wanted).await,
        Operation::Own(Own::CreateGroup { name, backends }) => {
            return clb.create_group(permit, lb()?, name, backends).await.map(made);
        }
        Operation::Own(Own::CreateAccessList(wanted)) => return clb.create_access_list(permit, wanted).await.map(made),
        Operation::Own(Own::CreateDomainExtension { listener, domain, certificate_id }) => {
            return clb.create_domain_extension(permit, (lb()?, listener.port), domain, certificate_id).await.map(made);
        }
        Operation::Delete { id } => clb.delete_instance(permit, id).await.or_else(gone_is_done),
        Operation::Own(Own::SetInstance(fields)) => clb.set_instance(permit, lb()?, fields).await,
        Operation::Tag { tags } => clb.tag(permit, lb()?, tags).await,
        Operation::Untag { keys } => clb.untag(permit, lb()?, keys).await,
        Operation::AddBackends { group: it, backends } => clb.add_backends(permit, group(it)?, backends).await,
        Operation::RemoveBackends { group: it, backends } => clb.remove_backends(permit, group(it)?, backends).await,
        Operation::SetBackends { group: it, backends } => clb.set_backends(permit, group(it)?, backends).await,
        Operation::DeleteGroup { id, .. } => clb.delete_group(permit, id).await.or_else(gone_is_done),
        Operation::CreateListener { listener, description, group, fields } => {
            let (group_id, fields) = (used(observed, group.as_ref())?, &ClbModel::with_ids(observed, fields.clone()));
            let request =
                ListenerRequest { load_balancer_id: lb()?, listener: *listener, description, group_id, fields };
            clb.create_listener(permit, &request).await
        }
        Operation::SetListener { listener, description, group, fields } => {
            let (group_id, fields) = (used(observed, group.as_ref())?, &observed.sent(*listener, fields));
            let request =
                ListenerRequest { load_balancer_id: lb()?, listener: *listener, description, group_id, fields };
            clb.set_listener(permit, &request).await
        }
        Operation::StartListener { listener } => clb.start_listener(permit, lb()?, *listener).await,
        Operation::DeleteListener { listener } => {
            clb.delete_listener(permit, lb()?, *listener).await.or_else(gone_is_done)
        }
        Operation::Own(Own::SetDomainExtension { id, certificate_id, .. }) => {
            clb.set_domain_extension(permit, id, certificate_id).await
        }
        Operation::Own(Own::DeleteDomainExtension { id, .. }) => {
            clb.delete_domain_extension(permit, id).await.or_else(gone_is_done)
        }
        Operation::Own(Own::AddAccessEntries { entries, .. }) => clb.add_access_entries(permit, list()?, entries).await,
        Operation::Own(Own::RemoveAccessEntries { entries, .. }) => {
            clb.remove_access_entries(permit, list()?, entries).await
        }
        Operation::Own(Own::DeleteAccessList { id, .. }) => {
            clb.delete_access_list(permit, id).await.or_else(gone_is_done)
        }
    }
    .map(|()| Answer::default())
}

/// The client token does not depend on the placement: whatever was made under it is the load balancer of the Service.
async fn create_instance(clb: &Clb, write: &Write<'_>, wanted: &CreateInstance) -> Result<Answer, Fault> {
    let placement = wanted.placement();
    let vswitch = placement.vswitch.as_deref();
    let placed = CreateInstance {
        master_zone: placement.master_zone.clone(),
        slave_zone: placement.slave_zone.clone(),
        ..wanted.clone()
    };
    clb.create_instance(write.permit, &placed, vswitch, &write.token.text()).await
}

/// The id of the server group of a listener, if it has one.
fn used<'a>(observed: &'a Observed, group: Option<&'a GroupRef>) -> Result<Option<&'a str>, Fault> {
    group.map(|group| group_id(observed, group)).transpose()
}

fn made(id: String) -> Answer {
    Answer { id: Some(id), ..Answer::default() }
}
