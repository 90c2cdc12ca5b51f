//! Where each field of a node comes from that this program sets or needs.

use std::net::IpAddr;

use super::step::{NodePlan, NodeStep};
use super::{SHUTDOWN, UNINITIALIZED, addresses, labels};
use crate::plan::inputs::{NodeAddress, NodeView};
use crate::plan::setting::{SettingOrigin, SettingSource};

use SettingSource::{Annotation, Configuration, Instance, Kubelet, Spec};

/// Each field as `plan` leaves it.
pub fn origins(view: &NodeView, plan: &NodePlan) -> Vec<SettingOrigin> {
    let mut node = view.clone();
    for step in &plan.steps {
        match step {
            NodeStep::SetAddresses(addresses) => node.addresses.clone_from(addresses),
            NodeStep::SetMetadata { labels, provider_id } => {
                node.labels.extend(labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())));
                node.provider_id = provider_id.clone().unwrap_or(node.provider_id);
            }
            NodeStep::AddTaint(taint) => node.taints.push(taint.clone()),
            NodeStep::AwaitRoute | NodeStep::DisableCheck { .. } | NodeStep::RemoveTaint(_) => {}
        }
    }
    let mut found = Vec::new();
    if !node.provider_id.is_empty() {
        let source = if view.provider_id.is_empty() { Instance } else { Spec("spec.providerID") };
        let help =
            "names the instance; one that the kubelet does not state is found by the address or the name of the node";
        found.push(SettingOrigin::new("spec.providerID", &node.provider_id, source, help));
    }
    let provided: Vec<&str> = node.provided_node_ip.iter().flat_map(|ips| ips.split(',')).map(str::trim).collect();
    found.extend(node.addresses.iter().map(|address| of_address(address, &provided)));
    found.extend(
        labels::keys()
            .filter_map(|key| Some(SettingOrigin::new(key, node.label(key)?, Instance, "describes the instance"))),
    );
    for (key, source, help) in [
        (UNINITIALIZED, Kubelet, "keeps pods away until the instance is known"),
        (SHUTDOWN, Configuration("node.shutdown_taint"), "marks the node of a stopped instance"),
    ] {
        let taint = node.taints.iter().find(|taint| taint.key == key);
        found.extend(taint.map(|taint| SettingOrigin::new(key, &taint.effect, source, help)));
    }
    found
}

fn of_address(NodeAddress { kind, address }: &NodeAddress, provided: &[&str]) -> SettingOrigin {
    let ip: Option<IpAddr> = address.parse().ok();
    let is_provided = ip.is_some() && provided.iter().any(|text| text.parse().ok() == ip);
    let (source, help) = if kind == addresses::HOSTNAME {
        (Kubelet, "stays as the kubelet reports it")
    } else if is_provided {
        let key = "alpha.kubernetes.io/provided-node-ip".to_owned();
        (Annotation(key), "is the --node-ip of the kubelet, and the only address of its type")
    } else if ip.is_some_and(|ip| ip.is_ipv6()) {
        (Configuration("node.ipv6"), "is an IPv6 address of the instance")
    } else {
        (Instance, "is an address of the instance")
    };
    SettingOrigin::new("status.addresses", format!("{kind} {address}"), source, help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::inputs::Taint;

    #[test]
    fn each_field_says_what_decides_about_it() {
        let address = |kind: &str, address: &str| NodeAddress { kind: kind.to_owned(), address: address.to_owned() };
        let taint = Taint { key: UNINITIALIZED.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
        let view = NodeView {
            provided_node_ip: Some("10.0.0.1".to_owned()),
            taints: vec![taint],
            addresses: vec![address("Hostname", "node-1")],
            labels: [("theirs".into(), "x".into())].into_iter().collect(),
            ..NodeView::default()
        };
        let all =
            [("ExternalIP", "1.1.1.1"), ("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"), ("Hostname", "node-1")];
        let labels = [("topology.kubernetes.io/zone".to_owned(), "cn-a-i".to_owned())].into();
        let steps = vec![
            NodeStep::SetAddresses(all.map(|(kind, text)| address(kind, text)).into()),
            NodeStep::SetMetadata { labels, provider_id: Some("cn-a.i-1".to_owned()) },
        ];
        let plan = NodePlan { steps, ..NodePlan::default() };
        let said: Vec<_> = origins(&view, &plan).into_iter().map(|it| (it.setting, it.value, it.source)).collect();
        let expected = [
            ("spec.providerID", "cn-a.i-1", Instance),
            ("status.addresses", "ExternalIP 1.1.1.1", Instance),
            ("status.addresses", "InternalIP 10.0.0.1", Annotation("alpha.kubernetes.io/provided-node-ip".to_owned())),
            ("status.addresses", "InternalIP fd00::1", Configuration("node.ipv6")),
            ("status.addresses", "Hostname node-1", Kubelet),
            ("topology.kubernetes.io/zone", "cn-a-i", Instance),
            (UNINITIALIZED, "NoSchedule", Kubelet),
        ];
        assert_eq!(said, expected.map(|(setting, value, source)| (setting, value.to_owned(), source)));
        let known = NodeView { provider_id: "cn-a.i-2".to_owned(), ..view };
        let first = origins(&known, &NodePlan::default()).remove(0);
        assert_eq!((&*first.value, first.source), ("cn-a.i-2", Spec("spec.providerID")));
    }
}
