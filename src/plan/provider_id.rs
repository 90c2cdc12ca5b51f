//! `spec.providerID` of nodes on ECS.

use std::fmt;

use thiserror::Error;

/// Region and instance of an ECS node: `REGION.INSTANCE_ID`, with or without the scheme `alicloud://`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProviderId {
    /// Such as `cn-hangzhou`.
    pub region: String,
    /// Such as `i-bp1abc`.
    pub instance: String,
}

/// Why a provider ID names no ECS instance.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotEcs {
    /// `spec.providerID` is empty.
    #[error("spec.providerID is empty")]
    Empty,
    /// Another provider's scheme, such as `ack-hybrid://` or `aws://`.
    #[error("spec.providerID {0:?} belongs to another provider")]
    Foreign(String),
    /// No scheme or ours, but not `REGION.INSTANCE_ID`.
    #[error("spec.providerID {0:?} is not of the form [alicloud://]REGION.INSTANCE_ID")]
    Malformed(String),
}

impl NotEcs {
    /// What makes an ECS node of one that has such an id.
    pub const REMEDY: &str = "it cannot be changed on a Node: delete the Node, and restart the kubelet with the one that \
                              `alicloud-ccm kubelet-args` prints";
}

impl ProviderId {
    /// Parses every form in which kubelets and controllers have written it: `REGION.ID`, `alicloud://REGION.ID`;
    /// anything after a second dot is ignored, as the official controller does.
    ///
    /// # Errors
    /// [`NotEcs`] says which kind of other thing it is.
    pub fn parse(text: &str) -> Result<Self, NotEcs> {
        if text.is_empty() {
            return Err(NotEcs::Empty);
        }
        let rest = match text.split_once("://") {
            Some(("alicloud", rest)) => rest,
            Some(_) => return Err(NotEcs::Foreign(text.to_owned())),
            None => text,
        };
        let mut parts = rest.split('.');
        let (region, instance) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let plain =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !plain(region) || !plain(instance) {
            return Err(NotEcs::Malformed(text.to_owned()));
        }
        Ok(Self { region: region.to_owned(), instance: instance.to_owned() })
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.region, self.instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_form_parses() {
        for text in ["cn-hangzhou.i-bp1", "alicloud://cn-hangzhou.i-bp1", "cn-hangzhou.i-bp1.extra"] {
            let id = ProviderId::parse(text).unwrap();
            assert_eq!((id.region.as_str(), id.instance.as_str()), ("cn-hangzhou", "i-bp1"), "{text}");
            assert_eq!(id.to_string(), "cn-hangzhou.i-bp1");
        }
    }

    #[test]
    fn other_things_are_told_apart() {
        assert_eq!(ProviderId::parse(""), Err(NotEcs::Empty));
        assert!(matches!(ProviderId::parse("ack-hybrid://x.y"), Err(NotEcs::Foreign(_))));
        assert!(matches!(ProviderId::parse("aws:///zone/i-1"), Err(NotEcs::Foreign(_))));
        for text in ["i-bp1", "cn-hangzhou.", ".i-1", "e01-cn-xxxx", "alicloud://", "a b.c"] {
            assert!(matches!(ProviderId::parse(text), Err(NotEcs::Malformed(_))), "{text}");
        }
    }
}
