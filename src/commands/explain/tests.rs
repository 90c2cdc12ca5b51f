use super::*;

fn line(kind: LineKind, text: &str) -> PlanLine {
    PlanLine { controller: "service", object: "default/web".to_owned(), text: text.to_owned(), destroys: false, kind }
}

fn leader(is_expired: bool) -> Option<Leader> {
    let text = String::new;
    Some(Leader { holder: "ccm-0".to_owned(), lock: text(), renewed: text(), is_expired })
}

fn process() -> Option<ProcessReport> {
    let page = serde_json::json!({ "leader": "this replica leads", "objects": [{
        "controller": "service", "object": "default/web", "state": "out_of_sync", "since": "1 o'clock",
        "next_attempt": "3 o'clock", "message": "CreateX: no", "later": "more",
    }] });
    serde_json::from_value(page).unwrap()
}

fn managed() -> Explanation {
    let managed_by = vec!["service"];
    Explanation { exists: Some(true), managed_by, is_elected: true, leader: leader(false), ..Explanation::default() }
}

#[test]
fn what_an_object_waits_for_is_something_to_do_and_what_is_beside_it_is_not() {
    let unread = || vec!["the process on this machine: no".to_owned()];
    let waits = Explanation { plan: vec![line(LineKind::Withheld, "it waits")], ..managed() };
    assert!(matches!(waits.ended(), Ended::SomethingToDo));
    assert!(matches!(Explanation { unread: unread(), ..managed() }.ended(), Ended::Done));
    assert!(matches!(Explanation { unknown: unread(), ..managed() }.ended(), Ended::Incomplete));
}

#[test]
fn what_matters_most_is_said_first() {
    let declined = |reason: &str| vec![Declined { controller: "nlb", reason: reason.to_owned() }];
    let problem = line(LineKind::Problem, "scheduler");
    let step = line(LineKind::Step, "create load balancer");
    let warning = PastEvent {
        at: String::new(),
        is_warning: true,
        reason: "Why".to_owned(),
        message: "no".to_owned(),
        count: 1,
        remedy: None,
    };
    let unmanaged = Explanation { exists: Some(true), not_managed_by: declined("off"), ..Explanation::default() };
    for (given, expected) in [
        (Explanation::default(), "could not be read"),
        (Explanation { exists: Some(false), ..Explanation::default() }, "does not exist"),
        (unmanaged, "managed by no controller of this program: not by nlb, off"),
        (managed(), "is in sync"),
        (Explanation { not_managed_by: declined("its class"), ..managed() }, "is in sync"),
        (Explanation { plan: vec![step.clone()], leader: leader(true), ..managed() }, "no replica leads"),
        (Explanation { plan: vec![step.clone()], leader: None, is_elected: false, ..managed() }, "1 step is missing"),
        (Explanation { plan: vec![step.clone(), problem], ..managed() }, "cannot be brought in sync: scheduler"),
        (
            Explanation { plan: vec![step.clone()], events: vec![warning.clone()], process: process(), ..managed() },
            "1 step is missing; CreateX: no; next attempt at 3 o'clock",
        ),
        (Explanation { plan: vec![step], events: vec![warning], ..managed() }, "last event Why: no"),
        (Explanation { plan: vec![line(LineKind::Note, "it moves")], ..managed() }, "is in sync; it moves"),
        (
            Explanation { plan: vec![line(LineKind::Withheld, "delete it")], ..managed() },
            "is out of sync; withheld: delete it",
        ),
        (
            Explanation { unknown: vec!["the cloud: no".to_owned()], ..managed() },
            "may be in sync; not known is the cloud",
        ),
    ] {
        assert!(given.summarise().contains(expected), "{} lacks {expected}", given.summarise());
    }
}
