//! Server groups and their servers.

use std::collections::{BTreeMap, BTreeSet};

use super::{CHUNK, Nlb, PAGE, created, started};
use crate::alibaba::actions::{
    ADD_SERVERS, CREATE_SERVER_GROUP, DELETE_SERVER_GROUP, LIST_SERVER_GROUPS, LIST_SERVERS, REMOVE_SERVERS,
    UPDATE_SERVER_GROUP, UPDATE_SERVERS, WriteAction,
};
use crate::alibaba::answer::{Fields, Mismatch};
use crate::alibaba::fault::Fault;
use crate::alibaba::request::{Request, unique};
use crate::fence::Permit;
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::loadbalancer::model::{Backend, BackendKey, BackendKind};
use crate::plan::nlb::model::{CreateGroup, GroupField, GroupFields};
use crate::plan::nlb::observed::GroupDetails;

/// Which server groups are meant.
#[derive(Clone, Copy, Debug)]
pub enum GroupFilter<'a> {
    /// Those that carry the tag.
    Tag(&'a str, &'a str),
    /// Those of these ids.
    Ids(&'a BTreeSet<String>),
}

/// A server group without its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    /// `sgp-...`
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whatever else the list says.
    pub details: Box<GroupDetails>,
}

/// The servers of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedServers {
    /// Those of kinds that this program knows.
    pub backends: Vec<Backend>,
    /// Whether one of them is being added, changed or removed.
    pub changing: bool,
}

impl Nlb {
    /// How many server groups the region has, by one small page.
    ///
    /// # Errors
    /// As any call.
    pub async fn count_groups(&self) -> Result<u64, Fault> {
        self.0.read(LIST_SERVER_GROUPS).with("MaxResults", 1).count().await
    }

    /// Server groups, every page; any number of ids and names.
    ///
    /// # Errors
    /// As any call.
    pub async fn list_groups(&self, filter: GroupFilter<'_>) -> Result<Vec<ListedGroup>, Fault> {
        let request = || self.0.read(LIST_SERVER_GROUPS).with("MaxResults", PAGE);
        let mut found = Vec::new();
        match filter {
            // One tag only: whether several are combined with "and" is not documented.
            GroupFilter::Tag(key, value) => {
                let request = request().with("Tag.1.Key", key).with("Tag.1.Value", value);
                found = request.by_token("ServerGroups", listed).await?;
                let tagged = |group: &ListedGroup| group.details.tags.get(key).is_some_and(|is| is == value);
                // A list shows at most ten tags of a group.
                found.retain(|group| group.details.tags.len() >= 10 || tagged(group));
            }
            GroupFilter::Ids(ids) => {
                for chunk in ids.iter().collect::<Vec<_>>().chunks(CHUNK) {
                    found.extend(request().list("ServerGroupIds", chunk).by_token("ServerGroups", listed).await?);
                }
                found.retain(|group| ids.contains(&group.id));
            }
        }
        Ok(unique(found, |group| &group.id))
    }

    /// Servers of a group, every page.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_servers(&self, group_id: &str) -> Result<ListedServers, Fault> {
        let found = self.list_servers(group_id).by_token("Servers", server).await?;
        let changing = found.iter().any(|(_, changing)| *changing);
        let mut backends: BTreeMap<BackendKey, Backend> = BTreeMap::new();
        // A server that moves between pages while they are read comes twice.
        for backend in found.into_iter().filter_map(|(backend, _)| backend) {
            backends.insert(backend.key.clone(), backend);
        }
        Ok(ListedServers { backends: backends.into_values().collect(), changing })
    }

    /// Those of these servers that are in the group: one page for each 20 servers, or every page if one is an address, which the
    /// documentation of the filter does not mention (`ListServerGroupServers`, `ServerIds`).
    ///
    /// # Errors
    /// As any call.
    pub async fn servers_among(&self, group_id: &str, keys: &[BackendKey]) -> Result<Vec<BackendKey>, Fault> {
        let mut found = Vec::new();
        if keys.iter().any(|key| key.kind == BackendKind::Ip) {
            found = self.describe_servers(group_id).await?.backends;
        } else {
            let servers: BTreeSet<_> = keys.iter().map(|key| &key.server_id).collect();
            for chunk in servers.into_iter().collect::<Vec<_>>().chunks(CHUNK) {
                let request = self.list_servers(group_id).list("ServerIds", chunk);
                let listed = request.by_token("Servers", server).await?;
                found.extend(listed.into_iter().filter_map(|(backend, _)| backend));
            }
        }
        let there: BTreeSet<BackendKey> = found.into_iter().map(|backend| backend.key).collect();
        Ok(keys.iter().filter(|key| there.contains(key)).cloned().collect())
    }

    /// Creates a server group without servers.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_group(&self, permit: &Permit, vpc_id: &str, wanted: &CreateGroup) -> Result<Answer, Fault> {
        let request = self
            .0
            .write(permit, CREATE_SERVER_GROUP)
            .with("ServerGroupName", &wanted.name)
            .with("VpcId", vpc_id)
            .maybe("ResourceGroupId", wanted.resource_group_id.as_ref())
            .tags(&wanted.tags);
        created(with_fields(request, wanted.fields.iter()), "ServerGroupId").await
    }

    /// Changes attributes of a server group; those that are fixed are not sent.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_group(&self, permit: &Permit, group_id: &str, fields: &GroupFields) -> Result<Answer, Fault> {
        let request = self.on_group(permit, UPDATE_SERVER_GROUP, group_id);
        started(with_fields(request, fields.iter().filter(|(field, _)| !field.is_fixed()))).await
    }

    /// Deletes a server group that no listener uses.
    ///
    /// # Errors
    /// As any write; [`FaultKind::InUse`](crate::alibaba::FaultKind::InUse) while a listener uses it, or is being deleted.
    pub async fn delete_group(&self, permit: &Permit, group_id: &str) -> Result<Answer, Fault> {
        started(self.on_group(permit, DELETE_SERVER_GROUP, group_id)).await
    }

    /// Adds servers, at most 200.
    ///
    /// # Errors
    /// As any write.
    pub async fn add_servers(&self, permit: &Permit, group_id: &str, servers: &[Backend]) -> Result<Answer, Fault> {
        started(with_servers(self.on_group(permit, ADD_SERVERS, group_id), servers)).await
    }

    /// Changes weight and description of servers, at most 200.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_servers(&self, permit: &Permit, group_id: &str, servers: &[Backend]) -> Result<Answer, Fault> {
        started(with_servers(self.on_group(permit, UPDATE_SERVERS, group_id), servers)).await
    }

    /// Removes servers, at most 200.
    ///
    /// # Errors
    /// As any write.
    pub async fn remove_servers(
        &self,
        permit: &Permit,
        group_id: &str,
        servers: &[BackendKey],
    ) -> Result<Answer, Fault> {
        let mut request = self.on_group(permit, REMOVE_SERVERS, group_id);
        for (index, key) in servers.iter().enumerate() {
            request = with_identity(request, index, key);
        }
        started(request).await
    }

    fn list_servers(&self, group_id: &str) -> Request<'_> {
        self.0.read(LIST_SERVERS).with("ServerGroupId", group_id).with("MaxResults", PAGE)
    }

    fn on_group<'a>(&'a self, permit: &'a Permit, action: WriteAction, id: &str) -> Request<'a> {
        self.0.write(permit, action).with("ServerGroupId", id)
    }
}

fn with_fields<'a, 'f>(
    mut request: Request<'a>,
    fields: impl Iterator<Item = (&'f GroupField, &'f String)>,
) -> Request<'a> {
    for (field, value) in fields {
        let prefix = if field.is_of_health_check() { "HealthCheckConfig." } else { "" };
        let name = format!("{prefix}{field}");
        request = match field {
            GroupField::HealthCheckCodes => request.list(&name, value.split(',').filter(|code| !code.is_empty())),
            _ => request.with(name, value),
        };
    }
    request
}

fn with_servers<'a>(mut request: Request<'a>, servers: &[Backend]) -> Request<'a> {
    for (index, server) in servers.iter().enumerate() {
        let name = |field: &str| format!("Servers.{}.{field}", index + 1);
        request = with_identity(request, index, &server.key);
        request = request.with(name("Weight"), server.weight).with(name("Description"), &server.description);
    }
    request
}

fn with_identity<'a>(request: Request<'a>, index: usize, key: &BackendKey) -> Request<'a> {
    let name = |field: &str| format!("Servers.{}.{field}", index + 1);
    let kind = match key.kind {
        BackendKind::Ecs => "Ecs",
        BackendKind::Eni => "Eni",
        BackendKind::Ip => "Ip",
    };
    let request = request.with(name("ServerId"), &key.server_id).with(name("ServerType"), kind);
    request.with(name("ServerIp"), &key.server_ip).with(name("Port"), key.port)
}

fn listed(body: Fields<'_>) -> Result<ListedGroup, Mismatch> {
    let (id, name) = (body.id("ServerGroupId")?, body.text("ServerGroupName")?);
    let details = GroupDetails {
        status: body.text("ServerGroupStatus")?,
        vpc_id: body.text("VpcId")?,
        fields: fields(body)?,
        server_count: usize::try_from(body.number("ServerCount")?).unwrap_or(0),
        load_balancers: body.texts("RelatedLoadBalancerIds")?,
        tags: body.tags()?,
    };
    Ok(ListedGroup { id, name, details: Box::new(details) })
}

fn fields(body: Fields<'_>) -> Result<GroupFields, Mismatch> {
    // Requests call it HealthCheckConfig.
    let health_check = body.object("HealthCheck")?;
    let mut fields = GroupFields::new();
    for field in GroupField::ALL {
        let object = if field.is_of_health_check() { health_check } else { body };
        let value = match field {
            GroupField::HealthCheckCodes => object.texts(field.parameter())?.join(","),
            _ => object.text(field.parameter())?,
        };
        if !value.is_empty() {
            fields.insert(*field, value);
        }
    }
    Ok(fields)
}

/// A server, `None` for kinds that this program does not manage; and whether it is being changed.
fn server(body: Fields<'_>) -> Result<(Option<Backend>, bool), Mismatch> {
    let status = body.text("Status")?;
    let changing = ["Adding", "Configuring", "Removing"].iter().any(|word| status.eq_ignore_ascii_case(word));
    let server_id = body.text("ServerId")?;
    let (kind, server_ip) = match body.text("ServerType")?.to_ascii_lowercase().as_str() {
        "ecs" => (BackendKind::Ecs, String::new()),
        "eni" => (BackendKind::Eni, body.text("ServerIp")?),
        "ip" => (BackendKind::Ip, server_id.clone()),
        _ => return Ok((None, changing)),
    };
    let (port, weight) = (body.number("Port")?, body.number("Weight")?);
    let impossible = |_| Mismatch(format!("the server {server_id} has an impossible port or weight: {port}, {weight}"));
    let (port, weight) = (u16::try_from(port).map_err(impossible)?, u8::try_from(weight).map_err(impossible)?);
    let key = BackendKey { kind, server_id: server_id.as_str().into(), server_ip: server_ip.into(), port };
    Ok((Some(Backend { key, weight, description: body.text("Description")?.into() }), changing))
}
