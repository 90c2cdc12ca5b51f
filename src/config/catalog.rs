//! Names that the file may mention and that other parts of the program define: controllers and actions of the cloud.
//!
//! The configuration is handed a [`Catalog`] and imports none of those parts, so a new controller or a new action needs no
//! change here.

/// What the rest of the program defines.
#[derive(Clone, Copy, Debug)]
pub struct Catalog {
    /// The controllers that this program has.
    pub controllers: &'static [ControllerEntry],
    /// Controllers of the official controller manager that this program does not have.
    pub absent_controllers: &'static [&'static str],
    /// The actions of the cloud that are called: the keys of `cloud.quotas`.
    pub actions: &'static [&'static str],
    /// One of `actions`, as the example in messages and in the reference file.
    pub example_action: &'static str,
}

/// A controller, as the key `controllers` names it.
#[derive(Clone, Copy, Debug)]
pub struct ControllerEntry {
    /// Its name in the configuration, in logs and in metrics.
    pub name: &'static str,
    /// Whether it runs where the key is not set. The default is part of the interface: a controller that is added later is off
    /// until a user lists it.
    pub default_on: bool,
    /// Keys of which one must be set. With none, `*` does not include the controller, and to list it is an error.
    pub needs: &'static [&'static str],
    /// Names that mean the same, such as those of the upstream framework.
    pub aliases: &'static [&'static str],
    /// Names of controllers elsewhere that are one part of this one. They mean the whole controller, and cannot be left out
    /// alone.
    pub parts: &'static [&'static str],
    /// What to do instead of leaving a part out.
    pub instead_of_parts: &'static str,
}

impl ControllerEntry {
    /// A controller that is off by default and needs no key; `aliases` are names that mean the same.
    pub const fn new(name: &'static str, aliases: &'static [&'static str]) -> Self {
        Self { name, default_on: false, needs: &[], aliases, parts: &[], instead_of_parts: "" }
    }

    /// Whether a name in the file means this controller.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name) || self.parts.contains(&name)
    }
}

impl Catalog {
    /// The default of the key `controllers`.
    pub(super) fn default_controllers(&self) -> Vec<String> {
        let on = self.controllers.iter().filter(|entry| entry.default_on);
        on.map(|entry| entry.name.to_owned()).collect()
    }

    /// All names that mean a controller.
    pub(super) fn controller_names(&self) -> impl Iterator<Item = &'static str> {
        self.controllers
            .iter()
            .flat_map(|entry| [entry.name].into_iter().chain(entry.aliases.iter().chain(entry.parts).copied()))
    }

    /// Everything that an item of the key `controllers` may be.
    pub(super) fn controller_items(&self) -> Vec<String> {
        let parts = self.controllers.iter().flat_map(|entry| entry.parts);
        let left_out = self.controller_names().filter(|name| !parts.clone().any(|part| part == name));
        let left_out = left_out.map(|name| format!("-{name}"));
        std::iter::once("*".to_owned()).chain(self.controller_names().map(str::to_owned)).chain(left_out).collect()
    }

    /// The text about the key `controllers` in the manual, after what holds for any catalog.
    pub(super) fn described_controllers(&self) -> String {
        let code = |name: &str| format!("`{name}`");
        let own: Vec<_> = self.controllers.iter().map(|entry| code(entry.name)).collect();
        let aliases = self.controllers.iter().flat_map(|entry| entry.aliases.iter().chain(entry.parts));
        let aliases: Vec<_> = aliases.map(|name| code(name)).collect();
        format!("Controllers: {}. Also understood: {}.", own.join(", "), aliases.join(", "))
    }
}
