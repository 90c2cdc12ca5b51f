use std::collections::BTreeSet;

use super::*;
use crate::alibaba::actions::Action;
use crate::config::{self, ConfigSource, load};

fn config(controllers: &[&str]) -> Config {
    with_zone(controllers, "zone_name")
}

/// `zone` is the key that states the zone of records.
fn with_zone(controllers: &[&str], zone: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alicloud-ccm.toml");
    let text = format!(
        "controllers = {controllers:?}\ncloud.cluster_id = \"c\"\nroute.cluster_cidrs = [\"10.0.0.0/8\"]\n\
         node.disable_source_dest_check = true\npvtz.{zone} = \"cluster.own\"\n"
    );
    std::fs::write(&path, text).unwrap();
    load(&ConfigSource { path, ..ConfigSource::default() }, &CATALOG).unwrap().config
}

fn names() -> Vec<&'static str> {
    CONTROLLERS.iter().map(|row| row.name()).collect()
}

#[test]
fn every_name_is_one_row_and_the_configuration_accepts_it() {
    let fallbacks = CONTROLLERS.iter().filter_map(|row| row.when_off.as_ref().map(|fallback| fallback.name));
    let all: Vec<_> = names().into_iter().chain(fallbacks).collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    assert_eq!(running(&config(&names())).count(), CONTROLLERS.len());
    for name in names() {
        let alone: Vec<_> = running(&config(&[name])).map(|row| row.name()).collect();
        assert_eq!(alone, [name]);
    }
}

#[test]
fn every_controller_has_a_section_of_its_own() {
    let sections: BTreeSet<_> = CONTROLLERS.iter().map(|row| row.section).collect();
    assert_eq!(sections.len(), CONTROLLERS.len());
    for section in sections {
        let own = config::keys().into_iter().filter(|key| key.starts_with(&format!("{section}."))).collect::<Vec<_>>();
        assert!(!own.is_empty(), "no key of the configuration begins with {section:?}");
    }
}

#[test]
fn every_watched_kind_may_be_watched_on_every_server() {
    for row in &CONTROLLERS {
        assert!(!row.watches.is_empty(), "{} reacts to nothing", row.name());
        for minor in [8, 11, 16, 17, 20, 21, 34] {
            let accesses: Vec<_> = kubernetes_access(&config(&[row.name()]))
                .filter(|access| access.versions.contains(&minor) && access.verbs.contains(&"watch"))
                .map(|access| access.resource)
                .collect();
            for kind in row.watches {
                let granted = |access: &KubernetesAccess| accesses.contains(&access.resource);
                assert!(kind.access().iter().any(granted), "{}: {kind:?} on 1.{minor}", row.name());
            }
        }
    }
}

#[test]
fn every_action_is_called_by_a_controller_or_for_credentials() {
    let configs = ["zone_name", "zone_id"].map(|zone| with_zone(&names(), zone));
    let called: BTreeSet<_> = configs.iter().flat_map(cloud_actions).map(Action::permission).collect();
    let rest: Vec<_> = actions::ALL.iter().filter(|action| !called.contains(&action.permission())).copied().collect();
    assert_eq!(rest, [actions::ASSUME_ROLE.0, actions::ASSUME_ROLE_WITH_OIDC.0, actions::GET_CALLER_IDENTITY.0]);
}

#[test]
fn gc_asks_every_controller_that_makes_things_in_the_cloud() {
    let configs = ["zone_name", "zone_id"].map(|zone| with_zone(&names(), zone));
    for row in &CONTROLLERS {
        let mut actions = configs.iter().flat_map(|config| row.cloud.iter().flat_map(|access| access.actions(config)));
        let makes = actions.any(|action| action.name.starts_with("Create") || action.name.starts_with("Add"));
        assert_eq!(row.orphans.is_some(), makes, "{}", row.name());
    }
}

#[test]
fn an_action_is_listed_only_where_the_configuration_calls_it() {
    let stated = "cloud.cluster_id = \"c\"\nroute.cluster_cidrs = [\"10.0.0.0/8\"]\nroute.table_ids = [\"vtb-1\"]\n\
                  node.disable_source_dest_check = false\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alicloud-ccm.toml");
    std::fs::write(&path, stated).unwrap();
    let config = load(&ConfigSource { path, ..ConfigSource::default() }, &CATALOG).unwrap().config;
    assert!(!cloud_actions(&config).any(|action| action == actions::DESCRIBE_ROUTE_TABLES.0));
    assert!(!cloud_actions(&config).any(|action| action == actions::MODIFY_NETWORK_INTERFACE.0));
}

#[test]
fn every_object_of_a_plan_has_an_argument_that_commands_accept() {
    use crate::cli::ObjectArg;
    for row in &CONTROLLERS {
        for kind in row.objects {
            let object = if *kind == ObjectKind::Service { "default/one" } else { "one" };
            let argument: ObjectArg = row.argument(object).parse().unwrap();
            assert_eq!((argument.kind, argument.key.to_string()), (*kind, object.to_owned()), "{}", row.name());
        }
    }
}
