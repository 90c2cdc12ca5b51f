//! `status.addresses` from what the cloud says about an instance.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::instance::Instance;
use super::problem::NodeProblem;
use crate::plan::inputs::{NodeAddress, NodeView};

pub(super) const HOSTNAME: &str = "Hostname";

/// The addresses that a node should have, in order.
///
/// # Errors
/// [`NodeProblem`] if the cloud names no address, or not the one that `--node-ip` of the kubelet states.
pub(super) fn wanted(view: &NodeView, instance: &Instance, ipv6: bool) -> Result<Vec<NodeAddress>, NodeProblem> {
    let provided = provided_ips(view)?;
    // An operator who names an IPv6 address in --node-ip has asked for it, whatever the general switch says.
    let cloud = of_instance(instance, ipv6 || provided.iter().any(IpAddr::is_ipv6));
    if cloud.is_empty() {
        return Err(NodeProblem::NoAddresses { instance: instance.id.clone() });
    }
    let mut wanted = restrict(cloud, &provided, view)?;
    wanted.extend(view.addresses.iter().filter(|address| address.kind == HOSTNAME).cloned());
    Ok(wanted)
}

fn of_instance(instance: &Instance, ipv6: bool) -> Vec<NodeAddress> {
    let eip = Some(&instance.eip).filter(|eip| !eip.is_empty());
    let external = instance.public_ips.iter().chain(eip).map(|address| ("ExternalIP", address));
    let v6 = instance.ipv6_addresses.iter().filter(|_| ipv6);
    let internal = instance.inner_ips.iter().chain(&instance.private_ips).chain(v6);
    let mut seen = BTreeSet::new();
    external
        .chain(internal.map(|address| ("InternalIP", address)))
        .map(|(kind, address)| NodeAddress { kind: kind.to_owned(), address: address.clone() })
        .filter(|address| seen.insert(address.clone()))
        .collect()
}

fn provided_ips(view: &NodeView) -> Result<Vec<IpAddr>, NodeProblem> {
    let Some(text) = view.provided_node_ip.as_deref().filter(|text| !text.trim().is_empty()) else {
        return Ok(Vec::new());
    };
    let ips: Result<Vec<IpAddr>, _> = text.split(',').map(|part| part.trim().parse()).collect();
    match ips {
        Ok(ips) if ips.len() <= 2 => Ok(ips),
        _ => Err(NodeProblem::ProvidedIpMalformed { given: text.to_owned() }),
    }
}

/// The provided addresses come first and are the only ones of their type; other types follow.
fn restrict(cloud: Vec<NodeAddress>, provided: &[IpAddr], view: &NodeView) -> Result<Vec<NodeAddress>, NodeProblem> {
    let mut chosen: Vec<NodeAddress> = Vec::new();
    for ip in provided {
        let mut matching = cloud.iter().filter(|known| known.address.parse() == Ok(*ip)).peekable();
        if matching.peek().is_none() {
            return Err(NodeProblem::ProvidedIpUnknown {
                given: view.provided_node_ip.clone().unwrap_or_default(),
                known: cloud.iter().map(|known| known.address.clone()).collect(),
            });
        }
        chosen.extend(matching.cloned());
    }
    let kinds: BTreeSet<String> = chosen.iter().map(|address| address.kind.clone()).collect();
    chosen.extend(cloud.into_iter().filter(|address| !kinds.contains(&address.kind)));
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance() -> Instance {
        Instance {
            id: "i-1".into(),
            public_ips: vec!["1.1.1.1".into()],
            eip: "2.2.2.2".into(),
            private_ips: vec!["10.0.0.1".into(), "10.0.0.2".into()],
            ipv6_addresses: vec!["fd00::1".into()],
            ..Instance::default()
        }
    }

    fn view(provided: Option<&str>) -> NodeView {
        NodeView {
            provided_node_ip: provided.map(str::to_owned),
            addresses: vec![NodeAddress { kind: HOSTNAME.into(), address: "node-a".into() }],
            ..NodeView::default()
        }
    }

    fn text(addresses: &[NodeAddress]) -> Vec<String> {
        addresses.iter().map(|address| format!("{}={}", address.kind, address.address)).collect()
    }

    #[test]
    fn external_then_internal_then_hostname() {
        let plain = wanted(&view(None), &instance(), false).unwrap();
        let internal = ["InternalIP=10.0.0.1", "InternalIP=10.0.0.2"];
        assert_eq!(
            text(&plain),
            ["ExternalIP=1.1.1.1", "ExternalIP=2.2.2.2", internal[0], internal[1], "Hostname=node-a"]
        );
        let dual = wanted(&view(None), &instance(), true).unwrap();
        assert_eq!(text(&dual)[4], "InternalIP=fd00::1");
    }

    #[test]
    fn a_provided_ip_is_the_only_one_of_its_type() {
        let one = wanted(&view(Some("10.0.0.2")), &instance(), true).unwrap();
        assert_eq!(text(&one), ["InternalIP=10.0.0.2", "ExternalIP=1.1.1.1", "ExternalIP=2.2.2.2", "Hostname=node-a"]);
    }

    #[test]
    fn two_provided_ips_keep_their_order_and_are_compared_as_addresses() {
        let two = wanted(&view(Some("fd00:0::1, 10.0.0.1")), &instance(), false).unwrap();
        assert_eq!(text(&two)[..2], ["InternalIP=fd00::1", "InternalIP=10.0.0.1"]);
    }

    #[test]
    fn an_unknown_provided_ip_is_said() {
        let problem = wanted(&view(Some("10.9.9.9")), &instance(), false).unwrap_err();
        assert!(matches!(problem, NodeProblem::ProvidedIpUnknown { .. }));
        assert!(problem.to_string().contains("10.9.9.9") && problem.to_string().contains("10.0.0.1"), "{problem}");
        for given in ["x", "10.0.0.1,10.0.0.2,10.0.0.3"] {
            let problem = wanted(&view(Some(given)), &instance(), false).unwrap_err();
            assert!(matches!(problem, NodeProblem::ProvidedIpMalformed { .. }), "{given}");
        }
    }

    #[test]
    fn no_address_at_all_is_never_written() {
        let bare = Instance { id: "i-1".into(), ..Instance::default() };
        assert!(matches!(wanted(&view(None), &bare, true), Err(NodeProblem::NoAddresses { .. })));
    }
}
