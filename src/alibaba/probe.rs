//! Questions that change nothing: who the credentials are, what they may do, whether a host of the vendor answers.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use jiff::SignedDuration;

use super::CloudClient;
use super::actions::*;
use super::client::proves_valid_keys;
use super::endpoints::CloudProduct;
use super::fault::{Fault, FaultKind};
use super::rpc::server_time;
use super::transport::Transport;
use crate::fence::Permit;

/// How long a host may take to answer.
const LONGEST: Duration = Duration::from_secs(5);

/// Whose credentials are used.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The number of the account.
    pub account: String,
    /// `acs:ram::...`
    pub arn: String,
    /// `Account`, `RAMUser` or `AssumedRoleUser`.
    pub kind: String,
}

/// Whether an action may be called.
#[derive(Clone, Debug)]
pub enum Permission {
    /// The cloud let the caller in.
    Granted,
    /// It did not.
    Missing(Fault),
    /// There was no answer about it.
    Unknown(Fault),
    /// It cannot be asked without a change, or the answer would prove nothing.
    NotProbed,
}

const LB: (&str, &str) = ("LoadBalancerId", "lb-doctor000000000000");
const NLB: (&str, &str) = ("LoadBalancerId", "nlb-doctor00000000000");
const LISTENER: (&str, &str) = ("ListenerId", "lsn-doctor00000000000@80");
const SERVER_GROUP: (&str, &str) = ("ServerGroupId", "sgp-doctor00000000000");
const VPC: (&str, &str) = ("VpcId", "vpc-doctor00000000000");
const TABLE: (&str, &str) = ("RouteTableId", "vtb-doctor00000000000");
/// Ids of a form that the vendor never gives: writes of classic load balancers know no dry run.
const NO_LB: (&str, &str) = ("LoadBalancerId", "lb-doctor0-no-such-id");
const NO_GROUP: (&str, &str) = ("VServerGroupId", "rsp-doctor0-no-such-id");
const NO_EXTENSION: (&str, &str) = ("DomainExtensionId", "de-doctor0-no-such-id");
const NO_ACCESS_LIST: (&str, &str) = ("AclId", "acl-doctor0-no-such-id");
const NO_TAGGED: (&str, &str) = ("ResourceId.1", NO_LB.1);
const TAGGED: (&str, &str) = ("ResourceType", "instance");
const PORT: (&str, &str) = ("ListenerPort", "65535");
const BACKEND_PORT: (&str, &str) = ("BackendServerPort", "65535");
const BACKENDS: (&str, &str) = ("BackendServers", r#"[{"ServerId":"i-doctor0-no-such-id","Port":"65535"}]"#);
const CERTIFICATE: (&str, &str) = ("ServerCertificateId", "doctor0-no-such-id");
const ENTRIES: (&str, &str) = ("AclEntrys", r#"[{"entry":"192.0.2.1/32"}]"#);

/// Calls about things that do not exist, so that they read nothing of a user's. Writes are dry runs on top of that, where the product
/// knows them. Lists of ECS are absent: without the permission they are empty, too. So are creations that name no object that they
/// would fail for.
const PROBES: &[(&Action, &[(&str, &str)])] = &[
    (DESCRIBE_SECURITY_GROUP.0, &[("SecurityGroupId", "sg-doctor0000000000000")]),
    (DESCRIBE_ROUTE_TABLES.0, &[VPC]),
    (DESCRIBE_ROUTE_ENTRIES.0, &[TABLE]),
    (
        CREATE_ROUTE_ENTRIES.0,
        &[
            ("RouteEntries.1.RouteTableId", TABLE.1),
            ("RouteEntries.1.DstCidrBlock", "192.0.2.0/24"),
            ("RouteEntries.1.NextHop", "i-doctor0000000000000"),
            ("RouteEntries.1.NextHopType", "Instance"),
        ],
    ),
    (DESCRIBE_VPC.0, &[VPC]),
    (DESCRIBE_VSWITCHES.0, &[VPC]),
    (DESCRIBE_EIPS.0, &[("AssociatedInstanceType", "SlbInstance"), ("AssociatedInstanceId", LB.1)]),
    (DESCRIBE_LOAD_BALANCERS.0, &[LB]),
    (DESCRIBE_LOAD_BALANCER.0, &[LB]),
    (DESCRIBE_GROUPS.0, &[LB]),
    (DESCRIBE_GROUP.0, &[("VServerGroupId", "rsp-doctor00000000000")]),
    (DESCRIBE_LISTENERS.0, &[("LoadBalancerId.1", LB.1)]),
    (DESCRIBE_DOMAIN_EXTENSIONS.0, &[LB, ("ListenerPort", "443")]),
    (DESCRIBE_CERTIFICATES.0, &[("ServerCertificateId", "doctor")]),
    (DESCRIBE_ACCESS_LISTS.0, &[("AclName", "alicloud-ccm-doctor")]),
    (DESCRIBE_ACCESS_LIST.0, &[("AclId", "acl-doctor00000000000")]),
    (DELETE_LOAD_BALANCER.0, &[NO_LB]),
    (SET_NAME.0, &[NO_LB, ("LoadBalancerName", "doctor")]),
    (SET_DELETE_PROTECTION.0, &[NO_LB, ("DeleteProtection", "on")]),
    (SET_MODIFICATION_PROTECTION.0, &[NO_LB, ("ModificationProtectionStatus", "ConsoleProtection")]),
    (SET_INSTANCE_CHARGE_TYPE.0, &[NO_LB, ("InstanceChargeType", "PayByCLCU")]),
    (SET_SPEC.0, &[NO_LB, ("LoadBalancerSpec", "slb.s1.small")]),
    (SET_INTERNET_SPEC.0, &[NO_LB, ("InternetChargeType", "paybytraffic")]),
    (TAG_RESOURCES.0, &[NO_TAGGED, TAGGED, ("Tag.1.Key", "doctor"), ("Tag.1.Value", "doctor")]),
    (UNTAG_RESOURCES.0, &[NO_TAGGED, TAGGED, ("TagKey.1", "doctor")]),
    (CREATE_GROUP.0, &[NO_LB, ("VServerGroupName", "doctor")]),
    (DELETE_GROUP.0, &[NO_GROUP]),
    (ADD_BACKENDS.0, &[NO_GROUP, BACKENDS]),
    (REMOVE_BACKENDS.0, &[NO_GROUP, BACKENDS]),
    (SET_BACKENDS.0, &[NO_GROUP, ("VServerGroupName", "doctor")]),
    (CREATE_TCP_LISTENER.0, &[NO_LB, PORT, BACKEND_PORT, ("Bandwidth", "-1")]),
    (CREATE_UDP_LISTENER.0, &[NO_LB, PORT, BACKEND_PORT, ("Bandwidth", "-1")]),
    (
        CREATE_HTTP_LISTENER.0,
        &[NO_LB, PORT, BACKEND_PORT, ("Bandwidth", "-1"), ("StickySession", "off"), ("HealthCheck", "off")],
    ),
    (
        CREATE_HTTPS_LISTENER.0,
        &[
            NO_LB,
            PORT,
            BACKEND_PORT,
            ("Bandwidth", "-1"),
            ("StickySession", "off"),
            ("HealthCheck", "off"),
            CERTIFICATE,
        ],
    ),
    (SET_TCP_LISTENER.0, &[NO_LB, PORT]),
    (SET_UDP_LISTENER.0, &[NO_LB, PORT]),
    (SET_HTTP_LISTENER.0, &[NO_LB, PORT]),
    (SET_HTTPS_LISTENER.0, &[NO_LB, PORT]),
    (START_LISTENER.0, &[NO_LB, PORT, ("ListenerProtocol", "tcp")]),
    (DELETE_LISTENER.0, &[NO_LB, PORT, ("ListenerProtocol", "tcp")]),
    (CREATE_DOMAIN_EXTENSION.0, &[NO_LB, PORT, ("Domain", "doctor.invalid"), CERTIFICATE]),
    (SET_DOMAIN_EXTENSION.0, &[NO_EXTENSION, CERTIFICATE]),
    (DELETE_DOMAIN_EXTENSION.0, &[NO_EXTENSION]),
    (DELETE_ACCESS_LIST.0, &[NO_ACCESS_LIST]),
    (ADD_ACCESS_ENTRIES.0, &[NO_ACCESS_LIST, ENTRIES]),
    (REMOVE_ACCESS_ENTRIES.0, &[NO_ACCESS_LIST, ENTRIES]),
    (LIST_NETWORK_LOAD_BALANCERS.0, &[("LoadBalancerIds.1", NLB.1)]),
    (GET_NETWORK_LOAD_BALANCER.0, &[NLB]),
    (DELETE_NETWORK_LOAD_BALANCER.0, &[NLB]),
    (UPDATE_NETWORK_LOAD_BALANCER.0, &[NLB]),
    (UPDATE_PROTECTION.0, &[NLB]),
    (ENABLE_IPV6_INTERNET.0, &[NLB]),
    (DISABLE_IPV6_INTERNET.0, &[NLB]),
    (LIST_ASYN_JOBS.0, &[("JobIds.1", "doctor")]),
    (LIST_NETWORK_LISTENERS.0, &[("LoadBalancerIds.1", NLB.1)]),
    (UPDATE_NETWORK_LISTENER.0, &[LISTENER]),
    (DELETE_NETWORK_LISTENER.0, &[LISTENER]),
    (START_NETWORK_LISTENER.0, &[LISTENER]),
    (LIST_LISTENER_CERTIFICATES.0, &[LISTENER]),
    (LIST_SERVER_GROUPS.0, &[("ServerGroupIds.1", SERVER_GROUP.1)]),
    (CREATE_SERVER_GROUP.0, &[VPC, ("ServerGroupName", "alicloud-ccm-doctor")]),
    (UPDATE_SERVER_GROUP.0, &[SERVER_GROUP]),
    (DELETE_SERVER_GROUP.0, &[SERVER_GROUP]),
    (LIST_SERVERS.0, &[SERVER_GROUP]),
    (DESCRIBE_ZONES.0, &[("PageSize", "1"), ("PageNumber", "1")]),
    (DESCRIBE_ZONE.0, &[("ZoneId", "doctor")]),
    (DESCRIBE_ZONE_RECORDS.0, &[("ZoneId", "doctor")]),
];

impl CloudClient {
    /// Who the cloud takes this process for.
    ///
    /// # Errors
    /// As any call.
    pub async fn caller(&self) -> Result<Caller, Fault> {
        let answer = self.signing.read(GET_CALLER_IDENTITY).send().await?;
        answer.decode(|body| {
            let (account, arn) = (body.text("AccountId")?, body.text("Arn")?);
            Ok(Caller { account, arn, kind: body.text("IdentityType")? })
        })
    }

    /// How long the present keys are valid; `None` before the first call, and for keys without an end.
    #[must_use]
    pub fn keys_last(&self) -> Option<Duration> {
        self.signing.keys_last()
    }

    /// Whether the action may be called, by a call that changes nothing; what takes longer than the permit is given up.
    pub async fn probe(&self, permit: &Permit, action: &'static Action) -> Permission {
        let outcome = if action == DESCRIBE_INSTANCES.0 {
            self.ecs.may_describe_instances(&self.region()).await
        } else {
            let Some((_, parameters)) = PROBES.iter().find(|(known, _)| *known == action) else {
                return Permission::NotProbed;
            };
            let request = match action.writes {
                true if action.product == CloudProduct::Slb => self.signing.write(permit, WriteAction(action)),
                true => self.signing.write(permit, WriteAction(action)).with("DryRun", true),
                false => self.signing.read(ReadAction(action)).within(permit),
            };
            parameters.iter().fold(request, |request, (name, value)| request.with(*name, value)).done().await
        };
        match outcome {
            Err(fault) if fault.kind == FaultKind::Denied => Permission::Missing(fault),
            // Of what a request lacks, some services say so before they look at permissions.
            Err(fault) if fault.kind == FaultKind::Rejected => Permission::NotProbed,
            Err(fault) if !proves_valid_keys(fault.kind) => Permission::Unknown(fault),
            _ => Permission::Granted,
        }
    }
}

/// Whether a host of the vendor answers, over TLS where that is configured; and by how much its clock is ahead of this
/// machine's, if it says so.
///
/// # Errors
/// Why there is no answer, in words.
pub async fn reach(transport: &dyn Transport, url: &str) -> Result<Option<SignedDuration>, String> {
    let request = Request::get(url).body(Bytes::new()).map_err(|error| error.to_string())?;
    let answer = transport.send(request, LONGEST).await.map_err(|error| error.to_string())?;
    Ok(server_time(answer.headers()).map(|time| time.duration_since(crate::clock::now())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_probe_is_of_one_action_and_what_it_addresses_cannot_exist() {
        for (index, (action, parameters)) in PROBES.iter().enumerate() {
            assert!(!PROBES[..index].iter().any(|(other, _)| other == action), "{} twice", action.name);
            // Writes name something that cannot exist, whatever becomes of the dry run. Where there is none, it is what the vendor
            // looks up first, and its id has more than one hyphen, as no id has.
            let names_nothing = match (action.writes, action.product) {
                (true, CloudProduct::Slb) => {
                    let [(name, id), ..] = parameters else { panic!("{} names nothing", action.name) };
                    ["LoadBalancerId", "VServerGroupId", "DomainExtensionId", "AclId", "ResourceId.1"].contains(name)
                        && id.ends_with("-doctor0-no-such-id")
                }
                (true, _) => parameters.iter().any(|(_, value)| value.contains("-doctor0")),
                (false, _) => true,
            };
            assert!(names_nothing, "{}", action.name);
        }
    }
}
