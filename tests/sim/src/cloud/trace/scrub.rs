//! Placeholders for what must not be written down.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Exchange, OWN, OWN_ADDRESSES, Place};

/// Fields whose text is the account's own: the ends of their names.
const PRIVATE: [&str; 14] = [
    "id",
    "ids",
    "ip",
    "ips",
    "address",
    "addresses",
    "name",
    "names",
    "cidrblock",
    "description",
    "comment",
    "remark",
    "token",
    "value",
];

/// Fields that end so and say nothing about the account.
const PUBLIC: [&str; 6] = ["regionid", "zoneid", "masterzoneid", "slavezoneid", "zonename", "actionname"];

/// Fields that differ with every call, or are meant for readers: neither written down nor compared.
pub(super) const VOLATILE: [&str; 17] = [
    "RequestId",
    "OrderId",
    "Message",
    "HostId",
    "Recommend",
    "AccessDeniedDetail",
    "NextToken",
    "TotalCount",
    "TotalItems",
    "TotalPages",
    "MaxResults",
    "PageNumber",
    "PageSize",
    "UserId",
    "OwnerId",
    "AccountId",
    "SerialNumber",
];

/// Whether a field is written down and compared.
pub(super) fn is_kept(name: &str) -> bool {
    !VOLATILE.contains(&name) && !name.contains("Time")
}

/// Gives the same placeholder for the same text.
#[derive(Debug)]
pub(super) struct Scrubber {
    known: BTreeMap<String, String>,
}

impl Scrubber {
    /// With the place as it can be written down.
    pub(super) fn new(place: &Place) -> (Self, Place) {
        let mut known = BTreeMap::new();
        let mut hide = |real: &String, shown: String| {
            known.insert(real.clone(), shown.clone());
            shown
        };
        let shown = Place {
            region: place.region.clone(),
            vpc: hide(&place.vpc, "vpc-place".into()),
            vswitches: (place.vswitches.iter().enumerate())
                .map(|(index, (zone, id))| (zone.clone(), hide(id, format!("vsw-place-{index}"))))
                .collect(),
            instance: hide(&place.instance, "i-place".into()),
            private_zone: place.private_zone.as_ref().map(|id| hide(id, "zone-place".into())),
        };
        (Self { known }, shown)
    }

    pub(super) fn exchange(&mut self, mut exchange: Exchange) -> Exchange {
        for (name, value) in &mut exchange.parameters {
            let name = name.split('.').rfind(|part| part.parse::<u32>().is_err()).unwrap_or(name);
            *value = self.text(name, value);
        }
        exchange.answer = self.value("", &exchange.answer);
        exchange
    }

    fn value(&mut self, name: &str, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let kept = fields.iter().filter(|(name, _)| is_kept(name));
                kept.map(|(name, value)| (name.clone(), self.value(name, value))).collect()
            }
            Value::Array(items) => items.iter().map(|item| self.value(name, item)).collect(),
            Value::String(text) => self.text(name, text).into(),
            Value::Number(number) if is_private(name) => self.text(name, &number.to_string()).into(),
            other => other.clone(),
        }
    }

    fn text(&mut self, name: &str, text: &str) -> String {
        if let Some(shown) = self.known.get(text) {
            return shown.clone();
        }
        // Longer ones first, of which shorter ones can be the beginning.
        let mut inside: Vec<_> = self.known.iter().filter(|(real, _)| real.len() > 5 && text.contains(*real)).collect();
        inside.sort_by_key(|(real, _)| std::cmp::Reverse(real.len()));
        let replaced = inside.iter().fold(text.to_owned(), |text, (real, shown)| text.replace(*real, shown));
        let is_own = replaced.contains(OWN) || OWN_ADDRESSES.contains(&text) || text.len() < 2;
        // JSON in a parameter consists of what the client put there.
        if is_own || text.starts_with(['[', '{']) || !is_private(name) {
            return replaced;
        }
        let shown = format!("{}#{}#", name.to_ascii_lowercase(), self.known.len());
        self.known.insert(text.to_owned(), shown.clone());
        shown
    }
}

fn is_private(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PRIVATE.iter().any(|end| name.ends_with(end)) && !PUBLIC.contains(&name.as_str())
}
