//! Deleting a network load balancer without an owner, with what was made for the same Service: its server groups and its
//! security group, which are no part of it.

use std::fmt;

use serde::Serialize;

use crate::alibaba::nlb::{GroupFilter, JobState, ListedGroup};
use crate::alibaba::{CloudClient, Fault, FaultKind};
use crate::controllers::orphan::{LOOKS, NotDeleted, Orphan, PAUSE, permit};
use crate::fence::Fence;
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::loadbalancer::orphans::{OrphanedGroup, OrphanedInstance};
use crate::plan::loadbalancer::ownership::{MARK_TAG, is_mark};
use crate::plan::nlb::model::{InstanceField, InstanceFields};

/// A network load balancer whose Service does not exist.
#[derive(Debug, Serialize)]
pub(in crate::controllers::loadbalancer) struct NlbOrphan {
    #[serde(flatten)]
    pub(in crate::controllers::loadbalancer) instance: OrphanedInstance,
    /// Deleted after it.
    pub(in crate::controllers::loadbalancer) groups: Vec<OrphanedGroup>,
}

impl fmt::Display for NlbOrphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.instance.fmt(f)?;
        self.groups.iter().try_for_each(|group| write!(f, "; with {} {} ({})", group.kind_name(), group.id, group.name))
    }
}

impl Orphan for NlbOrphan {
    const KIND: &'static str = "load_balancer";

    /// The load balancer is gone before its groups are deleted.
    async fn delete(&self, cloud: &CloudClient, fence: &Fence) -> Result<(), NotDeleted> {
        let id = &self.instance.id;
        let unprotected = InstanceFields::from_iter([(InstanceField::DeleteProtection, "false".to_owned())]);
        cloud.nlb.set_instance(&permit(fence)?, id, &unprotected).await?;
        let started = cloud.nlb.delete_instance(&permit(fence)?, id).await?;
        finished(cloud, &started).await?;
        match cloud.nlb.describe_instance(id).await {
            Err(fault) if fault.kind == FaultKind::Gone => {}
            read => return Err(read.map_or_else(Into::into, |_| "the load balancer is still there".into())),
        }
        for group in &self.groups {
            group.delete(cloud, fence).await?;
        }
        Ok(())
    }
}

impl Orphan for OrphanedGroup {
    const KIND: &'static str = "group";

    /// Only a server group or security group that still has its mark.
    async fn delete(&self, cloud: &CloudClient, fence: &Fence) -> Result<(), NotDeleted> {
        let Self { id, mark, .. } = self;
        for group in cloud.ecs.find_security_groups(MARK_TAG, mark).await?.iter().filter(|it| it.id == *id) {
            delete_security_group(cloud, fence, &group.id).await?;
        }
        for group in cloud.nlb.list_groups(GroupFilter::Tag(MARK_TAG, mark)).await?.iter().filter(|it| it.id == *id) {
            if !is_ours_alone(cloud, group).await? {
                return Err("the server group holds backends of others".into());
            }
            finished(cloud, &cloud.nlb.delete_group(&permit(fence)?, id).await?).await?;
        }
        Ok(())
    }
}

/// Waits until the cloud has carried out what a call started.
async fn finished(cloud: &CloudClient, started: &Answer) -> Result<(), Fault> {
    for _ in 0..LOOKS {
        match cloud.nlb.jobs(std::slice::from_ref(&started.job)).await?.get(&started.job) {
            Some(JobState::Running) => tokio::time::sleep(PAUSE).await,
            Some(JobState::Failed) => {
                let why = "the cloud accepted the call and failed to carry it out";
                return Err(Fault::new("delete", FaultKind::Transient, why));
            }
            Some(JobState::Done) | None => break,
        }
    }
    Ok(())
}

/// Whether its name and all of its backends carry marks.
async fn is_ours_alone(cloud: &CloudClient, group: &ListedGroup) -> Result<bool, Fault> {
    let servers = cloud.nlb.describe_servers(&group.id).await?.backends;
    let are_marked = servers.len() == group.details.server_count && servers.iter().all(|it| is_mark(&it.description));
    Ok(is_mark(&group.name) && are_marked)
}

/// It counts as used for some minutes after the load balancer is gone.
async fn delete_security_group(cloud: &CloudClient, fence: &Fence, id: &str) -> Result<(), Fault> {
    for _ in 0..LOOKS {
        match cloud.ecs.delete_security_group(&permit(fence)?, id).await {
            Err(fault) if fault.kind == FaultKind::InUse => tokio::time::sleep(PAUSE).await,
            deleted => return deleted,
        }
    }
    cloud.ecs.delete_security_group(&permit(fence)?, id).await
}
