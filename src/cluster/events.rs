//! Events on objects: what happened, why, and what to do.

use crate::plan::inputs::ObjectKey;

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Regarding {
    /// `Node`, `Service`, `Pod`
    pub kind: &'static str,
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`
    pub uid: String,
}

/// Writes core/v1 Events in the background; repetitions raise a count instead of making new objects.
#[derive(Clone, Debug)]
pub struct Events {}

#[expect(unused_variables, clippy::todo, clippy::missing_panics_doc)]
impl Events {
    /// Something went as wanted. `component` is the controller, such as `node-controller`.
    pub fn normal(&self, component: &'static str, regarding: &Regarding, reason: &'static str, message: String) {
        todo!()
    }
    /// Something needs attention.
    pub fn warning(&self, component: &'static str, regarding: &Regarding, reason: &'static str, message: String) {
        todo!()
    }
}
