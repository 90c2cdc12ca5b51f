//! The codes of warnings and errors in the log that stand beside no event: the second table of `docs/events.md`.
//!
//! As with events, a code never changes and is not used again.

use std::fmt::Write as _;

/// What there is to say about the lines with one code.
#[derive(Debug)]
struct LogEntry {
    /// The field `code` of the line.
    code: &'static str,
    /// What has happened.
    cause: &'static str,
    /// What follows from it.
    effect: &'static str,
    /// What to do.
    remedy: &'static str,
}

const fn entry(code: &'static str, [cause, effect, remedy]: [&'static str; 3]) -> LogEntry {
    LogEntry { code, cause, effect, remedy }
}

/// The documentation of these lines.
#[must_use]
pub fn catalog() -> String {
    let mut section = "\n## Lines of the log\n\nEach warning and error in the log has the field `code`. A line about the same as an event has the \
                       code of that event; all other lines have these.\n\n| Code | Cause | Effect | What to do |\n|---|---|---|---|\n"
        .to_owned();
    for LogEntry { code, cause, effect, remedy } in LINES {
        let _ = writeln!(section, "| {code} | {cause} | {effect} | {remedy} |");
    }
    section
}

/// 0701 and up the process, 0721 the API server, 0741 the cloud, 0761 the controllers.
static LINES: &[LogEntry] = &[
    entry(
        "ACCM0701",
        ["a part of the program panicked: a defect", "that part starts again", "report the line and those around it"],
    ),
    entry("ACCM0702", ["a task ended abnormally: a defect", "it starts again", "report the line and those around it"]),
    entry(
        "ACCM0703",
        [
            "tasks did not end in time when they were stopped",
            "they are cancelled; the next reconcile repairs what they left",
            "if it happens at every stop: report it",
        ],
    ),
    entry(
        "ACCM0704",
        ["a reconcile panicked: a defect", "the controller retries it", "report the line and those around it"],
    ),
    entry(
        "ACCM0705",
        [
            "a second signal came during the shutdown",
            "the process ends at once; the next one continues",
            "nothing to do",
        ],
    ),
    entry(
        "ACCM0706",
        [
            "the socket in `NOTIFY_SOCKET` cannot be used",
            "systemd gets no notification, and stops the service if it waits for one",
            "start the program by its unit only, or unset the variable",
        ],
    ),
    entry(
        "ACCM0707",
        [
            "the folder of the configuration cannot be watched",
            "changes take effect with a delay of up to 30 s",
            "the message has the cause, such as the limit `fs.inotify.max_user_instances`",
        ],
    ),
    entry(
        "ACCM0708",
        [
            "the HTTP server cannot use its address",
            "it keeps the previous address, or serves nothing, and retries",
            "correct `server.address` or `server.port`, or stop the program that uses the port",
        ],
    ),
    entry(
        "ACCM0709",
        [
            "the collector of `traces.endpoint` does not answer, or refuses traces",
            "nothing but traces is affected; spans wait for the collector, and those that it refuses, or beyond 2048, are lost",
            "the message says what was answered; compare `traces.endpoint` and `traces.headers` with the collector",
        ],
    ),
    entry(
        "ACCM0710",
        [
            "another process has the name of the socket for commands on the same machine",
            "`explain` and `doctor` cannot ask this process; all else works",
            "stop the process that `ss -xlp` shows with this name, and restart the program",
        ],
    ),
    entry(
        "ACCM0721",
        [
            "the API server does not answer, or does not accept the program",
            "nothing is reconciled",
            "check `kubernetes.server`, the kubeconfig, and the network",
        ],
    ),
    entry(
        "ACCM0722",
        [
            "changed credentials for the API server cannot be used",
            "the previous ones stay in use until they expire",
            "correct the file that the message names",
        ],
    ),
    entry(
        "ACCM0723",
        [
            "the uid of the namespace `kube-system` cannot be read",
            "clusters with the same `cloud.cluster_id` cannot be told apart",
            "grant the rights that `alicloud-ccm rbac` prints, then restart",
        ],
    ),
    entry(
        "ACCM0724",
        [
            "objects of one kind cannot be listed",
            "the controllers wait for the first list, or keep the last one; the list is retried",
            "the message names the permission, or what the API server answers",
        ],
    ),
    entry(
        "ACCM0725",
        [
            "the newest version of a kind is not served, or may not be listed",
            "an older version is read",
            "if the message names a permission: grant what `alicloud-ccm rbac` prints",
        ],
    ),
    entry("ACCM0726", ["the API server was restored from a backup", "all objects are listed again", "nothing to do"]),
    entry(
        "ACCM0727",
        ["an object cannot be decoded", "its previous state stays in use", "report the line, with the object"],
    ),
    entry(
        "ACCM0728",
        [
            "an event could not be written, or events were dropped at the stop",
            "users do not see it; nothing else is affected",
            "the message has the answer of the API server; `alicloud-ccm rbac` prints the rights",
        ],
    ),
    entry(
        "ACCM0729",
        [
            "the lease cannot be read or renewed",
            "the leader stops writing before the lease expires; a standby cannot take over",
            "check the API server, and the rights on `leases`",
        ],
    ),
    entry(
        "ACCM0730",
        ["the lease could not be released at the stop", "another replica leads once it has expired", "nothing to do"],
    ),
    entry(
        "ACCM0731",
        [
            "the API server does not review tokens for the program (`server.authorization`)",
            "`/metrics` and the other pages answer 503; `/livez`, `/readyz` and the controllers work",
            "`alicloud-ccm rbac` prints the rights `tokenreviews` and `subjectaccessreviews`; `doctor` says which is missing",
        ],
    ),
    entry(
        "ACCM0741",
        [
            "the source of the credentials gives no new ones",
            "the previous ones stay in use until they expire",
            "the message names the source; see `docs/troubleshooting.md`, Credentials fail",
        ],
    ),
    entry(
        "ACCM0742",
        [
            "the clock of the machine is wrong",
            "calls to the cloud use the cloud's time",
            "run chrony or another NTP client",
        ],
    ),
    entry(
        "ACCM0743",
        [
            "the connection to the API server, or the location in the cloud, cannot be determined",
            "no controller runs; the start is retried",
            "the message names what is missing",
        ],
    ),
    entry(
        "ACCM0761",
        [
            "the condition `NetworkUnavailable` of a node could not be written",
            "pods may not be scheduled there; the controller retries it",
            "the message has the answer of the API server; `alicloud-ccm rbac` prints the rights",
        ],
    ),
    entry(
        "ACCM0762",
        [
            "pods may not be read",
            "readiness gates of pods are not set, and their rollouts wait",
            "grant what `alicloud-ccm rbac` prints",
        ],
    ),
    entry(
        "ACCM0763",
        [
            "load balancers could not be listed",
            "load balancers without a Service are not reported; the controller retries it",
            "the message has the fault of the cloud",
        ],
    ),
    entry(
        "ACCM0764",
        [
            "vSwitches could not be listed",
            "new internal classic load balancers get the vSwitch of this instance",
            "grant `vpc:DescribeVSwitches`, or list vSwitches in the configuration",
        ],
    ),
    entry(
        "ACCM0765",
        [
            "access control lists could not be listed",
            "unused lists of Services may stay; lists that a Service uses are not affected",
            "the message has the fault of the cloud; `alicloud-ccm ram-policy` prints the permission",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        assert!(LINES.is_sorted_by(|a, b| a.code < b.code));
    }
}
