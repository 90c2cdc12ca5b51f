//! Which instance a node without providerID is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::instance::Instance;
use super::problem::NodeProblem;
use crate::plan::inputs::NodeView;
use crate::plan::location::CloudLocation;
use crate::plan::provider_id::ProviderId;

/// The private addresses by which a node can be looked for: what the kubelet reported and what it was told.
pub fn private_ips(view: &NodeView) -> BTreeSet<IpAddr> {
    let reported = view.addresses.iter().filter(|address| address.kind == "InternalIP").map(|a| a.address.as_str());
    let told = view.provided_node_ip.iter().flat_map(|text| text.split(','));
    reported.chain(told).filter_map(|text| text.trim().parse().ok()).filter(IpAddr::is_ipv4).collect()
}

/// Whether an instance has one of the private addresses of a node.
pub fn has_address_of(instance: &Instance, view: &NodeView) -> bool {
    let ips = private_ips(view);
    instance.private_ips.iter().filter_map(|ip| ip.parse().ok()).any(|ip: IpAddr| ips.contains(&ip))
}

/// The instance that a node's name spells out: `REGION.i-...`, `i-...`, or `iZ...Z`, which is the host name that ECS gives
/// to `i-...` by default.
pub fn spelled_out(name: &str, region: &str) -> Option<String> {
    let name = name.strip_prefix(region).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
    let plain = |id: &str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if let Some(id) = name.strip_prefix("i-") {
        return plain(id).then(|| name.to_owned());
    }
    let id = name.to_ascii_lowercase().strip_prefix("iz").and_then(|rest| rest.strip_suffix('z'))?.to_owned();
    plain(&id).then(|| format!("i-{id}"))
}

/// Decides among the candidates that the cloud showed: by private address, else by an id in the node's name, else by
/// instance name or host name. Exactly one instance of this VPC must remain, address and id must not contradict each
/// other, and no other node may claim it.
///
/// # Errors
/// [`NodeProblem`] says why none was chosen.
pub fn choose<'a>(
    view: &NodeView,
    candidates: &'a [Instance],
    claimed: &BTreeMap<String, String>,
    place: &CloudLocation,
) -> Result<&'a Instance, NodeProblem> {
    let here: BTreeMap<&str, &Instance> = candidates
        .iter()
        .filter(|instance| instance.vpc_id == place.vpc_id)
        .map(|instance| (instance.id.as_str(), instance))
        .collect();
    let holds = |instance: &Instance| has_address_of(instance, view);
    let host_name = |instance: &Instance| instance.host_name.eq_ignore_ascii_case(&view.name);
    let literal = spelled_out(&view.name, &place.region)
        .filter(|id| view.name.ends_with(id.as_str()) || here.get(id.as_str()).is_some_and(|found| host_name(found)));
    let by_id = |instance: &Instance| literal.as_deref() == Some(instance.id.as_str());
    let by_name = |instance: &Instance| instance.name == view.name || host_name(instance);

    let select = |test: &dyn Fn(&Instance) -> bool| -> Vec<&'a Instance> {
        here.values().copied().filter(|instance| test(instance)).collect()
    };
    let certain = select(&|instance| holds(instance) || by_id(instance));
    let found = if certain.is_empty() { select(&by_name) } else { certain };
    match found.as_slice() {
        [] => Err(NodeProblem::NotFound { vpc: place.vpc_id.clone() }),
        [one] => match claimed.get(&one.id) {
            Some(other) if *other != view.name => {
                Err(NodeProblem::Claimed { instance: one.id.clone(), other: other.clone() })
            }
            _ => Ok(one),
        },
        several => Err(NodeProblem::Ambiguous { instances: several.iter().map(|one| one.id.clone()).collect() }),
    }
}

/// Which node says of itself that it is which instance.
pub fn claims<'a>(views: impl IntoIterator<Item = &'a NodeView>) -> BTreeMap<String, String> {
    views
        .into_iter()
        .filter_map(|view| ProviderId::parse(&view.provider_id).ok().map(|id| (id.instance, view.name.clone())))
        .collect()
}

/// Nodes that were matched with the same instance, of which none may have it: each with one of the others.
pub fn rivals<'a>(chosen: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> BTreeMap<String, String> {
    let by_instance: BTreeSet<(&str, &str)> = chosen.clone().map(|(node, instance)| (instance, node)).collect();
    let rival = |node: &str, instance: &str| {
        let same = by_instance.range((instance, "")..).take_while(|(id, _)| *id == instance);
        same.map(|(_, other)| *other).find(|other| *other != node).map(str::to_owned)
    };
    chosen.filter_map(|(node, instance)| Some((node.to_owned(), rival(node, instance)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::inputs::NodeAddress;

    fn place() -> CloudLocation {
        CloudLocation { region: "cn-a".into(), vpc_id: "vpc-1".into(), ..CloudLocation::default() }
    }

    fn instance(id: &str, name: &str, ip: &str) -> Instance {
        Instance {
            id: id.into(),
            name: name.into(),
            vpc_id: "vpc-1".into(),
            private_ips: vec![ip.into()],
            ..Instance::default()
        }
    }

    fn node(name: &str, ip: Option<&str>) -> NodeView {
        let addresses =
            ip.map(|ip| NodeAddress { kind: "InternalIP".into(), address: ip.into() }).into_iter().collect();
        NodeView { name: name.into(), addresses, ..NodeView::default() }
    }

    #[test]
    fn address_then_id_then_name() {
        let candidates = [
            instance("i-1", "one", "10.0.0.1"),
            instance("i-2", "two", "10.0.0.2"),
            instance("i-3", "two", "10.0.0.3"),
        ];
        let chosen = |view: &NodeView| choose(view, &candidates, &BTreeMap::new(), &place()).map(|i| i.id.as_str());
        assert_eq!(chosen(&node("worker", Some("10.0.0.2"))), Ok("i-2"));
        assert_eq!(chosen(&node("cn-a.i-3", None)), Ok("i-3"));
        assert_eq!(chosen(&node("i-3", None)), Ok("i-3"));
        assert_eq!(chosen(&node("one", None)), Ok("i-1"));
        assert!(
            matches!(chosen(&node("two", None)), Err(NodeProblem::Ambiguous { instances }) if instances.len() == 2)
        );
        assert!(matches!(chosen(&node("i-1", Some("10.0.0.2"))), Err(NodeProblem::Ambiguous { .. })));
        assert!(matches!(chosen(&node("none", None)), Err(NodeProblem::NotFound { .. })));
    }

    #[test]
    fn default_host_names_count_only_if_the_cloud_agrees() {
        let mut one = instance("i-bp1x", "one", "10.0.0.1");
        let view = node("izbp1xz", None);
        assert_eq!(spelled_out("izbp1xz", "cn-a").as_deref(), Some("i-bp1x"));
        assert!(choose(&view, std::slice::from_ref(&one), &BTreeMap::new(), &place()).is_err());
        one.host_name = "iZbp1xZ".into();
        assert!(choose(&view, &[one], &BTreeMap::new(), &place()).is_ok());
    }

    #[test]
    fn an_instance_for_two_is_for_none() {
        let chosen = vec![("a", "i-1"), ("b", "i-2"), ("c", "i-1")];
        let rivals = rivals(chosen.into_iter());
        assert_eq!(rivals, [("a".to_owned(), "c".to_owned()), ("c".to_owned(), "a".to_owned())].into());
    }

    #[test]
    fn another_vpc_or_another_nodes_instance_is_refused() {
        let mut foreign = instance("i-1", "one", "10.0.0.1");
        let view = node("worker", Some("10.0.0.1"));
        let claimed = BTreeMap::from([("i-1".to_owned(), "old".to_owned())]);
        let problem = choose(&view, std::slice::from_ref(&foreign), &claimed, &place()).unwrap_err();
        assert!(matches!(problem, NodeProblem::Claimed { .. }), "{problem}");
        foreign.vpc_id = "vpc-2".into();
        assert!(choose(&view, &[foreign], &BTreeMap::new(), &place()).is_err());
    }
}
