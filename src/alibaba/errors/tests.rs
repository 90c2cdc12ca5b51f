use proptest::prelude::*;

use super::message::MESSAGE_LIMIT;
use super::*;
use crate::alibaba::FaultKind::{Bug, Capacity, Exists, InUse, Quota, Transient};
use crate::alibaba::actions;

#[test]
fn each_class_of_codes_has_its_reaction() {
    let read = actions::DESCRIBE_LOAD_BALANCER.0;
    let create = actions::CREATE_LOAD_BALANCER.0;
    let delete = actions::DELETE_LOAD_BALANCER.0;
    let routes = actions::CREATE_ROUTE_ENTRIES.0;
    let cases: &[(&Action, u16, &str, FaultKind)] = &[
        (read, 400, "Throttling.User", Throttled),
        (read, 503, "Throttling.Api", Throttled),
        (create, 429, "", Throttled),
        (create, 503, "Throttling", Throttled),
        (read, 404, "InvalidAccessKeyId.NotFound", Credential),
        (read, 400, "InvalidSecurityToken.MismatchWithAccessKey", Credential),
        (read, 400, "SignatureDoesNotMatch", Credential),
        (read, 400, "InvalidTimeStamp.Expired", Credential),
        (read, 400, "IncompleteSignature", Bug),
        (read, 404, "InvalidLoadBalancerId.NotFound", Gone),
        (delete, 400, "invalidloadbalancerid.notfound", Gone),
        (actions::ADD_BACKENDS.0, 400, "ResourceNotFound.VServerGroup", Gone),
        (actions::CREATE_TCP_LISTENER.0, 400, "ResourceNotFound.VServerGroup", Rejected),
        (actions::DELETE_LISTENER.0, 404, "ResourceNotFound.Listener", Gone),
        (actions::DELETE_ROUTE_ENTRIES.0, 400, "InvalidRouteEntry.NotFound", Gone),
        (actions::DESCRIBE_VPC.0, 404, "InvalidVpcID.NotFound", Gone),
        (create, 404, "InvalidVSwitchId.NotFound", Rejected),
        (routes, 404, "InvalidNextHopId.NotFound", Rejected),
        (read, 404, "InvalidAction.NotFound", Rejected),
        (read, 404, "", Transient),
        (create, 403, "", Ambiguous),
        (delete, 404, "SomethingNew.NotFound", Rejected),
        (read, 500, "InternalError", Transient),
        (create, 500, "InternalError", Ambiguous),
        (create, 400, "CreateOrderTimeout", Ambiguous),
        (create, 400, "SystemBusy", Ambiguous),
        (create, 502, "", Ambiguous),
        (read, 504, "", Transient),
        (routes, 400, "TaskConflict", Busy),
        (routes, 400, "IncorrectVSwitchStatus", Busy),
        (actions::MODIFY_NETWORK_INTERFACE.0, 409, "InvalidOperation.Conflict", Busy),
        (actions::MODIFY_NETWORK_INTERFACE.0, 409, "SomethingNew", Busy),
        (create, 400, "OperationFailed.TokenIsProcessing", Busy),
        (actions::START_LISTENER.0, 400, "Operation.NotAllowed", Busy),
        (actions::SET_SPEC.0, 400, "Operation.NotAllowed", Rejected),
        (actions::SET_TCP_LISTENER.0, 400, "ServiceIsConfiguring", Busy),
        (actions::SET_TCP_LISTENER.0, 400, "InnerRateLimiting", Busy),
        (actions::REMOVE_SERVERS.0, 404, "ResourceNotFound.BackendServer", Gone),
        (actions::ADD_SERVERS.0, 404, "ResourceNotFound.BackendServer", Rejected),
        (create, 400, "LX_REQUEST_TOKEN_CONFLICT", Exists),
        (routes, 400, "InvalidCIDRBlock.Duplicate", Exists),
        (actions::ADD_ACCESS_ENTRIES.0, 400, "InvalidParam.AclEntryExists", Exists),
        (routes, 200, "VPC_ROUTE_ENTRY_CIDR_BLOCK_DUPLICATE", Exists),
        (routes, 200, "VPC_ROUTE_ENTRY_STATUS_ERROR", Busy),
        (actions::DELETE_ROUTE_ENTRIES.0, 200, "VPC_ROUTER_ENTRY_NOT_EXIST", Gone),
        (actions::DELETE_ROUTE_ENTRIES.0, 400, "InvalidRouteEntry", Rejected),
        (actions::DELETE_ROUTE_ENTRIES.0, 400, "Forbbiden", Rejected),
        (actions::CREATE_TCP_LISTENER.0, 400, "ListenerAlreadyExists", Exists),
        (actions::CREATE_DOMAIN_EXTENSION.0, 400, "InvalidParameter.Domain", Exists),
        (actions::DELETE_GROUP.0, 400, "RspoolVipExist", InUse),
        (actions::ADD_BACKENDS.0, 400, "InstanceBackendServerNumberOverLimit", Quota),
        (routes, 400, "QuotaExceeded", Quota),
        (create, 400, "VSwitchAvailableIpNotExist", Capacity),
        (create, 400, "ObtainIpFail", Capacity),
        (actions::CREATE_GROUP.0, 400, "ObtainIpFail", Rejected),
        (actions::ADD_BACKENDS.0, 400, "ObtainIpFail", Rejected),
        (actions::ADD_SERVERS.0, 400, "IncorrectStatus.Eni", Rejected),
        (actions::ADD_SERVERS.0, 400, "IncorrectStatus.serverGroup", Busy),
        (create, 400, "OperationFailed.ZoneResourceLimit", Capacity),
        (read, 403, "Forbidden.RAM", Denied),
        (read, 403, "NoPermission", Denied),
        (create, 400, "NoPermission.AliyunServiceRoleForSlb", Denied),
        (read, 401, "", Denied),
        (actions::ASSUME_ROLE.0, 404, "EntityNotExist.Role", Denied),
        (create, 400, "PAY.INSUFFICIENT_BALANCE", Rejected),
        (delete, 400, "OperationDenied.DeleteProtectionIsOn", Rejected),
        (create, 400, "InvalidParameter.VSwitchId\t", Rejected),
        (create, 400, "NeverSeenBefore", Rejected),
        (actions::DELETE_LISTENER.0, 400, "TooManyListeners", Bug),
    ];
    for (action, status, code, expected) in cases {
        assert_eq!(classify(action, *status, code, ""), *expected, "{} {status} {code}", action.name);
    }
}

#[test]
fn the_manual_explains_each_kind_of_fault() {
    let page = include_str!("../../../docs/reference/events.md");
    for kind in FaultKind::ALL {
        assert!(page.contains(&format!("\n| `{}` | ", kind.as_str())), "{kind:?}");
    }
}

#[test]
fn a_general_code_is_told_apart_by_its_message_only_where_that_is_documented() {
    let gone = "The specified VServerGroupId does not exist.";
    assert_eq!(classify(actions::ADD_BACKENDS.0, 400, "InvalidParameter", gone), Gone);
    assert_eq!(classify(actions::ADD_BACKENDS.0, 400, "InvalidParameter", "The parameter is not valid."), Rejected);
    assert_eq!(classify(actions::SET_NAME.0, 400, "X", "The specified LoadBalancerId does not exist."), Gone);
    assert_eq!(classify(actions::DESCRIBE_VPC.0, 400, "X", "The specified LoadBalancerId does not exist."), Rejected);
    let entry = "The specified route entry does not exist.";
    assert_eq!(classify(actions::DELETE_ROUTE_ENTRIES.0, 400, "InvalidRouteEntry", entry), Gone);
    let resource = "The specified resource does not exist.";
    assert_eq!(classify(actions::DELETE_LISTENER.0, 400, "X", resource), Gone);
    assert_eq!(classify(actions::CREATE_TCP_LISTENER.0, 400, "ServiceIsConfiguring", resource), Busy);
    assert_eq!(
        classify(actions::SET_NAME.0, 404, "InvalidAccessKeyId.NotFound", "The specified resource does not exist."),
        Credential
    );
}

#[test]
fn messages_lose_keys_tokens_and_the_text_that_was_signed() {
    let message = "Specified signature is not matched with our calculation. server string to sign is:POST&%2F&AccessKeyId%3DLTAI5tTest";
    let clean = without_secrets(message);
    assert!(clean.starts_with("Specified signature is not matched"), "{clean}");
    assert!(!clean.contains("LTAI") && !clean.contains("AccessKeyId"), "{clean}");
    let token = "CAIS8wF1q6Ft5B2yfSjIr5bAtKg2nY9XfVbR3J1mQx0kP7uZlWcTyHsDgEaNoBvM";
    let clean = without_secrets(&format!("token {token} of STS.NUxyz is wrong, key LTAI5tAbC"));
    assert_eq!(clean, "token <redacted> of <redacted> is wrong, key <redacted>");
    let plain =
        "The specified LoadBalancerId lb-bp1b6c719dfa08ex does not exist, see https://api.aliyun.com/troubleshoot";
    assert_eq!(without_secrets(plain), plain);
    assert_eq!(without_secrets(&"ä".repeat(1000)).chars().count(), MESSAGE_LIMIT + 3);
}

proptest! {
    #[test]
    fn any_answer_has_a_reaction_and_any_message_can_be_shown(
        status in 100_u16..600, code in ".{0,40}", message in ".{0,2000}"
    ) {
        for action in actions::ALL {
            let kind = classify(action, status, &code, &message);
            prop_assert!(kind != FaultKind::NotLeading);
            prop_assert!(action.writes || kind != Ambiguous, "a read has no fate");
        }
        prop_assert!(without_secrets(&message).chars().count() <= MESSAGE_LIMIT + 3);
    }

    #[test]
    fn key_ids_never_show(before in "[a-z ,:'\"]{0,20}", id in "[A-Za-z0-9]{12,24}", after in "[ ,:'\"].{0,20}") {
        for prefix in ["LTAI", "STS."] {
            let key = format!("{prefix}{id}");
            let shown = without_secrets(&format!("{before}{key}{after}"));
            prop_assert!(!shown.contains(&key), "{}", shown);
        }
    }
}
