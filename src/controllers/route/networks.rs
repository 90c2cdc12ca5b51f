//! Looks for a pod network that does without the routes of this program, or makes them itself. It only reports what it
//! finds: who lists `route` may know better.

use std::time::Duration;

use futures::future::join_all;
use tracing::{debug, warn};

use crate::cluster::{Cluster, ObjectPath};
use crate::controllers::reporter::Reporter;
use crate::plan::route::networks::{
    NetworkJudge, calico, calico_config, cilium, flannel, kube_ovn, openshift, openshift_3, ovn, terway,
};

/// The reports of nodes wait no longer for this one.
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// Where pod networks leave a sign of themselves by their usual manifests, and how it is read. `registry` has the rights.
const SIGNS: [(ObjectPath<'static>, &str, NetworkJudge); 11] = [
    (config_maps("kube-flannel"), "kube-flannel-cfg", flannel),
    (config_maps("kube-system"), "kube-flannel-cfg", flannel),
    (config_maps("kube-system"), "cilium-config", cilium),
    (config_maps("kube-system"), "calico-config", calico_config),
    (daemon_sets("calico-system"), "calico-node", calico),
    (daemon_sets("ovn-kubernetes"), "ovnkube-node", ovn),
    (daemon_sets("kube-system"), "kube-ovn-cni", kube_ovn),
    (daemon_sets("kube-system"), "terway", terway),
    (daemon_sets("kube-system"), "terway-eniip", terway),
    (ObjectPath { api: "/apis/config.openshift.io/v1", namespace: "", plural: "networks" }, "cluster", openshift),
    (
        ObjectPath { api: "/apis/network.openshift.io/v1", namespace: "", plural: "clusternetworks" },
        "default",
        openshift_3,
    ),
];

const fn config_maps(namespace: &str) -> ObjectPath<'_> {
    ObjectPath { api: "/api/v1", namespace, plural: "configmaps" }
}

const fn daemon_sets(namespace: &str) -> ObjectPath<'_> {
    ObjectPath { api: "/apis/apps/v1", namespace, plural: "daemonsets" }
}

/// What the cluster shows of its pod network.
#[derive(Debug, Default)]
pub struct NetworkFindings {
    /// What speaks against routes.
    pub objections: Vec<String>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

/// Reads what pod networks leave in the cluster. Writes nothing; what cannot be read is left out.
pub async fn look(cluster: &Cluster) -> NetworkFindings {
    let mut findings = NetworkFindings::default();
    let looks = SIGNS.map(|(path, name, judge)| async move { (path, name, judge, cluster.look_up(path, name).await) });
    for (ObjectPath { namespace, plural, .. }, name, judge, object) in join_all(looks).await {
        let place = format!("{plural} {namespace}{}{name}", if namespace.is_empty() { "" } else { "/" });
        match object {
            Ok(object) => {
                let objection = object.and_then(|object| judge(&object));
                findings.objections.extend(objection.map(|what| format!("{what} ({place})")));
            }
            Err(fault) => findings.unread.push(format!("{place}: {fault}")),
        }
    }
    findings
}

/// Looks, and reports what was found.
pub(super) async fn report(cluster: &Cluster, reporter: &Reporter) {
    let Ok(NetworkFindings { objections, unread }) = tokio::time::timeout(LONGEST_LOOK, look(cluster)).await else {
        return;
    };
    for what in unread {
        debug!(what, "not looked at for signs of a pod network that makes routes itself");
    }
    if !objections.is_empty() {
        let message = format!(
            "routes are on, and the pod network seems not to need them: {}; if so, leave route out of controllers",
            objections.join("; ")
        );
        warn!(code = "ACCM0208", "{message}");
        reporter.controller_warning("RoutesNotNeeded", message);
    }
}
