//! What the steps share: clients, the place, names and marks of the check, and what it made.

use std::collections::BTreeMap;
use std::time::Duration;

use alicloud_ccm::alibaba::{CloudClient, Fault, FaultKind};
use alicloud_ccm::fence::{Keeper, Permit, fence};
use alicloud_ccm::plan::loadbalancer::model::{Backend, BackendKey};
use alicloud_ccm::plan::nlb::model::ZoneMapping;
use alicloud_ccm::plan::route::entry::RouteItem;
use litemap::LiteMap;
use parking_lot::Mutex;
use sim::cloud::trace::Place;

/// Name of everything that the check makes.
pub(super) const NAME: &str = "alicloud-ccm-conformance";

/// Key of the tag on everything that can have one. Its value names the VPC.
pub(super) const TAG: &str = "alicloud-ccm-conformance";

/// Addresses for documentation and benchmarks: of the route, the access list and the record.
pub(super) const ROUTE: &str = "198.18.254.0/24";
pub(super) const BLOCK: &str = "203.0.113.0/24";
pub(super) const ADDRESS: &str = "203.0.113.7";

/// Whether a step came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// To be repeated.
    NotYet,
}

/// Why a step did not.
#[derive(Debug)]
pub(super) enum Stop {
    /// What the cloud answered, which the simulator may answer too.
    Refused(Fault),
    /// An earlier step did not make what this one needs.
    Lacks(&'static str),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

pub(super) type Ended = Result<Outcome, Stop>;

pub(super) struct Run {
    pub(super) cloud: CloudClient,
    pub(super) place: Place,
    pub(super) permit: Permit,
    _keeper: Keeper,
    /// Differs in each run, so that no client token is used again.
    nonce: String,
    made: Mutex<BTreeMap<&'static str, String>>,
}

impl Run {
    #[expect(clippy::expect_used, reason = "a lead without an end was just given")]
    pub(super) fn new(cloud: CloudClient, place: Place) -> Self {
        let (keeper, fence) = fence();
        keeper.lead_unbounded();
        let permit = fence.permit(Duration::ZERO).expect("leads");
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        Self { cloud, place, permit, _keeper: keeper, nonce, made: Mutex::default() }
    }

    /// Proves that a thing is the check's, in this VPC.
    pub(super) fn mark(&self) -> String {
        format!("conformance-{}", self.place.vpc)
    }

    pub(super) fn tags(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(TAG.into(), self.mark())])
    }

    pub(super) fn is_marked(&self, tags: &LiteMap<String, String>) -> bool {
        tags.get(TAG).is_some_and(|value| *value == self.mark())
    }

    pub(super) fn token(&self, what: &str) -> String {
        format!("conformance-{what}-{}", self.nonce)
    }

    /// Remembers what a step made.
    pub(super) fn made(&self, what: &'static str, id: impl Into<String>) -> Ended {
        self.made.lock().insert(what, id.into());
        Ok(Outcome::Done)
    }

    /// What an earlier step made.
    pub(super) fn id(&self, what: &'static str) -> Result<String, Stop> {
        self.made.lock().get(what).cloned().ok_or(Stop::Lacks(what))
    }

    pub(super) fn backend(&self, instance: &str, weight: u8) -> Backend {
        Backend { key: BackendKey::ecs(instance, 80), weight, description: NAME.into() }
    }

    pub(super) fn own_backend(&self, weight: u8) -> Backend {
        self.backend(&self.place.instance, weight)
    }

    pub(super) fn zones(&self) -> Vec<ZoneMapping> {
        let mapping = |(zone, vswitch): &(String, String)| ZoneMapping {
            zone: zone.clone(),
            vswitch: vswitch.clone(),
            ..ZoneMapping::default()
        };
        self.place.vswitches.iter().take(2).map(mapping).collect()
    }

    pub(super) fn route(&self) -> Result<RouteItem, Stop> {
        Ok(RouteItem {
            table_id: self.id("route table")?,
            destination: ROUTE.parse().map_err(|_| Stop::Lacks("a destination"))?,
            instance_id: self.place.instance.clone(),
            name: NAME.into(),
            description: self.mark(),
        })
    }
}

/// Repeats the step until this is so.
pub(super) fn ready(is_so: bool) -> Ended {
    Ok(if is_so { Outcome::Done } else { Outcome::NotYet })
}

/// A result that says nothing but that it is done.
pub(super) fn done<T, E: Into<Stop>>(result: Result<T, E>) -> Ended {
    result.map(|_| Outcome::Done).map_err(Into::into)
}

/// Done when the cloud says that there is no such thing.
pub(super) fn gone<T>(result: Result<T, Fault>) -> Ended {
    match result {
        Ok(_) => Ok(Outcome::NotYet),
        Err(fault) => Err(fault.into()),
    }
}

/// Repeated as long as another thing refers to the target.
pub(super) fn released<T>(result: Result<T, Fault>) -> Ended {
    match result {
        Err(fault) if fault.kind == FaultKind::InUse => Ok(Outcome::NotYet),
        result => done(result),
    }
}
