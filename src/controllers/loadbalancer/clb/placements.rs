//! Where load balancers were perhaps made, by calls whose answer was lost. Nodes come and go meanwhile, and vSwitches fill up,
//! but a repetition of such a call asks for the same: it has the same client token.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::plan::clb::model::CreateInstance;

/// The latest creations, by UID of the Service.
#[derive(Debug, Default)]
pub(super) struct Placements(Mutex<HashMap<String, PlacedCreation>>);

#[derive(Debug)]
struct PlacedCreation {
    /// What the Service and the configuration ask for.
    stated: CreateInstance,
    /// The same with a place.
    placed: CreateInstance,
    /// Whether it may have been made.
    is_uncertain: bool,
}

impl Placements {
    /// What is to be repeated instead of placing what is `stated` anew, if it may have been made.
    pub(super) fn repeated(&self, uid: &str, stated: &CreateInstance) -> Option<CreateInstance> {
        let creations = self.0.lock();
        let creation = creations.get(uid).filter(|creation| creation.is_uncertain && creation.stated == *stated)?;
        Some(creation.placed.clone())
    }

    /// What is `stated` is to be made in this place.
    pub(super) fn choose(&self, uid: &str, stated: CreateInstance, placed: CreateInstance) {
        self.0.lock().insert(uid.to_owned(), PlacedCreation { stated, placed, is_uncertain: false });
    }

    /// It was tried; whether it was made may be unknown.
    pub(super) fn tried(&self, uid: &str, placed: &CreateInstance, is_uncertain: bool) {
        if let Some(creation) = self.0.lock().get_mut(uid) {
            (creation.placed, creation.is_uncertain) = (placed.clone(), is_uncertain);
        }
    }

    /// It was made, or its Service is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}
