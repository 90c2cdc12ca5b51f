//! Changes of mind: what a Service asks for no longer leaves no trace in the cloud, also if the controller was killed in between,
//! or another client wrote the Service without the annotation that remembers it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::{Account, Fault, Group, LoadBalancer, NetworkListener, ServerGroup};
use sim::cluster::{Endpoint, Version};
use sim::testbed::{REGION, Testbed, VPC};

use crate::harness::{EVERY, HASTE};
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::kinds::{Kind, annotate, point_at};

const ID: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-id";
const QUIET: &str = "drift_check = \"0s\"\n";

/// What happens between the wish and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Nothing,
    /// The controller is killed, and starts when the wish has ended.
    Kill,
    /// Another client writes the Service as its user's file has it.
    Replacement,
    /// The Service names a load balancer that does not exist, until the wish has ended.
    Typo,
}

impl Between {
    const ALL: [Self; 4] = [Self::Nothing, Self::Kill, Self::Replacement, Self::Typo];

    /// Changes the Service so, meanwhile.
    async fn change(self, testbed: &Testbed, product: &mut Option<Product>, change: impl FnOnce()) {
        if self == Self::Kill {
            product.take();
        }
        if self == Self::Replacement {
            let lost = json!({"metadata": {"annotations": {"alicloud-ccm/applied-clb": null, "alicloud-ccm/applied-nlb": null}}});
            testbed.cluster.patch("Service", "default", "web", &lost).unwrap();
        }
        if self != Self::Typo {
            return change();
        }
        let stated = testbed.cluster.get("Service", "default", "web").unwrap()["metadata"]["annotations"][ID].clone();
        annotate(testbed, "web", "id", "lb-missing");
        settled().await;
        change();
        settled().await;
        // Unless the wish was the Service itself.
        let corrected = json!({"metadata": {"annotations": {ID: stated}}});
        testbed.cluster.patch("Service", "default", "web", &corrected).ok();
    }
}

/// Does this with each of [`Between::ALL`], on a clock of its own.
fn with_each<F: Future<Output = ()>>(test: impl Fn(Between) -> F) {
    for between in Between::ALL {
        on_a_clock_of_its_own(0, test(between));
    }
}

async fn testbed(kind: Kind) -> Testbed {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.join(1);
    kind.expose(&testbed, "web", &[80], &[1]);
    testbed
}

fn start(testbed: &Testbed, of_service: &str) -> Product {
    let more = format!("{HASTE}[leader_election]\nenabled = false\n[nlb]\n{QUIET}[service]\n{QUIET}{of_service}");
    Product::start(testbed, EVERY, &more)
}

async fn settled() {
    tokio::time::sleep(Duration::from_secs(60)).await;
}

fn id_of_user(kind: Kind) -> &'static str {
    if kind == Kind::Nlb { "nlb-user" } else { "lb-user" }
}

/// Lets a Service override listeners on the load balancer of a user.
fn override_listeners(testbed: &Testbed, kind: Kind, name: &str) {
    annotate(testbed, name, "id", id_of_user(kind));
    annotate(testbed, name, "force-override-listeners", "true");
}

fn set(testbed: &Testbed, spec: &Value) {
    testbed.cluster.patch("Service", "default", "web", &json!({"spec": spec})).unwrap();
}

/// Another client drops the finalizers and labels of the Service.
pub(crate) fn strip(testbed: &Testbed) {
    let bare = json!({"metadata": {"finalizers": null, "labels": null}});
    testbed.cluster.patch("Service", "default", "web", &bare).unwrap();
}

/// Deletes the Service whose finalizers another client has dropped.
fn vanish(testbed: &Testbed) {
    testbed.cluster.patch("Service", "default", "web", &json!({"metadata": {"finalizers": null}})).unwrap();
    testbed.cluster.delete("Service", "default", "web").unwrap();
}

/// An attribute of the only listener, as text.
fn attribute(testbed: &Testbed, name: &str) -> String {
    let found = testbed.cloud.look(|account| {
        let listeners = account.load_balancers.values().flat_map(|lb| lb.listeners.values());
        listeners.map(|it| it.config.get(name).cloned().unwrap_or_default()).next().unwrap()
    });
    found.as_str().map_or_else(|| found.to_string(), str::to_owned)
}

/// The annotations of ours.
fn remembered(testbed: &Testbed) -> Vec<String> {
    let service = testbed.cluster.get("Service", "default", "web").unwrap();
    let annotations = service["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let ours = annotations.iter().filter(|(key, _)| key.starts_with("alicloud-ccm/applied"));
    ours.map(|(_, value)| value.as_str().unwrap().to_owned()).collect()
}

#[test]
fn session_affinity_that_is_withdrawn_is_taken_off_the_listener() {
    with_each(async |between| {
        let testbed = testbed(Kind::Clb).await;
        set(&testbed, &json!({"sessionAffinity": "ClientIP"}));
        let mut product = Some(start(&testbed, ""));
        settled().await;
        assert_eq!(attribute(&testbed, "PersistenceTimeout"), "3600");
        assert_eq!(remembered(&testbed), ["session-affinity"]);
        between.change(&testbed, &mut product, || set(&testbed, &json!({"sessionAffinity": "None"}))).await;
        let _product = product.unwrap_or_else(|| start(&testbed, ""));
        settled().await;
        assert_eq!(attribute(&testbed, "PersistenceTimeout"), "0", "{between:?}");
        assert_eq!(remembered(&testbed), [""; 0], "{between:?}");
    });
}

#[test]
fn persistence_that_a_person_set_stays() {
    on_a_clock_of_its_own(0, async {
        let testbed = testbed(Kind::Clb).await;
        let product = start(&testbed, "");
        settled().await;
        testbed.cloud.edit(|account| {
            let listeners = account.load_balancers.values_mut().flat_map(|lb| lb.listeners.values_mut());
            listeners.for_each(|it| drop(it.config.insert("PersistenceTimeout".into(), json!(600))));
        });
        drop(product);
        let _product = start(&testbed, "");
        annotate(&testbed, "web", "scheduler", "wlc");
        settled().await;
        assert_eq!(attribute(&testbed, "PersistenceTimeout"), "600");
    });
}

#[test]
fn checks_at_the_health_check_node_port_end_with_it() {
    const ON: &str = "local_health_check = true\n";
    with_each(async |between| {
        for turned_off in [false, true] {
            let testbed = testbed(Kind::Clb).await;
            let mut product = Some(start(&testbed, ON));
            settled().await;
            let service = testbed.cluster.get("Service", "default", "web").unwrap();
            let port = service["spec"]["healthCheckNodePort"].to_string();
            let check =
                |testbed: &Testbed| ["HealthCheckType", "HealthCheckConnectPort"].map(|name| attribute(testbed, name));
            assert_eq!(check(&testbed), ["http", &port]);
            if turned_off {
                product = None;
            } else {
                let cluster = || set(&testbed, &json!({"externalTrafficPolicy": "Cluster"}));
                between.change(&testbed, &mut product, cluster).await;
            }
            let _product = product.unwrap_or_else(|| start(&testbed, if turned_off { "" } else { ON }));
            settled().await;
            let [kind, checked] = check(&testbed);
            assert!(kind == "tcp" && checked != port, "{between:?}, turned off: {turned_off}: {kind} at {checked}");
            assert_eq!(remembered(&testbed), [""; 0]);
        }
    });
}

#[test]
fn a_node_port_that_the_api_server_takes_back_gets_no_traffic_and_the_status_says_so() {
    with_each(async |between| {
        for (kind, backends) in [(Kind::Clb, ""), (Kind::Nlb, "Instance"), (Kind::Nlb, "Ip")] {
            let testbed = testbed(kind).await;
            annotate(&testbed, "web", "server-group-type", backends);
            let mut product = Some(start(&testbed, ""));
            settled().await;
            let allocates = |yes: bool| {
                let port = json!({"name": "p80", "port": 80, "targetPort": 8000, "protocol": "TCP"});
                set(&testbed, &json!({"allocateLoadBalancerNodePorts": yes, "ports": [port]}));
            };
            between.change(&testbed, &mut product, || allocates(false)).await;
            let _product = product.unwrap_or_else(|| start(&testbed, ""));
            settled().await;
            let backends = || kind.groups(&testbed).into_iter().map(|it| it.len()).collect::<Vec<_>>();
            let error = || {
                let service = testbed.cluster.get("Service", "default", "web").unwrap();
                service["status"]["loadBalancer"]["ingress"][0]["ports"][0]["error"].as_str().map(str::to_owned)
            };
            assert_eq!((backends(), error().as_deref()), (vec![0], Some("alibabacloud.com/NodePortMissing")));
            allocates(true);
            settled().await;
            assert_eq!((backends(), error()), (vec![1], None), "{kind:?}, {between:?}");
        }
    });
}

#[test]
fn what_keeps_source_ranges_goes_with_them_although_nothing_used_it_yet() {
    with_each(async |between| {
        for kind in Kind::BOTH {
            let testbed = testbed(kind).await;
            let mut product = Some(start(&testbed, ""));
            settled().await;
            for action in ["LoadBalancerJoinSecurityGroup", "SetLoadBalancerTCPListenerAttribute"] {
                testbed.cloud.faults().always(action, Fault::Throttle);
            }
            set(&testbed, &json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}));
            settled().await;
            let left =
                |testbed: &Testbed| testbed.cloud.look(|account| account.acls.len() + account.security_groups.len());
            assert_eq!(left(&testbed), 1, "it was made");
            between.change(&testbed, &mut product, || set(&testbed, &json!({"loadBalancerSourceRanges": null}))).await;
            testbed.cloud.faults().clear();
            let _product = product.unwrap_or_else(|| start(&testbed, ""));
            settled().await;
            settled().await;
            assert_eq!(left(&testbed), 0, "{kind:?}, {between:?}");
            assert_eq!(remembered(&testbed), [""; 0], "{kind:?}, {between:?}");
        }
    });
}

#[test]
fn an_access_control_list_that_another_listener_uses_is_remembered_until_it_can_go() {
    with_each(async |between| {
        let testbed = testbed(Kind::Clb).await;
        set(&testbed, &json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}));
        let product = start(&testbed, "");
        settled().await;
        let listeners = |edit: fn(&mut LoadBalancer)| {
            testbed.cloud.edit(|account| account.load_balancers.values_mut().for_each(|lb| edit(lb)));
        };
        listeners(|lb| {
            let (key, mut theirs) = lb.listeners.iter().next().map(|(key, it)| (*key, it.clone())).unwrap();
            theirs.description = "of a person".to_owned();
            lb.listeners.insert((9000, key.1), theirs);
        });
        set(&testbed, &json!({"loadBalancerSourceRanges": null}));
        settled().await;
        let lists = || testbed.cloud.look(|account| account.acls.len());
        assert_eq!(
            (lists(), remembered(&testbed)),
            (1, vec!["source-ranges".to_owned()]),
            "a person's listener uses it"
        );
        listeners(|lb| lb.listeners.retain(|key, _| key.0 != 9000));
        let mut product = Some(product);
        between.change(&testbed, &mut product, || annotate(&testbed, "web", "scheduler", "wlc")).await;
        let _product = product.unwrap_or_else(|| start(&testbed, ""));
        settled().await;
        assert_eq!((lists(), remembered(&testbed)), (0, Vec::new()), "{between:?}");
    });
}

/// A Service on a user's network load balancer, and two server groups of that user.
async fn on_groups_of_users() -> Testbed {
    let testbed = testbed(Kind::Nlb).await;
    Kind::Nlb.of_user(&testbed, "nlb-user");
    testbed.cloud.edit(|account| {
        for id in ["sgp-1", "sgp-2"] {
            account.nlb.groups.insert(id.to_owned(), ServerGroup::new(id, VPC, "Instance", "TCP").into());
        }
    });
    annotate(&testbed, "web", "id", "nlb-user");
    testbed
}

fn backends(testbed: &Testbed) -> [usize; 2] {
    testbed.cloud.look(|account| ["sgp-1", "sgp-2"].map(|id| account.nlb.groups[id].servers.len()))
}

#[test]
fn backends_leave_a_users_group_that_is_named_no_longer_although_no_listener_leads_to_it() {
    with_each(async |between| {
        for stays in [true, false] {
            let testbed = on_groups_of_users().await;
            annotate(&testbed, "web", "vgroup-port", "sgp-1:80");
            let mut product = Some(start(&testbed, ""));
            settled().await;
            assert_eq!(backends(&testbed), [1, 0]);
            between
                .change(&testbed, &mut product, || {
                    annotate(&testbed, "web", "vgroup-port", "sgp-2:80");
                    if !stays {
                        testbed.cluster.delete("Service", "default", "web").unwrap();
                    }
                })
                .await;
            let _product = product.unwrap_or_else(|| start(&testbed, ""));
            settled().await;
            assert_eq!(backends(&testbed), [0, usize::from(stays)], "{between:?}, the Service stays: {stays}");
            if stays {
                assert_eq!(remembered(&testbed), ["sgp-2"]);
            } else {
                assert!(testbed.cluster.get("Service", "default", "web").is_none());
            }
        }
    });
}

#[test]
fn a_users_listener_on_a_network_load_balancer_is_taken_over_where_its_user_says_so() {
    on_a_clock_of_its_own(0, async {
        let testbed = on_groups_of_users().await;
        testbed.cloud.edit(|account| {
            let mut listener = NetworkListener::default();
            (listener.protocol, listener.port, listener.idle_timeout) = ("TCP".into(), 80, 900);
            (listener.description, listener.status) = ("by hand".into(), "Running".into());
            listener.group = "sgp-1".into();
            account.nlb.balancers.get_mut("nlb-user").unwrap().listeners.insert("lsn-user".into(), listener);
        });
        let _product = start(&testbed, "");
        settled().await;
        let listener = |testbed: &Testbed| {
            testbed.cloud.look(|account| account.nlb.balancers["nlb-user"].listeners["lsn-user"].clone())
        };
        assert_eq!((listener(&testbed).group.as_str(), backends(&testbed)), ("sgp-1", [0, 0]), "not asked for");
        annotate(&testbed, "web", "force-override-listeners", "true");
        settled().await;
        let service = testbed.cluster.get("Service", "default", "web").unwrap();
        assert!(Kind::Nlb.published(&service).is_some());
        let taken_over = listener(&testbed);
        assert!(taken_over.group != "sgp-1" && taken_over.description.starts_with("k8s.80.TCP.web."), "{taken_over:?}");
        testbed.cloud.look(|account| assert_eq!(account.nlb.groups[&taken_over.group].servers.len(), 1));
    });
}

#[test]
fn a_load_balancer_goes_with_its_wish_although_another_client_drops_the_finalizer() {
    with_each(async |between| {
        // The labels that the other client drops are all that says which load balancer served before the typo.
        if between == Between::Typo {
            return;
        }
        for kind in Kind::BOTH {
            let testbed = testbed(kind).await;
            let mut product = Some(start(&testbed, ""));
            settled().await;
            assert_eq!(kind.count(&testbed), 1);
            between
                .change(&testbed, &mut product, || {
                    strip(&testbed);
                    set(&testbed, &json!({"type": "ClusterIP"}));
                })
                .await;
            let _product = product.unwrap_or_else(|| start(&testbed, ""));
            settled().await;
            let service = testbed.cluster.get("Service", "default", "web").unwrap();
            assert!(kind.count(&testbed) == 0 && service["metadata"]["annotations"].is_null(), "{kind:?}: {service}");
        }
    });
}

#[test]
fn a_removal_goes_on_although_another_client_drops_the_finalizer_meanwhile() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async {
            let testbed = testbed(kind).await;
            let product = start(&testbed, "");
            settled().await;
            testbed.cloud.faults().always("DeleteLoadBalancer", Fault::Throttle);
            set(&testbed, &json!({"type": "ClusterIP"}));
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(product);
            let _product = start(&testbed, "");
            tokio::time::sleep(Duration::from_secs(2)).await;
            strip(&testbed);
            testbed.cloud.faults().clear();
            settled().await;
            assert_eq!((kind.count(&testbed), kind.groups(&testbed).len()), (0, 0), "{kind:?}");
        });
    }
}

#[test]
fn what_goes_last_goes_although_another_client_drops_the_finalizer_meanwhile() {
    for after in 1..=12 {
        on_a_clock_of_its_own(0, async {
            let testbed = testbed(Kind::Nlb).await;
            testbed.cloud.dials(|dials| dials.security_group_release = Duration::from_secs(4));
            set(&testbed, &json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}));
            let _product = start(&testbed, "");
            settled().await;
            let left = || testbed.cloud.look(|account| account.security_groups.len() + account.nlb.groups.len());
            assert_eq!(left(), 2);
            set(&testbed, &json!({"type": "ClusterIP"}));
            tokio::time::sleep(Duration::from_secs(after)).await;
            strip(&testbed);
            settled().await;
            assert_eq!((left(), Kind::Nlb.count(&testbed)), (0, 0), "{after} s after the change of type");
        });
    }
}

#[test]
fn a_process_that_starts_misses_no_listeners_where_the_user_has_none_managed() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async {
            let testbed = testbed(kind).await;
            annotate(&testbed, "web", "manage", "none");
            for _ in 0..2 {
                let _product = start(&testbed, "");
                settled().await;
            }
            let _product = start(&testbed, "");
            settled().await;
            assert_eq!(kind.listeners(&testbed), [0_u16; 0]);
            annotate(&testbed, "web", "manage", "all");
            settled().await;
            assert_eq!(kind.listeners(&testbed), [80]);
        });
    }
}

#[test]
fn a_service_that_no_longer_overrides_listeners_can_be_deleted() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async {
            let testbed = testbed(kind).await;
            kind.of_user(&testbed, id_of_user(kind));
            override_listeners(&testbed, kind, "web");
            let _product = start(&testbed, "");
            settled().await;
            assert_eq!(kind.listeners(&testbed), [80]);
            annotate(&testbed, "web", "force-override-listeners", "false");
            settled().await;
            assert_eq!(kind.listeners(&testbed), [80], "they are not managed any more");
            testbed.cluster.delete("Service", "default", "web").unwrap();
            settled().await;
            assert!(testbed.cluster.get("Service", "default", "web").is_none());
            assert_eq!((kind.listeners(&testbed), kind.count(&testbed)), (Vec::new(), 1));
        });
    }
}

/// The answer to the removal of the finalizer can be lost, and a condition that says so comes after it.
/// What the account has of Services: load balancers, listeners, and server groups.
fn held(testbed: &Testbed, kind: Kind) -> [usize; 3] {
    [kind.count(testbed), kind.listeners(testbed).len(), kind.groups(testbed).len()]
}

#[test]
fn nothing_of_a_service_is_left_although_its_id_names_another_load_balancer_than_it_has() {
    for kind in Kind::BOTH {
        let another = if kind == Kind::Nlb { "nlb-another" } else { "lb-another" };
        for (on_users, named) in [false, true]
            .into_iter()
            .flat_map(|on_users| ["lb-missing", "nlb-missing", another].map(|id| (on_users, id)))
        {
            on_a_clock_of_its_own(0, async {
                let testbed = testbed(kind).await;
                [id_of_user(kind), another].iter().for_each(|id| kind.of_user(&testbed, id));
                let before = held(&testbed, kind);
                if on_users {
                    override_listeners(&testbed, kind, "web");
                }
                let _product = start(&testbed, "");
                settled().await;
                assert_eq!(held(&testbed, kind), [before[0] + usize::from(!on_users), 1, 1]);
                annotate(&testbed, "web", "id", named);
                settled().await;
                set(&testbed, &json!({"type": "ClusterIP"}));
                settled().await;
                let case = format!("{kind:?}, on a user's: {on_users}, {named}");
                assert_eq!(held(&testbed, kind), before, "{case}");
                let service = testbed.cluster.get("Service", "default", "web").unwrap();
                assert!(service["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty), "{case}");
            });
        }
    }
}

#[test]
fn backends_follow_and_nothing_is_left_although_one_write_drops_the_label_and_names_another_load_balancer() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async {
            let (testbed, another) =
                (testbed(kind).await, if kind == Kind::Nlb { "nlb-another" } else { "lb-another" });
            testbed.join(2);
            [id_of_user(kind), another].iter().for_each(|id| kind.of_user(&testbed, id));
            let before = held(&testbed, kind);
            override_listeners(&testbed, kind, "web");
            let _product = start(&testbed, "");
            settled().await;
            let id = json!({ID: another});
            let replaced = json!({"finalizers": null, "labels": null, "annotations": id});
            testbed.cluster.patch("Service", "default", "web", &json!({"metadata": replaced})).unwrap();
            settled().await;
            point_at(&testbed, "web", &[2]);
            settled().await;
            assert!(kind.all_lead_to(&testbed, &[2]), "{kind:?}");
            set(&testbed, &json!({"type": "ClusterIP"}));
            settled().await;
            assert_eq!(held(&testbed, kind), before, "{kind:?}");
        });
    }
}

#[test]
fn a_service_with_a_host_name_keeps_its_own_load_balancer_although_its_id_names_another_one() {
    on_a_clock_of_its_own(0, async {
        let (testbed, kind) = (testbed(Kind::Clb).await, Kind::Clb);
        testbed.join(2);
        kind.of_user(&testbed, id_of_user(kind));
        annotate(&testbed, "web", "hostname", "shop.example.com");
        let _product = start(&testbed, "");
        settled().await;
        override_listeners(&testbed, kind, "web");
        settled().await;
        let of_user = |testbed: &Testbed| testbed.cloud.look(|it| it.load_balancers[id_of_user(kind)].listeners.len());
        assert_eq!((held(&testbed, kind), of_user(&testbed)), ([2, 1, 1], 0));
        let service = testbed.cluster.get("Service", "default", "web").unwrap();
        assert!(service["status"]["conditions"].to_string().contains("was made for it"), "{service}");
        point_at(&testbed, "web", &[2]);
        settled().await;
        assert!(kind.all_lead_to(&testbed, &[2]), "backends follow");
        set(&testbed, &json!({"type": "ClusterIP"}));
        settled().await;
        assert_eq!(held(&testbed, kind), [1, 0, 0]);
    });
}

#[test]
fn a_service_that_was_never_served_leaves_nothing_on_the_load_balancer_that_it_asked_for_first() {
    with_each(async |between| {
        for kind in Kind::BOTH {
            let another = if kind == Kind::Nlb { "nlb-another" } else { "lb-another" };
            let homes = ["", id_of_user(kind), another, "lb-missing"];
            let moves = homes[..3].iter().flat_map(|it| homes.map(|next| (*it, next)));
            for (first, next) in moves.filter(|(first, next)| first != next) {
                let case = format!("{kind:?}, from {first:?} to {next:?}, {between:?}");
                let testbed = testbed(kind).await;
                [id_of_user(kind), another].iter().for_each(|id| kind.of_user(&testbed, id));
                annotate(&testbed, "web", "force-override-listeners", "true");
                annotate(&testbed, "web", "id", first);
                testbed.cloud.faults().always(kind.creates_listener(), Fault::code("OperationDenied"));
                let mut product = Some(start(&testbed, ""));
                settled().await;
                assert_eq!(held(&testbed, kind), [2 + usize::from(first.is_empty()), 0, 1], "{case}");
                between.change(&testbed, &mut product, || annotate(&testbed, "web", "id", next)).await;
                annotate(&testbed, "web", "id", next);
                testbed.cloud.faults().clear();
                let _product = product.unwrap_or_else(|| start(&testbed, ""));
                settled().await;
                settled().await;
                if next != "lb-missing" {
                    assert_eq!(held(&testbed, kind), [2 + usize::from(next.is_empty()), 1, 1], "{case}");
                    let service = testbed.cluster.get("Service", "default", "web").unwrap();
                    let published = kind.published(&service).map(str::to_owned);
                    assert!(published.is_some(), "{case}");
                    assert!(next.is_empty() || published == kind.publishes(&testbed, next), "{case}");
                }
                set(&testbed, &json!({"type": "ClusterIP"}));
                settled().await;
                assert_eq!(held(&testbed, kind), [2, 0, 0], "{case}");
            }
        }
    });
}

/// Listeners of a user on these ports of this load balancer.
fn listen(testbed: &Testbed, kind: Kind, id: &str, ports: &[u16]) {
    testbed.cloud.edit(|account| match kind {
        Kind::Clb => {
            let listener = |port: &u16| json!({"port": port, "protocol": "tcp", "description": "by hand"});
            let listeners: Vec<Value> = ports.iter().map(listener).collect();
            let own = json!([{"id": id, "name": id, "address": "47.98.9.9", "listeners": listeners}]);
            let own = json!({"region": REGION, "zones": ["cn-hangzhou-i"], "load_balancers": own});
            let made = Account::from_json(&own).unwrap().load_balancers[id].listeners.clone();
            account.load_balancers.get_mut(id).unwrap().listeners = made;
        }
        Kind::Nlb => {
            let listeners = &mut account.nlb.balancers.get_mut(id).unwrap().listeners;
            for port in ports {
                let mut listener = NetworkListener::default();
                (listener.protocol, listener.port, listener.idle_timeout) = ("TCP".into(), *port, 900);
                (listener.description, listener.status) = ("by hand".into(), "Running".into());
                listeners.insert(format!("lsn-{id}-{port}"), listener);
            }
        }
    });
}

/// Each overrides a listener where it goes, and cleans up where the other one goes.
#[test]
fn two_services_that_change_places_on_load_balancers_of_users_both_arrive() {
    for kind in Kind::BOTH {
        let (user, another) = (id_of_user(kind), if kind == Kind::Nlb { "nlb-another" } else { "lb-another" });
        on_a_clock_of_its_own(0, async {
            let testbed = testbed(kind).await;
            kind.expose(&testbed, "shop", &[81], &[1]);
            testbed.cloud.dials(|dials| dials.latency = Duration::from_millis(50));
            for (id, name) in [(user, "web"), (another, "shop")] {
                kind.of_user(&testbed, id);
                listen(&testbed, kind, id, &[80, 81]);
                annotate(&testbed, name, "force-override-listeners", "true");
                annotate(&testbed, name, "id", id);
            }
            // A Service that is served does not move: the refusal keeps both from that.
            let overrides =
                if kind == Kind::Nlb { "UpdateListenerAttribute" } else { "SetLoadBalancerTCPListenerAttribute" };
            testbed.cloud.faults().always(overrides, Fault::code("OperationDenied"));
            let _product = start(&testbed, "");
            settled().await;
            let published = |name: &str| {
                kind.published(&testbed.cluster.get("Service", "default", name).unwrap()).map(str::to_owned)
            };
            assert_eq!((published("web"), published("shop"), kind.groups(&testbed).len()), (None, None, 2), "{kind:?}");
            testbed.cloud.faults().clear();
            annotate(&testbed, "web", "id", another);
            annotate(&testbed, "shop", "id", user);
            settled().await;
            settled().await;
            for (name, id) in [("web", another), ("shop", user)] {
                let address = published(name);
                assert!(address.is_some() && address == kind.publishes(&testbed, id), "{kind:?}, {name}: {address:?}");
            }
        });
    }
}

#[test]
fn a_service_that_was_never_served_leaves_nothing_on_its_load_balancer_of_the_other_type() {
    with_each(async |between| {
        for first in ["", "lb-user"] {
            let testbed = testbed(Kind::Clb).await;
            Kind::Clb.of_user(&testbed, "lb-user");
            annotate(&testbed, "web", "force-override-listeners", "true");
            annotate(&testbed, "web", "id", first);
            testbed.cloud.faults().always(Kind::Clb.creates_listener(), Fault::code("OperationDenied"));
            let options = "type_annotation = true\nhand_over_grace = \"1s\"\n";
            let mut product = Some(start(&testbed, options));
            settled().await;
            assert_eq!(held(&testbed, Kind::Clb), [1 + usize::from(first.is_empty()), 0, 1], "{first:?}");
            let moves = || {
                annotate(&testbed, "web", "type", "nlb");
                annotate(&testbed, "web", "id", "");
            };
            between.change(&testbed, &mut product, moves).await;
            annotate(&testbed, "web", "id", "");
            testbed.cloud.faults().clear();
            let _product = product.unwrap_or_else(|| start(&testbed, options));
            settled().await;
            settled().await;
            let held = [Kind::Clb, Kind::Nlb].map(|kind| held(&testbed, kind));
            assert_eq!(held, [[1, 0, 0], [1, 1, 1]], "{first:?}, {between:?}");
        }
    });
}

/// The label is all that leads to the load balancer of a user once the annotation does not name it.
#[test]
fn nothing_is_left_on_a_users_load_balancer_although_another_client_drops_its_label_during_a_hand_over() {
    for (before, after) in [(Kind::Clb, Kind::Nlb), (Kind::Nlb, Kind::Clb)] {
        let word = |kind: Kind| if kind == Kind::Nlb { "nlb" } else { "" };
        // With the change of the type, and while both load balancers serve.
        for label in ["service.k8s.alibaba/loadbalancer-id", "alicloud-ccm/former-loadbalancer-id"] {
            on_a_clock_of_its_own(0, async {
                let testbed = testbed(Kind::Clb).await;
                before.of_user(&testbed, id_of_user(before));
                override_listeners(&testbed, before, "web");
                annotate(&testbed, "web", "type", word(before));
                let _product = start(&testbed, "type_annotation = true\nhand_over_grace = \"90s\"\n");
                settled().await;
                assert_eq!(held(&testbed, before), [1, 1, 1], "{before:?}");
                let metadata = |annotations: Value| {
                    let metadata = json!({"metadata": {"annotations": annotations, "labels": {label: null}}});
                    testbed.cluster.patch("Service", "default", "web", &metadata).unwrap();
                };
                let kind = format!("{}-type", ID.trim_end_matches("-id"));
                metadata(json!({ID: null, kind: word(after)}));
                settled().await;
                let labels = || testbed.cluster.get("Service", "default", "web").unwrap()["metadata"]["labels"].clone();
                let of_both = labels();
                metadata(json!({}));
                tokio::time::sleep(Duration::from_secs(20)).await;
                assert_eq!(labels(), of_both, "{before:?}, {label}");
                settled().await;
                settled().await;
                let held = [before, after].map(|kind| held(&testbed, kind));
                assert_eq!(held, [[1, 0, 0], [1, 1, 1]], "{before:?}, {label}");
            });
        }
    }
}

#[test]
fn a_service_of_which_the_cloud_took_no_part_is_served_with_its_next_settings() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async {
            let testbed = testbed(kind).await;
            kind.of_user(&testbed, id_of_user(kind));
            testbed.cloud.edit(|account| match kind {
                Kind::Clb => {
                    let groups = &mut account.load_balancers.get_mut("lb-user").unwrap().groups;
                    groups.insert("group-1".to_owned(), Group::new("of a person"));
                }
                Kind::Nlb => {
                    let group = ServerGroup::new("of a person", VPC, "Instance", "TCP");
                    account.nlb.groups.insert("group-1".to_owned(), group.into());
                }
            });
            annotate(&testbed, "web", "vgroup-port", "group-1:80,group-1:81");
            override_listeners(&testbed, kind, "web");
            let _product = start(&testbed, "");
            settled().await;
            assert_eq!(kind.listeners(&testbed), [80], "{kind:?}");
            testbed.cloud.faults().always(kind.creates_listener(), Fault::code("OperationDenied"));
            let mut ports = testbed.cluster.get("Service", "default", "web").unwrap()["spec"]["ports"].clone();
            ports[0]["port"] = 81.into();
            set(&testbed, &json!({"ports": ports}));
            settled().await;
            assert_eq!(kind.listeners(&testbed), [0_u16; 0], "{kind:?}");
            testbed.cloud.faults().clear();
            annotate(&testbed, "web", "vgroup-port", "group-1:80");
            settled().await;
            assert_eq!(kind.listeners(&testbed), [81], "{kind:?}");
        });
    }
}

#[test]
fn a_service_that_asks_for_no_load_balancer_keeps_no_condition_of_one() {
    on_a_clock_of_its_own(0, async {
        let testbed = testbed(Kind::Clb).await;
        set(&testbed, &json!({"type": "ClusterIP"}));
        let said = json!({"type": "LoadBalancerReady", "status": "False", "reason": "CleanLoadBalancerFailed"});
        testbed.cluster.patch_status("Service", "default", "web", &json!({"conditions": [said]})).unwrap();
        let _product = start(&testbed, "");
        settled().await;
        let service = testbed.cluster.get("Service", "default", "web").unwrap();
        assert_eq!(service["status"]["conditions"].as_array().map_or(0, Vec::len), 0, "{service}");
    });
}

#[test]
fn a_port_of_a_service_that_vanished_goes_to_another_one_on_a_users_load_balancer() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async {
            let testbed = testbed(kind).await;
            kind.of_user(&testbed, id_of_user(kind));
            override_listeners(&testbed, kind, "web");
            let _product = start(&testbed, "");
            settled().await;
            kind.expose(&testbed, "api", &[80], &[1]);
            override_listeners(&testbed, kind, "api");
            settled().await;
            let error = || {
                let service = testbed.cluster.get("Service", "default", "api").unwrap();
                service["status"]["loadBalancer"]["ingress"][0]["ports"][0]["error"].as_str().map(str::to_owned)
            };
            assert!(error().is_some() || !is_published(&testbed, kind, "api"), "{kind:?}: the other one has the port");
            vanish(&testbed);
            settled().await;
            assert!(is_published(&testbed, kind, "api") && error().is_none(), "{kind:?}");
            let events = testbed.cluster.list("Event");
            let told = events.iter().filter(|it| it["reason"] == "LoadBalancerOwnerMissing");
            let about: Vec<_> = told.map(|it| it["involvedObject"]["name"].clone()).collect();
            assert_eq!(about, ["web"], "{kind:?}");
            assert_eq!(kind.listeners(&testbed), [80]);
        });
    }
}

fn is_published(testbed: &Testbed, kind: Kind, name: &str) -> bool {
    kind.published(&testbed.cluster.get("Service", "default", name).unwrap()).is_some()
}

/// Lets the Service vanish, and makes it again as a backup has it.
pub(crate) fn restore(testbed: &Testbed, name: &str) {
    let mut backup = testbed.cluster.get("Service", "default", "web").unwrap();
    vanish(testbed);
    backup["status"] = Value::Null;
    backup["metadata"]["name"] = name.into();
    for field in ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "finalizers"] {
        backup["metadata"][field] = Value::Null;
    }
    testbed.cluster.create(backup).unwrap();
    point_at(testbed, name, &[1]);
}

#[test]
fn a_service_that_was_restored_from_a_backup_has_its_load_balancer_back() {
    with_each(async |between| {
        for kind in Kind::BOTH {
            let testbed = testbed(kind).await;
            let mut product = Some(start(&testbed, ""));
            settled().await;
            let published = || {
                let service = testbed.cluster.get("Service", "default", "web").unwrap();
                kind.published(&service).map(str::to_owned)
            };
            let before = published();
            between.change(&testbed, &mut product, || restore(&testbed, "web")).await;
            let mut product = product.or_else(|| Some(start(&testbed, "")));
            settled().await;
            assert_eq!((published(), kind.count(&testbed)), (before, 1), "{kind:?}, {between:?}");
            between
                .change(&testbed, &mut product, || {
                    set(
                        &testbed,
                        &json!({"ports": [{"name": "p81", "port": 81, "targetPort": 8000, "protocol": "TCP"}]}),
                    );
                })
                .await;
            let _product = product.unwrap_or_else(|| start(&testbed, ""));
            settled().await;
            assert_eq!((kind.listeners(&testbed), kind.groups(&testbed).len()), (vec![81], 1), "{kind:?}, {between:?}");
            testbed.cluster.delete("Service", "default", "web").unwrap();
            settled().await;
            assert_eq!((kind.count(&testbed), kind.groups(&testbed).len()), (0, 0), "{kind:?}, {between:?}");
        }
    });
}

#[test]
fn a_service_with_the_label_of_another_one_takes_no_load_balancer() {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async {
            let testbed = testbed(kind).await;
            let _product = start(&testbed, "");
            settled().await;
            restore(&testbed, "copy");
            settled().await;
            assert!(!is_published(&testbed, kind, "copy"), "{kind:?}: the listeners name another Service");
            let label = json!({"metadata": {"labels": {"service.k8s.alibaba/loadbalancer-id": null}}});
            testbed.cluster.patch("Service", "default", "copy", &label).unwrap();
            settled().await;
            assert!(is_published(&testbed, kind, "copy") && kind.count(&testbed) == 2, "{kind:?}");
        });
    }
}

#[test]
fn a_restored_service_has_its_load_balancer_back_once_that_carries_the_uid_of_the_cluster() {
    on_a_clock_of_its_own(0, async {
        const TAG: &str = "alicloud-ccm.cluster-uid";
        let testbed = testbed(Kind::Clb).await;
        let product = start(&testbed, "");
        settled().await;
        drop(product);
        let tags = |change: &dyn Fn(&mut BTreeMap<String, String>)| {
            testbed.cloud.edit(|account| account.load_balancers.values_mut().for_each(|it| change(&mut it.tags)));
        };
        let uid = testbed.cloud.look(|account| account.load_balancers.values().next().unwrap().tags[TAG].clone());
        tags(&|tags| drop(tags.remove(TAG)));
        restore(&testbed, "web");
        let _product = start(&testbed, "");
        settled().await;
        assert!(!is_published(&testbed, Kind::Clb, "web"), "it can be another cluster's");
        let events = testbed.cluster.list("Event");
        assert!(
            events.iter().any(|event| event["message"].as_str().is_some_and(|text| text.contains(TAG))),
            "{events:?}"
        );
        tags(&|tags| drop(tags.insert(TAG.to_owned(), uid.clone())));
        tokio::time::sleep(Duration::from_secs(10 * 60)).await;
        assert!(is_published(&testbed, Kind::Clb, "web") && Kind::Clb.count(&testbed) == 1);
    });
}

#[test]
fn what_is_withdrawn_before_a_load_balancer_could_be_made_leaves_no_annotation() {
    with_each(async |between| {
        let testbed = testbed(Kind::Clb).await;
        annotate(&testbed, "web", "address-type", "nonsense");
        set(&testbed, &json!({"sessionAffinity": "ClientIP"}));
        let mut product = Some(start(&testbed, ""));
        settled().await;
        assert_eq!((Kind::Clb.count(&testbed), remembered(&testbed)), (0, vec!["session-affinity".to_owned()]));
        between.change(&testbed, &mut product, || set(&testbed, &json!({"sessionAffinity": "None"}))).await;
        let _product = product.unwrap_or_else(|| start(&testbed, ""));
        settled().await;
        assert_eq!(remembered(&testbed), [""; 0], "{between:?}");
    });
}

#[test]
fn pods_that_are_gone_or_serve_elsewhere_leave_a_listener_that_cannot_move_to_nodes() {
    with_each(async |between| {
        for (kind, is_gone) in Kind::BOTH.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
            let testbed = testbed(kind).await;
            let eni = |value: Value| {
                let annotations = json!({"service.beta.kubernetes.io/backend-type": value});
                let metadata = json!({"metadata": {"annotations": annotations}});
                testbed.cluster.patch("Service", "default", "web", &metadata).unwrap();
            };
            eni(json!("eni"));
            let port = |to: u16| json!({"name": "p80", "port": 80, "targetPort": to, "protocol": "TCP"});
            set(&testbed, &json!({"allocateLoadBalancerNodePorts": false, "ports": [port(8000)]}));
            testbed.cloud.edit(|cloud| {
                cloud.add_interface("eni-101", "i-play-1", "vsw-i", &["192.168.0.101"]);
            });
            let pod = Endpoint::ready([192, 168, 0, 101].into(), "node-1");
            testbed.cluster.set_endpoints("default", "web", std::slice::from_ref(&pod)).unwrap();
            let mut product = Some(start(&testbed, ""));
            settled().await;
            let backends = || kind.groups(&testbed).into_iter().map(|group| group.len()).sum::<usize>();
            assert_eq!(backends(), 1, "{kind:?}");
            between.change(&testbed, &mut product, || eni(Value::Null)).await;
            let _product = product.unwrap_or_else(|| start(&testbed, ""));
            settled().await;
            assert_eq!(backends(), 1, "the pod is there, and serves");
            if is_gone {
                testbed.cluster.set_endpoints("default", "web", &[]).unwrap();
            } else {
                set(&testbed, &json!({"ports": [port(8001)]}));
                testbed.cluster.set_endpoints("default", "web", &[pod]).unwrap();
            }
            settled().await;
            assert_eq!(backends(), 0, "{kind:?}, {between:?}, gone: {is_gone}");
        }
    });
}

#[test]
fn a_kind_that_serves_in_part_is_published_where_the_other_kind_is_gone() {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        testbed.cloud.dials(|dials| dials.nlb_job_time = Duration::from_secs(1));
        Kind::Nlb.expose(&testbed, "web", &[80], &[1]);
        // A network load balancer may wait for so long, and a classic one for 60 s.
        annotate(&testbed, "web", "idle-timeout", "900");
        let _product = start(&testbed, "");
        settled().await;
        set(&testbed, &json!({"type": "ClusterIP", "externalTrafficPolicy": null, "loadBalancerClass": null}));
        tokio::time::sleep(Duration::from_secs(2)).await;
        set(&testbed, &json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}));
        settled().await;
        assert_eq!((Kind::Clb.count(&testbed), Kind::Nlb.count(&testbed)), (1, 0));
        assert!(is_published(&testbed, Kind::Clb, "web"));
        tokio::time::sleep(Duration::from_secs(300)).await;
        let service = testbed.cluster.get("Service", "default", "web").unwrap();
        assert_eq!(service["metadata"]["finalizers"], json!(["service.k8s.alibaba/resources"]));
    });
}

#[test]
fn the_status_follows_the_host_name_although_another_setting_is_wrong() {
    with_each(async |between| {
        let testbed = testbed(Kind::Clb).await;
        annotate(&testbed, "web", "hostname", "web.example.com");
        let mut product = Some(start(&testbed, ""));
        settled().await;
        annotate(&testbed, "web", "scheduler", "nonsense");
        settled().await;
        let ingress = || {
            testbed.cluster.get("Service", "default", "web").unwrap()["status"]["loadBalancer"]["ingress"][0].clone()
        };
        assert_eq!(ingress()["hostname"], "web.example.com");
        between.change(&testbed, &mut product, || annotate(&testbed, "web", "hostname", "")).await;
        let _product = product.unwrap_or_else(|| start(&testbed, ""));
        settled().await;
        assert!(ingress()["hostname"].is_null() && ingress()["ip"].is_string(), "{between:?}: {}", ingress());
    });
}

#[test]
fn defaults_of_the_file_hold_for_new_load_balancers_and_change_none_that_exists_unless_the_table_says_so() {
    for kind in [Kind::Clb, Kind::Nlb] {
        on_a_clock_of_its_own(0, async {
            let testbed = testbed(kind).await;
            let product = start(&testbed, "");
            settled().await;
            let protections = || -> Vec<[bool; 2]> {
                testbed.cloud.look(|account| {
                    let is_on = |state: &str| state != "NonProtection";
                    let classic = account.load_balancers.values();
                    let network = account.nlb.balancers.values();
                    let classic = classic.map(|lb| [lb.delete_protection, is_on(&lb.modification_protection)]);
                    let network = network.map(|lb| [lb.deletion_protection, is_on(&lb.modification_protection)]);
                    classic.chain(network).collect()
                })
            };
            assert_eq!(protections(), [[true, true]], "{kind:?}");
            let off = "delete_protection = false\nmodification_protection = false\n";
            let quiet = "[leader_election]\nenabled = false\n[service]\ndrift_check = \"0s\"\n";
            let defaults = format!("[service.defaults]\n{off}[nlb]\n{QUIET}[nlb.defaults]\n{off}");
            product.reconfigure(&testbed, EVERY, &format!("{HASTE}{quiet}{defaults}"), &[]);
            settled().await;
            // The controller switches it off itself before it deletes a network load balancer, so it also switches it on.
            let existing = [kind == Kind::Clb, true];
            assert_eq!(protections(), [existing], "{kind:?}");
            kind.expose(&testbed, "new", &[80], &[1]);
            settled().await;
            let mut found = protections();
            found.sort_unstable();
            assert_eq!(found, [[false, false], existing], "{kind:?}");
        });
    }
}
