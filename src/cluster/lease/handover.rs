//! The note that a holder leaves in the lock for the next one. Pure.
//!
//! It counts for exactly one successor: the one that finds the lock given back by whoever wrote the note, with nobody in
//! between. Other programs that take part in the election keep annotations as they are, but count transitions.

use serde_json::{Value, json};

use super::record::{Action, Record};

/// On the lock.
const ANNOTATION: &str = "alicloud-ccm/handover";

/// Writes the note into a lock that is given back with `record`.
pub(super) fn put(object: &mut Value, record: &Record, note: &str) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][ANNOTATION] = json!(format!("{} {note}", record.transitions));
}

/// Takes the note out of a lock, whether it still counts or not.
pub(super) fn take(object: &mut Value) -> Option<String> {
    let annotations = object.pointer_mut("/metadata/annotations")?.as_object_mut()?;
    annotations.remove(ANNOTATION)?.as_str().map(str::to_owned)
}

/// The note's text, if it is for whoever does `action` to a lock that was as in `before`.
pub(super) fn text_for(note: &str, action: Action, before: &Record) -> Option<String> {
    let (transitions, text) = note.split_once(' ')?;
    let given_back = action == Action::TakeOver && before.holder.is_empty();
    (given_back && transitions == before.transitions.to_string()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(transitions: u64) -> Record {
        Record { transitions, ..Record::default() }
    }

    #[test]
    fn a_note_is_for_the_next_holder_only() {
        let mut object = json!({ "metadata": { "name": "ccm", "annotations": { "a": "b" } } });
        put(&mut object, &released(7), "hello there");
        let note = take(&mut object).unwrap();
        assert_eq!(object["metadata"]["annotations"], json!({ "a": "b" }));
        assert_eq!(take(&mut object), None);
        assert_eq!(text_for(&note, Action::TakeOver, &released(7)).as_deref(), Some("hello there"));
        assert_eq!(text_for(&note, Action::TakeOver, &released(8)), None, "somebody led in between");
        assert_eq!(text_for(&note, Action::Renew, &released(7)), None);
        let held = Record { holder: "dead".to_owned(), ..released(7) };
        assert_eq!(text_for(&note, Action::TakeOver, &held), None, "not given back");
        assert_eq!(text_for("nonsense", Action::TakeOver, &released(7)), None);
    }
}
