//! On what the behaviour of each action rests, so that a reader knows what to distrust.

use super::actions::{self, Action, Product};

/// The evidence for the behaviour of an action, or of all actions of a product.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Basis {
    /// What the vendor's API reference states.
    documented: &'static str,
    /// What a real account did, or what code that works with real accounts relies on, and where that is told.
    observed: Option<(&'static str, &'static str)>,
    /// What nobody states: our guess.
    assumed: &'static str,
}

/// An action that does not say yet what is assumed of it, and without that is none.
pub(crate) struct Draft(pub(crate) Action);

impl Draft {
    pub(crate) const fn documented(mut self, what: &'static str) -> Self {
        self.0.basis.documented = what;
        self
    }

    pub(crate) const fn observed(mut self, what: &'static str, place: &'static str) -> Self {
        self.0.basis.observed = Some((what, place));
        self
    }

    pub(crate) fn assumed(mut self, what: &'static str) -> Action {
        self.0.basis.assumed = what;
        self.0
    }
}

/// What all actions of a product share.
const fn shared(product: Product) -> Basis {
    let (documented, observed, assumed) = match product {
        Product::Ecs => (
            "codes about client tokens",
            None,
            "`InvalidParameter.<name>` for a value out of range; 1000 calls a minute",
        ),
        Product::Vpc => (
            "one write of routes at a time in a VPC",
            Some(("`TaskConflict` with its message", "alibaba/terraform-provider#285")),
            "`TaskConflict`, not the `IncorrectRouteEntryStatus` of that report, while an entry is `Pending`",
        ),
        Product::Slb => (
            "busy codes, rates; no jobs",
            Some(("`ServiceIsConfiguring` from writes to groups", "terraform-provider-alicloud#5755")),
            "which busy code a write gets, and for how long; a locked load balancer refuses every write",
        ),
        Product::Nlb => (
            "jobs, `DryRunOperation`, codes of states, rates",
            Some(("`Conflict.Lock` during a job", "official controller v2.14.0")),
            "a change shows before its job ends; how long a job lasts and what it holds; a failed one has no effect",
        ),
        Product::Pvtz => (
            "parameters and answers; the vendor publishes no codes of records",
            None,
            "`InvalidParameter.<name>` for a value out of range; 300 calls a minute",
        ),
        Product::Sts => (
            "codes of roles and tokens",
            None,
            "`InvalidParameter.<name>` for a value out of range; 1000 calls a minute",
        ),
    };
    Basis { documented, observed, assumed }
}

/// The table of the documentation: what all actions of a product share, then each of them.
#[must_use]
pub fn basis_table() -> String {
    let mut table = "| Action | Documented | Observed | Assumed |\n|---|---|---|---|\n".to_owned();
    for product in Product::ALL {
        table += &row(&format!("every `{}` ({})", product.name(), product.version()), shared(product));
        for action in actions::all().filter(|it| it.product == product) {
            table += &row(&format!("`{}:{}`", product.name(), action.name), action.basis);
        }
    }
    table
}

fn row(name: &str, Basis { documented, observed, assumed }: Basis) -> String {
    let observed = observed.map(|(what, place)| format!("{what} ({place})")).unwrap_or_default();
    format!("| {name} | {documented} | {observed} | {assumed} |\n")
}
