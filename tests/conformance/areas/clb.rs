//! A classic load balancer with a server group and a listener, and an access control list.

use std::collections::BTreeMap;

use alicloud_ccm::alibaba::clb::ListenerRequest;
use alicloud_ccm::plan::clb::model::{CreateAccessList, CreateInstance, InstanceField, InstanceFields};
use alicloud_ccm::plan::clb::model::{ListenerField, ListenerFields, ListenerKey, Protocol};

use super::super::run::{BLOCK, Ended, NAME, Run, Stop, TAG, done, gone, ready};
use super::Step;

/// Has the form of an id, and is none.
const NONE: &str = "lb-conformance0";

const LISTENER: ListenerKey = ListenerKey { port: 80, protocol: Protocol::Tcp };

pub(super) const STEPS: &[Step] = super::steps![
    "read a load balancer that is not there", run => done(run.cloud.clb.describe_instance(NONE).await);
    "delete a load balancer that is not there", run => done(run.cloud.clb.delete_instance(&run.permit, NONE).await);
    "make a load balancer", run => {
        let (wanted, vswitch) = (balancer(run, NAME), vswitch(run));
        let made = run.cloud.clb.create_instance(&run.permit, &wanted, vswitch, &run.token("clb")).await?;
        run.made("clb", made.id.ok_or(Stop::Lacks("id of the load balancer"))?)
    };
    "make it again with the same client token", run => {
        done(run.cloud.clb.create_instance(&run.permit, &balancer(run, NAME), vswitch(run), &run.token("clb")).await)
    };
    "use the client token for something else", run => {
        let other = balancer(run, "alicloud-ccm-conformance-other");
        done(run.cloud.clb.create_instance(&run.permit, &other, vswitch(run), &run.token("clb")).await)
    };
    "find it by its tag", run => ready(!run.cloud.clb.find_by_tag(TAG, &run.mark()).await?.is_empty());
    "find it active", run => ready(run.cloud.clb.describe_instance(&run.id("clb")?).await?.status == "active");
    "tag it", run => {
        let more = BTreeMap::from([("conformance-more".to_owned(), "conformance-value".to_owned())]);
        done(run.cloud.clb.tag(&run.permit, &run.id("clb")?, &more).await)
    };
    "find it by its new tag", run => {
        ready(!run.cloud.clb.find_by_tag("conformance-more", "conformance-value").await?.is_empty())
    };
    "remove the tag", run => {
        done(run.cloud.clb.untag(&run.permit, &run.id("clb")?, &["conformance-more".into()]).await)
    };
    "exceed the quota of tags", run => {
        let tag = |number: u32| (format!("conformance-{number}"), "conformance".to_owned());
        done(run.cloud.clb.tag(&run.permit, &run.id("clb")?, &(0..20).map(tag).collect()).await)
    };
    "rename it", run => {
        set(run, InstanceField::Name, "alicloud-ccm-conformance-renamed").await
    };
    "protect it", run => set(run, InstanceField::DeleteProtection, "on").await;
    "delete it while it is protected", run => done(run.cloud.clb.delete_instance(&run.permit, &run.id("clb")?).await);
    "protect it no longer", run => set(run, InstanceField::DeleteProtection, "off").await;
    "protect it from changes in the console", run => {
        set(run, InstanceField::ModificationProtection, "ConsoleProtection").await
    };
    "protect it from changes no longer", run => {
        set(run, InstanceField::ModificationProtection, "NonProtection").await
    };
    "make a server group with a backend", run => {
        let made = run.cloud.clb.create_group(&run.permit, &run.id("clb")?, NAME, &[run.own_backend(100)]).await?;
        run.made("clb group", made)
    };
    "add the backend a second time", run => {
        done(run.cloud.clb.add_backends(&run.permit, &run.id("clb group")?, &[run.own_backend(100)]).await)
    };
    "add a backend that is not there", run => {
        let backend = run.backend("i-conformance0", 100);
        done(run.cloud.clb.add_backends(&run.permit, &run.id("clb group")?, &[backend]).await)
    };
    "change the weight of the backend", run => {
        done(run.cloud.clb.set_backends(&run.permit, &run.id("clb group")?, &[run.own_backend(5)]).await)
    };
    "read the backends", run => done(run.cloud.clb.describe_backends(&run.id("clb group")?).await);
    "find the server group", run => ready(!run.cloud.clb.describe_groups(&run.id("clb")?).await?.is_empty());
    "make an access control list", run => {
        let made = run.cloud.clb.create_access_list(&run.permit, &access_list(run)).await?;
        run.made("acl", made)
    };
    "make it a second time", run => done(run.cloud.clb.create_access_list(&run.permit, &access_list(run)).await);
    "add an entry", run => done(run.cloud.clb.add_access_entries(&run.permit, &run.id("acl")?, &[block()?]).await);
    "add the entry a second time", run => {
        done(run.cloud.clb.add_access_entries(&run.permit, &run.id("acl")?, &[block()?]).await)
    };
    "find the list by its name", run => ready(run.cloud.clb.find_access_list(NAME).await?.is_some());
    "make a listener with the list", run => {
        done(run.cloud.clb.create_listener(&run.permit, &listener(&Owned::of(run)?)).await)
    };
    "make the listener a second time", run => {
        done(run.cloud.clb.create_listener(&run.permit, &listener(&Owned::of(run)?)).await)
    };
    "read the listener", run => done(run.cloud.clb.describe_listeners(&run.id("clb")?).await);
    "start the listener", run => done(run.cloud.clb.start_listener(&run.permit, &run.id("clb")?, LISTENER).await);
    "find the listener running", run => {
        let found = run.cloud.clb.describe_listeners(&run.id("clb")?).await?;
        ready(found.get(&LISTENER).is_some_and(|listener| listener.status == "running"))
    };
    "change the listener", run => {
        let mut owned = Owned::of(run)?;
        owned.fields.insert(ListenerField::HealthCheckInterval, "9".into());
        done(run.cloud.clb.set_listener(&run.permit, &listener(&owned)).await)
    };
    "read the changed listener", run => done(run.cloud.clb.describe_listeners(&run.id("clb")?).await);
    "delete the server group while it is used", run => {
        done(run.cloud.clb.delete_group(&run.permit, &run.id("clb group")?).await)
    };
    "delete the list while it is used", run => {
        done(run.cloud.clb.delete_access_list(&run.permit, &run.id("acl")?).await)
    };
    "delete the listener", run => done(run.cloud.clb.delete_listener(&run.permit, &run.id("clb")?, LISTENER).await);
    "delete the listener a second time", run => {
        done(run.cloud.clb.delete_listener(&run.permit, &run.id("clb")?, LISTENER).await)
    };
    "remove the entry", run => {
        done(run.cloud.clb.remove_access_entries(&run.permit, &run.id("acl")?, &[block()?]).await)
    };
    "delete the list", run => done(run.cloud.clb.delete_access_list(&run.permit, &run.id("acl")?).await);
    "delete the list a second time", run => done(run.cloud.clb.delete_access_list(&run.permit, &run.id("acl")?).await);
    "remove the backend", run => {
        done(run.cloud.clb.remove_backends(&run.permit, &run.id("clb group")?, &[run.own_backend(0).key]).await)
    };
    "delete the server group", run => done(run.cloud.clb.delete_group(&run.permit, &run.id("clb group")?).await);
    "delete the server group a second time", run => {
        done(run.cloud.clb.delete_group(&run.permit, &run.id("clb group")?).await)
    };
    "delete the load balancer", run => done(run.cloud.clb.delete_instance(&run.permit, &run.id("clb")?).await);
    "find it no longer", run => gone(run.cloud.clb.describe_instance(&run.id("clb")?).await);
    "find it in no list", run => ready(run.cloud.clb.find_by_tag(TAG, &run.mark()).await?.is_empty());
];

async fn set(run: &Run, field: InstanceField, value: &str) -> Ended {
    let fields = InstanceFields::from_iter([(field, value.to_owned())]);
    done(run.cloud.clb.set_instance(&run.permit, &run.id("clb")?, &fields).await)
}

fn balancer(run: &Run, name: &str) -> CreateInstance {
    CreateInstance {
        fields: InstanceFields::from_iter([
            (InstanceField::Name, name.into()),
            (InstanceField::AddressType, "intranet".into()),
            (InstanceField::ChargeType, "PayByCLCU".into()),
            (InstanceField::DeleteProtection, "off".into()),
            (InstanceField::ModificationProtection, "NonProtection".into()),
        ]),
        vpc_id: Some(run.place.vpc.clone()),
        tags: run.tags(),
        ..CreateInstance::default()
    }
}

fn vswitch(run: &Run) -> Option<&str> {
    run.place.vswitches.first().map(|(_, id)| id.as_str())
}

fn access_list(run: &Run) -> CreateAccessList {
    CreateAccessList { name: NAME.into(), ip_version: "ipv4".into(), tags: run.tags() }
}

fn block() -> Result<ipnet::IpNet, Stop> {
    BLOCK.parse().map_err(|_| Stop::Lacks("a block of addresses"))
}

/// What a request for the listener borrows.
struct Owned {
    id: String,
    group: String,
    fields: ListenerFields,
}

impl Owned {
    fn of(run: &Run) -> Result<Self, Stop> {
        let fields = ListenerFields::from([
            (ListenerField::Bandwidth, "-1".into()),
            (ListenerField::HealthCheckInterval, "7".into()),
            (ListenerField::AclStatus, "on".into()),
            (ListenerField::AclType, "white".into()),
            (ListenerField::AclId, run.id("acl")?),
        ]);
        Ok(Self { id: run.id("clb")?, group: run.id("clb group")?, fields })
    }
}

fn listener(owned: &Owned) -> ListenerRequest<'_> {
    ListenerRequest {
        load_balancer_id: &owned.id,
        listener: LISTENER,
        description: NAME,
        group_id: Some(&owned.group),
        fields: &owned.fields,
    }
}
