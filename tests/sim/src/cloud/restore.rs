//! Load balancers from how [`Cloud::load_balancer`](super::Cloud::load_balancer) shows them.

use serde_json::Value;

use super::account::{Account, Backend, Group, InvalidAccount, LoadBalancer, Protocol};
use super::slb;

impl Account {
    /// Puts a load balancer that is as `shown`. Its groups, which are shown by name, get ids.
    ///
    /// # Errors
    /// Something is missing or of another type than it is shown with.
    pub fn restore_load_balancer(&mut self, shown: &Value) -> Result<(), InvalidAccount> {
        let mut made = LoadBalancer::internet(text(shown, "name")?, text(shown, "address")?);
        for (name, field) in [
            ("address_type", &mut made.address_type),
            ("ip_version", &mut made.ip_version),
            ("vpc", &mut made.vpc),
            ("vswitch", &mut made.vswitch),
            ("master_zone", &mut made.master_zone),
            ("slave_zone", &mut made.slave_zone),
            ("spec", &mut made.spec),
            ("instance_charge_type", &mut made.instance_charge_type),
            ("internet_charge_type", &mut made.internet_charge_type),
            ("modification_protection", &mut made.modification_protection),
            ("modification_reason", &mut made.modification_reason),
            ("resource_group", &mut made.resource_group),
            ("status", &mut made.status),
        ] {
            text(shown, name)?.clone_into(field);
        }
        made.bandwidth = read(shown, "bandwidth")?;
        made.delete_protection = read(shown, "delete_protection")?;
        made.tags = read(shown, "tags")?;
        let none = serde_json::Map::new();
        for (name, backends) in shown["vgroups"].as_object().unwrap_or(&none) {
            let mut group = Group::new(name);
            for it in backends.as_array().into_iter().flatten() {
                group.backends.push(Backend {
                    server_id: read(it, "server_id")?,
                    server_ip: read(it, "server_ip")?,
                    port: read(it, "port")?,
                    weight: read(it, "weight")?,
                    kind: read(it, "type")?,
                    description: read(it, "description")?,
                });
            }
            let id = self.fresh("rsp-", 16);
            made.groups.insert(id, group);
        }
        for it in shown["listeners"].as_object().unwrap_or(&none).values() {
            let protocol = text(it, "protocol")?;
            let protocol = Protocol::parse(protocol).ok_or_else(|| InvalidAccount(format!("protocol {protocol}")))?;
            let mut listener = slb::plain_listener(protocol);
            listener.description = read(it, "description")?;
            listener.status = read(it, "status")?;
            let group: String = read(it, "vgroup")?;
            let id = made.groups.iter().find(|(_, it)| it.name == group).map(|(id, _)| id.clone());
            listener.group = id.unwrap_or_default();
            listener.backend_port = read(it, "backend_port")?;
            listener.bandwidth = read(it, "bandwidth")?;
            listener.scheduler = read(it, "scheduler")?;
            listener.acl_status = read(it, "acl_status")?;
            listener.acl_type = read(it, "acl_type")?;
            listener.acl_ids = read(it, "acl_ids")?;
            listener.tags = read(it, "tags")?;
            listener.config = read(it, "config")?;
            made.listeners.insert((read(it, "port")?, protocol), listener);
        }
        self.load_balancers.insert(read(shown, "id")?, made.into());
        Ok(())
    }
}

fn text<'a>(shown: &'a Value, name: &str) -> Result<&'a str, InvalidAccount> {
    shown[name].as_str().ok_or_else(|| InvalidAccount(format!("{name} is {}", shown[name])))
}

fn read<T: serde::de::DeserializeOwned>(shown: &Value, name: &str) -> Result<T, InvalidAccount> {
    serde_json::from_value(shown[name].clone()).map_err(|error| InvalidAccount(format!("{name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::super::Cloud;
    use super::*;

    #[test]
    fn what_is_restored_is_shown_as_before() {
        let mut account = Account::new("cn-hangzhou");
        let mut made = LoadBalancer::internet("one", "47.98.1.1");
        let mut group = Group::new("group");
        group.backends.push(Backend {
            server_id: "i-1".into(),
            server_ip: String::new(),
            port: 80,
            weight: 100,
            kind: "ecs".into(),
            description: "text".into(),
        });
        made.groups.insert("rsp-1".into(), group);
        let mut listener = slb::plain_listener(Protocol::Http);
        listener.group = "rsp-1".into();
        made.listeners.insert((80, Protocol::Http), listener);
        account.load_balancers.insert("lb-1".into(), made.into());
        let shown = Cloud::new(account).load_balancer("lb-1");
        let mut other = Account::new("cn-hangzhou");
        other.restore_load_balancer(&shown).unwrap();
        assert_eq!(Cloud::new(other).load_balancer("lb-1"), shown);
    }
}
