//! A network load balancer with a listener, a server group and a security group.

use std::collections::{BTreeMap, BTreeSet};

use alicloud_ccm::alibaba::nlb::{GroupFilter, JobState, ListenerChange, NewListener};
use alicloud_ccm::plan::nlb::model::{
    CreateGroup, CreateInstance, CreateSecurityGroup, GroupField, GroupFields, InstanceField, InstanceFields,
    ListenerField, ListenerFields, ListenerKey, Protocol, SecurityRule, SecurityRules,
};

use super::super::run::{BLOCK, Ended, NAME, Run, Stop, TAG, done, gone, ready, released};
use super::Step;

/// Has the form of an id, and is none.
const NONE: &str = "nlb-conformance0";

const LISTENER: ListenerKey = ListenerKey::port(80, Protocol::Tcp);

pub(super) const STEPS: &[Step] = super::steps![
    "read a load balancer that is not there", run => done(run.cloud.nlb.describe_instance(NONE).await);
    "delete a load balancer that is not there", run => done(run.cloud.nlb.delete_instance(&run.permit, NONE).await);
    "make a load balancer", run => {
        let made = run.cloud.nlb.create_instance(&run.permit, &balancer(run, NAME), &run.token("nlb")).await?;
        run.made("nlb job", made.job)?;
        run.made("nlb", made.id.ok_or(Stop::Lacks("id of the network load balancer"))?)
    };
    "make it again with the same client token", run => {
        done(run.cloud.nlb.create_instance(&run.permit, &balancer(run, NAME), &run.token("nlb")).await)
    };
    "use the client token for something else", run => {
        let other = balancer(run, "alicloud-ccm-conformance-other");
        done(run.cloud.nlb.create_instance(&run.permit, &other, &run.token("nlb")).await)
    };
    "find it by its tag", run => ready(!run.cloud.nlb.find_by_tag(TAG, &run.mark()).await?.is_empty());
    "find its job done", run => {
        let job = run.id("nlb job")?;
        let jobs = run.cloud.nlb.jobs(std::slice::from_ref(&job)).await?;
        ready(job.is_empty() || jobs.get(&job).is_some_and(|state| *state != JobState::Running))
    };
    "find it active", run => ready(run.cloud.nlb.describe_instance(&run.id("nlb")?).await?.status == "Active");
    "rename it, and keep its zones apart", run => {
        let name = (InstanceField::Name, "alicloud-ccm-conformance-renamed".to_owned());
        set(run, [name, (InstanceField::CrossZone, "false".to_owned())].into()).await
    };
    "tag it", run => {
        let more = BTreeMap::from([("conformance-more".to_owned(), "conformance-value".to_owned())]);
        done(run.cloud.nlb.tag(&run.permit, &run.id("nlb")?, &more).await)
    };
    "find it by its new tag", run => {
        ready(!run.cloud.nlb.find_by_tag("conformance-more", "conformance-value").await?.is_empty())
    };
    "remove the tag", run => {
        done(run.cloud.nlb.untag(&run.permit, &run.id("nlb")?, &["conformance-more".into()]).await)
    };
    "protect it", run => set(run, [(InstanceField::DeleteProtection, "true".to_owned())].into()).await;
    "delete it while it is protected", run => done(run.cloud.nlb.delete_instance(&run.permit, &run.id("nlb")?).await);
    "protect it no longer", run => {
        set(run, [(InstanceField::DeleteProtection, "false".to_owned())].into()).await
    };
    "give it the zones that it has", run => {
        done(run.cloud.nlb.set_zones(&run.permit, &run.id("nlb")?, &run.zones()).await)
    };
    "make a server group", run => {
        let made = run.cloud.nlb.create_group(&run.permit, &run.place.vpc, &group(run)).await?;
        run.made("server group", made.id.ok_or(Stop::Lacks("id of the server group"))?)
    };
    "make it a second time", run => done(run.cloud.nlb.create_group(&run.permit, &run.place.vpc, &group(run)).await);
    "find the server group available", run => {
        let found = run.cloud.nlb.list_groups(GroupFilter::Ids(&[run.id("server group")?].into())).await?;
        ready(found.iter().any(|group| group.details.status == "Available"))
    };
    "change the server group", run => {
        let change = GroupFields::from([(GroupField::HealthyThreshold, "7".into())]);
        done(run.cloud.nlb.set_group(&run.permit, &run.id("server group")?, &change).await)
    };
    "find the changed server group by its tag", run => {
        ready(!run.cloud.nlb.list_groups(GroupFilter::Tag(TAG, &run.mark())).await?.is_empty())
    };
    "add a server", run => {
        done(run.cloud.nlb.add_servers(&run.permit, &run.id("server group")?, &[run.own_backend(100)]).await)
    };
    "find the server available", run => {
        let found = run.cloud.nlb.describe_servers(&run.id("server group")?).await?;
        ready(!found.changing && !found.backends.is_empty())
    };
    "add the server a second time", run => {
        done(run.cloud.nlb.add_servers(&run.permit, &run.id("server group")?, &[run.own_backend(100)]).await)
    };
    "change the weight of the server", run => {
        done(run.cloud.nlb.set_servers(&run.permit, &run.id("server group")?, &[run.own_backend(5)]).await)
    };
    "add a server that is not there", run => {
        let server = run.backend("i-conformance0", 100);
        done(run.cloud.nlb.add_servers(&run.permit, &run.id("server group")?, &[server]).await)
    };
    "make a listener", run => {
        let (id, group_id) = (run.id("nlb")?, run.id("server group")?);
        let made = run.cloud.nlb.create_listener(&run.permit, &listener(&id, &group_id, &fields("60"))).await?;
        run.made("listener", made.id.ok_or(Stop::Lacks("id of the listener"))?)
    };
    "make the listener a second time", run => {
        let (id, group_id) = (run.id("nlb")?, run.id("server group")?);
        done(run.cloud.nlb.create_listener(&run.permit, &listener(&id, &group_id, &fields("60"))).await)
    };
    "find the listener running", run => {
        let id = run.id("nlb")?;
        let found = run.cloud.nlb.describe_listeners(&[&id]).await?;
        let listener = found.get(&id).and_then(|listeners| listeners.get(&LISTENER));
        ready(listener.is_some_and(|listener| listener.status == "Running"))
    };
    "change the listener", run => {
        let (listener_id, group_id, fields) = (run.id("listener")?, run.id("server group")?, fields("90"));
        let change =
            ListenerChange { listener_id: &listener_id, description: NAME, group_id: &group_id, fields: &fields };
        done(run.cloud.nlb.set_listener(&run.permit, &change).await)
    };
    "delete the server group while it is used", run => {
        done(run.cloud.nlb.delete_group(&run.permit, &run.id("server group")?).await)
    };
    "make a security group", run => {
        let made = run.cloud.ecs.create_security_group(&run.permit, &run.place.vpc, &security_group(run)).await?;
        run.made("security group", made)
    };
    "find the security group by its tag", run => {
        ready(!run.cloud.ecs.find_security_groups(TAG, &run.mark()).await?.is_empty())
    };
    "add a rule", run => {
        done(run.cloud.ecs.add_security_rules(&run.permit, &run.id("security group")?, &rules()?, NAME).await)
    };
    "read the rules", run => done(run.cloud.ecs.describe_security_rules(&run.id("security group")?).await);
    "remove the rules", run => {
        let group = run.id("security group")?;
        let rules = run.cloud.ecs.describe_security_rules(&group).await?.into_keys().collect();
        done(run.cloud.ecs.remove_security_rules(&run.permit, &group, &rules).await)
    };
    "let the load balancer join the security group", run => {
        let groups = BTreeSet::from([run.id("security group")?]);
        done(run.cloud.nlb.join_security_groups(&run.permit, &run.id("nlb")?, &groups).await)
    };
    "let it join a second time", run => {
        let groups = BTreeSet::from([run.id("security group")?]);
        done(run.cloud.nlb.join_security_groups(&run.permit, &run.id("nlb")?, &groups).await)
    };
    "delete the security group while it is used", run => {
        done(run.cloud.ecs.delete_security_group(&run.permit, &run.id("security group")?).await)
    };
    "let it leave the security group", run => {
        let groups = BTreeSet::from([run.id("security group")?]);
        done(run.cloud.nlb.leave_security_groups(&run.permit, &run.id("nlb")?, &groups).await)
    };
    "delete the security group", run => {
        released(run.cloud.ecs.delete_security_group(&run.permit, &run.id("security group")?).await)
    };
    "delete the security group a second time", run => {
        done(run.cloud.ecs.delete_security_group(&run.permit, &run.id("security group")?).await)
    };
    "delete the listener", run => done(run.cloud.nlb.delete_listener(&run.permit, &run.id("listener")?).await);
    "find no listener", run => {
        let id = run.id("nlb")?;
        let found = run.cloud.nlb.describe_listeners(&[&id]).await?;
        ready(found.get(&id).is_none_or(|listeners| listeners.is_empty()))
    };
    "delete the listener a second time", run => {
        done(run.cloud.nlb.delete_listener(&run.permit, &run.id("listener")?).await)
    };
    "remove the server", run => {
        done(run.cloud.nlb.remove_servers(&run.permit, &run.id("server group")?, &[run.own_backend(0).key]).await)
    };
    "delete the server group", run => {
        released(run.cloud.nlb.delete_group(&run.permit, &run.id("server group")?).await)
    };
    "find the server group no longer", run => {
        ready(run.cloud.nlb.list_groups(GroupFilter::Ids(&[run.id("server group")?].into())).await?.is_empty())
    };
    "delete the load balancer", run => done(run.cloud.nlb.delete_instance(&run.permit, &run.id("nlb")?).await);
    "find it no longer", run => gone(run.cloud.nlb.describe_instance(&run.id("nlb")?).await);
];

async fn set(run: &Run, fields: Vec<(InstanceField, String)>) -> Ended {
    let fields = InstanceFields::from_iter(fields);
    done(run.cloud.nlb.set_instance(&run.permit, &run.id("nlb")?, &fields).await)
}

fn balancer(run: &Run, name: &str) -> CreateInstance {
    CreateInstance {
        fields: InstanceFields::from_iter([
            (InstanceField::Name, name.into()),
            (InstanceField::AddressType, "Intranet".into()),
            (InstanceField::DeleteProtection, "false".into()),
            (InstanceField::ModificationProtection, "NonProtection".into()),
        ]),
        vpc_id: run.place.vpc.clone(),
        zones: run.zones(),
        tags: run.tags(),
        ..CreateInstance::default()
    }
}

fn group(run: &Run) -> CreateGroup {
    let fields = GroupFields::from([(GroupField::Protocol, "TCP".into()), (GroupField::Scheduler, "Wrr".into())]);
    CreateGroup { name: NAME.into(), fields, resource_group_id: None, tags: run.tags() }
}

fn security_group(run: &Run) -> CreateSecurityGroup {
    CreateSecurityGroup {
        name: NAME.into(),
        description: NAME.into(),
        tags: run.tags(),
        ..CreateSecurityGroup::default()
    }
}

fn rules() -> Result<SecurityRules, Stop> {
    let source = BLOCK.parse().map_err(|_| Stop::Lacks("a block of addresses"))?;
    Ok(SecurityRules::from([SecurityRule { drops: false, source }]))
}

fn fields(idle_timeout: &str) -> ListenerFields {
    ListenerFields::from([(ListenerField::IdleTimeout, idle_timeout.into())])
}

fn listener<'a>(id: &'a str, group_id: &'a str, fields: &'a ListenerFields) -> NewListener<'a> {
    NewListener { load_balancer_id: id, listener: LISTENER, description: NAME, group_id, fields }
}
