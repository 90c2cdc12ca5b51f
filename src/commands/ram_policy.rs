//! `ram-policy`: the RAM policy with the least permissions in the cloud.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{CommandError, CommandResult, print};
use crate::alibaba::actions::{ASSUME_ROLE, Action};
use crate::config::Config;
use crate::config::checked::Credentials;
use crate::controllers::registry;

pub(super) fn run(config: &Config, to_assume: bool) -> CommandResult {
    let policy = if to_assume {
        if let Credentials::Unusable(why) = &config.cloud.credentials {
            return Err(CommandError::new(why));
        }
        let none = "no key pair assumes a role: cloud.credentials has no role_arn next to a key pair";
        policy_to_assume(config).ok_or(CommandError::new(none))?
    } else {
        self::policy(config)
    };
    print(&format!("{policy:#}\n"))
}

/// The policy for the controllers.
pub(super) fn policy(config: &Config) -> Value {
    document(registry::cloud_actions(config).map(Action::permission).collect(), "*")
}

/// The policy for the owner of a key pair that assumes a role; `None` where no key pair does. A role for a service account
/// is granted by the role's own trust policy.
fn policy_to_assume(config: &Config) -> Option<Value> {
    match &config.cloud.credentials {
        Credentials::AssumeRole { role_arn, .. } => {
            Some(document(BTreeSet::from([ASSUME_ROLE.0.permission()]), role_arn))
        }
        Credentials::AccessKey(_)
        | Credentials::Oidc { .. }
        | Credentials::InstanceRole { .. }
        | Credentials::Unusable(_) => None,
    }
}

/// RAM refuses an empty list of actions, so that nothing to allow is an empty list of statements.
fn document(actions: BTreeSet<String>, resource: &str) -> Value {
    let statement = json!({ "Effect": "Allow", "Action": actions, "Resource": resource });
    let statements = if actions.is_empty() { Vec::new() } else { vec![statement] };
    json!({ "Version": "1", "Statement": statements })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigSource, load};
    use crate::controllers::registry::CATALOG;

    fn config(text: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alicloud-ccm.toml");
        std::fs::write(&path, text).unwrap();
        load(&ConfigSource { path, ..ConfigSource::default() }, &CATALOG).unwrap().config
    }

    #[test]
    fn policies_follow_the_configuration() {
        let empty = config("controllers = []\n[cloud]\ncluster_id = \"c\"\n");
        assert_eq!(registry::cloud_actions(&empty).count(), 0);
        assert_eq!(document(BTreeSet::new(), "*")["Statement"], json!([]));
        assert_eq!(policy_to_assume(&empty), None);
        let key = "[cloud]\ncluster_id = \"c\"\n[cloud.credentials]\naccess_key_id = \"LTAI1\"\n\
                   access_key_secret = \"s\"\nrole_arn = \"acs:ram::1:role/r\"\n[route]\ncluster_cidrs = [\"10.0.0.0/8\"]\n";
        let assumed = policy_to_assume(&config(key)).unwrap();
        assert_eq!(assumed["Statement"][0]["Action"][0], "sts:AssumeRole");
        assert_eq!(assumed["Statement"][0]["Resource"], "acs:ram::1:role/r");
    }
}
