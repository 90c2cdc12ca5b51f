//! Integration tests: the real binary between a simulated cluster and a simulated cloud on loopback.
//!
//! [`harness`] starts the two and the binary, [`in_process`] runs the controllers on a simulated clock instead, and
//! [`end_state`] says what must hold at the end. Each of the other modules tests one guarantee or one part of the product.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should end")]

mod action_failures;
mod annotations;
mod availability;
mod blast_radius;
mod call_counts;
mod call_counts_at_scale;
mod certificate_rotation;
mod checklist;
mod commands;
mod conditions;
mod config_reload;
mod config_reload_keys;
mod conformance;
mod crashes;
mod deploy;
mod doctor;
mod documents;
mod end_state;
mod end_to_end;
mod eventual_consistency;
mod examples;
mod explain;
mod golden;
mod harness;
mod http_server;
mod in_process;
mod invariants;
mod isolation;
mod kinds;
mod kubernetes_versions;
mod lasting_troubles;
mod latency_classes;
mod leader_election;
mod leader_failover;
mod lint;
mod logs;
mod migrate;
mod migration;
mod module_graph;
mod monitoring;
mod network_defects;
mod network_golden;
mod network_load_balancers;
mod network_moves;
mod nodes;
mod official_controller_defects;
mod official_controller_pitfalls;
mod outages;
mod ownership;
mod page;
mod permissions;
mod private_zone;
mod quick_start;
mod random_faults;
mod real_cluster;
mod refused_backends;
mod reports;
mod routes;
mod secret_leaks;
mod service_features;
mod shared_cluster_id;
mod start_order;
mod supervision;
mod systemd;
mod throttling;
mod traces;
mod translations;
mod unready_nodes;
mod untrusted_input;
mod volume_labels;
mod zone_placement;
