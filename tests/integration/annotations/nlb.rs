//! Those of network load balancers.

use super::{ALL_NODES, ONE, Row, Subject, TCP, row};

/// Annotations that cannot be tried side by side with others, and where they are held to their meaning.
pub(super) const ELSEWHERE: &[(&str, &str)] = &[
    ("type", "golden case nlb/nlb-type-annotation"),
    ("id", "golden case nlb/nlb-reuse-plain"),
    ("force-override-listeners", "golden case nlb/nlb-reuse-override"),
    ("manage", "service_features::edits_of_others_are_repaired_where_managed_and_reported_by_name"),
    ("preserve-lb-on-delete", "golden case nlb/nlb-preserve"),
    ("backend-ip-version", "golden case nlb/nlb-backend-ipv6"),
    ("ignore-weight-update", "golden case nlb/nlb-ignore-weight"),
    ("graceful-shutdown", "plan::clb::tests::desired_state::terminating_pods_that_serve_can_stay_without_new_traffic"),
];

/// One whose value is seen as it is given, and stays when the annotation goes.
const fn kept(key: &'static str, at: &'static str, set: &'static str, changed: &'static str) -> Row {
    row(key, at, (set, set), (changed, changed), changed)
}

/// A switch that stays off when the annotation goes.
const fn switch(key: &'static str, at: &'static str) -> Row {
    row(key, at, ("on", "true"), ("off", "false"), "false")
}

const TLS: &[(u16, &str)] = &[(443, "TCP")];
const BY_TLS: (&str, &str) = ("protocol-port", "tcpssl:443");
const CERTIFICATE: (&str, &str) = ("cert-id", "cert-exam-1");

/// Addresses inside `/lb` are JSON pointers; `80` stands for `/lb/listeners/80~1<protocol>`.
pub(super) const SUBJECTS: &[Subject] = &[
    Subject {
        name: "instance",
        ports: TCP,
        base: &[],
        rows: &[
            kept("name", "/name", "one", "two"),
            row("additional-resource-tags", "tags", ("a=1,b=2", "a=1 b=2"), ("b=3", "b=3"), "b=3"),
            row("delete-protection", "/deletion_protection", ("off", "false"), ("on", "true"), "true"),
            row(
                "modification-protection",
                "/modification_protection",
                ("NonProtection", "NonProtection"),
                ("ConsoleProtection", "ConsoleProtection"),
                "ConsoleProtection",
            ),
            row("cross-zone-enabled", "/cross_zone", ("off", "false"), ("on", "true"), "true"),
            kept("security-group-ids", "/security_groups", "sg-exam-1", "sg-exam-2"),
            kept("bandwidth-package-id", "/bandwidth_package", "cbwp-exam-1", "cbwp-exam-2"),
            row("default-weight", "weights", ("50", "50 50 50 50"), ("0", "0 0 0 0"), "100 100 100 100"),
        ],
    },
    Subject {
        name: "address",
        ports: TCP,
        base: &[],
        rows: &[row("address-type", "/address_type", ("intranet", "Intranet"), ("internet", "Internet"), "Internet")],
    },
    Subject {
        name: "zoned",
        ports: TCP,
        base: &[],
        rows: &[row(
            "zone-maps",
            "zones",
            ("cn-hangzhou-i:vsw-exam-i,cn-hangzhou-j:vsw-exam-j", "vsw-exam-i vsw-exam-j"),
            ("cn-hangzhou-i:vsw-exam-i,cn-hangzhou-k:vsw-exam-k", "vsw-exam-i vsw-exam-k"),
            "vsw-exam-i vsw-exam-k",
        )],
    },
    Subject {
        name: "six",
        ports: TCP,
        base: &[("ip-version", "DualStack")],
        rows: &[row(
            "ipv6-address-type",
            "/ipv6_address_type",
            ("internet", "Internet"),
            ("intranet", "Intranet"),
            "Intranet",
        )],
    },
    // What is chosen at creation stays.
    Subject {
        name: "fixed",
        ports: TCP,
        base: &[],
        rows: &[
            row("ip-version", "/ip_version", ("DualStack", "DualStack"), ("ipv4", "DualStack"), "DualStack"),
            row(
                "resource-group-id",
                "/resource_group",
                ("rg-exam-1", "rg-exam-1"),
                ("rg-exam-2", "rg-exam-1"),
                "rg-exam-1",
            ),
        ],
    },
    Subject {
        name: "tcp",
        ports: TCP,
        base: &[],
        rows: &[
            kept("idle-timeout", "80/idle_timeout", "60", "120"),
            kept("cps", "80/cps", "100", "0"),
            switch("proxy-protocol", "80/proxy_protocol"),
        ],
    },
    Subject {
        name: "private-link",
        ports: TCP,
        base: &[("proxy-protocol", "on")],
        rows: &[
            switch("ppv2-pvl-ep-id-enabled", "80/ppv2/Ppv2PrivateLinkEpIdEnabled"),
            switch("ppv2-pvl-eps-id-enabled", "80/ppv2/Ppv2PrivateLinkEpsIdEnabled"),
            switch("ppv2-pvl-vpc-id-enabled", "80/ppv2/Ppv2VpcIdEnabled"),
        ],
    },
    Subject {
        name: "tls",
        ports: TLS,
        base: &[BY_TLS, CERTIFICATE, ("cacert-id", "ca-exam-1"), ("alpn-policy", "HTTP1Only")],
        rows: &[
            kept("tls-cipher-policy", "443/security_policy", "tls_cipher_policy_1_1", "tls_cipher_policy_1_2"),
            kept("additional-cert-ids", "443/additional_certificates", "cert-exam-2", "cert-exam-3"),
            switch("cacert", "443/ca_enabled"),
            switch("alpn", "443/alpn_enabled"),
        ],
    },
    Subject {
        name: "tls-values",
        ports: TLS,
        base: &[BY_TLS, ("cacert", "on"), ("alpn", "on")],
        rows: &[
            kept("cert-id", "443/certificates", "cert-exam-1", "cert-exam-2"),
            kept("cacert-id", "443/ca_certificates", "ca-exam-1", "ca-exam-2"),
            kept("alpn-policy", "443/alpn_policy", "HTTP1Only", "HTTP2Optional"),
        ],
    },
    Subject {
        name: "protocol",
        ports: TCP,
        base: &[CERTIFICATE],
        rows: &[row("protocol-port", "listeners", ("tcpssl:80", "80/TCPSSL"), ("udp:80", "80/UDP"), "80/TCP")],
    },
    Subject {
        name: "range",
        ports: TCP,
        base: &[(ONE, "eni")],
        rows: &[row(
            "listener-port-range",
            "listeners",
            ("80-90:80", "80-90/TCP"),
            ("80-95:80", "80-95/TCP"),
            "80/TCP",
        )],
    },
    Subject {
        name: "grouped",
        ports: TCP,
        base: &[],
        rows: &[
            kept("scheduler", "group/scheduler", "wlc", "rr"),
            switch("connection-drain", "group/drain_enabled"),
            kept("connection-drain-timeout", "group/drain_timeout", "20", "30"),
            row("preserve-client-ip", "group/preserve_client_ip", ("off", "false"), ("on", "true"), "true"),
        ],
    },
    Subject {
        name: "checked",
        ports: TCP,
        base: &[("health-check-flag", "on"), ("health-check-type", "http")],
        rows: &[
            kept("health-check-connect-port", "group/health/connect_port", "81", "82"),
            kept("healthy-threshold", "group/health/healthy", "4", "5"),
            kept("unhealthy-threshold", "group/health/unhealthy", "6", "7"),
            kept("health-check-connect-timeout", "group/health/timeout", "8", "9"),
            kept("health-check-interval", "group/health/interval", "10", "20"),
            kept("health-check-uri", "group/health/url", "/a", "/b"),
            kept("health-check-domain", "group/health/domain", "a.example.com", "$SERVER_IP"),
            kept("health-check-method", "group/health/method", "HEAD", "GET"),
            kept("health-check-httpcode", "group/health/codes", "http_2xx", "http_2xx,http_3xx"),
            kept("health-check-http-version", "http_version", "HTTP1.1", "HTTP1.0"),
        ],
    },
    Subject {
        name: "check-type",
        ports: TCP,
        base: &[("health-check-flag", "on")],
        rows: &[row("health-check-type", "group/health/kind", ("http", "HTTP"), ("tcp", "TCP"), "TCP")],
    },
    Subject {
        name: "check-flag",
        ports: TCP,
        base: &[],
        rows: &[row("health-check-flag", "group/health/enabled", ("off", "false"), ("on", "true"), "true")],
    },
    Subject {
        name: "by-address",
        ports: TCP,
        base: &[],
        rows: &[row("server-group-type", "group/kind", ("ip", "Ip"), ("instance", "Instance"), "Instance")],
    },
    Subject {
        name: "nodes",
        ports: TCP,
        base: &[],
        rows: &[row(
            "backend-label",
            "servers",
            ("color=blue", "i-d-1 i-d-2"),
            ("color=green", "i-d-3 i-d-6"),
            ALL_NODES,
        )],
    },
    Subject {
        name: "cordoned",
        ports: TCP,
        base: &[],
        rows: &[row(
            "remove-unscheduled-backend",
            "servers",
            ("on", "i-d-1 i-d-2 i-d-3"),
            ("off", ALL_NODES),
            ALL_NODES,
        )],
    },
    Subject {
        name: "pods",
        ports: TCP,
        base: &[],
        rows: &[row(ONE, "servers", ("eni", "eni-d-1 eni-d-2"), ("ecs", ALL_NODES), ALL_NODES)],
    },
    Subject {
        name: "shared",
        ports: TCP,
        base: &[("id", "nlb-user-1"), ("force-override-listeners", "true")],
        rows: &[row("vgroup-port", "80/server_group", ("sgp-own-3:80", "users-sgp-own-3"), ("", "own"), "own")],
    },
    Subject {
        name: "shared-weight",
        ports: TCP,
        base: &[("id", "nlb-user-2"), ("vgroup-port", "sgp-own-2:80")],
        rows: &[row("weight", "weights", ("60", "15 15 15 15"), ("0", "0 0 0 0"), "100 100 100 100")],
    },
];
