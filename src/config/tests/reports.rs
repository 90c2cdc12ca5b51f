use expect_test::expect;

use super::super::*;
use super::*;

fn report(text: &str) -> String {
    bad(&source(text)).to_string()
}

#[test]
fn a_mistake_is_shown_with_its_line() {
    expect![[r#"
        error: cloud.cluster_id must be 1 to 64 letters, digits, '.', '_' and '-', not "a/b"
         --> /etc/ccm/ccm.toml:2:14
          |
        2 | cluster_id = "a/b"
          |              ^^^^^

        error: there is no key "regoin" in [cloud]
         --> /etc/ccm/ccm.toml:3:1
          |
        3 | regoin = <redacted>
          | ^^^^^^
          |
          = help: did you mean "region"?

        2 problems in the configuration"#]]
    .assert_eq(&report("[cloud]\ncluster_id = \"a/b\"\nregoin = \"cn-hangzhou\"\n"));
    expect![[r#"
        error: what is listed in cloud.vswitches must be text in quotes, not a whole number
         --> /etc/ccm/ccm.toml:3:23
          |
        3 | vswitches = ["vsw-1", 2,
          |                       ^

        error: what is listed in cloud.vswitches must be text in quotes, not true or false
         --> /etc/ccm/ccm.toml:4:26
          |
        4 |   "cn-hangzhou-i:vsw-2", true]
          |                          ^^^^

        2 problems in the configuration"#]]
    .assert_eq(&report(
        "[cloud]\ncluster_id = \"one\"\nvswitches = [\"vsw-1\", 2,\n  \"cn-hangzhou-i:vsw-2\", true]\n",
    ));
    expect![[r#"
        error: cloud.cluster_id is missing
         --> /etc/ccm/ccm.toml:1:2
          |
        1 | [cloud]
          |  ^^^^^
          |
          = help: set it to a name that no other cluster of the account has; a cluster that ran the official controller without clusterID has "clusterid"

        1 problem in the configuration"#]].assert_eq(&report("[cloud]\nregion = \"cn-hangzhou\"\n"));
    expect![[r#"
        error: cloud.cluster_id is missing
        --> /etc/ccm/ccm.toml
         = help: set it to a name that no other cluster of the account has; a cluster that ran the official controller without clusterID has "clusterid"

        1 problem in the configuration"#]].assert_eq(&report(""));
    expect![[r#"
        error: the file is not valid TOML: string values must be quoted, expected literal string
         --> /etc/ccm/ccm.toml:2:14
          |
        2 | cluster_id = one
          |              ^^^

        error: the file is not valid TOML: invalid basic string, expected `"`
         --> /etc/ccm/ccm.toml:3:13
          |
        3 | region = "cn
          |             ^

        error: the file is not valid TOML: duplicate key
         --> /etc/ccm/ccm.toml:4:1
          |
        4 | region = "cn-hangzhou"
          | ^^^^^^

        error: the file is not valid TOML: key with no value, expected `=`
         --> /etc/ccm/ccm.toml:5:1
          |
        5 | <redacted>
          | ^^^^^^^^^^

        4 problems in the configuration"#]]
    .assert_eq(&report("[cloud]\ncluster_id = one\nregion = \"cn\nregion = \"cn-hangzhou\"\nx\n"));
    expect![[r#"
        error: the file is not valid TOML: unclosed table, expected `]`
         --> /etc/ccm/ccm.toml:1:7
          |
        1 | [cloud
          |       ^

        1 problem in the configuration"#]]
    .assert_eq(&report("[cloud\ncluster_id = \"one\"\nregion = cn-hangzhou\n"));
}

#[test]
fn all_mistakes_are_shown_at_once() {
    expect![[r#"
        error: controllers names "ingress", which is not part of this program
         --> /etc/ccm/ccm.toml:2:24
          |
        2 | controllers = ["node", "ingress", "servise"]
          |                        ^^^^^^^^^
          |
          = help: leave it out; what runs here is "node", "route", "service", "nlb", "volume-labels", "pvtz", "*" or one of these after "-"

        error: controllers names the unknown controller "servise"; allowed are "node", "route", "service", "nlb", "volume-labels", "pvtz", "*" or one of these after "-"
         --> /etc/ccm/ccm.toml:2:35
          |
        2 | controllers = ["node", "ingress", "servise"]
          |                                   ^^^^^^^^^
          |
          = help: did you mean "service"?

        error: there is no key "region" at the top
         --> /etc/ccm/ccm.toml:3:1
          |
        3 | region = "cn-hangzhou"
          | ^^^^^^
          |
          = help: "region" belongs in [cloud]

        error: cloud.cluster_id must be text in quotes, not a whole number
         --> /etc/ccm/ccm.toml:6:14
          |
        6 | cluster_id = 7
          |              ^

        error: cloud.timeout: "soon" is not a length of time; write a number and a unit, such as "15s" or "1h30m"
         --> /etc/ccm/ccm.toml:7:11
          |
        7 | timeout = "soon"
          |           ^^^^^^

        error: cloud.budget_share must be a number above 0, at most 1, not 1.5
         --> /etc/ccm/ccm.toml:8:16
          |
        8 | budget_share = 1.5
          |                ^^^

        error: cloud.endpoints.network must be "vpc" or "public", not "vcp"
          --> /etc/ccm/ccm.toml:11:11
           |
        11 | network = "vcp"
           |           ^^^^^
           |
           = help: did you mean "vpc"?

        error: leader_election.renew_deadline does not fit: renew_deadline (20s) must be shorter than lease_duration (15s)
          --> /etc/ccm/ccm.toml:14:18
           |
        14 | renew_deadline = "20s"
           |                  ^^^^^

        error: server.port must be a whole number from 0 to 65535, not 123456
          --> /etc/ccm/ccm.toml:17:8
           |
        17 | port = 123456
           |        ^^^^^^

        error: route.cluster_cidrs lists 10.1.0.0/16, which overlaps 10.0.0.0/8
          --> /etc/ccm/ccm.toml:20:32
           |
        20 | cluster_cidrs = ["10.0.0.0/8", "10.1.0.0/16", "10.2.0.1/16"]
           |                                ^^^^^^^^^^^^^

        error: route.cluster_cidrs cannot be used: "10.2.0.1/16" has host bits set; the range is written "10.2.0.0/16"
          --> /etc/ccm/ccm.toml:20:47
           |
        20 | cluster_cidrs = ["10.0.0.0/8", "10.1.0.0/16", "10.2.0.1/16"]
           |                                               ^^^^^^^^^^^^^

        11 problems in the configuration"#]].assert_eq(&report(r#"
controllers = ["node", "ingress", "servise"]
region = "cn-hangzhou"

[cloud]
cluster_id = 7
timeout = "soon"
budget_share = 1.5

[cloud.endpoints]
network = "vcp"

[leader_election]
renew_deadline = "20s"

[server]
port = 123456

[route]
cluster_cidrs = ["10.0.0.0/8", "10.1.0.0/16", "10.2.0.1/16"]
"#));
}

#[test]
fn a_mistake_outside_of_the_file_names_its_place() {
    let environment = [
        ("ALICLOUD_CCM__ROUTE__PERIOD", "often"),
        ("ALICLOUD_CCM__CLOUD__REGOIN", "x"),
        ("ECS_ENDPOINT", "http://ecs:80"),
    ];
    let mut source = with_environment(&right("route.period = \"1m\""), &environment);
    source.overrides = vec!["node.batch_size=1000".to_owned(), "server.port".to_owned()];
    expect![[r#"
        error: there is no key "regoin" in [cloud]
        --> environment variable ALICLOUD_CCM__CLOUD__REGOIN
         = help: did you mean "region"?

        error: route.period: "often" is not a length of time; write a number and a unit, such as "15s" or "1h30m"
        --> environment variable ALICLOUD_CCM__ROUTE__PERIOD

        error: cloud.endpoints.ecs asks for plain HTTP with "http://ecs:80", but cloud.endpoints.scheme is "https"
        --> environment variable ECS_ENDPOINT
         = help: set cloud.endpoints.scheme to "http" if calls may really go unencrypted

        error: node.batch_size must be a whole number from 1 to 100, not 1000
        --> argument --set node.batch_size

        error: the argument does not name a key and a value
        --> argument --set number 2
         = help: write --set section.key=value

        5 problems in the configuration"#]]
    .assert_eq(&bad(&source).to_string());
    source.overrides.pop();
    expect![[r#"
        error: there is no key "regoin" in [cloud]
        --> environment variable ALICLOUD_CCM__CLOUD__REGOIN
         = help: did you mean "region"?

        error: route.period: "often" is not a length of time; write a number and a unit, such as "15s" or "1h30m"
        --> environment variable ALICLOUD_CCM__ROUTE__PERIOD

        error: cloud.endpoints.ecs asks for plain HTTP with "http://ecs:80", but cloud.endpoints.scheme is "https"
        --> environment variable ECS_ENDPOINT
         = help: set cloud.endpoints.scheme to "http" if calls may really go unencrypted

        error: node.batch_size must be a whole number from 1 to 100, not 1000
        --> argument --set node.batch_size

        4 problems in the configuration"#]]
    .assert_eq(&bad(&source).to_string());
}

#[test]
fn the_problems_are_also_there_for_programs() {
    let json = serde_json::to_string_pretty(bad(&source("[cloud]\n\ncluster_id = \"\"\nx = 1")).problems()).unwrap();
    expect![[r#"
        [
          {
            "message": "cloud.cluster_id must be 1 to 64 letters, digits, '.', '_' and '-', not \"\"",
            "key": "cloud.cluster_id",
            "file": "/etc/ccm/ccm.toml",
            "line": 3,
            "column": 14
          },
          {
            "message": "there is no key \"x\" in [cloud]",
            "key": "cloud.x",
            "file": "/etc/ccm/ccm.toml",
            "line": 4,
            "column": 1
          }
        ]"#]]
    .assert_eq(&json);
}

/// Every rule once: a line that breaks it, and what is said.
#[test]
fn every_rule_has_its_message() {
    let lines = [
        r#"cloud.region = "hangzhou""#,
        r#"cloud.region = "CN-Hangzhou""#,
        r#"cloud.vpc_id = "bp1""#,
        r#"cloud.zone_id = "i""#,
        r#"cloud.resource_group_id = """#,
        r#"cloud.vswitches = ["vsw-1", "x:vsw-1", "cn-hangzhou-i:vsw-1", "cn-i:"]"#,
        r#"cloud.cluster_tag = "acs:x""#,
        r#"cloud.timeout = "1h""#,
        r#"cloud.budget_share = 0"#,
        r#"cloud.quotas = { CreateLoadBalancers = 100, "*" = 0, DeleteLoadBalancer = 100001, Fly = 1 }"#,
        r#"cloud.endpoints.ecs = "http://localhost:80""#,
        r#"cloud.endpoints = { scheme = "http", slb = "https://slb" }"#,
        r#"cloud.endpoints.sts = "sts.example/path""#,
        r#"cloud.endpoints.vpc = "vpc:99999""#,
        r#"cloud.endpoints.metadata = "ftp://x""#,
        r#"cloud.endpoints.scheme = "HTTP""#,
        r#"kubernetes.server = "10.0.0.1:6443""#,
        r#"kubernetes.context = " ""#,
        r#"kubernetes.qps = -1.0"#,
        r#"kubernetes.burst = 0"#,
        r#"traces.endpoint = "otel-collector:4318""#,
        r#"traces.endpoint = "http://me@otel-collector:4318""#,
        r#"traces.sample_ratio = 0"#,
        r#"traces.headers = { "a b" = "x", Host = "x", authorization = "hush\nhush", tenant = 5 }"#,
        r#"leader_election.lease_duration = "15500ms""#,
        r#"leader_election.lease_duration = "10s""#,
        r#"leader_election = { renew_deadline = "12s", retry_period = "10s" }"#,
        r#"leader_election = { lease_duration = "8s", renew_deadline = "5s" }"#,
        r#"leader_election = { lease_duration = "0s", retry_period = "1ms" }"#,
        r#"leader_election = { namespace = "Kube", name = "-" }"#,
        r#"leader_election.identity = """#,
        r#"server.address = "localhost""#,
        r#"server.port = -1"#,
        r#"server.port = 80.5"#,
        r#"log.format = "jsn""#,
        r#"log.level = "inof""#,
        r#"log.level = "info,a=loud""#,
        r#"node.period = 5"#,
        r#"node.batch_size = 0"#,
        r#"node.discover = "yes""#,
        r#"node.removal_grace = "0s""#,
        r#"route.table_ids = ["vtb-1", "vtb-1", "rtb-2"]"#,
        r#"route.cluster_cidrs = ["10.0.0.0/8", "10.0.0.0/8", "0.0.0.0/0", "pods"]"#,
        r#"route.cluster_cidrs = "10.0.0.0/8""#,
        r#"route = 1"#,
        r#"service.drift_check = "1s""#,
        r#"service.defaults.spec = "small""#,
        r#"service.defaults.bandwidth = 6000"#,
        r#"service.defaults.bandwidth = 100"#,
        r#"service.defaults.slave_zone = "cn-hangzhou-h""#,
        r#"service.defaults = { master_zone = "cn-hangzhou-h", slave_zone = "cn-hangzhou-h" }"#,
        r#"service.defaults.instance_charge_type = "paybyclcu""#,
        r#"service.defaults.tags = { "acs:x" = "1", "ack.aliyun.com" = "2", team = "https://x" }"#,
        r#"service.defaults.tags = { team = 1 }"#,
        r#"controllers = ["-route"]"#,
        r#"controllers = ["node", "-cloud-node"]"#,
        r#"controllers = ["*", "-cloud-node-lifecycle"]"#,
        r#"controllers = ["node", "node"]"#,
        r#"controllers = "node""#,
        r#"log.level = 1979-05-27"#,
        r#"cloud.vswitches = ["a", 1979-05-27, 3]"#,
        r#"service.concurrency = 99999999999999999999"#,
        r#"[[server]]"#,
        r#"server = ["127.0.0.1", 80]"#,
        r#"cloud.endpoints.network = { vpc = 1 }"#,
        r#"service.defaults.scheduler = ["rr"]"#,
        r#"kubernetes.burst = 1e3"#,
        r#"kubernetes.qps = nan"#,
        r#"cloud.credentials.access_key_id = "LTAI1""#,
        r#"cloud.credentials.role_arn = "acs:ram::1:role/x""#,
        r#"cloud.credentials = { role_arn = "role/x", access_key_id = "a", access_key_secret = "b c" }"#,
        r#"cloud.credentials = { access_key_id = "a", access_key_secret = "b", instance_role = "c", oidc_token_file = "t" }"#,
        r#"cloud.credentials = { oidc_token_file = "t", duration = "1m", role_session_name = "/" }"#,
        r#"cloud.credentials = { access_key_id_file = "id", access_key_secret = "b", access_key_secret_file = "s" }"#,
    ];
    let told: Vec<String> = lines.iter().map(|line| format!("{line}\n{}\n", messages(&source(&right(line))))).collect();
    expect![[r###"
cloud.region = "hangzhou"
cloud.region must be a region such as "cn-hangzhou", not "hangzhou"

cloud.region = "CN-Hangzhou"
cloud.region must be a region such as "cn-hangzhou", not "CN-Hangzhou"

cloud.vpc_id = "bp1"
cloud.vpc_id must be an id such as "vpc-bp1example", not "bp1"

cloud.zone_id = "i"
cloud.zone_id must be a zone such as "cn-hangzhou-i", not "i"

cloud.resource_group_id = ""
cloud.resource_group_id must be an id such as "rg-bp1example", not ""

cloud.vswitches = ["vsw-1", "x:vsw-1", "cn-hangzhou-i:vsw-1", "cn-i:"]
cloud.vswitches must list "vsw-..." or "zone:vsw-...", not "x:vsw-1"
cloud.vswitches lists "vsw-1" twice
cloud.vswitches must list "vsw-..." or "zone:vsw-...", not "cn-i:"

cloud.cluster_tag = "acs:x"
cloud.cluster_tag must be the key of a tag: 1 to 64 characters, without "aliyun" or "acs:" at its start and without a URL, not "acs:x"

cloud.timeout = "1h"
cloud.timeout must be from 1s to 5m, not 1h

cloud.budget_share = 0
cloud.budget_share must be a number above 0, at most 1, not 0

cloud.quotas = { CreateLoadBalancers = 100, "*" = 0, DeleteLoadBalancer = 100001, Fly = 1 }
cloud.quotas: no action "CreateLoadBalancers" is called; did you mean "CreateLoadBalancer"?
cloud.quotas: "*" must be from 1 to 100000 calls a minute, not 0
cloud.quotas: "DeleteLoadBalancer" must be from 1 to 100000 calls a minute, not 100001
cloud.quotas: no action "Fly" is called; allowed are "*" and the actions that are called, such as "CreateLoadBalancer"

cloud.endpoints.ecs = "http://localhost:80"
cloud.endpoints.ecs asks for plain HTTP with "http://localhost:80", but cloud.endpoints.scheme is "https" (set cloud.endpoints.scheme to "http" if calls may really go unencrypted)

cloud.endpoints = { scheme = "http", slb = "https://slb" }
cloud.endpoints.slb asks for HTTPS with "https://slb", but cloud.endpoints.scheme is "http"

cloud.endpoints.sts = "sts.example/path"
cloud.endpoints.sts must be a host, or host:port, not "sts.example/path"

cloud.endpoints.vpc = "vpc:99999"
cloud.endpoints.vpc must be a host, or host:port, not "vpc:99999"

cloud.endpoints.metadata = "ftp://x"
cloud.endpoints.metadata must be a URL such as "http://100.100.100.200", not "ftp://x"

cloud.endpoints.scheme = "HTTP"
cloud.endpoints.scheme must be "https" or "http", not "HTTP" (did you mean "http"?)

kubernetes.server = "10.0.0.1:6443"
kubernetes.server must be a URL such as "https://10.0.0.1:6443", not "10.0.0.1:6443"

kubernetes.context = " "
kubernetes.context must be a name that is not empty, or left out to have its default, not " "

kubernetes.qps = -1.0
kubernetes.qps must be a number above 0, at most 10000, not -1

kubernetes.burst = 0
kubernetes.burst must be a whole number from 1 to 10000, not 0

traces.endpoint = "otel-collector:4318"
traces.endpoint must be a URL such as "http://127.0.0.1:4318", not "otel-collector:4318"

traces.endpoint = "http://me@otel-collector:4318"
traces.endpoint must be a URL such as "http://127.0.0.1:4318", not "http://"...

traces.sample_ratio = 0
traces.sample_ratio must be a number above 0, at most 1, not 0

traces.headers = { "a b" = "x", Host = "x", authorization = "hush\nhush", tenant = 5 }
traces.headers: "a b" cannot be the name of a header
traces.headers: the header "Host" is set by this program
traces.headers: the value of "authorization" has characters that no header may have
traces.headers.tenant must be text in quotes, not a whole number

leader_election.lease_duration = "15500ms"
leader_election.lease_duration must be whole seconds, not 15s500ms

leader_election.lease_duration = "10s"
leader_election.lease_duration does not fit: renew_deadline (10s) must be shorter than lease_duration (10s)

leader_election = { renew_deadline = "12s", retry_period = "10s" }
leader_election.retry_period does not fit: renew_deadline (12s) must be more than 1.2 times retry_period (10s)

leader_election = { lease_duration = "8s", renew_deadline = "5s" }
leader_election.lease_duration does not fit: with a retry_period of 2s, lease_duration must be at least 9s, or there is no time to write between renewals; it is 8s

leader_election = { lease_duration = "0s", retry_period = "1ms" }
leader_election.lease_duration must be from 1s to 1h, not 0s
leader_election.retry_period must be from 100ms to 1h, not 1ms

leader_election = { namespace = "Kube", name = "-" }
leader_election.namespace must be the name of an object: lower case letters, digits and '-', not "Kube"
leader_election.name must be the name of an object: lower case letters, digits, '-' and '.', not "-"

leader_election.identity = ""
leader_election.identity must be a name that is not empty, or left out to have its default, not ""

server.address = "localhost"
server.address must be an IP address in quotes, not "localhost"

server.port = -1
server.port must be a whole number from 0 to 65535, not -1

server.port = 80.5
server.port must be a whole number from 0 to 65535, not a decimal number

log.format = "jsn"
log.format must be "text" or "json", not "jsn" (did you mean "json"?)

log.level = "inof"
log.level has no level "inof"; allowed are error, warn, info, debug, trace and off (did you mean "info"?)

log.level = "info,a=loud"
log.level must be a level or "level,part=level", not "info,a=loud"

node.period = 5
node.period must be a length of time such as "15s" or "1h30m", not a whole number

node.batch_size = 0
node.batch_size must be a whole number from 1 to 100, not 0

node.discover = "yes"
node.discover must be true or false, not text

node.removal_grace = "0s"
node.removal_grace must be from 10s to 24h, not 0s

route.table_ids = ["vtb-1", "vtb-1", "rtb-2"]
route.table_ids lists "vtb-1" twice
what is listed in route.table_ids must be an id such as "vtb-bp1example", not "rtb-2"

route.cluster_cidrs = ["10.0.0.0/8", "10.0.0.0/8", "0.0.0.0/0", "pods"]
route.cluster_cidrs lists 10.0.0.0/8 twice
route.cluster_cidrs must be the pod network, not every address (0.0.0.0/0)
route.cluster_cidrs cannot be used: "pods" is not a CIDR; write an address and a length, such as "10.0.0.0/16"

route.cluster_cidrs = "10.0.0.0/8"
route.cluster_cidrs must be a list, not text

route = 1
route must be a table, not a whole number

service.drift_check = "1s"
service.drift_check must be from 1m to 24h, not 1s

service.defaults.spec = "small"
service.defaults.spec must be a specification such as "slb.s1.small", not "small"

service.defaults.bandwidth = 6000
service.defaults.bandwidth must be a whole number from 1 to 5120, not 6000

service.defaults.bandwidth = 100
service.defaults.bandwidth has no effect without internet_charge_type = "paybybandwidth" (set internet_charge_type to "paybybandwidth", or leave bandwidth out)

service.defaults.slave_zone = "cn-hangzhou-h"
service.defaults.slave_zone needs master_zone

service.defaults = { master_zone = "cn-hangzhou-h", slave_zone = "cn-hangzhou-h" }
service.defaults.slave_zone must differ from master_zone

service.defaults.instance_charge_type = "paybyclcu"
service.defaults.instance_charge_type must be "PayByCLCU" or "PayBySpec", not "paybyclcu" (did you mean "PayByCLCU"?)

service.defaults.tags = { "acs:x" = "1", "ack.aliyun.com" = "2", team = "https://x" }
service.defaults.tags: a tag's key has 1 to 64 characters, without "aliyun" or "acs:" at its start and without a URL, not "acs:x"
service.defaults.tags: the tag "ack.aliyun.com" marks owners and cannot be set
service.defaults.tags: a tag's value has up to 128 characters and no URL, not "https://x"

service.defaults.tags = { team = 1 }
service.defaults.tags.team must be text in quotes, not a whole number

controllers = ["-route"]
controllers only leaves controllers out (put "*" first to have all the others)

controllers = ["node", "-cloud-node"]
controllers says both yes and no to "node"

controllers = ["*", "-cloud-node-lifecycle"]
controllers cannot leave out "cloud-node-lifecycle" alone: it is part of "node" (set node.remove_released and node.shutdown_taint to false, or leave out "node" as a whole)

controllers = ["node", "node"]
controllers names "node" twice

controllers = "node"
controllers must be a list, not text

log.level = 1979-05-27
log.level: no key takes a date

cloud.vswitches = ["a", 1979-05-27, 3]
cloud.vswitches.1: no key takes a date
what is listed in cloud.vswitches must be text in quotes, not a whole number

service.concurrency = 99999999999999999999
service.concurrency: the number is too large

[[server]]
server must be a table, not a list

server = ["127.0.0.1", 80]
server must be a table, not a list

cloud.endpoints.network = { vpc = 1 }
cloud.endpoints.network must be "vpc" or "public", not a table

service.defaults.scheduler = ["rr"]
service.defaults.scheduler must be "rr", "wrr", "wlc", "sch", "tch" or "qch", not a list

kubernetes.burst = 1e3
kubernetes.burst must be a whole number from 1 to 10000, not a decimal number

kubernetes.qps = nan
kubernetes.qps must be a number above 0, at most 10000, not NaN

cloud.credentials.access_key_id = "LTAI1"
cloud.credentials.access_key_secret is missing (an access key needs both its id and its secret)

cloud.credentials.role_arn = "acs:ram::1:role/x"
cloud.credentials.role_arn needs an identity that assumes the role (add access_key_id and access_key_secret, or oidc_provider_arn and oidc_token_file; a role of this instance is named with instance_role)

cloud.credentials = { role_arn = "role/x", access_key_id = "a", access_key_secret = "b c" }
cloud.credentials.role_arn must be "acs:ram::<account>:role/<name>", not "role/x"
cloud.credentials.access_key_secret has spaces or line breaks inside, which a key never has

cloud.credentials = { access_key_id = "a", access_key_secret = "b", instance_role = "c", oidc_token_file = "t" }
cloud.credentials.instance_role cannot be used together with an access key (state one kind of credentials: a key pair, an OIDC role, or the role of this instance)
cloud.credentials.oidc_token_file cannot be used together with an access key (state one kind of credentials: a key pair, an OIDC role, or the role of this instance)

cloud.credentials = { oidc_token_file = "t", duration = "1m", role_session_name = "/" }
cloud.credentials.role_arn is missing (an OIDC role needs role_arn, oidc_provider_arn and oidc_token_file)
cloud.credentials.oidc_provider_arn is missing (an OIDC role needs role_arn, oidc_provider_arn and oidc_token_file)
cloud.credentials.duration must be from 15m to 12h, not 1m
cloud.credentials.role_session_name must be 2 to 64 letters, digits, '.', '@', '-' and '_', not "/"

cloud.credentials = { access_key_id_file = "id", access_key_secret = "b", access_key_secret_file = "s" }
cloud.credentials.access_key_id_file names /etc/ccm/id, which has not been read
cloud.credentials.access_key_secret_file cannot be used together with the key of the same name without "_file"
"###]].assert_eq(&told.join("\n"));
}

#[test]
fn a_secret_is_in_no_report() {
    const HUSH: &str = "hunter2hunter2";
    let texts = [
        "[cloud.credentials]\naccess_key_secret = \"hunter2hunter2",
        "[cloud.credentials]\naccess_key_secret = hunter2hunter2",
        "[cloud.credentials]\naccess_key_secret = \"hunter2hunter2\" x",
        "[cloud.credentials]\naccess_key_secert = \"hunter2hunter2\"",
        "[cloud.credentials]\naccess_key_secret = [\"hunter2hunter2\"]",
        "[cloud.credentials]\naccess_key_secret = { x = \"hunter2hunter2\" }",
        "[cloud.credentials]\naccess_key_secret = \"hunter2hunter2 \"",
        "[cloud.credentials]\naccess_key_secret = \"hunter2hunter2\"",
        "[cloud.credentials]\naccess_key_secret = \"hunter2hunter2\"\naccess_key_secret = \"hunter2hunter2\"",
        "[cloud]\naccess_key_secret = \"hunter2hunter2\"",
        "[cloud]\ncredentials = \"hunter2hunter2\"",
        "[cloud.credentials]\nsecurity_token = \"hunter2hunter2\"\n[cloud]\nregion = \"hunter2hunter2\"",
        "[cloud.credentials]\nsecurity_token = \"hunter2hunter2\"\nrole_arn = \"hunter2hunter2\"",
        "[cloud.credentials]\nsecurity_token = \"hunter2hunter2\"\nhunter2hunter2 = 1",
        "cloud = { credentials = { access_key_secret = \"hunter2hunter2\", x = 1 } }",
        "[kubernetes]\nserver = \"https://me:hunter2hunter2@host\"",
        "[cloud.endpoints]\necs = \"http://me:hunter2hunter2@host\"",
        "[cloud.credentials]\naccess_key_secret: hunter2hunter2",
        "[traces]\nheaders = { authorization = \"hunter2hunter2\", region = \"a\\nhunter2hunter2\" }",
        "[traces]\nheaders.region = \"hunter2hunter2\"\nendpoint = \"hunter2hunter2\"",
        "[traces.headers]\nregion = \"\\nhunter2hunter2\"",
        "[traces.headers]\n\"region level\" = \"hunter2hunter2\"",
        "[traces]\nheader = { authorization = \"hunter2hunter2\" }",
        "[traces]\nheaders = [\"authorization=hunter2hunter2\"]",
        "[traces]\nheaders = \"authorization=hunter2hunter2\"",
        "[cloud.credentials]\naccess_key_secret = \"\"\"\nhunter2hunter2\n\"\"\"",
        "[cloud.credentials]\naccess_key_secret = \"\"\"\nhunter2hunter2\n\"\" \u{1}",
    ];
    for text in texts {
        let report = bad(&source(text));
        let seen = format!("{report} {report:?} {}", serde_json::to_string(report.problems()).unwrap());
        assert!(!seen.contains(HUSH), "{text:?} gives {seen}");
    }
    let outside = with_environment(
        "",
        &[
            ("ALICLOUD_CCM__CLOUD__CREDENTIALS__ACCESS_KEY_SECRET", HUSH),
            ("ALICLOUD_CCM__CLOUD__REGION", HUSH),
            ("ALICLOUD_CCM__TRACES__HEADERS__authorization", "\nhunter2hunter2"),
        ],
    );
    let mut outside =
        ConfigSource { overrides: vec!["cloud.credentials.security_token hunter2hunter2".to_owned()], ..outside };
    assert!(!bad(&outside).to_string().contains(HUSH));
    outside.overrides = vec![format!("cloud.credentials.security_tokn={HUSH}"), format!("server.port={HUSH}")];
    assert!(!format!("{} {outside:?}", bad(&outside)).contains(HUSH));
}

#[test]
fn a_secret_is_not_in_the_configuration_as_it_is_served() {
    let config = good(&source(&right(
        "cloud.credentials = { access_key_id = \"A\", access_key_secret = \"hush\", security_token = \"hist\" }\n\
         traces = { endpoint = \"http://collector\", headers = { authorization = \"hush\" } }",
    )));
    let seen = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
    assert!(!seen.contains("hush") && !seen.contains("hist"), "{seen}");
}

#[test]
fn a_file_full_of_mistakes_is_not_read_out_to_the_end() {
    let text: String = (0..5000).map(|number| format!("key{number} = 1\n")).collect();
    let report = bad(&source(&text));
    assert_eq!(report.problems().len(), 100);
    let list = format!("route.cluster_cidrs = [{}]", "\"10.0.0.0/8\",".repeat(5000));
    assert_eq!(messages(&source(&right(&list))), "route.cluster_cidrs may list 100 at most, not 5000");
    assert!(report.to_string().ends_with("these are the first 100 problems in the configuration"));
}
