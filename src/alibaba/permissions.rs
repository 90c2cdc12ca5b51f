//! Rights in the cloud, as RAM policies.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::actions::{
    self, ASSUME_ROLE, Action, CREATE_ROUTE_ENTRIES, DELETE_ROUTE_ENTRIES, DESCRIBE_EIPS, DESCRIBE_INSTANCES,
    DESCRIBE_NETWORK_INTERFACES, DESCRIBE_ROUTE_ENTRIES, DESCRIBE_ROUTE_TABLES, DESCRIBE_VPC, DESCRIBE_VSWITCHES,
    MODIFY_NETWORK_INTERFACE,
};
use super::endpoints::Product;
use crate::config::Config;
use crate::config::checked::Credentials;
use crate::rights::{Needed, nodes, routes, services};

/// What a part of the program calls.
struct Right {
    action: &'static Action,
    needed: Needed,
}

const fn right(action: &'static Action, needed: Needed) -> Right {
    Right { action, needed }
}

fn switches_checks_off(config: &Config) -> bool {
    nodes(config) && config.node.disable_source_dest_check
}

/// All but the load balancers', of which the service controller uses every action that there is.
const RIGHTS: &[Right] = &[
    // Whether the instance of a lost node lives, and whether the account is the cluster's, is asked by all.
    right(DESCRIBE_INSTANCES.0, |config| nodes(config) || routes(config) || services(config)),
    right(DESCRIBE_NETWORK_INTERFACES.0, switches_checks_off),
    right(MODIFY_NETWORK_INTERFACE.0, switches_checks_off),
    right(DESCRIBE_ROUTE_TABLES.0, |config| routes(config) && config.route.table_ids.is_empty()),
    right(DESCRIBE_ROUTE_ENTRIES.0, routes),
    right(CREATE_ROUTE_ENTRIES.0, routes),
    right(DELETE_ROUTE_ENTRIES.0, routes),
    // Any Service can ask for directly attached pods, or for an EIP.
    right(DESCRIBE_NETWORK_INTERFACES.0, services),
    right(DESCRIBE_VPC.0, services),
    right(DESCRIBE_EIPS.0, services),
    right(DESCRIBE_VSWITCHES.0, |config| services(config) && config.cloud.vswitches.is_empty()),
];

/// The permissions that a configuration needs, such as `slb:CreateLoadBalancer`.
#[must_use]
pub fn permissions(config: &Config) -> BTreeSet<String> {
    let stated = RIGHTS.iter().filter(|right| (right.needed)(config)).map(|right| right.action);
    let balancers = actions::ALL.iter().copied().filter(|action| services(config) && action.product == Product::Slb);
    stated.chain(balancers).map(Action::permission).collect()
}

/// The policy for the identity that calls the cloud: the role, where one is assumed, else the owner of the key.
#[must_use]
pub fn policy(config: &Config) -> Value {
    document(permissions(config), "*")
}

/// The policy for the owner of a key pair that assumes a role; `None` where nobody needs a permission for that. A role
/// for a service account is granted by the role's own trust policy.
#[must_use]
pub fn policy_to_assume(config: &Config) -> Option<Value> {
    match &config.cloud.credentials {
        Credentials::AssumeRole { role_arn, .. } => {
            Some(document(BTreeSet::from([ASSUME_ROLE.0.permission()]), role_arn))
        }
        Credentials::AccessKey(_) | Credentials::Oidc { .. } | Credentials::InstanceRole { .. } => None,
    }
}

/// An empty list of actions is refused by RAM; nothing to allow is an empty list of statements.
fn document(actions: BTreeSet<String>, resource: &str) -> Value {
    let statement = json!({ "Effect": "Allow", "Action": actions, "Resource": resource });
    let statements = if actions.is_empty() { Vec::new() } else { vec![statement] };
    json!({ "Version": "1", "Statement": statements })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Origin, load};

    #[test]
    fn every_action_is_permitted_to_somebody_or_needs_no_permission() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alicloud-ccm.toml");
        let text =
            "cloud.cluster_id = \"c\"\nroute.cluster_cidrs = [\"10.0.0.0/8\"]\nnode.disable_source_dest_check = true\n";
        std::fs::write(&path, text).unwrap();
        let config = load(&Origin { path, environment: [].into(), overrides: Vec::new() }, &crate::catalog::CATALOG)
            .unwrap()
            .config;
        let all = permissions(&config);
        let unneeded: Vec<_> =
            actions::ALL.iter().filter(|action| !all.contains(&action.permission())).copied().collect();
        // Roles are assumed by other identities.
        assert_eq!(unneeded, [actions::ASSUME_ROLE.0, actions::ASSUME_ROLE_WITH_OIDC.0]);
    }
}
