//! A cluster and a cloud that belong together, on loopback, and the configuration with which a controller manager finds
//! them.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cloud::{Account, Cloud, Disk, PrivateZone, Server};
use crate::cluster::{Cluster, ControllerManager, Endpoint, NodeSpec, Version};

/// Region of the testbed.
pub const REGION: &str = "cn-hangzhou";
/// VPC of the testbed.
pub const VPC: &str = "vpc-play";
/// The only route table of the VPC.
pub const ROUTE_TABLE: &str = "vtb-play";
/// Id and name of the only private zone, which is bound to the VPC.
pub const ZONE: (&str, &str) = ("zone-play", "cluster.play");
/// Cluster id in the configuration.
pub const CLUSTER_ID: &str = "playground";
/// The access key that the cloud knows.
pub const ACCESS_KEY: (&str, &str) = ("LTAIplayground", "not-a-real-secret");
const VSWITCHES: [(&str, &str, &str); 2] =
    [("vsw-i", "cn-hangzhou-i", "192.168.0.0/20"), ("vsw-j", "cn-hangzhou-j", "192.168.16.0/20")];

/// Both worlds, served on loopback until this is dropped.
#[derive(Debug)]
pub struct Testbed {
    /// The cloud, with one VPC in two zones and no instance.
    pub cloud: Cloud,
    /// The cluster, empty.
    pub cluster: Cluster,
    server: Server,
    _controller_manager: ControllerManager,
}

impl Testbed {
    /// Starts an API server of this version, and a cloud.
    ///
    /// # Errors
    /// There is no free port on loopback.
    pub async fn open(version: Version) -> io::Result<Self> {
        let mut account = Account::new(REGION).with_vpc(VPC, "192.168.0.0/16");
        for (id, zone, cidr) in VSWITCHES {
            account = account.with_vswitch(id, VPC, zone, cidr);
        }
        account = account.with_key(ACCESS_KEY.0, ACCESS_KEY.1);
        account.private_zones.insert(ZONE.0.into(), PrivateZone::new(ZONE.1, VPC));
        Self::with(version, account).await
    }

    /// Starts an API server of this version, and this cloud.
    ///
    /// # Errors
    /// There is no free port on loopback.
    pub async fn with(version: Version, account: Account) -> io::Result<Self> {
        let cloud = Cloud::new(account);
        Self::around(cloud, Cluster::new(version)).await
    }

    /// Another testbed with the same objects in both worlds, on other addresses.
    ///
    /// # Errors
    /// There is no free port on loopback.
    pub async fn fork(&self) -> io::Result<Self> {
        let mut account = self.cloud.look(Account::clone);
        // The other one can have another clock, by which what goes on here would never end.
        account.finish_jobs();
        Self::around(Cloud::new(account), self.cluster.fork()).await
    }

    /// Another, empty cluster that lives in the same account.
    ///
    /// # Errors
    /// There is no free port on loopback.
    pub async fn beside(&self) -> io::Result<Self> {
        Self::around(self.cloud.clone(), Cluster::new(self.cluster.version())).await
    }

    async fn around(cloud: Cloud, cluster: Cluster) -> io::Result<Self> {
        let server = cloud.serve_on_loopback().await?;
        cluster.listen().await?;
        let controller_manager = cluster.start_controller_manager();
        Ok(Self { cloud, cluster, server, _controller_manager: controller_manager })
    }

    /// Where the cloud listens.
    #[must_use]
    pub fn cloud_address(&self) -> String {
        self.server.address().to_string()
    }

    /// Writes kubeconfig, key and configuration into `folder`, and returns the path of the configuration. `more` is
    /// appended: whole sections, or keys of `[node]`, which comes last.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn write_config(&self, folder: &Path, controllers: &[&str], more: &str) -> io::Result<PathBuf> {
        let path = folder.join("alicloud-ccm.toml");
        std::fs::write(folder.join("kubeconfig"), self.cluster.kubeconfig())?;
        write_secret(&folder.join("access-key-secret"), ACCESS_KEY.1)?;
        write_secret(&path, &self.config(controllers, more))?;
        Ok(path)
    }

    /// The configuration: files are named relative to it. A call to the cloud may take longer than a busy machine stands still.
    #[must_use]
    pub fn config(&self, controllers: &[&str], more: &str) -> String {
        let address = self.cloud_address();
        let (id, _) = ACCESS_KEY;
        // A table can be there only once.
        let names = if more.contains("[pvtz]\n") {
            String::new()
        } else {
            format!("[pvtz]\nzone_name = {:?}\naggregation = \"0s\"\n", ZONE.1)
        };
        format!(
            r#"controllers = {controllers:?}

[cloud]
region = "{REGION}"
vpc_id = "{VPC}"
vswitches = ["cn-hangzhou-i:vsw-i", "cn-hangzhou-j:vsw-j"]
cluster_id = "{CLUSTER_ID}"
timeout = "2m"

[cloud.credentials]
access_key_id = "{id}"
access_key_secret_file = "access-key-secret"

[cloud.endpoints]
scheme = "http"
ecs = "{address}"
vpc = "{address}"
slb = "{address}"
nlb = "{address}"
pvtz = "{address}"
sts = "{address}"
metadata = "http://{address}"

[kubernetes]
kubeconfig = "kubeconfig"
qps = 1000.0
burst = 1000

[route]
cluster_cidrs = ["10.98.0.0/16"]
aggregation = "0s"

{names}
[server]
port = 0

[node]
aggregation = "0s"
{more}
"#
        )
    }

    /// Rents instance `i-play-N` and lets its kubelet join as `node-N`, with the pod CIDR `10.98.N.0/24`.
    ///
    /// # Panics
    /// The number was used before.
    pub fn join(&self, number: u8) -> String {
        let name = format!("node-{number}");
        self.rent(number);
        let spec = NodeSpec::new(&name)
            .provider_id(&format!("{REGION}.{}", instance(number)))
            .pod_cidr(&format!("10.98.{number}.0/24"));
        let joined = self.cluster.join_node(&spec);
        assert!(joined.is_ok(), "{name} cannot join: {joined:?}");
        name
    }

    /// Rents instance `i-play-N` only. Odd numbers are in the first zone.
    pub fn rent(&self, number: u8) {
        let (vswitch, ip) = if number % 2 == 1 {
            ("vsw-i", format!("192.168.0.{number}"))
        } else {
            ("vsw-j", format!("192.168.16.{number}"))
        };
        self.cloud.add_instance(&instance(number), &format!("node-{number}"), vswitch, &ip);
    }

    /// Makes a PersistentVolume of the CSI plugin, without labels, on a new disk in `zone`.
    ///
    /// # Panics
    /// It exists already.
    pub fn provide(&self, name: &str, disk: &str, zone: &str) {
        self.cloud.edit(|cloud| drop(cloud.disks.insert(disk.into(), Disk::new(REGION, zone))));
        let made = self.cluster.create(json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "20Gi"},
                "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": "diskplugin.csi.alibabacloud.com", "volumeHandle": disk},
            },
        }));
        assert!(made.is_ok(), "PersistentVolume {name} cannot be made: {made:?}");
    }

    /// Makes a Service of type LoadBalancer in namespace `default` with one ready endpoint on each of `nodes`.
    ///
    /// # Panics
    /// It exists already.
    pub fn expose(&self, name: &str, ports: &[u16], nodes: &[&str], annotations: &[(&str, &str)]) {
        let ports: Vec<_> = ports
            .iter()
            .map(|port| json!({"name": format!("p{port}"), "port": port, "targetPort": 8000 + port % 1000, "protocol": "TCP"}))
            .collect();
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let created = self.cluster.create(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": ports},
        }));
        assert!(created.is_ok(), "Service {name} cannot be made: {created:?}");
        let endpoints: Vec<_> = (1u8..)
            .zip(nodes)
            .map(|(number, node)| Endpoint::ready(IpAddr::V4(Ipv4Addr::new(10, 98, number, 10)), node))
            .collect();
        let set = self.cluster.set_endpoints("default", name, &endpoints);
        assert!(set.is_ok(), "endpoints of {name} cannot be made: {set:?}");
    }
}

/// Id of the instance with this number.
#[must_use]
pub fn instance(number: u8) -> String {
    format!("i-play-{number}")
}

/// Writes a file that only its owner can read.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)?
        .write_all(text.as_bytes())
}
