use proptest::prelude::*;

use super::*;

const PERIOD: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// One who calls: when it asks first, in which namespace, for what, and how long it takes to come back.
#[derive(Clone, Debug)]
struct Caller {
    asks: u64,
    namespace: u64,
    purpose: Purpose,
    takes: u64,
}

fn callers() -> impl Strategy<Value = Vec<Caller>> {
    let purpose = prop_oneof![1 => Just(Purpose::Serve), 4 => Just(Purpose::Other)];
    let caller = (0u64..120, 0u64..4, purpose, 0u64..20);
    let caller = caller.prop_map(|(asks, namespace, purpose, takes)| Caller { asks, namespace, purpose, takes });
    prop::collection::vec(caller, 1..50)
}

/// A call that was sent: by whom, and at which second.
type Sent = (usize, u64);

/// Every caller asks, and comes back as long after it was told to as it takes; one in `quitters` never does, and gives its
/// ticket back in the end. Gives the calls in order, and for each second who was ready and was not let out.
fn play(callers: &[Caller], calls: usize, quitters: usize) -> (Vec<Sent>, Vec<Vec<usize>>) {
    let (start, mut queue) = (Instant::now(), TicketQueue::new((calls, PERIOD)));
    let (mut tickets, mut sent, mut waited) = (vec![None; callers.len()], Vec::new(), Vec::new());
    // When each of them is ready.
    let mut ready: Vec<Option<u64>> = callers.iter().map(|caller| Some(caller.asks)).collect();
    for second in 0..7200 {
        let now = start + Duration::from_secs(second);
        for (who, caller) in callers.iter().enumerate() {
            if ready[who] == Some(second) {
                let number = *tickets[who].get_or_insert_with(|| queue.issue(caller.purpose, caller.namespace));
                queue.set_owner(number, TicketOwner::Ready);
            }
            let is_quitter = quitters > 0 && who % quitters == 0;
            if is_quitter && second == caller.asks + 600 && ready[who].is_some_and(|at| at > second) {
                assert!(tickets[who].take().is_none_or(|number| queue.tickets.remove(&number).is_some()));
                ready[who] = None;
            }
        }
        let mut left = Vec::new();
        for number in queue.order(now) {
            let Some(who) = tickets.iter().position(|ticket| *ticket == Some(number)) else { continue };
            if ready[who].is_none_or(|at| at > second) {
                continue;
            }
            match queue.decide(number, now) {
                Ok(()) => {
                    queue.tickets.remove(&number);
                    sent.push((who, second));
                    (tickets[who], ready[who]) = (None, None);
                }
                Err((_, limited)) => {
                    let wait = limited.wait;
                    left.push(who);
                    if wait > SECOND {
                        queue.set_owner(number, TicketOwner::Away);
                        let is_quitter = quitters > 0 && who % quitters == 0;
                        let takes = if is_quitter { 6000 } else { callers[who].takes };
                        ready[who] = Some(second + wait.as_secs() + takes);
                    }
                }
            }
        }
        waited.push(left);
    }
    (sent, waited)
}

proptest! {
    #[test]
    fn no_window_has_more_calls_than_the_share_and_none_is_left_while_one_who_is_ready_waits(
        callers in callers(), calls in 1usize..12, quitters in 0usize..4,
    ) {
        let (sent, waited) = play(&callers, calls, quitters);
        let within = |second: u64| sent.iter().filter(|(_, at)| *at <= second && at + PERIOD.as_secs() > second).count();
        for (second, waited) in waited.iter().enumerate() {
            let used = within(second as u64);
            prop_assert!(used <= calls, "{used} calls in the window before second {second}");
            prop_assert!(waited.is_empty() || used == calls, "{waited:?} wait in second {second}, {used} calls are used");
        }
    }

    #[test]
    fn everybody_who_stays_gets_its_turn(callers in callers(), calls in 1usize..12, quitters in 0usize..4) {
        let (sent, _) = play(&callers, calls, quitters);
        for (who, _) in callers.iter().enumerate().filter(|(who, _)| quitters == 0 || who % quitters != 0) {
            let times = sent.iter().filter(|(sender, _)| *sender == who).count();
            prop_assert_eq!(times, 1, "caller {}", who);
        }
    }

    /// Those who are ready go by purpose, namespaces in turn, and by age in each.
    #[test]
    fn what_serves_goes_first_and_namespaces_take_turns(
        entries in prop::collection::vec((0u64..4, prop::bool::ANY), 1..60),
    ) {
        let (mut queue, now) = (TicketQueue::new((1000, PERIOD)), Instant::now());
        let purpose = |serves| if serves { Purpose::Serve } else { Purpose::Other };
        let numbers: Vec<u64> =
            entries.iter().map(|(namespace, serves)| queue.issue(purpose(*serves), *namespace)).collect();
        let order: Vec<(u64, bool)> = queue
            .order(now)
            .into_iter()
            .map(|number| entries[numbers.iter().position(|other| *other == number).unwrap()])
            .collect();
        prop_assert!(order.is_sorted_by_key(|(_, serves)| !serves), "{order:?}");
        for serves in [true, false] {
            let of_it: Vec<u64> = order.iter().filter(|entry| entry.1 == serves).map(|entry| entry.0).collect();
            for end in 0..of_it.len() {
                let count = |namespace| of_it[..end].iter().filter(|other| **other == namespace).count();
                let left = |namespace: &u64| of_it[end..].contains(namespace);
                let counts: Vec<usize> = (0..4).filter(left).map(count).collect();
                let (least, most) = (counts.iter().min().unwrap(), (0..4).map(count).max().unwrap());
                prop_assert!(most - least <= 1, "{of_it:?} at {end}");
            }
        }
    }

    /// While others ask again as soon as they were served, one who waits is overtaken at most once by each namespace for each
    /// ticket before it.
    #[test]
    fn no_ticket_is_overtaken_for_ever(own in 1u64..6, namespaces in 1u64..6) {
        let mut queue = TicketQueue::new((1, PERIOD));
        let mut now = Instant::now();
        let mut greedy: Vec<u64> = (1..=namespaces).map(|namespace| queue.issue(Purpose::Other, namespace)).collect();
        let mine: Vec<u64> = (0..own).map(|_| queue.issue(Purpose::Other, 0)).collect();
        let mut sent = 0;
        while queue.tickets[mine.last().unwrap()].owner == TicketOwner::Ready {
            let number = queue.order(now)[0];
            prop_assert!(queue.decide(number, now).is_ok());
            if let Some(index) = greedy.iter().position(|other| *other == number) {
                greedy[index] = queue.issue(Purpose::Other, index as u64 + 1);
            }
            (now, sent) = (now + PERIOD, sent + 1);
            prop_assert!(sent <= own * (namespaces + 1), "{sent} calls");
        }
    }
}

#[test]
fn a_thousand_tickets_that_are_given_back_hold_up_nobody() {
    let mut queue = TicketQueue::new((30, PERIOD));
    let now = Instant::now();
    let wrong: Vec<u64> = (0..1000).map(|_| queue.issue(Purpose::Other, 1)).collect();
    let right: Vec<u64> = (0..5).map(|_| queue.issue(Purpose::Other, 1)).collect();
    let other = queue.issue(Purpose::Other, 2);
    wrong.into_iter().for_each(|number| assert!(queue.tickets.remove(&number).is_some()));
    assert_eq!(queue.order(now), [right[0], other, right[1], right[2], right[3], right[4]]);
    assert_eq!(queue.last_in(now), Duration::ZERO);
}
