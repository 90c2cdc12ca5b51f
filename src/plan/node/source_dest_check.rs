//! The source/destination check of primary interfaces, and where it can be switched off without a read.
//!
//! Only some regions know the attribute, so it is looked for before it is written. Where an interface has shown it once,
//! every further one has it too, and writing it again changes nothing.

use std::collections::BTreeSet;

/// What is known of the source/destination check of the primary interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceDestCheck {
    /// Nothing to do: it is off, unknown to the region, or not our business.
    Settled,
    /// It is on.
    On {
        /// `eni-...`
        eni: String,
    },
    /// It could not be found out.
    Unknown {
        /// Why.
        message: String,
        /// Why, as far as other nodes can share it.
        cause: Option<String>,
        /// Whether a missing permission explains it, which nodes without routes can live with.
        denied: bool,
    },
}

/// What this process has seen of the attribute. Losing it costs a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckMemory {
    regions: BTreeSet<String>,
    /// Nodes, by UID, that were planned before.
    met: BTreeSet<String>,
}

impl CheckMemory {
    /// An interface of this region showed the check on, off, or not at all.
    pub fn shown(&mut self, region: &str, check: Option<bool>) {
        if check.is_some() && !self.regions.contains(region) {
            self.regions.insert(region.to_owned());
        }
    }

    /// Whether to switch the check of this node off without reading it; only the first time, if at all. For a node that is
    /// planned again it is read: the watch may only be late to show that it is initialised, its interface may not know
    /// the attribute after all, and whatever else is wrong should not cost a write each time.
    pub fn skips_read(&mut self, region: &str, uid: &str) -> bool {
        self.met.insert(uid.to_owned()) && self.regions.contains(region)
    }

    /// Forgets nodes that are initialised or gone.
    pub fn retain(&mut self, is_new: impl Fn(&str) -> bool) {
        self.met.retain(|uid| is_new(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_known_once_an_interface_there_has_shown_the_attribute() {
        let mut memory = CheckMemory::default();
        memory.shown("cn-a", None);
        assert!(!memory.skips_read("cn-a", "u1"), "the region does not know it");
        memory.shown("cn-a", Some(false));
        assert!(memory.skips_read("cn-a", "u2"), "on or off, it is there");
        assert!(!memory.skips_read("cn-b", "u3"), "every region stands for itself");
    }

    #[test]
    fn for_a_node_that_is_planned_again_it_is_read() {
        let mut memory = CheckMemory::default();
        assert!(!memory.skips_read("cn-a", "u0"));
        memory.shown("cn-a", Some(true));
        assert!(!memory.skips_read("cn-a", "u0"), "it was read a moment ago");
        assert!(memory.skips_read("cn-a", "u1") && memory.skips_read("cn-a", "u2"));
        memory.retain(|uid| uid == "u1");
        assert!(!memory.skips_read("cn-a", "u1"), "it is still not initialised");
        assert!(memory.skips_read("cn-a", "u2"), "it was, and has joined anew");
    }
}
