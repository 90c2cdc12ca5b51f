//! Whether the account behind the credentials is the one that runs the cluster.
//!
//! In another account a Service's load balancer does not exist, which looks as if it had been deleted. An account
//! proves itself by showing at least one instance of the cluster's nodes. Without that, no load balancer is made, and no
//! Service that had one is released.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::alibaba::ecs::InstanceFilter;
use crate::alibaba::{CloudClient, FaultKind};
use crate::plan::inputs::NodeView;
use crate::plan::location::CloudLocation;
use crate::plan::node::{NodeClass, classify};

/// Instances that are asked for; one call.
const ASKED: usize = 100;

/// What is known of the account.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Account {
    /// It shows an instance of the cluster.
    Ours,
    /// There is no instance to ask for.
    NoNodes,
    /// It shows none of so many.
    Stranger(usize),
    /// It does not let us see.
    Denied(String),
    /// It did not answer.
    Unknown(String),
}

/// What the account answered last.
#[derive(Debug)]
struct AccountAnswer {
    account: Account,
    /// The version of the credentials.
    credentials: u64,
    at: Instant,
}

/// Asks the account to prove itself. That it did holds until other credentials are configured; any other answer holds for those
/// that waited for it.
#[derive(Debug)]
pub(super) struct AccountCheck {
    cloud: CloudClient,
    location: Arc<CloudLocation>,
    answered: Mutex<Option<AccountAnswer>>,
}

impl AccountCheck {
    pub(super) fn new(cloud: CloudClient, location: Arc<CloudLocation>) -> Self {
        Self { cloud, location, answered: Mutex::default() }
    }

    /// Why no load balancer may be made for a Service now, which `had_one` before or not; `None` if it may.
    pub(super) async fn forbids_making(&self, nodes: &[Arc<NodeView>], had_one: bool) -> Option<String> {
        let account = self.account(nodes).await;
        doubt(&account, had_one).map(|why| format!("no load balancer is made: {why}. {}", way_out(&account)))
    }

    /// Why a Service whose load balancer is not there may not be released now; `None` if it may.
    pub(super) async fn forbids_release(&self, nodes: &[Arc<NodeView>], had_one: bool) -> Option<String> {
        if !had_one {
            return None;
        }
        match self.account(nodes).await {
            Account::Ours | Account::NoNodes | Account::Denied(_) => None,
            Account::Unknown(why) => Some(format!(
                "its load balancer is not there, but the account cannot be recognised: {why}. The controller retries it"
            )),
            Account::Stranger(asked) => Some(format!(
                "its load balancer is not there, but {}. Correct cloud.credentials; to let it go on purpose, delete the nodes \
                 whose instances are gone, or remove the finalizer manually",
                stranger(asked)
            )),
        }
    }

    /// Lets the account prove itself before it matters; true if it did.
    pub(super) async fn recognises(&self, nodes: &[Arc<NodeView>]) -> bool {
        self.account(nodes).await == Account::Ours
    }

    async fn account(&self, nodes: &[Arc<NodeView>]) -> Account {
        let Self { cloud, location, answered } = self;
        let since = Instant::now();
        // Held while asking, so that many Services ask once: those that waited take the answer, whatever it is.
        let mut answered = answered.lock().await;
        let credentials = cloud.credentials_version();
        let is_current =
            |it: &&AccountAnswer| it.credentials == credentials && (it.account == Account::Ours || it.at >= since);
        if let Some(known) = answered.as_ref().filter(is_current) {
            return known.account.clone();
        }
        let instances: Vec<String> = nodes
            .iter()
            .filter_map(|node| match classify(node) {
                NodeClass::Ecs(id) if id.region == location.region => Some(id.instance),
                _ => None,
            })
            .take(ASKED)
            .collect();
        let asked = instances.len();
        if asked == 0 {
            return Account::NoNodes;
        }
        let shown = cloud.ecs.describe_instances(&location.region, &InstanceFilter::Ids(instances)).await;
        let account = match shown {
            Ok(shown) if shown.is_empty() => Account::Stranger(asked),
            Ok(_) => Account::Ours,
            Err(fault) if fault.kind == FaultKind::Denied => Account::Denied(fault.to_string()),
            Err(fault) => Account::Unknown(fault.to_string()),
        };
        *answered = Some(AccountAnswer { account: account.clone(), credentials, at: Instant::now() });
        account
    }
}

/// What speaks against making a load balancer. A Service that had one is in more doubt than a new one.
fn doubt(account: &Account, had_one: bool) -> Option<String> {
    match account {
        Account::Ours => None,
        Account::Stranger(asked) => Some(stranger(*asked)),
        Account::NoNodes | Account::Denied(_) | Account::Unknown(_) if !had_one => None,
        Account::NoNodes => Some(
            "the one that the Service had is not there, and there is no node by which the account could be recognised"
                .to_owned(),
        ),
        Account::Denied(why) | Account::Unknown(why) => {
            Some(format!("the one that the Service had is not there, and the account cannot be recognised: {why}"))
        }
    }
}

/// What to do about it.
const fn way_out(account: &Account) -> &'static str {
    match account {
        Account::Stranger(_) => {
            "Correct cloud.credentials; if this is the right account, let a node join whose instance it shows, or delete the \
             nodes whose instances are gone"
        }
        Account::Ours | Account::NoNodes | Account::Denied(_) | Account::Unknown(_) => {
            "Correct cloud.credentials, or grant ecs:DescribeInstances; to have one made on purpose, empty \
             status.loadBalancer and take away the label service.k8s.alibaba/loadbalancer-id"
        }
    }
}

fn stranger(asked: usize) -> String {
    let whom =
        if asked == 1 { "not the instance of the node".to_owned() } else { format!("none of {asked} instances") };
    format!("the account shows {whom} of this cluster, as with the credentials of another account")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_makes_nothing_and_a_doubtful_account_nothing_anew() {
        let (denied, unknown) =
            (Account::Denied("Forbidden.RAM".into()), Account::Unknown("ServiceUnavailable".into()));
        assert_eq!((doubt(&Account::Ours, true), doubt(&Account::Ours, false)), (None, None));
        assert!(doubt(&Account::Stranger(3), false).is_some_and(|why| why.contains("none of 3 instances")));
        for account in [Account::NoNodes, denied, unknown] {
            assert!(doubt(&account, true).is_some() && doubt(&account, false).is_none(), "{account:?}");
        }
    }
}
