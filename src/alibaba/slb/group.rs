//! Server groups (`VServerGroup`) and their backends.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{GroupSummary, Slb};
use crate::alibaba::Fault;
use crate::alibaba::actions::{
    ADD_BACKENDS, CREATE_GROUP, DELETE_GROUP, DESCRIBE_GROUP, DESCRIBE_GROUPS, REMOVE_BACKENDS, SET_BACKENDS,
};
use crate::alibaba::decode::{Int, List, Text};
use crate::alibaba::signing::Params;
use crate::fence::Permit;
use crate::plan::service::model::{Backend, BackendKey, BackendKind};

impl Slb {
    /// All server groups of an instance.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_groups(&self, id: &str) -> Result<Vec<GroupSummary>, Fault> {
        let body: GroupsBody =
            self.0.read(DESCRIBE_GROUPS, Params::new().with("LoadBalancerId", id)).await?.decode()?;
        let summary =
            |group: GroupBody| GroupSummary { id: group.v_server_group_id.0, name: group.v_server_group_name.0 };
        Ok(body.v_server_groups.0.into_iter().map(summary).collect())
    }

    /// Backends of a server group. Those of other kinds than ECS instances and network interfaces are left out.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_backends(&self, group_id: &str) -> Result<Vec<Backend>, Fault> {
        let answer = self.0.read(DESCRIBE_GROUP, Params::new().with("VServerGroupId", group_id)).await?;
        let other = answer.bug(format!("asked for {group_id}, but the answer is about another server group"));
        let unusable =
            answer.bug(format!("the server group {group_id} has a backend with an impossible port or weight"));
        let body: GroupBody = answer.decode()?;
        if body.v_server_group_id.0 != group_id {
            return Err(other);
        }
        let known = |backend: &BackendBody| backend.kind().is_some();
        let backends = body.backend_servers.0.into_iter().filter(known);
        backends.map(|backend| backend.backend().ok_or_else(|| unusable.clone())).collect()
    }

    /// Makes a server group with backends; returns its id.
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
        let mut params = Params::new().with("LoadBalancerId", id).with("VServerGroupName", name);
        if !backends.is_empty() {
            params.push("BackendServers", servers(backends));
        }
        let answer = self.0.write(permit, CREATE_GROUP, params).await?;
        let nameless = answer.bug("the answer does not say which server group was made");
        let body: GroupBody = answer.decode()?;
        if body.v_server_group_id.0.is_empty() { Err(nameless) } else { Ok(body.v_server_group_id.0) }
    }

    /// Deletes a server group.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_group(&self, permit: &Permit, group_id: &str) -> Result<(), Fault> {
        self.0.write(permit, DELETE_GROUP, Params::new().with("VServerGroupId", group_id)).await.map(drop)
    }

    /// Adds backends. Nothing is sent for none.
    ///
    /// # Errors
    /// As any write.
    pub async fn add_backends(&self, permit: &Permit, group_id: &str, backends: &[Backend]) -> Result<(), Fault> {
        if backends.is_empty() {
            return Ok(());
        }
        self.0.write(permit, ADD_BACKENDS, group(group_id).with("BackendServers", servers(backends))).await.map(drop)
    }

    /// Removes backends; absent ones are ignored by the API. Nothing is sent for none.
    ///
    /// # Errors
    /// As any write.
    pub async fn remove_backends(&self, permit: &Permit, group_id: &str, backends: &[BackendKey]) -> Result<(), Fault> {
        if backends.is_empty() {
            return Ok(());
        }
        let list: Value = backends.iter().map(|key| Value::from(identity(key))).collect();
        self.0.write(permit, REMOVE_BACKENDS, group(group_id).with("BackendServers", list)).await.map(drop)
    }

    /// Changes weight and description of backends. Nothing is sent for none.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_backends(&self, permit: &Permit, group_id: &str, backends: &[Backend]) -> Result<(), Fault> {
        if backends.is_empty() {
            return Ok(());
        }
        self.0.write(permit, SET_BACKENDS, group(group_id).with("BackendServers", servers(backends))).await.map(drop)
    }
}

fn group(id: &str) -> Params {
    Params::new().with("VServerGroupId", id)
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
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct GroupsBody {
    v_server_groups: List<GroupBody>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct GroupBody {
    v_server_group_id: Text,
    v_server_group_name: Text,
    backend_servers: List<BackendBody>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct BackendBody {
    server_id: Text,
    server_ip: Text,
    port: Int,
    weight: Int,
    r#type: Text,
    description: Text,
}

impl BackendBody {
    /// `None` for kinds that this program does not manage. Where the answer says nothing, the id does.
    fn kind(&self) -> Option<BackendKind> {
        match self.r#type.0.to_ascii_lowercase().as_str() {
            "ecs" => Some(BackendKind::Ecs),
            "eni" => Some(BackendKind::Eni),
            "" if self.server_id.0.starts_with("eni-") => Some(BackendKind::Eni),
            "" => Some(BackendKind::Ecs),
            _ => None,
        }
    }

    fn backend(self) -> Option<Backend> {
        let kind = self.kind()?;
        let server_ip = match kind {
            BackendKind::Ecs => Box::default(),
            BackendKind::Eni => self.server_ip.0.into(),
        };
        Some(Backend {
            key: BackendKey {
                kind,
                server_id: self.server_id.0.into(),
                server_ip,
                port: u16::try_from(self.port.0).ok()?,
            },
            weight: u8::try_from(self.weight.0).ok()?,
            description: self.description.0.into(),
        })
    }
}
