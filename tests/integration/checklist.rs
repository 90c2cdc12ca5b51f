//! Requirements on load balancers, point by point, and the tests of each. These tests fail when one of those is renamed or
//! removed.

use std::path::{Path, PathBuf};

/// Checks that any implementation has to pass: what is given and expected, and where it is held. `golden case` is a file of
/// `tests/golden`, played by [`crate::golden`].
const CHECKS: &[(&str, &[&str])] = &[
    (
        "1: the default name is made of the UID",
        &["plan::loadbalancer::ownership::tests::the_default_name_is_the_uid_with_a_letter_in_front"],
    ),
    (
        "2: an empty current key wins over the legacy one",
        &["plan::clb::annotations::tests::the_current_prefix_wins_whenever_it_is_present", "golden case legacy-prefix"],
    ),
    (
        "3: marks of listeners and groups are distinguished",
        &["plan::loadbalancer::ownership::tests::marks_are_recognised"],
    ),
    (
        "4: pods share a weight, or have the default one each",
        &["plan::clb::tests::desired_state::weights_of_pods", "golden case default-weight"],
    ),
    (
        "5: nodes weigh as many pods as they run, with local traffic",
        &[
            "plan::clb::tests::desired_state::weights_of_nodes_follow_their_pods_in_local_mode",
            "golden case local-policy",
        ],
    ),
    (
        "6: redirecting listeners are made after their targets",
        &["plan::clb::tests::plans::redirecting_listeners_come_after_their_targets", "golden case forward"],
    ),
    (
        "7: redirecting listeners are deleted before their targets",
        &[
            "plan::clb::tests::plans::redirecting_listeners_go_before_their_targets",
            "plan::clb::tests::unusable_and_foreign::redirecting_listeners_go_first_whatever_their_numbers",
        ],
    ),
    (
        "8: a port changes its protocol, whether its group is there or not",
        &[
            "plan::clb::tests::plans::another_protocol_on_a_port",
            "plan::clb::tests::pitfalls::a_listener_is_away_for_no_longer_than_it_takes_to_make_it_again",
        ],
    ),
    (
        "9: access lists are compared as sets, and only while they are on",
        &[
            "plan::clb::diff::fields::tests::access_lists_are_sets_and_count_only_while_the_status_is_on",
            "golden case acl",
        ],
    ),
    (
        "10: tags follow the annotation and spare the vendor's and ours",
        &[
            "plan::clb::tests::drift_and_changes::the_tag_list_is_authoritative_but_spares_the_vendors",
            "golden case tags",
        ],
    ),
    (
        "11: two hundred pods for two hundred others, five calls each, and as many go as came before",
        &[
            "plan::clb::tests::drift_and_changes::many_backends_come_in_batches_and_as_many_go_only_after_each",
            "golden case eni-scale",
        ],
    ),
    (
        "12: a load balancer made for Kubernetes is not reused",
        &["golden case reuse-tagged-by-k8s", "plan::clb::tests::drift_and_changes::an_lb_of_another_owner_is_refused"],
    ),
    (
        "13: a load balancer that is gone is not made again unless that is proven, see docs/explanation/differences.md",
        &[
            "outages::services_in_trouble",
            "plan::clb::tests::drift_and_changes::a_lost_load_balancer_is_made_again_unless_it_was_named",
        ],
    ),
    (
        "14: labels decide nothing, the specification does",
        &[
            "golden case label-only-change",
            "controllers::loadbalancer::state::tests::only_what_the_user_changed_counts",
        ],
    ),
    (
        "15: a pod without interface keeps its own address, delays no other, and its condition says so",
        &[
            "service_features::pods_are_looked_up_in_batches_and_one_without_interface_delays_no_other",
            "plan::clb::tests::drift_and_changes::pods_without_interface_hold_removals_back_while_no_other_is_wanted",
        ],
    ),
    (
        "16: a node that gets the exclude label leaves",
        &["service_features::a_shared_load_balancer_has_one_owner_per_port_and_is_left_clean"],
    ),
    (
        "17: a Service that becomes another type loses its load balancer, labels, status and finalizer",
        &[
            "golden case type-to-clusterip",
            "service_features::a_service_that_becomes_a_cluster_ip_reports_what_keeps_its_load_balancer",
        ],
    ),
    ("18: a lost tag is put back on what the name finds", &["service_features::removed_marks_are_restored"]),
    (
        "19: the type of the address cannot be changed",
        &[
            "golden case address-type-switch",
            "plan::clb::tests::drift_and_changes::what_is_fixed_at_creation_is_compared_and_the_rest_goes_on",
        ],
    ),
    (
        "20: the charge of an instance follows its rules, see docs/explanation/differences.md",
        &[
            "service_features::what_is_paid_for_goes_one_way_only",
            "plan::clb::tests::drift_and_changes::charging_follows_its_rules",
        ],
    ),
];

/// Tests of the defects that the official controller is known to have.
const DEFECTS: [&[&str]; 15] = [
    &["official_controller_defects::a_reused_ipv6_load_balancer_can_be_left"],
    &["official_controller_defects::a_preserved_ipv6_load_balancer_can_be_left"],
    &["official_controller_defects::a_preserved_load_balancer_keeps_serving"],
    &["official_controller_defects::domain_certificates_are_changed_and_cleared"],
    &["official_controller_defects::domain_certificates_are_changed_and_cleared"],
    &["official_controller_defects::a_mistake_is_reported_and_removes_no_group"],
    &["official_controller_defects::a_public_service_can_be_deleted_after_public_ones_are_switched_off"],
    &["official_controller_defects::a_backend_of_a_user_stays_the_users"],
    &["official_controller_defects::backends_follow_to_another_group_and_two_ports_share_one"],
    &["official_controller_defects::a_vswitch_needs_no_zone"],
    &["official_controller_defects::failures_are_counted"],
    &["official_controller_defects::a_service_given_to_another_controller_keeps_its_load_balancer_until_it_is_deleted"],
    &["official_controller_defects::a_service_is_not_let_go_before_its_status_is_cleared"],
    &["official_controller_defects::nothing_is_untagged_where_no_tag_is_ours"],
    &["official_controller_defects::taking_the_certificate_annotation_away_keeps_the_certificate"],
];

/// Tests of the pitfalls of its design, and of the cloud, for its users.
const PITFALLS: [&[&str]; 33] = [
    &["official_controller_pitfalls::a_cluster_has_an_id_of_its_own"],
    &["official_controller_pitfalls::a_port_that_another_service_holds_is_not_taken"],
    &["plan::clb::tests::pitfalls::a_protocol_by_number_counts_for_the_port_that_it_fits"],
    &["plan::clb::tests::pitfalls::a_listener_is_away_for_no_longer_than_it_takes_to_make_it_again"],
    &["plan::clb::tests::pitfalls::weights_need_a_scheduler_that_reads_them"],
    &["service_features::gated_pods_are_registered_reported_and_leave_gracefully"],
    &["official_controller_pitfalls::backends_are_exchanged_where_there_is_no_room_for_both"],
    &["official_controller_pitfalls::a_quota_is_named_and_holds_up_only_what_is_beyond_it"],
    &[
        "official_controller_pitfalls::a_listener_of_a_user_that_holds_a_group_is_named",
        "plan::clb::tests::pitfalls::a_group_that_a_listener_of_the_user_needs_is_named_with_it",
    ],
    &["official_controller_pitfalls::a_load_balancer_that_takes_no_pods_says_so"],
    &["official_controller_pitfalls::a_node_that_is_about_to_go_leaves_at_once"],
    &["plan::clb::tests::pitfalls::masters_are_left_out_by_the_standard_label_or_by_a_switch"],
    &["plan::clb::tests::pitfalls::a_node_without_provider_id_is_told_and_the_others_serve"],
    &["plan::clb::tests::pitfalls::a_virtual_node_needs_no_label_to_be_left_out"],
    &["plan::clb::tests::pitfalls::no_node_ports_are_needed_where_pods_are_attached_and_told_where_they_are"],
    &["service_features::source_ranges_affinity_and_health_checks_reach_the_listeners"],
    &["plan::clb::tests::pitfalls::incomplete_sticky_sessions_are_told_before_any_call"],
    &["plan::clb::tests::pitfalls::headers_are_no_proxy_protocol_and_settings_without_effect_are_told"],
    &["official_controller_pitfalls::a_stated_zone_is_kept_and_its_lack_is_reported"],
    &["official_controller_pitfalls::another_vswitch_is_the_same_creation"],
    &["plan::clb::tests::pitfalls::all_access_lists_survive_a_change_of_something_else"],
    &["plan::clb::tests::pitfalls::the_longest_names_fit_and_stay_apart"],
    &["plan::clb::tests::pitfalls::endpoints_by_hand_are_told_what_they_lack"],
    &["plan::clb::tests::pitfalls::named_target_ports_may_differ_from_pod_to_pod"],
    &["official_controller_pitfalls::traffic_from_inside_goes_where_it_must"],
    &[
        "official_controller_pitfalls::a_charge_that_changes_at_midnight_is_asked_for_once",
        "plan::clb::tests::pitfalls::a_charge_that_changes_at_midnight_is_waited_for",
    ],
    &["plan::clb::tests::pitfalls::a_specification_without_effect_is_told"],
    &["official_controller_pitfalls::a_load_balancer_of_the_same_name_in_another_cluster_is_not_taken"],
    &["official_controller_pitfalls::a_service_that_no_longer_names_its_load_balancer_gets_an_event_and_can_leave"],
    &["official_controller_pitfalls::a_load_balancer_of_ours_is_not_reused_by_its_own_service_and_not_lost"],
    &["alibaba::endpoints::tests::hosts_inside_and_outside_of_a_vpc_follow_the_published_tables"],
    &["plan::clb::tests::pitfalls::listeners_of_very_old_releases_are_known_by_where_they_lead"],
    &["plan::clb::tests::pitfalls::two_services_share_pods_and_nothing_else"],
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a test of this name exists: a path as the test runner prints it, or `golden case` and its name.
pub(crate) fn exists(test: &str) -> bool {
    if let Some(case) = test.strip_prefix("golden case ") {
        return root().join("tests/golden").join(format!("{case}.json")).is_file();
    }
    let Some((module, name)) = test.rsplit_once("::") else { return false };
    let path: PathBuf = module.split("::").collect();
    let beside = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let files = [
        root().join("tests/integration").join(&path).with_extension("rs"),
        root().join("src").join(&path).with_extension("rs"),
        // A module of tests at the end of the file that it tests.
        root().join("src").join(&beside).with_extension("rs"),
    ];
    files.iter().any(|file| tests_of(file).iter().any(|found| found == name))
}

/// Names of the tests in a file.
fn tests_of(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        } else {
            let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if let (true, Some(rest)) = (is_test, rest) {
                names.push(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
            }
            is_test = false;
        }
    }
    names
}

#[test]
fn every_check_has_tests_that_exist() {
    for (index, (check, tests)) in CHECKS.iter().enumerate() {
        assert!(check.starts_with(&format!("{}: ", index + 1)) && !tests.is_empty(), "{check}");
        for test in *tests {
            assert!(exists(test), "{check}: there is no test {test}");
        }
    }
    assert_eq!(CHECKS.len(), 20);
    assert!(!exists("golden case nothing") && !exists("service_features::nothing") && !exists("checklist::exists"));
}

#[test]
fn every_defect_and_every_pitfall_of_the_official_controller_has_a_test() {
    for tests in DEFECTS.iter().chain(&PITFALLS) {
        assert!(!tests.is_empty() && tests.iter().all(|test| exists(test)), "{tests:?}");
    }
}
