//! Questions that change nothing: who the credentials are, what they may do, whether a host of the vendor answers.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use jiff::SignedDuration;

use super::CloudClient;
use super::actions::{Action, DESCRIBE_INSTANCES, GET_CALLER_IDENTITY, ReadAction, WriteAction};
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

/// The calls that ask for permissions, each with its parameters.
const PROBES: &str = include_str!("probes.txt");

/// The parameters of the call that asks for the permission of an action; `None` if there is none.
fn probe_of(action: &Action) -> Option<Vec<(&'static str, &'static str)>> {
    let permission = action.permission();
    PROBES.lines().find_map(|line| {
        let parameters = line.strip_prefix(&permission)?.strip_prefix(' ')?;
        parameters.split(' ').map(|parameter| parameter.split_once('=')).collect()
    })
}

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

    /// Whether the action may be called, by a call that changes nothing; what takes longer than the permit is given up.
    pub async fn probe(&self, permit: &Permit, action: &'static Action) -> Permission {
        let outcome = if action == DESCRIBE_INSTANCES.0 {
            self.ecs.may_describe_instances(&self.region()).await
        } else {
            let Some(parameters) = probe_of(action) else { return Permission::NotProbed };
            let request = match action.writes {
                true if action.product == CloudProduct::Slb => self.signing.write(permit, WriteAction(action)),
                true => self.signing.write(permit, WriteAction(action)).with("DryRun", true),
                false => self.signing.read(ReadAction(action)).within(permit),
            };
            parameters.into_iter().fold(request, |request, (name, value)| request.with(name, value)).done().await
        };
        match outcome {
            Err(fault) if fault.kind == FaultKind::Denied => Permission::Missing(fault),
            // Of what a request lacks, some services say so before they look at permissions.
            Err(fault) if fault.kind == FaultKind::Rejected => Permission::NotProbed,
            Err(fault) if !fault.kind.proves_valid_keys() => Permission::Unknown(fault),
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
    use crate::alibaba::actions::ALL;

    #[test]
    fn each_probe_is_of_one_action_and_what_it_addresses_cannot_exist() {
        let lines: Vec<_> = PROBES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let probed: Vec<_> = ALL.iter().filter_map(|action| Some((*action, probe_of(action)?))).collect();
        assert_eq!(probed.len(), lines.len(), "a line is about no action, or about the same as another one");
        for (action, parameters) in probed {
            // Writes name something that cannot exist, whatever becomes of the dry run. Where there is none, it is what the vendor
            // looks up first, and its id has more than one hyphen, as no id has.
            let names_nothing = match (action.writes, action.product) {
                (true, CloudProduct::Slb) => {
                    let [(name, id), ..] = parameters[..] else { panic!("{} names nothing", action.name) };
                    ["LoadBalancerId", "VServerGroupId", "DomainExtensionId", "AclId", "ResourceId.1"].contains(&name)
                        && id.ends_with("-doctor0-no-such-id")
                }
                (true, _) => parameters.iter().any(|(_, value)| value.contains("-doctor0")),
                (false, _) => true,
            };
            assert!(names_nothing, "{}", action.name);
        }
    }
}
