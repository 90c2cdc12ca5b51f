//! Server groups (`VServerGroup`) and their backends.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Clb;
use crate::alibaba::actions::{
    ADD_BACKENDS, CREATE_GROUP, DELETE_GROUP, DESCRIBE_GROUP, DESCRIBE_GROUPS, REMOVE_BACKENDS, SET_BACKENDS,
    WriteAction,
};
use crate::alibaba::answer::{Fields, Mismatch};
use crate::alibaba::fault::Fault;
use crate::fence::Permit;
use crate::plan::loadbalancer::model::{Backend, BackendKey, BackendKind, ObservedGroup};

impl Clb {
    /// All server groups of an instance.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_groups(&self, id: &str) -> Result<Vec<(String, String)>, Fault> {
        let names = |group: Fields<'_>| Ok((group.text("VServerGroupId")?, group.text("VServerGroupName")?));
        self.0.read(DESCRIBE_GROUPS).with("LoadBalancerId", id).all("VServerGroups", names).await
    }

    /// Backends of a server group. Those of other kinds than ECS instances and network interfaces are left out.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_backends(&self, group_id: &str) -> Result<Vec<Backend>, Fault> {
        let backends = |group: Fields<'_>| group.list("BackendServers", backend);
        let backends = self.0.read(DESCRIBE_GROUP).one("VServerGroupId", group_id, backends).await?;
        Ok(backends.into_iter().flatten().collect())
    }

    /// A server group with its backends, as [`Self::describe_backends`] gives them.
    ///
    /// # Errors
    /// As any call; [`FaultKind::Gone`](crate::alibaba::FaultKind::Gone) if there is no such group.
    pub async fn describe_group(&self, group_id: &str) -> Result<ObservedGroup, Fault> {
        let group = |group: Fields<'_>| Ok((group.text("VServerGroupName")?, group.list("BackendServers", backend)?));
        let (name, backends) = self.0.read(DESCRIBE_GROUP).one("VServerGroupId", group_id, group).await?;
        Ok(ObservedGroup { name, backends: Some(Arc::new(backends.into_iter().flatten().collect::<Vec<_>>().into())) })
    }

    /// Creates a server group with backends; gives its id.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_group(
        &self,
        permit: &Permit,
        id: &str,
        name: &str,
        backends: &[Backend],
    ) -> Result<String, Fault> {
        let servers = (!backends.is_empty()).then(|| servers(backends));
        let request = self.0.write(permit, CREATE_GROUP).with("LoadBalancerId", id).with("VServerGroupName", name);
        request.maybe("BackendServers", servers).create("VServerGroupId").await
    }

    /// Deletes a server group.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_group(&self, permit: &Permit, group_id: &str) -> Result<(), Fault> {
        self.0.write(permit, DELETE_GROUP).with("VServerGroupId", group_id).done().await
    }

    /// Adds backends. Nothing is sent for none.
    ///
    /// # Errors
    /// As any write.
    pub async fn add_backends(&self, permit: &Permit, group_id: &str, backends: &[Backend]) -> Result<(), Fault> {
        self.write_backends(permit, ADD_BACKENDS, group_id, servers(backends)).await
    }

    /// Removes backends; absent ones are ignored by the API. Nothing is sent for none.
    ///
    /// # Errors
    /// As any write.
    pub async fn remove_backends(&self, permit: &Permit, group_id: &str, backends: &[BackendKey]) -> Result<(), Fault> {
        let servers = backends.iter().map(|key| Value::from(identity(key))).collect();
        self.write_backends(permit, REMOVE_BACKENDS, group_id, servers).await
    }

    /// Changes weight and description of backends. Nothing is sent for none.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_backends(&self, permit: &Permit, group_id: &str, backends: &[Backend]) -> Result<(), Fault> {
        self.write_backends(permit, SET_BACKENDS, group_id, servers(backends)).await
    }

    async fn write_backends(
        &self,
        permit: &Permit,
        action: WriteAction,
        group_id: &str,
        servers: Value,
    ) -> Result<(), Fault> {
        if servers.as_array().is_none_or(Vec::is_empty) {
            return Ok(());
        }
        self.0.write(permit, action).with("VServerGroupId", group_id).with("BackendServers", servers).done().await
    }
}

/// The JSON text of the parameter `BackendServers`.
fn servers(backends: &[Backend]) -> Value {
    let server = |backend: &Backend| {
        let mut object = identity(&backend.key);
        object.insert("Weight".into(), backend.weight.to_string().into());
        if !backend.description.is_empty() {
            object.insert("Description".into(), backend.description.as_ref().into());
        }
        Value::from(object)
    };
    backends.iter().map(server).collect()
}

fn identity(key: &BackendKey) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("ServerId".into(), key.server_id.as_ref().into());
    object.insert("Port".into(), key.port.to_string().into());
    object.insert("Type".into(), kind_name(key.kind).into());
    if key.kind == BackendKind::Eni {
        object.insert("ServerIp".into(), (*key.server_ip).into());
    }
    object
}

const fn kind_name(kind: BackendKind) -> &'static str {
    match kind {
        BackendKind::Ecs => "ecs",
        BackendKind::Eni => "eni",
        BackendKind::Ip => "ip",
    }
}

/// `None` for kinds that this program does not manage. Where the answer does not say the kind, the id does.
fn backend(body: Fields<'_>) -> Result<Option<Backend>, Mismatch> {
    let server_id = body.text("ServerId")?;
    let (kind, server_ip) = match body.text("Type")?.to_ascii_lowercase().as_str() {
        "eni" => (BackendKind::Eni, body.text("ServerIp")?),
        "" if server_id.starts_with("eni-") => (BackendKind::Eni, body.text("ServerIp")?),
        "ecs" | "" => (BackendKind::Ecs, String::new()),
        _ => return Ok(None),
    };
    let (port, weight) = (body.number("Port")?, body.number("Weight")?);
    let impossible =
        |_| Mismatch(format!("the backend {server_id} has an impossible port or weight: {port}, {weight}"));
    let (port, weight) = (u16::try_from(port).map_err(impossible)?, u8::try_from(weight).map_err(impossible)?);
    let key = BackendKey { kind, server_id: server_id.as_str().into(), server_ip: server_ip.into(), port };
    Ok(Some(Backend { key, weight, description: body.text("Description")?.into() }))
}
