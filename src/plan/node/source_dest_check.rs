//! Which source/destination checks can be switched off without a look.
//!
//! Only some regions know the attribute, so it is looked for before it is written. Where an interface has shown it once,
//! every further one has it too, and writing it again changes nothing.

use std::collections::BTreeSet;

/// What this process has seen of the attribute. Losing it costs a look, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    regions: BTreeSet<String>,
    /// Nodes, by UID, that came by.
    met: BTreeSet<String>,
}

impl Switches {
    /// An interface of this region showed the check on, off, or not at all.
    pub fn shown(&mut self, region: &str, check: Option<bool>) {
        if check.is_some() && !self.regions.contains(region) {
            self.regions.insert(region.to_owned());
        }
    }

    /// Whether to switch the check of this node off unseen; at the first time that is asked of a node, if at all. One that
    /// comes by again is looked at: the watch may only be late to show that it is initialised, its interface may not know
    /// the attribute after all, and whatever else is wrong should not cost a write each time.
    pub fn go_unseen(&mut self, region: &str, uid: &str) -> bool {
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
        let mut switches = Switches::default();
        switches.shown("cn-a", None);
        assert!(!switches.go_unseen("cn-a", "u1"), "the region does not know it");
        switches.shown("cn-a", Some(false));
        assert!(switches.go_unseen("cn-a", "u2"), "on or off, it is there");
        assert!(!switches.go_unseen("cn-b", "u3"), "every region stands for itself");
    }

    #[test]
    fn a_node_that_comes_by_again_is_looked_at() {
        let mut switches = Switches::default();
        assert!(!switches.go_unseen("cn-a", "u0"));
        switches.shown("cn-a", Some(true));
        assert!(!switches.go_unseen("cn-a", "u0"), "it was looked at a moment ago");
        assert!(switches.go_unseen("cn-a", "u1") && switches.go_unseen("cn-a", "u2"));
        switches.retain(|uid| uid == "u1");
        assert!(!switches.go_unseen("cn-a", "u1"), "it is still not initialised");
        assert!(switches.go_unseen("cn-a", "u2"), "it was, and has joined anew");
    }
}
