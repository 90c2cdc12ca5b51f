//! Settings of an object and where they come from: what `explain` and `lint` print.

/// What decides about a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// The annotation of this key.
    Annotation(String),
    /// This field of the object.
    Spec(&'static str),
    /// This key of the configuration, or its default.
    Configuration(&'static str),
    /// Where the nodes are.
    Nodes,
    /// What the kubelet reports.
    Kubelet,
    /// The instance behind the node.
    Instance,
    /// That the VPC has no other route table.
    OnlyTable,
    /// Nothing that a user can set.
    Default,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingOrigin {
    /// Its annotation without the prefix, also where none is there; or the field.
    pub setting: &'static str,
    /// What is wanted, as the annotation would say it.
    pub value: String,
    /// What decides about it.
    pub source: SettingSource,
    /// What there is, if that is something else.
    pub found: Option<String>,
    /// What it does.
    pub help: &'static str,
}

impl SettingOrigin {
    /// A setting that is as it is wanted.
    pub fn new(setting: &'static str, value: impl Into<String>, source: SettingSource, help: &'static str) -> Self {
        Self { setting, value: value.into(), source, found: None, help }
    }
}

/// What holds where no annotation speaks: of which annotation, what, and what decides.
pub(crate) type Otherwise<N> = (N, Option<String>, SettingSource);
